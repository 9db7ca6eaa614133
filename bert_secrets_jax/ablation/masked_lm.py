"""Effects of masks on the loss of a masked LM, which needs no labels and no fine-tuning.

Axes: M masks, L layers, N heads, E texts, R rows of all batches, W wordpieces.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from bert_secrets_jax.ablation.contexts import Means
from bert_secrets_jax.ablation.masks import GivenMasks, Masks
from bert_secrets_jax.ablation.resumable import encoding_for, sweep_all
from bert_secrets_jax.ablation.sweep import Descent
from bert_secrets_jax.checks import brief
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.masking import MaskedTexts, Masking, mask_words
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.model.bert import check_finite
from bert_secrets_jax.model.weights import Pretrained, check_masked_lm
from bert_secrets_jax.stats.effects import Effects, Outcome, loss_in
from bert_secrets_jax.stats.means import FEW as FEW
from bert_secrets_jax.stats.means import assess_means

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

    masks: Masks
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
    masks: GivenMasks,
    *,
    masking: Masking | None = None,
    baseline: str = 'uniform',
    replacement: Means | None = None,
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
    losses = np.stack([np.bincount(masked.text, -each) for each in likely])
    return losses, np.bincount(masked.text, masked.hidden).astype(int)


def frequency_loss(words: Int[np.ndarray, ' W']) -> float:
    """Return the loss, in nats, of the best guess that knows only how frequent wordpieces are.

    It is the entropy of the wordpieces, with a correction for those that a sample lacks (Chao and
    Shen 2003, "Nonparametric estimation of Shannon's index of diversity"). Of few, it is too low.
    """
    counts, total = np.unique_counts(words).counts, len(words)
    # Without any that comes twice, nothing would be left.
    share = (1 - min((counts == 1).sum(), total - 1) / total) * counts / total
    return float(-np.sum(share * np.log(share) / (1 - (1 - share) ** total)))


def assess_losses(
    losses: Float[np.ndarray, 'M E'],
    intact: Float[np.ndarray, ' E'],
    hidden: Int[np.ndarray, ' E'] | None = None,
    *,
    names: Sequence[str] = (),
    outcome: Outcome = MASKED_LM_LOSS,
    sample_of: str = 'texts',
    seed: int = 0,
) -> Effects:
    """Compare the loss under each mask with that of the intact model, paired by text.

    Intervals and p-values are those of `means.assess_means`. The interval of a difference per
    wordpiece is that of the mean of its linear part (Cochran 1977, "Sampling techniques", section
    6.3). Over fewer than `FEW` texts, it covers a little less than 95 %.

    Losses [M, E] and [E] are added up over the hidden wordpieces of a text; without their number,
    the mean is over texts. ValueError with fewer than two, FloatingPointError for broken losses.
    """
    check_finite(np.vstack([losses, intact])[..., None])
    hidden = np.ones(len(intact), int) if hidden is None else hidden
    changes, share = (losses - intact) / hidden.mean(), hidden / hidden.mean()
    difference = changes.mean(axis=1)
    return assess_means(
        difference,
        changes - difference[:, None] * share,
        names=names,
        outcome=outcome,
        intact=float(intact.sum() / hidden.sum()),
        share=share,
        sample_of=sample_of,
        seed=seed,
    )
