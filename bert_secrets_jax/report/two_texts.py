"""Two texts side by side: the pairs of tokens that make them alike, the heads that set them apart.

Shapes: T and S tokens of the two texts, L layers, N heads.
"""

import numpy as np

from bert_secrets_jax.ablation.embeddings import embed
from bert_secrets_jax.ablation.patched_metrics import Metric, cosine, intact_answers
from bert_secrets_jax.ablation.patching import DIRECTIONS, as_read, patch
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.contributions.token_pairs import paired_tokens
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.model.config import EMBEDDING
from bert_secrets_jax.model.weights import Pretrained, with_pooling
from bert_secrets_jax.names import visible
from bert_secrets_jax.report.templates import Fields

# Lines between more tokens cannot be told apart.
_MOST_TOKENS = 48
# The error of contributions is then far below the digits that are shown.
_STEPS = 16


def two_texts(pretrained: Pretrained, text_a: str, text_b: str, *, max_length: int = 128) -> Fields:
    """Return what a page shows of two texts, as JSON has it.

    Args:
      pretrained: An encoder of texts, or a classifier.
      max_length: The greatest number of tokens. Longer texts are cut.

    Returns:
      `tokens` of both texts; `cut`, the length at which one was cut, or 0; `shape` [L, N];
      `unpaired` and `unpatched`, why there are no lines and why heads cannot be patched, or ''; and
      `pairs`, None or the numbers of `bs.paired_tokens`: `similarity`, `reference`, and [T, S]
      `contributions` and `interactions`, which are None for special tokens.

    Raises:
      ValueError: The model neither pools nor classifies, or has lost heads.
      FloatingPointError: An embedding is NaN or infinite.
    """
    model, compute = _reader(pretrained, max_length)
    config, unpaired, unpatched, pairs = model.config, '', '', None
    texts = as_read(model, [text_a, text_b])
    encoded = tokenize(model.tokenizer, texts, max_length=compute.max_length)
    ids, (long_a, long_b) = encoded.input_ids.tolist(), encoded.lengths.tolist()
    convert, longer = encoded.tokenizer.convert_ids_to_tokens, max(long_a, long_b)
    if config.head != EMBEDDING:
        unpaired = (
            'Lines need a model that pools tokens into one embedding of a text, as those of '
            'sentence-transformers do. This one is a classifier.'
        )
    elif longer > _MOST_TOKENS:
        unpaired = (
            f'Lines are drawn for texts of at most {_MOST_TOKENS} tokens each. A has {long_a}, and '
            f'B has {long_b}: make them shorter.'
        )
    else:
        (found,) = paired_tokens(model, [(text_a, text_b)], steps=_STEPS, compute=compute)
        alone = found.interactions
        pairs = {
            'similarity': found.similarity,
            'reference': found.reference,
            'contributions': found.contributions.tolist(),
            'interactions': np.where(np.isnan(alone), np.array(None), alone).tolist(),
        }
    if long_a != long_b:
        unpatched = (
            f'A has {long_a} tokens, and B has {long_b}. A head of one text is put into the other '
            'token by token, so both need the same number. Change words until the counts agree.'
        )
    tokens = convert(ids[0][:long_a]), convert(ids[1][:long_b])
    return {
        'tokens': [list(map(visible, each)) for each in tokens],
        'cut': compute.max_length if any(encoded.cut) else 0,
        'shape': [config.num_hidden_layers, config.num_attention_heads],
        'unpaired': unpaired,
        'unpatched': unpatched,
        'pairs': pairs,
    }


def patched_heads(
    pretrained: Pretrained, text_a: str, text_b: str, *, max_length: int = 128
) -> Fields:
    """Return the exact effect of each head of one text in the run on the other, as JSON has it.

    Args:
      pretrained, text_a, text_b, max_length: As in `two_texts`.

    Returns:
      The numbers of `bs.patch`, with A as the clean text: `metric` in words, `clean` and
      `corrupted`, and `denoising` and `noising` [L, N].

    Raises:
      ValueError: As in `two_texts`; or the texts have different numbers of tokens.
      FloatingPointError: The metric is NaN or infinite.
    """
    model, compute = _reader(pretrained, max_length)
    config, answers = model.config, None
    if config.head == EMBEDDING:
        towards = embed(model, [text_a], normalised=True, compute=compute)
        name = 'cosine with A'
        metric = Metric(name, cosine, {'towards': towards})
    elif config.num_labels == 1:
        metric, name = 'logit', 'predicted value'
    else:
        encoded = tokenize(model.tokenizer, [text_a], max_length=compute.max_length)
        answers = intact_answers(model, encoded, compute).predictions[0].tolist()
        metric, name = 'margin', f'margin of “{visible(config.label_names[answers[0]])}”'
    found = patch(model, [text_a], [text_b], metric=metric, answers=answers, compute=compute)
    kept = 'clean', 'corrupted', *DIRECTIONS
    return {'metric': name, **{each: getattr(found, each)[0].tolist() for each in kept}}


def _reader(pretrained: Pretrained, max_length: int) -> tuple[Pretrained, Compute]:
    """Return the classifier, or the encoder with the embedding as its output, and the limits."""
    config = pretrained.config
    if config.labels_inputs:
        return pretrained, Compute(max_length=max_length).within(config)
    if config.pooling is None or config.pooling.refused:
        raise ValueError(
            f'The model ({config.summary}) neither pools texts nor classifies them. Choose one of '
            'sentence-transformers, or one that is fine-tuned as a classifier.'
        )
    return with_pooling(pretrained), Compute(max_length=max_length).within(config)
