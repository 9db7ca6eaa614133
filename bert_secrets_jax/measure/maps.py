"""Attention maps of whole examples with their tokens, to look at."""

import dataclasses
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence

import jax
import numpy as np
import scipy.special
from jaxtyping import Float, Int, Shaped

from bert_secrets_jax.brief import brief, either
from bert_secrets_jax.contributions.decomposition import check_classifies
from bert_secrets_jax.contributions.norms import shares_of_norms
from bert_secrets_jax.contributions.rollout import attention_graph, rollout
from bert_secrets_jax.contributions.scores import TokenScores, scores_of
from bert_secrets_jax.data.encoding import WORD, Batch, Encoded, tokenize
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.measure.stream import MapsOf, learned_maps
from bert_secrets_jax.measure.words import named_words, word_maps
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained, check_whole


def rollouts(bert: Bert, params: Mapping, batch: Batch) -> Float[jax.Array, 'B L 1 T S']:
    """Return how much of each input token reaches each token up to each layer (`rollout`)."""
    return rollout(attention_graph(learned_maps(bert, params, batch)))[:, :, None]


# What maps can show: the weights of attention; the norms of what heads give, as shares of a row
# (Kobayashi et al. 2020); and what reaches a token through all layers below, one map for all heads
# of a layer (Abnar and Zuidema 2020).
KINDS: Mapping[str, MapsOf] = types.MappingProxyType(
    {'weights': learned_maps, 'norms': shares_of_norms, 'rollout': rollouts}
)


@dataclasses.dataclass(frozen=True)
class TokenMaps:
    """Attention of all heads on one example, without padding.

    Attributes:
      tokens: The T wordpieces.
      attentions: [L, N, T, T] The maps. Rows are queries.
      second: The position of the first token of the second text; None if there is only one text.
      word: [T] The number of the word that each token belongs to; None if it is not known.
      words: The words, as they are written; None if they are not known.
      further: Further maps by their kind (see `KINDS`): [L, N, T, T], or [L, 1, T, T] if all heads
        of a layer share one.
      scores: How much each token counts for the prediction, [T], by the name of the method.
      prediction: What the model predicts for the text, such as 'yes (0.93)'; empty if nothing.
    """

    tokens: Sequence[str]
    attentions: Shaped[np.ndarray, '...']
    second: int | None = None
    word: Int[np.ndarray, ' T'] | None = None
    words: Sequence[str] | None = None
    further: Mapping[str, Shaped[np.ndarray, '...']] = dataclasses.field(default_factory=dict)
    scores: Mapping[str, Shaped[np.ndarray, '...']] = dataclasses.field(default_factory=dict)
    prediction: str = ''

    __repr__ = brief

    def __post_init__(self):
        length = len(self.tokens)
        if self.attentions.ndim != 4 or self.attentions.shape[2:] != (length, length):
            raise ValueError(
                f'Maps of {length} tokens must be [layers, heads, {length}, {length}], got '
                f'{list(self.attentions.shape)}: leave the batch and padding out.'
            )
        layers, heads = self.attentions.shape[:2]
        for kind, maps in self.further.items():
            if maps.shape not in [(layers, each, length, length) for each in (heads, 1)]:
                raise ValueError(
                    f'Maps {kind!r} must be [layers, heads, {length}, {length}] as those of '
                    f'attention, {list(self.attentions.shape)}, or with one head, got '
                    f'{list(maps.shape)}.'
                )
        for method, values in self.scores.items():
            if values.shape != (length,):
                raise ValueError(
                    f'Scores {method!r} must be one for each of {length} tokens, got '
                    f'{list(values.shape)}.'
                )
        if (self.word is None) != (self.words is None):
            raise ValueError('Words come with their numbers: give word and words, or neither.')
        if self.word is not None and (
            len(self.word) != length or max(self.word, default=-1) >= len(self.words)
        ):
            raise ValueError(
                f'{length} tokens need as many numbers of the {len(self.words)} words.'
            )

    def of_words(self) -> 'TokenMaps':
        """Return the maps between words: to a word the sum over its tokens, from it their mean.

        The score of a word is the sum of those of its tokens.

        Raises:
          ValueError: The words are not known.
        """
        if self.word is None:
            raise ValueError('Which words these are is not known: bs.attention_maps finds them.')
        count = len(self.words)

        def of_words(maps):
            return np.asarray(word_maps(np.asarray(maps), self.word, count=count))

        return TokenMaps(
            self.words,
            of_words(self.attentions),
            None if self.second is None else int(self.word[self.second]),
            further={kind: of_words(maps) for kind, maps in self.further.items()},
            scores={
                method: np.bincount(self.word, values, minlength=count)
                for method, values in self.scores.items()
            },
            prediction=self.prediction,
        )


