"""Path patching: the output of a head of another text, put in only where another part reads it.

The sender is the head whose output is replaced, the receiver is what reads it. Between the two, all
other heads are frozen: their outputs are those of the text that is run. Feed-forward layers and
LayerNorms are computed anew, so that they are part of the path.

Sources: Wang et al. 2022, "Interpretability in the Wild", section 3.1 and appendix B;
Goldowsky-Dill et al. 2023, "Localizing Model Behavior with Path Patching" (arXiv 2304.05969).

Axes besides those of `patching`: R receivers, K senders of one call, W layers with receivers.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bert_secrets_jax.ablation import masks, patching
from bert_secrets_jax.ablation.layers import Static, contexts_of, embed
from bert_secrets_jax.ablation.masks import Place
from bert_secrets_jax.ablation.patched_metrics import AnyMetric, Reads
from bert_secrets_jax.ablation.patching import Host, Pairs, parts_of
from bert_secrets_jax.ablation.sweep import one_behind
from bert_secrets_jax.checks import brief, check_enough, check_name
from bert_secrets_jax.compute import Compute, fetch
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.model import encoder
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name

LOGITS = 'logits'
INPUT = 'input'
INTO = (INPUT, *encoder.PROJECTIONS)
Heads = Sequence[Place]


@dataclasses.dataclass(frozen=True)
class PatchedPaths:
    """The changes of a metric by single heads of another text, each along one path.

    Effects are NaN for heads that are no senders, and for those without a path to the receiver.

    Attributes:
      receivers: 'logits', or the R heads that read what is sent, as (layer, head).
      into: The input of the receivers that is patched: 'query', 'key', 'value', or 'input' for all
        three at once.
      metric: The name of the metric.
      clean, corrupted: [E] The metric of each text as it is.
      denoising: [E, L, N] By sender, or [E, R, L, N] by receiver and sender: the metric of the
        corrupted text with a head of the clean one on the path, less the metric without it.
      noising: The same of the clean text with a head of the corrupted one.
    """

    receivers: str | tuple[Place, ...]
    into: str
    metric: str
    clean: Float[np.ndarray, ' E']
    corrupted: Float[np.ndarray, ' E']
    denoising: Float[np.ndarray, 'E *R L N']
    noising: Float[np.ndarray, 'E *R L N']

    __repr__ = brief


def patch_paths(
    pretrained: Pretrained,
    clean: Sequence[Text],
    corrupted: Sequence[Text],
    *,
    senders: Heads | None = None,
    receivers: str | Heads = LOGITS,
    into: str = INPUT,
    metric: AnyMetric = None,
    answers: Sequence[Any] | None = None,
    compute: Compute = Compute(),
) -> PatchedPaths:
    """Put each head of one text into the other one along a path, and measure what this changes.

    The path leads from the sender to the receiver through the residual stream, LayerNorms and
    feed-forward layers, which are computed anew. All other heads between the two are frozen to
    their outputs in the text that is run. The effect is exact.

    To the 'logits', this is the direct effect of the sender. A receiving head makes its query, keys
    or values from the patched stream. All that is after its output is then run as usual, and all
    else in its layer and before is as in the text that is run.

    In each direction, a sender costs about .5 passes to the logits. To one head of the last layer
    it costs about one pass, and to a further one about .2 (`benchmarks/paths.py`, six layers).

    Args:
      pretrained, clean, corrupted, metric, answers, compute: As in `patch`.
      senders: The heads that are replaced, as (layer, head) from 0; None takes all.
      receivers: 'logits', or a list of heads, each a receiver by itself. A sender of the same or a
        later layer has no path to a head: its effect is NaN.
      into: The input of receiving heads that is patched: 'query', 'key', 'value', or 'input' for
        all three at once.

    Raises:
      TypeError: As in `patch`.
      ValueError: As in `patch`; or a head does not exist, a receiver has no sender in an earlier
        layer, or `into` is given without receiving heads.
      FloatingPointError: As in `patch`.
    """
    config = pretrained.config
    check_name('into', into, INTO)
    every = masks.all_heads(config) if senders is None else _heads(config, 'senders', senders)
    chosen = masks.disable(config, [every])[0] == 0
    if isinstance(receivers, str):
        check_name('receivers', receivers, [LOGITS])
        if into != INPUT:
            raise ValueError(f'{into=} is of heads that receive: give a list of them as receivers.')
    else:
        receivers = _heads(config, 'receivers', receivers)
        first = chosen.any(axis=1).argmax()
        for layer, head in receivers:
            if layer <= first:
                raise ValueError(
                    f'The receiver {head_name(layer, head)} is not reached: no sender is in an '
                    'earlier layer, and paths only lead to later ones.'
                )
    texts = clean, corrupted
    pairs = Pairs.start(pretrained, texts, 'output', 'all', metric, answers, compute)
    if isinstance(receivers, str):
        measure = functools.partial(patching.patch_each, pairs, heads=chosen, frozen=True)
    else:
        measure = functools.partial(_measured, pairs, chosen, receivers, into)
    *intact, denoising, noising = pairs.changes('Patching paths', measure)
    both = [np.moveaxis(each, -1, 1) for each in (denoising, noising)]
    if isinstance(receivers, str):
        both = [each[:, 0] for each in both]
    return PatchedPaths(receivers, into, pairs.metric.name, *intact, *both)


def _heads(config: BertConfig, name: str, given: Heads) -> tuple[Place, ...]:
    """Return heads (layer, head), and refuse what is none of the model."""
    shape = config.num_hidden_layers, config.num_attention_heads
    for each in given:
        if np.shape(each) != (2,) or tuple(each) not in np.ndindex(*shape):
            raise ValueError(
                f'{name} has {each!r}, which is no head: give a list of (layer, head). (0, 0) is '
                f'L1-H1, and the last one is {head_name(shape[0] - 1, shape[1] - 1)}.'
            )
    check_enough(name, given, mend=': give a list of (layer, head)')
    return tuple((int(layer), int(head)) for layer, head in given)


def _measured(
    pairs: Pairs, senders: Bool[np.ndarray, 'L N'], receivers: Heads, into: str, host: Host
) -> Float[np.ndarray, 'B L N R']:
    """Return the changes of the metric; NaN without a path."""
    intact = fetch(pairs.intact(host))
    changes = np.full((len(intact), *senders.shape, len(receivers)), np.nan, np.float32)
    for (layer, heads, places), found in one_behind(_runs(pairs, senders, receivers, into, host)):
        found = np.moveaxis(found[: len(heads), : len(places)] - intact, -1, 0)
        changes[:, layer, heads[:, None], places[None]] = found
    return changes


def _runs(pairs: Pairs, chosen, receivers: Heads, into: str, host: Host) -> Iterator[Any]:
    """Yield a layer, senders of it and numbers of receivers, and their metric [K, R, B]."""
    given = pairs.metric.reads, pairs.metric.at_token, pairs.params, host
    # All calls have one size: senders and receivers are repeated up to it.
    room = max(pairs.tokens // host.batch.input_ids.size, 1)
    width = len(parts_of(np.arange(chosen.sum(axis=1).max()), room)[0])
    layers, heads = np.transpose(receivers)
    stops, counts = np.unique(layers, return_counts=True)
    depth = len(parts_of(np.arange(counts.max()), max(room // width, 1))[0])
    for layer, senders in enumerate(map(np.flatnonzero, chosen[: stops[-1]])):
        for part in parts_of(senders, width):
            sent = layer, np.resize(part, width)
            streams = _streams(pairs.bert, pairs.params, host, *sent, stops)
            for stop, stream in zip(stops, streams, strict=True):
                for places in parts_of(np.flatnonzero(layers == stop), depth):
                    if stop > layer:
                        which = stream, int(stop), heads[np.resize(places, depth)]
                        yield (layer, part, places), _received(pairs.bert, into, *given, *which)


@functools.partial(jax.jit, static_argnums=0)
def _streams(bert: Bert, params, host: Host, layer, heads, stops) -> Float[Array, 'W K B T D']:
    """Return what enters the layers `stops` with heads of a layer replaced, and all others frozen.

    What is given for those up to the layer of the senders means nothing.
    """
    own = host.own[0]
    change = host.donor[0].contexts[:, layer] - own.contexts[:, layer]

    def one(head):
        there = own.hidden_states[:, layer], layer, *patching.shifts_at(bert, layer, head, change)
        output = patching.run_from(bert, None, params, host, *there, frozen=True, stop=stops.max())
        return jnp.moveaxis(output.hidden_states[:, stops], 1, 0)

    return jnp.moveaxis(jax.vmap(one)(heads), 1, 0)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _received(
    bert: Bert,
    into: str,
    reads: Reads,
    at_token: int | None,
    params,
    host: Host,
    streams: Float[Array, 'K B T D'],
    layer,
    heads,
) -> Float[Array, 'K R B']:
    """Return the metric with an input of heads of a layer taken from patched streams."""
    setting, own = Static(bert.config, 'zero'), host.own[0]
    intact, contexts = own.hidden_states[:, layer], own.contexts[:, layer]
    of_layer = jax.tree.map(lambda leaf: leaf[layer], params['layers'])
    _, scopes = embed(setting, params['embeddings'], host.batch)
    scope = encoder.scope_of(scopes, jnp.array(encoder.kinds_of_layers(bert.config))[layer])

    def of_stream(stream):
        others = dict.fromkeys(encoder.PROJECTIONS if into == INPUT else [into], stream)
        change = contexts_of(setting, of_layer, intact, scope, **others)[0] - contexts

        def one(head):
            there = intact, layer, *patching.shifts_at(bert, layer, head, change)
            return reads(patching.run_from(bert, at_token, params, host, *there), host.given)

        return jax.vmap(one)(heads)

    return jax.vmap(of_stream)(streams)
