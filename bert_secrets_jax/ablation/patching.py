"""Activation patching: the output, map or value of a head, put from one text into another.

A text of a pair is clean or corrupted. Denoising puts a head of the clean text into the run on the
corrupted one, noising the other way round (Heimersheim and Nanda 2024, section 3). The text that is
run is here the host, the other one the donor. Attribution patching estimates the effects of patches
from gradients.

Axes besides those of `model/attention.py`: E pairs, P sets of tokens, K patches of one call.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bert_secrets_jax.ablation import masks
from bert_secrets_jax.ablation.contexts import on_devices
from bert_secrets_jax.ablation.embeddings import as_embedder
from bert_secrets_jax.ablation.layers import Static, contexts_of, embed
from bert_secrets_jax.ablation.patched_metrics import AnyMetric, Given, Metric, Reads, metric_of
from bert_secrets_jax.ablation.sweep import default_chunk_tokens, one_behind
from bert_secrets_jax.checks import brief, check_lengths, check_name, check_shape
from bert_secrets_jax.compute import Compute, fetch
from bert_secrets_jax.data.encoding import Batch, Encoded, bucket, in_order, tokenize
from bert_secrets_jax.data.tasks import Text, prepared
from bert_secrets_jax.model import attention, encoder
from bert_secrets_jax.model.bert import Bert, BertOutput, check_no_convolution
from bert_secrets_jax.model.config import EMBEDDING, MASKED_LM
from bert_secrets_jax.model.heads import Head
from bert_secrets_jax.model.intervention import Intervention
from bert_secrets_jax.model.parts import matmul_precision
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.progress import progress

OF = ('output', 'map', 'value')
DIRECTIONS = ('denoising', 'noising')
POSITIONS = ('all', 'each')


@dataclasses.dataclass(frozen=True)
class Patched:
    """The changes of a metric by single heads of another text.

    Attributes:
      of: The part of a head that was replaced, 'output', 'map' or 'value'.
      metric: The name of the metric.
      clean, corrupted: [E] The metric of each text as it is.
      denoising: [E, L, N], or [E, L, N, T] for each token alone: the metric of the corrupted text
        with a head of the clean one, less the metric without it. NaN past the end of a text.
      noising: The same of the clean text with a head of the corrupted one.
    """

    of: str
    metric: str
    clean: Float[np.ndarray, ' E']
    corrupted: Float[np.ndarray, ' E']
    denoising: Float[np.ndarray, 'E L N *T']
    noising: Float[np.ndarray, 'E L N *T']

    __repr__ = brief


def patch(
    pretrained: Pretrained,
    clean: Sequence[Text],
    corrupted: Sequence[Text],
    *,
    of: str = 'output',
    positions: str = 'all',
    metric: AnyMetric = None,
    answers: Sequence[Any] | None = None,
    compute: Compute = Compute(),
) -> Patched:
    """Put each head of one text into the other one, and measure what this changes, exactly.

    Layers before a head are run once. In each direction, a head takes (L + 1) / 2L of the
    operations of a pass, a little over half; with `positions='each'`, it does so for each token.

    Args:
      pretrained: The model.
      clean, corrupted: The texts of each pair, which have the same number of tokens. A model that
        says how it pools, and has no head, is patched as an embedding.
      of: The part of a head that is replaced: its 'output' (map times values, before the output
        projection), its 'map', or its 'value'.
      positions: 'all' replaces it at all tokens at once, 'each' at one token at a time: the row of
        a map of which this is the query, or the value that is read from there.
      metric: The number that is measured, about the answer: its 'logit', its 'margin' (less the
        greatest other logit), or its 'probability'. Of an embedding it is its 'closeness': the
        cosine with the clean text less that with the corrupted one. None takes the margin, or of a
        regression the logit, its value. A function of `BertOutput` that returns a number for each
        example is compiled; one that needs more is a `Metric`.
      answers: For each pair a class, by name or number; None takes the class that is predicted for
        the clean text. For a masked LM, pairs of words, good and bad, of a wordpiece each: texts
        have one [MASK], and a margin is the good word's logit less that of the bad one.
      compute: How it is computed; nothing is written into its folder.

    Raises:
      TypeError: The model or the texts are something else.
      ValueError: A pair has texts of different numbers of tokens; an argument is unknown or does
        not fit the model; heads were removed from it; or a masked LM has not one [MASK] to fill.
      FloatingPointError: The metric is NaN or infinite.
    """
    pairs = Pairs.start(pretrained, (clean, corrupted), of, positions, metric, answers, compute)
    every = masks.none(pretrained.config)[0] == 1
    return pairs.patched('Patching', functools.partial(patch_each, pairs, heads=every))


class Host(NamedTuple):
    """The texts of a batch that are run, and the intact outputs of both texts of each pair.

    Attributes:
      given: The arrays that the metric reads, by name.
      own, donor: The outputs of the text that is run, and of the one that lends its heads, with the
        values of heads [B, L, T, N, H] where they are needed.
      chosen: [P, B, T] 1 at the tokens of each set of tokens.
    """

    batch: Batch
    given: Given
    own: tuple[BertOutput, Any]
    donor: tuple[BertOutput, Any]
    chosen: Any


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of texts, encoded and ready to be run; see `patch`."""

    bert: Bert
    params: Any
    place: Callable[[Any], Any]
    encoded: tuple[Encoded, Encoded]
    of: str
    positions: str
    metric: Metric
    compute: Compute

    @classmethod
    def start(cls, pretrained, texts, of, positions, metric, answers, compute) -> 'Pairs':
        """Check the arguments, which are those of `patch`, and encode the texts."""
        check_whole(pretrained)
        pretrained = as_embedder(pretrained)
        if pretrained.config.head == EMBEDDING:
            compute = compute.within(pretrained.config)
        check_name('of', of, OF)
        check_name('positions', positions, POSITIONS)
        length = compute.max_length
        mend = 'give one of each for every pair'
        check_lengths(mend, clean_texts=texts[0], corrupted_texts=texts[1])
        read = [as_read(pretrained, each) for each in texts]
        one, two = (tokenize(pretrained.tokenizer, each, max_length=length) for each in read)
        encoded, clean, corrupted = (one, two), one.lengths, two.lengths
        for pair in np.flatnonzero(clean != corrupted):
            raise ValueError(
                f'The texts of pair {pair + 1} have {clean[pair]} and {corrupted[pair]} tokens: '
                f'{texts[0][pair]!r} and {texts[1][pair]!r}. Heads are replaced token by token: '
                'change words for words of as many wordpieces.'
            )
        if not isinstance(metric, Metric):
            metric = metric_of(pretrained, metric, answers, encoded, compute)
        params, _, place = on_devices(pretrained.params, compute.mesh)
        return cls(pretrained.bert, params, place, encoded, of, positions, metric, compute)

    @property
    def tokens(self) -> int:
        """The number of tokens that a call computes."""
        return self.compute.devices * (self.compute.chunk_tokens or default_chunk_tokens())

    def patched(self, what: str, measure: Callable[[Host], np.ndarray]) -> Patched:
        """Return the changes [B, L, N, P] of the metric that `measure` makes of each host."""
        clean, corrupted, *both = self.changes(what, measure)
        if self.positions == 'all':
            both = [each[..., 0] for each in both]
        else:
            lengths = self.encoded[0].lengths
            real = np.arange(lengths.max()) < lengths[:, None]
            both = [np.where(real[:, None, None], e[..., : lengths.max()], np.nan) for e in both]
        return Patched(self.of, self.metric.name, clean, corrupted, *both)

    def changes(self, what: str, measure: Callable[[Host], np.ndarray]) -> list[np.ndarray]:
        """Return the metric [E] of clean and of corrupted texts, and what `measure` finds of both.

        That is [B, L, N, P] of each host; where P is of several sizes, 0 fills it up.
        """
        how = self.compute.encoding
        how['tokens_per_batch'] = min(how['tokens_per_batch'], self.tokens)
        batches = list(zip(*(bucket(each, **how) for each in self.encoded), strict=True))
        intact, changes = ([], []), ([], [])
        for both in progress(batches, what, size=lambda both: both[0].size, unit='pairs'):
            for direction, host in enumerate(self.hosts(both)):
                value = fetch(self.intact(host))
                check_shape(
                    f'What {self.metric.name} returns', value, texts=len(host.batch.input_ids)
                )
                intact[direction].append(value)
                changes[direction].append(measure(host))
        examples = [np.asarray(clean.example) for clean, _ in batches]
        corrupted, clean = (in_order(examples, values) for values in intact)
        if not (np.isfinite(clean).all() and np.isfinite(corrupted).all()):
            raise FloatingPointError(f'The {self.metric.name} is NaN or infinite for some texts.')
        last = max(each.shape[-1] for each in changes[0])
        wide = [
            [np.pad(one, [(0, 0)] * 3 + [(0, last - one.shape[-1])]) for one in each]
            for each in changes
        ]
        return [clean, corrupted, *(in_order(examples, each) for each in wide)]

    def hosts(self, both: Sequence[Batch]) -> Iterator[Host]:
        """Yield the texts to run: first the corrupted ones, then the clean ones."""
        examples, length = np.asarray(both[0].example), both[0].input_ids.shape[1]
        rows = {name: np.asarray(each)[examples] for name, each in self.metric.given.items()}
        chosen = np.eye(length) if self.positions == 'each' else np.ones((1, length))
        chosen = chosen[:, None].repeat(len(examples), axis=1).astype(np.float32)
        batches = [self.place(dataclasses.replace(each, marks={})) for each in both]
        passes = [_intact(self.bert, self.of, self.params, each) for each in batches]
        for host, donor in ((1, 0), (0, 1)):
            given = self.place(rows) | batches[host].inputs
            yield Host(batches[host], given, passes[host], passes[donor], chosen)

    def intact(self, host: Host) -> Array:
        """Return the metric [B] of texts as they are: with nothing replaced in the last layer."""
        return self.measured(host, self.bert.config.num_hidden_layers - 1, np.zeros(1, int), 0.0)[0]

    def measured(
        self,
        host: Host,
        layer: int,
        patches: Int[np.ndarray, ' some'],
        amount: float = 1.0,
        *,
        frozen: bool = False,
    ) -> Array:
        """Return the metric [K, B] with heads of a layer replaced, all or none (`amount` is 0).

        Patches are numbers among all heads of the layer times all sets of tokens. Later heads are
        run again, or `frozen`.
        """
        sets = len(host.chosen)
        # All calls have one size: patches are repeated up to it.
        heads, places = np.divmod(np.resize(patches, self.per_call(host)), sets)
        reading = self.metric.reads, self.metric.at_token
        how, which = (self.bert, self.of, *reading, frozen), (layer, heads, places, amount)
        return _measured(*how, self.params, host, *which)[: len(patches)]

    def per_call(self, host: Host) -> int:
        """Return how many patches of a layer are measured by one call."""
        sets, rows, length = host.chosen.shape
        every = np.arange(self.bert.config.num_attention_heads * sets)
        return len(parts_of(every, max(self.tokens // (rows * length), 1))[0])


def as_read(pretrained: Pretrained, texts: Sequence[Text]) -> Sequence[Text]:
    """Return texts as the model reads them: before an embedding, with its prompt."""
    pooling = pretrained.config.pooling
    embeds = pretrained.config.head == EMBEDDING
    return prepared(pooling, texts) if embeds and pooling is not None else texts


def patch_each(
    pairs: Pairs, host: Host, *, heads: Bool[np.ndarray, 'L N'], frozen: bool = False
) -> Float[np.ndarray, 'B L N P']:
    """Return the exact changes of the metric by some heads, by one run for each patch; else NaN.

    Later heads are run again, or `frozen` to what they are in the text that is run.
    """
    sets, rows, _ = host.chosen.shape
    patches = [np.flatnonzero(each) for each in heads.repeat(sets, axis=1)]
    runs = (
        ((layer, part), pairs.measured(host, layer, part, frozen=frozen))
        for layer, every in enumerate(patches)
        for part in parts_of(every, pairs.per_call(host))
    )
    intact = fetch(pairs.intact(host))
    changes = np.full((rows, len(heads), heads.shape[1] * sets), np.nan, np.float32)
    for (layer, part), found in one_behind(runs):
        changes[:, layer, part] = (found - intact).T
    return changes.reshape(rows, *heads.shape, sets)


def parts_of(numbers: Int[np.ndarray, ' all'], most: int) -> list[Int[np.ndarray, ' some']]:
    """Return about equal parts of numbers, as few as have at most so many."""
    return np.array_split(numbers, -(-len(numbers) // most)) if len(numbers) else []


@functools.partial(jax.jit, static_argnums=(0, 1))
def _intact(bert: Bert, of: str, params, batch: Batch) -> tuple[BertOutput, Any]:
    """Return the output of the intact model, and the values of its heads where they are needed."""
    config, run = bert.config, bert.apply({'params': params}, **batch.inputs)
    output = BertOutput(None, None, run.hidden_states, run.attentions, run.contexts)
    if of == 'output':
        return output, None
    setting = Static(config, 'zero')
    _, scopes = embed(setting, params['embeddings'], batch)

    def of_layer(layer, kind, hidden):
        return contexts_of(setting, layer, hidden, encoder.scope_of(scopes, kind))[1]

    kinds = jnp.array(encoder.kinds_of_layers(config))
    before = output.hidden_states[:, :-1]
    values = jax.vmap(of_layer, in_axes=(0, 0, 1), out_axes=1)(params['layers'], kinds, before)
    return output, values


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _measured(
    bert: Bert, of: str, reads: Reads, at_token, frozen, params, host: Host, layer, heads, places,
    amount,
):  # fmt: skip
    """Return the metric [K, B] of `Pairs.measured`."""
    own, donor = jax.tree.map(lambda leaf: leaf[:, layer], (host.own, host.donor))

    def one(head, place):
        change = amount * change_of(bert, of, own, donor, host.chosen[place])
        there = own[0].hidden_states, layer, *shifts_at(bert, layer, head, change)
        return reads(run_from(bert, at_token, params, host, *there, frozen=frozen), host.given)

    return jax.vmap(one)(heads, places)


def change_of(
    bert: Bert, of: str, own, donor, chosen: Float[Array, 'B T']
) -> Float[Array, 'B T N H']:
    """Return what the outputs of the heads of a layer change by, replaced at the chosen tokens."""
    (output, values), (lent, lent_values) = own, donor
    attend = functools.partial(attention.attend, precision=matmul_precision(bert.config))
    here = chosen[:, :, None, None]
    if of == 'output':
        return here.astype(output.contexts.dtype) * (lent.contexts - output.contexts)
    here = here.astype(values.dtype)
    if of == 'map':
        return here * attend((lent.attentions - output.attentions).astype(values.dtype), values)
    return attend(output.attentions.astype(values.dtype), here * (lent_values - values))


def shifts_at(
    bert: Bert, layer, head, change: Float[Array, 'B T #N H']
) -> tuple[Float[Array, 'L 1 1 1 1'], Float[Array, 'B T N H']]:
    """Return the shifts of `run_from`, and their times, that add a change to one head."""
    config = bert.config
    this = jax.nn.one_hot(head, config.num_attention_heads, dtype=change.dtype)
    here = jax.nn.one_hot(layer, config.num_hidden_layers, dtype=change.dtype)
    return here[:, None, None, None, None], this[None, None, :, None] * change


@flax.struct.dataclass
class _Shifted(Intervention):
    """Adds `shift` [B, T, N, H] to the outputs of the heads of a layer, or to `frozen` ones."""

    shift: Any = None
    frozen: Any = None

    def on_contexts(self, contexts: Float[Array, 'B T N H']) -> Float[Array, 'B T N H']:
        return (contexts if self.frozen is None else self.frozen) + self.shift


def run_from(
    bert: Bert,
    at_token: int | None,
    params,
    host: Host,
    hidden,
    first,
    shifts,
    times,
    *,
    frozen: bool = False,
    stop: Any = None,
) -> BertOutput:
    """Return the output of the model, run from what enters layer `first`, `hidden` [B, T, D].

    `shifts` [L, #B, #T, #N, #H] times `times` is added to the outputs of the heads, which `frozen`
    takes from the intact run. So is what is below that layer. From layer `stop` on, if there is
    one, the output means nothing but for the states that enter this layer.
    """
    config, own = bert.config, host.own[0]
    _, scopes = embed(Static(config, 'zero'), params['embeddings'], host.batch)

    def step(hidden, each):
        number, layer, kind, shift, before = each

        def run(hidden):
            change = _Shifted(shift=shift * times, frozen=before[2] if frozen else None)
            return encoder.Layer(config).apply(
                {'params': layer}, hidden, kind, change, scopes, None
            )

        is_run = (number >= first) & (number < (config.num_hidden_layers if stop is None else stop))
        return jax.lax.cond(is_run, run, lambda hidden: (hidden, before), hidden)

    before = own.hidden_states[:, 1:], own.attentions, own.contexts
    before = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), before)
    count = config.num_hidden_layers
    kinds = jnp.array(encoder.kinds_of_layers(config))
    layers = jnp.arange(count), params['layers'], kinds, shifts, before
    hidden, (states, maps, contexts) = jax.lax.scan(step, hidden, layers)
    states, maps, contexts = (jnp.moveaxis(each, 0, 1) for each in (states, maps, contexts))
    mask, words = host.batch.attention_mask, None
    if config.head == MASKED_LM:
        words = params['embeddings']['word']['embedding']
    if at_token is not None:
        place = (host.batch.input_ids == at_token).argmax(axis=1)
        hidden, mask = jnp.take_along_axis(hidden, place[:, None, None], axis=1), None
    found = Head(config).apply({'params': params}, hidden, mask, words)
    last = states[:, -1:] if at_token is not None else found.encoded[:, None]
    states = jnp.concatenate([own.hidden_states[:, :1], states[:, :-1], last], axis=1)
    return BertOutput(found.logits, found.pooled, states, maps, contexts)


def estimate_patches(
    pretrained: Pretrained,
    clean: Sequence[Text],
    corrupted: Sequence[Text],
    *,
    steps: int = 0,
    of: str = 'output',
    positions: str = 'all',
    metric: AnyMetric = None,
    answers: Sequence[Any] | None = None,
    compute: Compute = Compute(),
) -> Patched:
    """Estimate what `patch` measures, for all heads at once, from the slope of the metric.

    An estimate is the gradient of the metric in the output of a head, times the change of that
    output (attribution patching: Nanda 2023; Syed et al. 2023, arXiv 2310.10348). It is right where
    the metric is about linear. In each direction it costs about five passes, and with steps
    about three for each of them, however many heads there are.

    Args:
      steps: 0 takes the gradient at the text that is run. Otherwise it is the mean over so many
        steps on the way to the other text, from embedding to embedding, of which the last is the
        other text (EAP-IG: Hanna et al. 2024, arXiv 2403.17806, equation 3, who take 5).
      pretrained, clean, corrupted, of, positions, metric, answers, compute: As in `patch`.

    Raises:
      TypeError: As in `patch`.
      ValueError: As in `patch`; or the steps are below 0.
      FloatingPointError: As in `patch`.
    """
    pairs = Pairs.start(pretrained, (clean, corrupted), of, positions, metric, answers, compute)
    if steps:
        check_no_convolution(pretrained.config)
    return pairs.patched('Estimating', functools.partial(estimate_each, pairs, steps=steps))


def estimate_each(pairs: Pairs, host: Host, *, steps: int) -> Float[np.ndarray, 'B L N P']:
    """Return the estimated changes of the metric."""
    reading = pairs.bert, pairs.of, pairs.metric.reads, pairs.metric.at_token
    ways = np.arange(1, steps + 1, dtype=np.float32) / steps if steps else np.zeros(1, np.float32)
    found = [fetch(_estimates(*reading, pairs.params, host, way)) for way in ways]
    mean = np.mean(found, axis=0)
    return mean if pairs.positions == 'each' else mean.sum(axis=-1, keepdims=True)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _estimates(
    bert: Bert, of: str, reads: Reads, at_token: int | None, params, host: Host, way
) -> Float[Array, 'B L N T']:
    """Return the estimate for each token alone, by the gradient at a point on the way, 0 to 1."""
    (own, values), (lent, lent_values) = host.own, host.donor
    start, end = own.hidden_states[:, 0], lent.hidden_states[:, 0]

    def total(shifts):
        there = run_from(bert, at_token, params, host, start + way * (end - start), 0, shifts, 1.0)
        return reads(there, host.given).sum()

    slopes = jax.grad(total)(jnp.zeros_like(jnp.moveaxis(own.contexts, 1, 0)))
    einsum = functools.partial(jnp.einsum, precision=matmul_precision(bert.config))
    if of == 'output':
        return einsum('LBTNH,BLTNH->BLNT', slopes, lent.contexts - own.contexts)
    if of == 'map':
        change = lent.attentions - own.attentions
        return einsum('LBTNH,BLNTS,BLSNH->BLNT', slopes, change, values)
    return einsum('LBTNH,BLNTS,BLSNH->BLNS', slopes, own.attentions, lent_values - values)