def attention_maps(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    max_length: int = 128,
    kinds: Sequence[str] = ('weights',),
    methods: Sequence[str] = (),
) -> list[TokenMaps]:
    """Return the maps of all heads on each of a few texts.

        maps, = bs.attention_maps(pretrained, ['The cat saw itself.'])

    All maps stay in memory, L x N x T x T numbers for each text; use `collect` for a corpus.

        bs.attention_maps(pretrained, texts, kinds=('weights', 'norms', 'rollout'))

    Args:
      pretrained: The model.
      texts: Strings, pairs of strings or examples (see `as_examples`); all single sentences, or all
        pairs.
      max_length: The greatest number of tokens. Longer inputs are cut.
      kinds: What the maps show, of `KINDS`. The weights are always there.
      methods: The methods by which the tokens are scored, of `contributions.scores.METHODS`. They
        need a model that classifies texts.

    Raises:
      TypeError: The model or the texts are something else.
      ValueError: There are no texts, or single sentences are mixed with pairs; a kind or a method
        is unknown; scores are asked of a model without a classifier; or heads were removed from
        the model.
    """
    check_whole(pretrained)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or isinstance(kinds, str):
        raise ValueError(f'Kinds of maps are a list of {either(tuple(KINDS))}, not {kinds!r}.')
    examples = as_examples(texts)
    encoded = tokenize(pretrained.tokenizer, examples, max_length=max_length)
    scored = None
    if methods:
        check_classifies(pretrained)
        scored = scores_of(
            pretrained,
            encoded,
            methods=methods,
            seed=0,
            max_length=max_length,
            tokens_per_batch=2048,
            mesh=None,
        )
    found = []
    kinds = dict.fromkeys(['weights', *kinds])
    for example, maps in enumerate(_each(pretrained, encoded, range(len(examples)), kinds)):
        attentions = maps.pop('weights')
        ids = encoded.input_ids[example, : attentions.shape[-1]].tolist()
        second = np.flatnonzero(encoded.text[example] == 1)
        texts = examples[example].text_a, examples[example].text_b
        found.append(
            TokenMaps(
                tokens=pretrained.tokenizer.convert_ids_to_tokens(ids),
                attentions=attentions,
                second=int(second[0]) if len(second) else None,
                word=encoded.marks[WORD][example, : len(ids)],
                words=named_words(encoded, example, texts),
                further=maps,
                **(_scores(pretrained, scored, example) if scored else {}),
            )
        )
    return found


def _scores(pretrained: Pretrained, scored: TokenScores, example: int) -> dict:
    logits = scored.logits[example].astype(np.float64)
    top = int(logits.argmax())
    prediction = f'{logits[0]:.3g}'
    if len(logits) > 1:
        share = scipy.special.softmax(logits)[top]
        prediction = f'{pretrained.config.label_names[top]} ({share:.2f})'
    scores = {
        method: np.asarray(values[example], np.float32) for method, values in scored.scores.items()
    }
    return {'scores': scores, 'prediction': prediction}


def each_map(
    pretrained: Pretrained, encoded: Encoded, chosen: Iterable[int]
) -> Iterator[Float[np.ndarray, 'L N _ _']]:
    """Yield the maps [L, N, T, T] of some examples, float32 and without padding.

    Args:
      pretrained: The model.
      encoded: The tokenised examples.
      chosen: The numbers of the examples.
    """
    for maps in _each(pretrained, encoded, chosen, ['weights']):
        yield maps['weights']


def _each(
    pretrained: Pretrained, encoded: Encoded, chosen: Iterable[int], kinds: Iterable[str]
) -> Iterator[dict[str, np.ndarray]]:
    @jax.jit
    def forward(params, batch):
        return {kind: KINDS[kind](pretrained.bert, params, batch) for kind in kinds}

    longest = encoded.input_ids.shape[1]
    for example in chosen:
        length = int(encoded.lengths[example])
        # Few lengths, so few compilations.
        batch = encoded.batch(np.array([example]), min(-(-length // 16) * 16, longest))
        yield {
            kind: np.asarray(maps[0, :, :, :length, :length], np.float32)
            for kind, maps in forward(pretrained.params, batch).items()
        }


def to_bertviz(maps: TokenMaps) -> dict:
    """Return the arguments of bertviz's `head_view` and `model_view`.

        head_view(**bs.to_bertviz(bs.attention_maps(pretrained, [text])[0]))

    Args:
      maps: The maps of one text.

    Returns:
      The arguments by name: 'attention' (a PyTorch tensor [1, N, T, T] for each layer), 'tokens'
        and 'sentence_b_start' (None for a single text).

    Raises:
      ImportError: PyTorch is not installed; bertviz needs it, too.
      TypeError: The maps of several texts are given.
    """
    if not isinstance(maps, TokenMaps):
        raise TypeError('bertviz shows one example: give one of what attention_maps returns.')
    try:
        import torch
    except ImportError as error:
        raise ImportError('bertviz takes PyTorch tensors: pip install bertviz torch.') from error
    return {
        'attention': [torch.tensor(layer)[None] for layer in np.asarray(maps.attentions)],
        'tokens': list(maps.tokens),
        'sentence_b_start': maps.second,
    }
