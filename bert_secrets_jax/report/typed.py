"""A local page that shows the maps of any sentence that one types, or compares two texts.

Shapes: T and S tokens of the two texts, L layers, N heads.
"""

import functools
import http.server
import json
import threading
import urllib.parse

import numpy as np
from markupsafe import Markup

from bert_secrets_jax.ablation.embeddings import embed
from bert_secrets_jax.ablation.patched_metrics import Metric, cosine, intact_answers
from bert_secrets_jax.ablation.patching import DIRECTIONS, as_read, patch
from bert_secrets_jax.analyses.example_maps import maps_of
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.contributions.token_pairs import paired_tokens
from bert_secrets_jax.data.encoding import knows_words, tokenize
from bert_secrets_jax.local import Handler, start
from bert_secrets_jax.model.config import EMBEDDING
from bert_secrets_jax.model.weights import Pretrained, with_pooling
from bert_secrets_jax.names import visible
from bert_secrets_jax.report.explorer import Explorer
from bert_secrets_jax.report.templates import Fields, render

# Characters of a sentence, more than any model here reads.
_MOST = 5000
# Lines between more tokens cannot be told apart.
_MOST_TOKENS = 48
# The error of contributions is then far below the digits that are shown.
_STEPS = 16


def serve(
    name: str, model: Pretrained, *, max_length: int = 128, port: int = 0
) -> http.server.ThreadingHTTPServer:
    """Return a server of the page, which only this machine can reach; run its `serve_forever`.

    Args:
      name: The name of the model.
      max_length: The greatest number of tokens. Longer inputs are cut, which the page says.
      port: The port; 0 takes any that is free, which `server_address` then holds.

    Raises:
      ValueError: The port cannot be had.
    """
    return start(functools.partial(_Handler, name, model, max_length), port=port)


def page_of(
    name: str,
    model: Pretrained,
    first: str = '',
    second: str = '',
    max_length: int = 128,
    view: str = '/',
) -> str:
    """Return the page with the texts in a view, if there are any, and what the model refuses.

    Args:
      view: '/' for the maps of a sentence or pair, '/two' to compare two texts.
    """
    problem, content, cut = '', '', 0
    both = bool(first.strip() and second.strip())
    try:
        check_texts(model, first, second)
        if view == '/two' and (first or second):
            if not both:
                raise ValueError('There are not two texts: type some words into both fields.')
            shown = two_texts(model, first, second, max_length=max_length)
            cut, shown['texts'] = shown['cut'], [first, second]
            content = render('two_texts.html', shown=shown)
        elif first or second:
            if not first.strip():
                raise ValueError(
                    'There is no sentence to show: type some words into the first field.'
                )
            most = min(max_length, model.config.max_length)
            maps = maps_of(model, [(first, second) if both else first], max_length=most)
            content, cut = Markup(Explorer({name: maps}).html()), most if maps[0].cut else 0
    except (ValueError, FloatingPointError) as error:
        problem = str(error)
    return render(
        'typed.html',
        model=name,
        view=view,
        first=first,
        second=second,
        # The other view gets the same texts.
        query=urllib.parse.urlencode({'text_a': first, 'text_b': second}) if first else '',
        most=_MOST,
        problem=problem,
        cut=cut,
        content=content,
    )


def check_texts(model: Pretrained, *texts: str) -> None:
    """Refuse texts that a model does not read, with a ValueError."""
    typed = [each for each in texts if each.strip()]
    if any(len(each) > _MOST for each in texts):
        raise ValueError(f'A sentence has at most {_MOST:,} characters.')
    # A model without a tokenizer has a message of its own.
    if typed and model.tokenizer is not None and not knows_words(model.tokenizer, typed):
        raise ValueError(
            'The model can read next to nothing of this: it may be written in letters or in a '
            'language that it has not learnt. Try another sentence.'
        )


class _Handler(Handler):
    # Views bring their own scripts and styles, and ask this server alone.
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    # One sentence at a time: each takes all cores.
    _working = threading.Lock()

    def __init__(self, name: str, model: Pretrained, max_length: int, *args):
        self._name, self._model, self._max_length = name, model, max_length
        super().__init__(*args)

    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        if address.path not in ('/', '/two', '/heads'):
            self.send_error(404)
            return
        try:
            asked = dict(urllib.parse.parse_qsl(address.query, max_num_fields=8))
        except ValueError:
            self.send_error(400, 'The page asks for text_a and text_b alone.')
            return
        texts = asked.get('text_a', ''), asked.get('text_b', '')
        kind, longest = 'text/html; charset=utf-8', self._max_length
        try:
            with self._working:
                if address.path == '/heads':
                    check_texts(self._model, *texts)
                    heads = patched_heads(self._model, *texts, max_length=longest)
                    kind, body = 'application/json', json.dumps(heads)
                else:
                    body = page_of(self._name, self._model, *texts, longest, address.path)
        except (ValueError, FloatingPointError) as error:
            self.send_error(400, str(error))
            return
        self.answer(200, kind, body.encode())


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
