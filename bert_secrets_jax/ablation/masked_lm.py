"""Effects of masks on the loss of a masked LM, which needs no labels and no fine-tuning.

Axes: M masks, L layers, N heads, E texts, R rows of all batches, W wordpieces.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.stats
from jaxtyping import Float, Int, Shaped

from bert_secrets_jax.ablation.effects import LEVEL, POWER, Effects, Outcome, loss_in
from bert_secrets_jax.ablation.resumable import encoding_for, sweep_all
from bert_secrets_jax.ablation.scores import ROUNDING, blocks
from bert_secrets_jax.ablation.significance import benjamini_hochberg
from bert_secrets_jax.ablation.sweep import Descent
from bert_secrets_jax.brief import brief
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.masking import MaskedTexts, Masking, mask_words
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.model.config import MASKED_LM
from bert_secrets_jax.model.weights import Pretrained, check_pretrained

# Fewer texts give no interval at all, and fewer than the second one a little too narrow.
_FEWEST, FEW = 2, 50
_RESAMPLES = 5000
MASKED_LM_LOSS = loss_in('nats per hidden wordpiece')


@dataclasses.dataclass(frozen=True)
class MaskedLosses:
    """The loss of a masked LM on hidden wordpieces, under every mask.

    Attributes:
      masks: [M, L, N] The masks of heads.
      losses: [M, E] The loss of each text in nats, added up over its hidden wordpieces.
      hidden: [E] The number of hidden wordpieces of each text.
      words: [W] All hidden wordpieces, in any order.
    """

    masks: Float[np.ndarray, 'M L N']
    losses: Float[np.ndarray, 'M E']
    hidden: Int[np.ndarray, ' E']
    words: Int[np.ndarray, ' W']

    __repr__ = brief

    @property
    def means(self) -> Float[np.ndarray, ' M']:
        """The loss per hidden wordpiece, in nats. Its exponential is the (pseudo-)perplexity."""
        return self.losses.sum(axis=1) / self.hidden.sum()


def masked_lm_losses(
    pretrained: Pretrained,
    texts: Sequence[Text],
    masks: Shaped[np.ndarray, 'M L N'],
    *,
    masking: Masking | None = None,
    baseline: str = 'uniform',
    replacement: Float[np.ndarray, 'L N H'] | None = None,
    donor_seed: int = 0,
    compute: Compute = Compute(),
) -> MaskedLosses:
    """Compute the loss of every text under every mask of heads, and show the progress.

    The same wordpieces are hidden under all masks. The logits are those of hidden wordpieces alone.

    Args:
      pretrained: A model with the head of a masked LM.
      texts: Strings, pairs of strings or `Example`s, all of one kind.
      masks: [M, L, N] The masks of heads, as in `sweep`.
      masking: Which wordpieces are hidden; None takes the defaults of `Masking`.
      baseline, replacement, donor_seed: As in `sweep`. 'mean' and 'resample' take the outputs of
        heads on texts with hidden wordpieces, too.
      compute: How it is computed, as in `sweep_examples`.

    Raises:
      TypeError: The model is not a `Pretrained`, or the texts are something else.
      ValueError: The model is no masked LM, `mask_words` or `sweep` would refuse the other
        arguments, or wordpieces are to be hidden one at a time with 'resample'.
    """
    check_masked_lm(pretrained)
    masking = masking or Masking()
    if masking.one_at_a_time and baseline == 'resample':
        raise ValueError(
            "Wordpieces that are hidden one at a time do not go with baseline='resample': most "
            'donors would be copies of the same text.'
        )
    descent = Descent.start(pretrained, masks, baseline, replacement, compute)
    masked = mask_words(
        pretrained.tokenizer, texts, masking=masking, **encoding_for(descent, compute)
    )
    descent = descent.replacing(pretrained, masked.batches, donor_seed, compute.mesh)
    likely = sweep_all(pretrained, masked.batches, descent, folder=compute.folder)[..., 0]
    words = np.concatenate([each.words[each.words >= 0] for each in masked.batches])
    return MaskedLosses(np.asarray(masks, np.float32), *losses_of_texts(likely, masked), words)


def losses_of_texts(
    likely: Float[np.ndarray, 'M R'], masked: MaskedTexts
) -> tuple[Float[np.ndarray, 'M E'], Int[np.ndarray, ' E']]:
    """Return the loss of each text, of all its rows, and the number of its hidden wordpieces."""
    count = int(masked.text.max()) + 1
    losses = np.zeros((len(likely), count))
    np.add.at(losses.T, masked.text, -likely.T.astype(np.float64))
    hidden = np.zeros(count, int)
    np.add.at(hidden, masked.text, masked.hidden)
    return losses, hidden


def frequency_loss(words: Int[np.ndarray, ' W']) -> float:
    """Return the loss, in nats, of the best guess that knows only how frequent wordpieces are.

    It is the entropy of the wordpieces, with a correction for those that a sample lacks (Chao and
    Shen 2003, "Nonparametric estimation of Shannon's index of diversity"). Of few, it is too low.
    """
    counts, total = np.unique_counts(words).counts, len(words)
    # Without any that comes twice, nothing would be left.
    share = (1 - min((counts == 1).sum(), total - 1) / total) * counts / total
    return float(-np.sum(share * np.log(share) / (1 - (1 - share) ** total)))


def check_masked_lm(*models: Pretrained) -> None:
    """Raise ValueError for a model that predicts no hidden wordpieces."""
    check_pretrained(*models)
    for model in models:
        if model.config.head != MASKED_LM:
            raise ValueError(
                f'The model ({model.config.summary}) has no head of a masked LM. Checkpoints of '
                "pre-training have one, such as 'bert-base-uncased'; sentence-embedding models and "
                'fine-tuned ones do not. bs.with_masked_lm(tuned, pretrained) gives a fine-tuned '
                'encoder the head of the model that it was fine-tuned from.'
            )


def _largest_t(
    linear: Float[np.ndarray, 'M E'], share: Float[np.ndarray, ' E'], seed: int
) -> Float[np.ndarray, ' R']:
    """Return the largest |t| among all masks in each resample of texts, if none has an effect."""
    count = len(share)
    rng = np.random.default_rng(seed)
    largest = []
    for start, stop in blocks(_RESAMPLES, count):
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=stop - start)
        drawn = drawn.astype(np.float64)
        weight = drawn @ share
        mean = drawn @ linear.T / weight[:, None]
        squares = drawn @ (linear**2).T
        square = (
            squares
            - 2 * mean * (drawn @ (linear * share).T)
            + mean**2 * (drawn @ share**2)[:, None]
        )
        # Rounding may leave a little less, or more, than nothing.
        error = np.sqrt(np.maximum(square, ROUNDING * squares) / (count - 1) / count)
        t = np.abs(mean) * (weight / count)[:, None] / np.where(error > 0, error, np.inf)
        # A resample of few texts may be one text many times, and counts against any finding.
        largest.append(np.where(drawn.max(axis=1) == count, np.inf, t.max(axis=1)))
    return np.concatenate(largest)


def assess_losses(
    losses: Float[np.ndarray, 'M E'],
    intact: Float[np.ndarray, ' E'],
    hidden: Int[np.ndarray, ' E'],
    *,
    names: Sequence[str] = (),
    outcome: Outcome = MASKED_LM_LOSS,
    sample_of: str = 'texts',
    seed: int = 0,
) -> Effects:
    """Compare the loss under each mask with that of the intact model, paired by text.

    P-values are those of Student's t-test, and `corrected` those of max-T by a bootstrap of texts:
    flips of signs would find too much, because changes of a loss are skewed. The interval of a
    difference per wordpiece is that of the mean of its linear part (Cochran 1977, "Sampling
    techniques", section 6.3). Over fewer than `FEW` texts, it covers a little less than 95 %.

    Losses [M, E] and [E] are added up over the hidden wordpieces of a text; with ones for `hidden`,
    the mean is over texts. ValueError with fewer than two, FloatingPointError for broken losses.
    """
    count = len(intact)
    if count < _FEWEST:
        raise ValueError(f'An interval over texts needs at least {_FEWEST}, and there are {count}.')
    if not (np.isfinite(losses).all() and np.isfinite(intact).all()):
        raise FloatingPointError('A loss is NaN or infinite: are the weights of the model broken?')
    changes, share = (losses - intact) / hidden.mean(), hidden / hidden.mean()
    difference = changes.mean(axis=1)
    linear = changes - difference[:, None] * share
    error = linear.std(axis=1, ddof=1) / np.sqrt(count)
    reach = scipy.stats.t.ppf(1 - LEVEL / 2, count - 1) * error
    # A change that is the same everywhere, up to rounding, has no error and is not tested.
    told = error > ROUNDING * np.abs(changes).max(axis=1)
    t = np.abs(difference) / np.where(told, error, np.inf)
    p_values = 2 * scipy.stats.t.sf(t, count - 1)
    largest = _largest_t(linear, share, seed)
    corrected = (1 + (largest[:, None] >= t).sum(axis=0)) / (1 + len(largest))
    # Bonferroni's bar, which max-T is below: what is said to be found is found.
    bar = scipy.stats.t.ppf(1 - LEVEL / 2 / len(changes), count - 1)
    return Effects(
        names=names,
        difference=difference,
        low=difference - reach,
        high=difference + reach,
        p_value=p_values,
        corrected=corrected,
        sample=count,
        sample_of=sample_of,
        outcome=outcome,
        intact=float(intact.sum() / hidden.sum()),
        test="Student's t",
        correction='max-T',
        benjamini_hochberg=benjamini_hochberg(p_values),
        detectable=(bar + scipy.stats.norm.ppf(POWER)) * error,
    )
