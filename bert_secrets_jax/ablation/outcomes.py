"""Outcomes that see more of losing a head than a score does.

A score moves only when a prediction flips, and few do. So the logits themselves are compared:

- 'discrimination': how well classes are told apart, by the loss after scale and offsets of the
  logits are fitted again to each model. A model that is merely too sure of itself loses nothing.
- 'auc': the same by ranks: the probability that a text of a class is ranked above one that is not.
- 'answers': how far answers move, for better or worse. It needs no labels.
- 'calibration': the rest of the loss, which such a fit takes away.

For a regression, 'discrimination' and 'calibration' are the two parts of its squared error.

Axes: M masks (of models, the first is the intact one), E examples, C classes (1: a regression).
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Array, Bool, Float, Int, Num

from bert_secrets_jax.checks import check_numbers, check_shape
from bert_secrets_jax.finetune.losses import loss_per_example, losses_of
from bert_secrets_jax.stats.effects import MARGIN, Effects, Outcome, loss_in
from bert_secrets_jax.stats.means import assess_means
from bert_secrets_jax.stats.scores import ROUNDING
from bert_secrets_jax.stats.seeds import assess_means_over_seeds

Logits = Float[np.ndarray, 'M E C']
Labels = Num[np.ndarray, ' E']
PerModel = Float[np.ndarray, 'M E']
# The value of an outcome for every model, and the part of each example in it.
Measured = tuple[Float[np.ndarray, ' M'], PerModel]

# A head that moves answers by less than 5 % of their spread counts as one that does nothing.
ANSWERS = Outcome(
    'answers', 'spreads', 1.0, 3, more_is_better=False, directed=False, margin=0.05, grows=True
)
AUC = Outcome('auc', margin=MARGIN)
_LEADS = 'discrimination'
_FOLDS = 10
# How much the logits as they are count in a fit, in examples: of classes that are told apart
# without any error, no scale would be the best.
_PRIOR = 1.0
# The scale of logits that are all 0 changes nothing, and has to stay where it is.
_TINY = 1e-6
_STEPS = 20
# Shares of Newton's step, of which the one that leaves the least loss is taken.
_SHORTER = np.array([0.0, 0.01, 0.1, 0.3, 1.0])


def assess_outcomes(
    logits: Sequence[Logits], labels: Labels, *, names: Sequence[str], seed: int = 0
) -> dict[str, Effects]:
    """Return the effects of masks by each outcome, on one model or over several of one recipe.

    'discrimination' leads.

    A regression has no 'auc', nor have examples of a single class; a model whose answers are all
    alike has no 'answers'.

    Args:
      logits: Those of each fine-tuned model [1 + M, E, C], those of the intact one first.
      labels: The classes, from 0, or the values of a regression.
      names: The names of the masks [M].
      seed: The seed of folds and resamples.

    Raises:
      ValueError: There are fewer than two examples, a logit or label is not finite, or logits,
        labels and names do not fit each other.
    """
    for each in logits:
        check_labels(each, labels, names)
    mend = ' (are the weights broken?)'
    check_numbers('logits and labels', *logits, labels, mend=mend)
    of_models = [_measured(np.asarray(each, np.float64), labels, seed) for each in logits]
    found = {}
    for outcome in of_models[0]:
        alone, linear = [], []
        for values, parts in (each[outcome] for each in of_models if outcome in each):
            linear.append(parts[1:] - parts[0])
            about = {'names': names, 'outcome': outcome, 'intact': float(values[0]), 'seed': seed}
            alone.append(assess_means(values[1:] - values[0], linear[-1], **about))
        if len(alone) == len(of_models):
            several = len(alone) > 1
            found[outcome.name] = (
                assess_means_over_seeds(alone, np.stack(linear)) if several else alone[0]
            )
    return found


def check_labels(logits: Logits, labels: Labels, names: Sequence[str]) -> None:
    """Raise ValueError unless logits [1 + M, E, C] have these labels [E] and names [M]."""
    axes = {'intact_and_masks': 1 + len(names), 'examples': len(labels), 'classes': None}
    check_shape('logits', logits, ', the intact model first', **axes)
    classes = logits.shape[-1]
    if not (np.isin(labels, np.arange(classes)) if classes > 1 else np.isfinite(labels)).all():
        raise ValueError(
            f'labels must be classes from 0 to {classes - 1}, or for logits of one column finite '
            'numbers.'
        )


def _measured(logits: Logits, labels: Labels, seed: int) -> dict[Outcome, Measured]:
    """Return each outcome of every model."""
    classes = logits.shape[-1]
    leading = discrimination_of(labels, classes)
    again = refitted(logits, labels, seed=seed)
    whole, fitted = (losses_of(each, labels) for each in (logits, again))
    found = {leading: _mean(fitted)}
    if classes > 1 and len(np.unique(labels)) > 1:
        found[AUC] = areas(logits, labels)
    moved = answer_changes(logits)
    if moved is not None:
        found[ANSWERS] = moved
    return found | {dataclasses.replace(leading, name='calibration'): _mean(whole - fitted)}


def discrimination_of(labels: Labels, classes: int) -> Outcome:
    """Return the outcome 'discrimination' of so many classes, or of a regression: one class."""
    if classes > 1:
        return loss_in('nats', name=_LEADS)
    return loss_in('squared error', name=_LEADS, variance=float(labels.var()))


def refitted(logits: Logits, labels: Labels, *, seed: int = 0) -> Logits:
    """Return logits with a scale and offsets that were fitted to the other examples.

    Each model has one scale and an offset for each class. Examples are dealt into ten parts, of all
    classes alike, and each part has the scale and the offsets that suit the nine others best.
    """
    folds = folds_of(labels, seed=seed, alike=logits.shape[-1] > 1)
    others = folds != np.arange(folds.max() + 1)[:, None]
    scale, offsets = map(np.asarray, fits(logits, labels, others))
    return scale[:, folds, None] * logits + offsets[:, folds]


def folds_of(labels: Labels, *, seed: int, alike: bool) -> Int[np.ndarray, ' E']:
    """Return the part, of ten, of each example; `alike`, if each class is dealt by itself."""
    order = np.random.default_rng(seed).permutation(len(labels))
    if alike:
        order = order[np.argsort(labels[order], kind='stable')]
    folds = np.empty(len(labels), int)
    folds[order] = np.arange(len(labels)) % _FOLDS
    return folds


@jax.jit
def fits(
    logits: Float[Array, 'M E C'], labels: Num[Array, ' E'], others: Bool[Array, 'F E']
) -> tuple[Float[Array, 'M F'], Float[Array, 'M F C']]:
    """Return the scale and the offsets by which the loss over others is least (Newton's steps)."""
    classes = logits.shape[-1]
    start = jnp.zeros(classes + 1).at[0].set(1.0)

    def fit(values, weights):
        # The pull towards the logits as they are keeps a scale of classes without errors finite.
        pull = _PRIOR * jnp.ones(classes + 1).at[0].set(jnp.maximum((values**2).mean(), _TINY))

        def loss(fitted):
            each = loss_per_example(fitted[0] * values + fitted[None, 1:], labels)
            return each @ weights + pull @ (fitted - start) ** 2

        def step(_, fitted):
            towards = jnp.linalg.solve(jax.hessian(loss)(fitted), jax.grad(loss)(fitted))
            tried = fitted[None] - jnp.outer(_SHORTER, towards)
            return tried[jax.vmap(loss)(tried).argmin()]

        return jax.lax.fori_loop(0, _STEPS, step, start)

    of_folds = jax.vmap(fit, in_axes=(None, 0))
    fitted = jax.lax.map(lambda values: of_folds(values, others.astype(values.dtype)), logits)
    return fitted[..., 0], fitted[..., 1:]


def areas(logits: Logits, labels: Labels) -> Measured:
    """Return the areas under the ROC curves, and the part of each example in them.

    Of more than two classes, it is the mean over each class against the rest. The part of an
    example is its placement (DeLong, DeLong and Clarke-Pearson 1988), less the mean.
    """
    # Rounded, so that equal probabilities are equal.
    probable = scipy.special.log_softmax(logits, axis=-1).round(10)
    classes = np.unique(labels).astype(int)
    value, linear = np.zeros(len(logits)), np.zeros(logits.shape[:2])
    for each in classes:
        inside = labels == each
        ranks = scipy.stats.rankdata(probable[..., each], axis=1)
        counts = inside.sum(), (~inside).sum()
        placed = np.empty_like(linear)
        for group, other in ((inside, counts[1]), (~inside, counts[0])):
            within = scipy.stats.rankdata(probable[:, group, each], axis=1)
            placed[:, group] = (ranks[:, group] - within) / other
        placed[:, ~inside] = 1 - placed[:, ~inside]
        area = placed[:, inside].mean(axis=1)
        share = np.where(inside, *(len(labels) / count for count in counts))
        value += area / len(classes)
        linear += (placed - area[:, None]) * share / len(classes)
    return value, linear


def answer_changes(logits: Logits) -> Measured | None:
    """Return how far answers move, in spreads of the intact model's, with each example's part.

    An example moves by the root mean square over classes of the change of its logits, which are
    centred first; the spread is that of these logits over examples. For two classes this is the
    change of the margin, divided by the margin's standard deviation. None without any spread.
    """
    if logits.shape[-1] > 1:
        logits = logits - logits.mean(axis=-1, keepdims=True)
    intact = logits[0]
    square = ((intact - intact.mean(axis=0)) ** 2).mean(axis=-1)
    spread = np.sqrt(square.mean())
    if not spread > ROUNDING * np.abs(intact).max():
        return None
    moved = np.sqrt(((logits - intact) ** 2).mean(axis=-1)) / spread
    value = moved.mean(axis=1)
    # The spread is one of these examples, too.
    by_spread = value[:, None] * (square / spread**2 - 1) / 2
    return value, moved - value[:, None] - by_spread


def _mean(values: PerModel) -> Measured:
    mean = values.mean(axis=1)
    return mean, values - mean[:, None]
