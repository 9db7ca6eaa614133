"""Shapley values: what each head adds to a model, estimated from random permutations.

Held and Yang (2023) let the heads of a model play a game. The value v(S) of a set of heads S is how
well the model does with these alone, and a baseline for the others. The Shapley value of a head is
what it adds to v on average when heads come in, one after the other, in random order. A head whose
value is negative does harm. All values add up to what the intact model has over the empty one.

The average over drawn permutations is unbiased. Each comes with its reverse (antithetic pairs,
Mitchell et al. 2022, section 4.1). Held and Yang stop a permutation before its end, which biases
the values. Here every one is run whole, as n - 1 models. The sweep runs each layer once for those
that do not differ in it or below.

Shapes: M masks, L layers, N heads, n all heads (L * N), E examples, R permutations, P antithetic
pairs of permutations (R / 2), K coalitions, C classes.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int, Num, Real

from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.checks import brief, check_shape
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Text, as_examples, check_labels_inputs
from bert_secrets_jax.finetune.losses import losses_of
from bert_secrets_jax.model.bert import check_finite
from bert_secrets_jax.model.weights import Pretrained

# A function of logits [M, E, C] and labels [E]: how well each model does on each example [M, E].
Value = Callable[[np.ndarray, np.ndarray], np.ndarray]
# 95 % intervals hold the value in .72 of games with 4 permutations, and in .93 with 20 (tests).
_FEWEST = 20


def negative_loss(
    logits: Float[np.ndarray, 'M E C'], labels: Num[np.ndarray, ' E']
) -> Float[np.ndarray, 'M E']:
    """Return minus the loss of fine-tuning, in nats or squared units of a regression."""
    return -losses_of(logits, labels)


def correct(
    logits: Float[np.ndarray, 'M E C'], labels: Num[np.ndarray, ' E']
) -> Float[np.ndarray, 'M E']:
    """Return 1 where the most likely class is the label and 0 elsewhere; its mean is accuracy."""
    return (logits.argmax(axis=-1) == labels[None]).astype(np.float64)


@dataclasses.dataclass(frozen=True)
class Shapley:
    """Shapley values of heads, as estimated from permutations.

    Attributes:
      of_pairs: The estimate of each pair of permutations, over all examples. Pairs are independent.
      of_examples: The estimate of all permutations for each example, whose mean is `values`. Its
        spread says how far the values would change with other examples.
      intact, empty: The mean values of the model with all heads, and with none.
    """

    of_pairs: Float[np.ndarray, 'P L N']
    of_examples: Float[np.ndarray, 'E L N']
    intact: float
    empty: float

    __repr__ = brief

    @property
    def values(self) -> Float[np.ndarray, 'L N']:
        """The Shapley value of each head; together they are `intact` - `empty`."""
        return self.of_pairs.mean(axis=0)

    @property
    def errors(self) -> Float[np.ndarray, 'L N']:
        """The standard error of each value over pairs of permutations, with these examples.

        Two-sided intervals take Student's t with P - 1 degrees of freedom.
        """
        return self.of_pairs.std(axis=0, ddof=1) / np.sqrt(len(self.of_pairs))

    @property
    def permutations(self) -> int:
        """The number of permutations, each second one the reverse of the first."""
        return 2 * len(self.of_pairs)


def shapley_values(
    pretrained: Pretrained,
    examples: Sequence[Text],
    labels: Num[np.ndarray, ' E'],
    *,
    value: Value = negative_loss,
    permutations: int = 20,
    seed: int = 0,
    baseline: str = 'zero',
    replacement: Float[np.ndarray, 'L N H'] | None = None,
    donor_seed: int = 0,
    compute: Compute = Compute(),
) -> Shapley:
    """Estimate the Shapley value of every head of a model, and show the progress.

    That runs `permutations * (heads - 1) + 2` models on all examples. Fewer examples or
    permutations cost in proportion less: the standard errors tell what these leave open.

    Args:
      pretrained: A model with a classification or regression head.
      examples: Strings, pairs of strings or `Example`s, all of one kind.
      labels: The label of each example.
      value: A function of logits [M, E, C] and labels that says how well each model does on each
        example [M, E]: `negative_loss`, `correct` or your own.
      permutations: The number of permutations with their reverses: even, and at least 20.
      seed: The seed of the permutations.
      baseline, replacement, donor_seed: As in `sweep`. 'zero' is published.

    Raises:
      TypeError: The model is not a `Pretrained`, or the examples are not texts.
      ValueError: The model does not label whole texts, labels or permutations have a wrong number,
        or the value has another shape; also what `sweep_examples` refuses.
      FloatingPointError: Some model predicts NaN or infinity, or has no finite value.
    """
    check_labels_inputs(pretrained.config)
    examples, labels = as_examples(examples), np.asarray(labels)
    check_shape('labels', labels, ', one for each example', examples=len(examples))
    shape = pretrained.config.num_hidden_layers, pretrained.config.num_attention_heads
    drawn = draw_permutations(shape[0] * shape[1], permutations, seed=seed)
    swept = sweep_examples(
        pretrained,
        examples,
        coalitions(drawn, shape),
        baseline=baseline,
        replacement=replacement,
        donor_seed=donor_seed,
        compute=compute,
    )
    check_finite(swept.logits)
    values = np.asarray(value(swept.logits, labels))
    models, count = swept.logits.shape[:2]
    check_shape('What value returns', values, models=models, examples=count)
    return shapley_of(values, drawn, shape)


def check_permutations(count: int) -> None:
    """Raise ValueError for a number of permutations that makes no pairs, or too few."""
    if count % 2 or count < _FEWEST:
        raise ValueError(
            f'permutations={count} must be even, since each comes with its reverse, and at least '
            f'{_FEWEST}: intervals of fewer are too narrow.'
        )


def draw_permutations(heads: int, count: int, *, seed: int) -> Int[np.ndarray, 'R n']:
    """Draw permutations, the first of them the same for any number; each second is a reverse."""
    check_permutations(count)
    rng = np.random.default_rng(seed)
    drawn = np.stack([rng.permutation(heads) for _ in range(count // 2)])
    return np.stack([drawn, drawn[:, ::-1]], axis=1).reshape(count, heads)


def coalitions(
    permutations: Int[np.ndarray, 'R n'], shape: tuple[int, int]
) -> Float[np.ndarray, 'K L N']:
    """Return masks that keep the first heads of each permutation alone.

    They are all heads, none, and of each permutation its first head, first two, up to all but one.
    """
    count, heads = permutations.shape
    # A head is kept by the prefixes that are longer than its place.
    places = np.argsort(permutations, axis=1)
    kept = np.arange(1, heads)[None, :, None] > places[:, None, :]
    ends = np.stack([np.ones(heads), np.zeros(heads)])
    masks = np.concatenate([ends, kept.reshape(count * (heads - 1), heads)])
    return masks.reshape(-1, *shape).astype(np.float32)


def shapley_of(
    values: Real[np.ndarray, 'K E'], permutations: Int[np.ndarray, 'R n'], shape: tuple[int, int]
) -> Shapley:
    """Estimate Shapley values from the values of coalitions on each example."""
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise FloatingPointError(
            'The value of some model is NaN or infinite: is it defined for all logits and labels?'
        )
    count, heads = permutations.shape
    intact, empty = values[0], values[1]
    prefixes = values[2:].reshape(count, heads - 1, values.shape[1])
    of_pairs = np.zeros((count // 2, heads))
    of_examples = np.zeros((heads, values.shape[1]))
    for number, (order, inner) in enumerate(zip(permutations, prefixes, strict=True)):
        added = np.diff(np.concatenate([empty[None], inner, intact[None]]), axis=0)
        of_pairs[number // 2, order] += added.mean(axis=1) / 2
        of_examples[order] += added / count
    return Shapley(
        of_pairs=of_pairs.reshape(-1, *shape),
        of_examples=of_examples.T.reshape(-1, *shape),
        intact=float(intact.mean()),
        empty=float(empty.mean()),
    )
