"""Attribution patching: the effects of patches, estimated from gradients.

Axes are those of `patching`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_secrets_jax.ablation.patched_metrics import AnyMetric, Reads
from bert_secrets_jax.ablation.patching import Host, Pairs, Patched, run_from
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.devices import fetch
from bert_secrets_jax.model.bert import Bert, check_no_convolution
from bert_secrets_jax.model.parts import matmul_precision
from bert_secrets_jax.model.weights import Pretrained


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
