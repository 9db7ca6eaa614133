"""Maps of a few texts: weights, what heads move, and how much tokens mix, with scores of tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import scipy.special
from jaxtyping import Float

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.contributions import scores as scoring
from bert_secrets_jax.contributions.layerwise import LAYERWISE, attention_graph, rollout
from bert_secrets_jax.contributions.norms import shares_of_norms
from bert_secrets_jax.data.encoding import WORD, Batch, tokenize
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.measure.stream import MapsOf, learned_maps
from bert_secrets_jax.measure.token_maps import TokenMaps, each_kind
from bert_secrets_jax.measure.words import named_words
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained, check_whole


def _layer_maps(mixing: Callable[..., jax.Array]) -> MapsOf:
    """Return the maps [B, L, 1, T, S] of a method that says how each layer mixes tokens."""

    def maps_of(bert: Bert, params: Mapping[str, Any], batch: Batch) -> Float[jax.Array, '...']:
        output = bert.apply({'params': params}, **batch.inputs)
        return mixing(bert, params, output, batch.attention_mask)[:, :, None]

    return maps_of


# The kinds of maps. Weights and norms are of each head, the others of all heads of a layer.
KINDS: Mapping[str, MapsOf] = {
    'weights': learned_maps,
    'norms': shares_of_norms,
    # How much of each input token reaches each token up to each layer.
    'rollout': _layer_maps(
        lambda bert, params, output, mask: rollout(attention_graph(output.attentions))
    ),
    **{kind: _layer_maps(mixing) for kind, mixing in LAYERWISE.items()},
}


def attention_maps(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    max_length: int | None = None,
    kinds: Sequence[str] = ('weights',),
    methods: Sequence[str] = (),
) -> list[TokenMaps]:
    """Return the maps of all heads on each of a few texts.

        maps, = bs.attention_maps(pretrained, ['The cat saw itself.'])
        bs.attention_maps(pretrained, texts, kinds=('weights', 'norms', 'rollout'))

    All maps stay in memory, L x N x T x T numbers for each text; use `collect` for a corpus.

    Args:
      pretrained: The model.
      texts: Strings, pairs of strings or examples, all of one kind (see `as_examples`).
      max_length: The greatest number of tokens, as in `bs.encode`. `TokenMaps.cut` says whether a
        text was cut.
      kinds: The kinds of the maps: 'weights', 'norms', 'rollout', 'value zeroing', 'ALTI' or
        'GlobEnc'. The weights are always there; the last four are one map for all heads of a layer.
      methods: The methods of `token_scores` by which tokens are scored, if the model classifies
        texts.

    Raises:
      TypeError: The model or the texts are something else.
      ValueError: There are no texts, single sentences are mixed with pairs, or a text has more
        tokens than the model reads; a kind or a method is unknown; scores are asked of a model
        without a classifier; or it has lost heads.
    """
    check_whole(pretrained)
    for kind in kinds:
        check_name('kinds', kind, KINDS)
    examples = as_examples(texts)
    encoded = tokenize(pretrained.tokenizer, examples, max_length=max_length)
    scored = None
    if methods:
        scoring.check_classifies(pretrained)
        compute = Compute(max_length=max_length)
        scored = scoring.scores_of(pretrained, encoded, methods=methods, seed=0, compute=compute)
    of_texts, (tokens, _) = [], scoring.tokens_of(encoded)
    shown = {kind: KINDS[kind] for kind in ('weights', *kinds)}
    for example, maps in enumerate(each_kind(pretrained, encoded, range(len(examples)), shown)):
        attentions = maps.pop('weights')
        second = np.flatnonzero(encoded.text[example] == 1)
        both = examples[example].text_a, examples[example].text_b
        of_texts.append(
            TokenMaps(
                tokens=tokens[example],
                attentions=attentions,
                second=int(second[0]) if len(second) else None,
                word=encoded.marks[WORD][example, : len(tokens[example])],
                words=named_words(encoded, example, both),
                further=maps,
                cut=bool(encoded.cut[example]),
                **(_scores(pretrained, scored, example) if scored else {}),
            )
        )
    return of_texts


def _scores(pretrained: Pretrained, scored: scoring.TokenScores, example: int) -> dict:
    logits = scored.logits[example].astype(np.float64)
    top = int(logits.argmax())
    prediction = f'{logits[0]:.3g}'
    if len(logits) > 1:
        share = scipy.special.softmax(logits)[top]
        prediction = f'{pretrained.config.label_names[top]} ({share:.2f})'
    of_example = {name: each[example].astype(np.float32) for name, each in scored.scores.items()}
    return {'scores': of_example, 'prediction': prediction}
