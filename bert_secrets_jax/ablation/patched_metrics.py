"""The numbers that activation patching measures, made of the output of the model for each text.

Axes are those of `patching`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bert_secrets_jax.ablation import masks
from bert_secrets_jax.ablation.sweep import Swept, sweep
from bert_secrets_jax.checks import check_lengths, check_name, check_rules
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.encoding import Encoded, bucket
from bert_secrets_jax.model.bert import BertOutput
from bert_secrets_jax.model.config import EMBEDDING, MASKED_LM, SEQUENCES
from bert_secrets_jax.model.heads import unit_length
from bert_secrets_jax.model.weights import Pretrained

METRICS = ('logit', 'margin', 'probability', 'closeness')
Given = Mapping[str, Any]
Reads = Callable[[BertOutput, Given], Array]


@dataclasses.dataclass(frozen=True, eq=False)
class Metric:
    """A number of each text, made of the output of the model.

    Attributes:
      name: The name for readers, such as 'margin'.
      reads: Returns the numbers [B] from a `BertOutput` and the rows of `given`; it is compiled.
      given: Arrays [E, ...] by name, with a row for each pair. To the rows of a call are added
        `input_ids` and `attention_mask` [B, T] of the text that is run.
      at_token: A wordpiece at whose first place alone the head is run, which spares a masked LM
        most of its work: `logits` are then [B, 1, C], and `pooled` is void.
    """

    name: str
    reads: Reads
    given: Given = dataclasses.field(default_factory=dict)
    at_token: int | None = None


# A metric as a person may give it.
AnyMetric = str | Metric | Callable[[BertOutput], Array] | None


@dataclasses.dataclass(frozen=True)
class _OfOutput:
    """One's own function of the output, as `Metric` calls it; equal for the same function."""

    function: Callable[[BertOutput], Array]

    def __call__(self, output: BertOutput, given: Given) -> Array:
        return self.function(output)


def _logits(output: BertOutput, given: Given) -> tuple[Array, Array, Array]:
    """Return the logits [B, C], whether each is the answer's, and that of the answer [B]."""
    assert output.logits is not None
    logits = output.logits.reshape(len(output.logits), -1)
    is_answer = jax.nn.one_hot(given['answer'], logits.shape[-1], dtype=bool)
    return logits, is_answer, jnp.where(is_answer, logits, 0).sum(axis=-1)


def _logit(output: BertOutput, given: Given) -> Array:
    return _logits(output, given)[2]


def _margin(output: BertOutput, given: Given) -> Array:
    logits, is_answer, own = _logits(output, given)
    if 'other' in given:
        return own - _logit(output, {'answer': given['other']})
    return own - jnp.where(is_answer, -jnp.inf, logits).max(axis=-1)


def _probability(output: BertOutput, given: Given) -> Array:
    logits, _, own = _logits(output, given)
    return jnp.exp(own - jax.nn.logsumexp(logits, axis=-1))


def cosine(output: BertOutput, given: Given) -> Array:
    """Return the products [B] of embeddings of unit length with the vectors `towards` [B, D]."""
    assert output.logits is not None
    return (unit_length(output.logits) * given['towards']).sum(axis=-1)


_READS: Mapping[str, Reads] = {'logit': _logit, 'margin': _margin, 'probability': _probability}


def metric_of(pretrained: Pretrained, metric, answers, encoded, compute: Compute) -> Metric:
    """Return the metric that is meant, and refuse one that the model or the answers do not fit."""
    config, count = pretrained.config, len(encoded[0].lengths)
    if metric is None:
        of_value = config.head == SEQUENCES and config.num_labels == 1
        metric = 'closeness' if config.head == EMBEDDING else 'logit' if of_value else 'margin'
    if not isinstance(metric, str):
        if answers is not None:
            raise ValueError(f'answers go with the metrics {METRICS}, not with a function.')
        return Metric(getattr(metric, '__name__', 'metric'), _OfOutput(metric))
    check_name('metric', metric, METRICS)
    if answers is not None:
        check_lengths(answers=answers, pairs=encoded[0].lengths)
    if metric == 'closeness' or config.head == EMBEDDING:
        if metric != 'closeness' or config.head != EMBEDDING or answers is not None:
            raise ValueError(
                f"Leave out {metric=} and answers: 'closeness' is for embeddings, which have no "
                f'other metric (bs.with_pooling), and the model is {config.summary}.'
            )
        clean, corrupted = (intact_answers(pretrained, each, compute).logits[0] for each in encoded)
        towards = unit_length(jnp.asarray(clean)) - unit_length(jnp.asarray(corrupted))
        return Metric(metric, cosine, {'towards': np.asarray(towards)})
    if config.head == MASKED_LM:
        given, mask = _words(pretrained.tokenizer, answers, encoded)
        return Metric(metric, _READS[metric], given, mask)
    check_rules(
        (
            config.head != SEQUENCES or not config.has_head or config.multi_label,
            f'{metric=} is of a classifier of whole texts, one class each, or of a masked LM, and '
            f'the model ({config.summary}) is neither: give a function of its output.',
        ),
        (
            config.num_labels == 1 and metric != 'logit',
            f"A regression has no {metric}: give metric='logit', its value.",
        ),
    )
    names = list(config.label_names)
    if config.num_labels == 1:
        answers = np.zeros(count, int)
    elif answers is None:
        answers = intact_answers(pretrained, encoded[0], compute).predictions[0]
    numbers = [names.index(each) if each in names else each for each in answers]
    for each in numbers:
        if not isinstance(each, int | np.integer) or not 0 <= each < config.num_labels:
            raise ValueError(f'The answer {each!r} is no class of the model: it has {names}.')
    return Metric(metric, _READS[metric], {'answer': np.array(numbers, np.int32)})


def intact_answers(pretrained: Pretrained, encoded: Encoded, compute: Compute) -> Swept:
    """Return the answers of a model with all heads; the only mask comes first."""
    batches = bucket(encoded, **compute.encoding)
    return sweep(pretrained, batches, masks.none(pretrained.config), mesh=compute.mesh)


def _words(tokenizer, answers, encoded) -> tuple[Given, int]:
    """Return the numbers of good and bad words, and that of [MASK], of which each text has one."""
    if answers is None:
        raise ValueError('A masked LM needs answers: for each pair a good and a bad word.')
    mask = tokenizer.mask_token_id
    for each in encoded:
        for pair in np.flatnonzero((each.input_ids == mask).sum(axis=1) != 1):
            raise ValueError(
                f'Both texts of pair {pair + 1} must have one {tokenizer.mask_token}, in the place '
                'of the word that the masked LM is asked for.'
            )
    pieces = []
    for pair, words in enumerate(answers):
        found = [tokenizer(word, add_special_tokens=False)['input_ids'] for word in words]
        if [len(each) for each in found] != [1, 1] or isinstance(words, str):
            raise ValueError(
                f'The answers of pair {pair + 1} are {words!r}: give a good and a bad word, each '
                'of which is one wordpiece of the tokenizer.'
            )
        pieces.append([each[0] for each in found])
    good, bad = np.array(pieces, np.int32).T
    return {'answer': good, 'other': bad}, mask
