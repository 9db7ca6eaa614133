"""Are the heads that survive pruning the ones to train? (Prasanna et al. 2020, sections 3 to 5)

Each fine-tuned model is pruned, and the heads that survive are trained again from the pre-trained
weights, beside as many at random and as many of the others.

Shapes: S seeds, L layers, N heads.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
from absl import logging
from jaxtyping import Float

from bert_secrets_jax import paper, plots
from bert_secrets_jax.ablation.masks import describe
from bert_secrets_jax.analyses.common import inputs
from bert_secrets_jax.analyses.common.tables import Grid, table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example, as_examples
from bert_secrets_jax.finetune.config import FinetuneConfig
from bert_secrets_jax.finetune.metrics import BELOW_ZERO, TITLES
from bert_secrets_jax.finetune.train import Finetuned, finetune
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.pruning import curves
from bert_secrets_jax.pruning import removal as kinds
from bert_secrets_jax.pruning.removal import GOOD, KINDS
from bert_secrets_jax.ranges import Part
from bert_secrets_jax.runs.result import Result, measured
from bert_secrets_jax.stats.student import mean_interval

SOURCE = 'Prasanna et al. 2020, sections 3 to 5'
# The good subnetwork has the fewest heads with which this share of the full score is reached, as
# published.
SHARE = 0.9
FULL = 'full model'
_ROWS = FULL, *KINDS


class Subnetworks(Result):
    """The scores of subnetworks before and after they are trained again.

    Attributes:
      seeds: The seed of each fine-tuning.
      metric: The name of the metric.
      pruned: [S] The score of the fine-tuned 'full model', and by the kind of subnetwork its score
        without other heads.
      retrained: [S] The same of subnetworks that were trained again from the start.
      masks: [S, L, N] The heads that each of these has.
      examples: The number of examples that scores are on.
      share: The share of the full score that the good subnetwork reaches where it was chosen.
      learnt: The test of what each full model has learnt: metric, value, larger class, p-value.
    """

    title = 'Subnetworks, trained again'

    seeds: tuple[int, ...]
    metric: str
    pruned: Mapping[str, Float[np.ndarray, ' S']]
    retrained: Mapping[str, Float[np.ndarray, ' S']]
    masks: Mapping[str, Float[np.ndarray, 'S L N']]
    examples: int
    share: float
    learnt: tuple[inputs.Learnt, ...]

    @property
    def kept(self) -> np.ndarray:
        """The number of heads of the subnetworks of each seed [S]."""
        return self.masks[GOOD].sum(axis=(1, 2)).astype(int)

    def frames(self):
        frames, published = super().frames(), paper.subnetworks(self.subject.task)
        scores = [published.get(name, np.nan) for name in ('full', *KINDS)]
        frames['scores']['published'] = np.array(scores, float)
        return frames

    def _draw_subnetworks(self):
        limits = (-100.0 if self.metric in BELOW_ZERO else 0.0), 100.0
        scores = {'as it is': self.pruned, 'trained again': self.retrained}
        points: dict[str, Any] = {
            title: mean_interval(_points(each), limits) for title, each in scores.items()
        }
        published = self.frames()['scores']['published'].to_numpy()
        if not np.isnan(published).any():
            points['published, trained again'] = 100 * published, None, None
        return plots.points_by_row(
            _ROWS, points, label=f'{TITLES[self.metric]} (points)'
        ).captioned(
            f'{TITLES[self.metric]} of subnetworks of {self.kept.mean():.0f} of '
            f'{self.masks[GOOD][0].size} heads; lines are 95 % intervals over seeds.'
        )

    def findings(self):
        warned = inputs.seeds_not_learnt(self.seeds, self.learnt, 'the full model', self.examples)
        full, good, random, _ = _points(self.retrained)
        lead = good - random
        # Without any difference between seeds, there is nothing to test by.
        tested = bool(np.ptp(lead))
        beside = measured(
            'good less random, trained again',
            mean_interval(lead) if tested else lead.mean(),
            unit=f'points of {TITLES[self.metric]}',
            **{'sample': len(lead), 'sample_of': 'seeds', 'source': SOURCE},
            p=float(np.asarray(scipy.stats.ttest_1samp(lead, 0))[1]) if tested else np.nan,
            template='Heads that survive ({kept:.3g} of {heads}), trained again, reach {good:.1f} '
            '{unit}: {estimate:+z.1f} compared with as many at random. All reach {full:.1f}.',
            kept=self.kept.mean(),
            heads=self.masks[GOOD][0].size,
            good=good.mean(),
            full=full.mean(),
        )
        return [*warned, beside]

    def notes(self):
        return [
            'The good subnetwork has the heads that survive pruning by the gradient of the mask, '
            f'down to {self.share:.0%} of the full score.',
            'The bad one has heads that do not survive.',
            'Training again starts from the pre-trained weights, with a new classifier.',
        ]


# The settings `train` that change no result, or that `finetune` has in other ways.
_NOT_OF_TRAINING = (
    'starts', 'num_seeds', 'max_examples', 'max_dev_examples', 'checkpoint_every', 'log_every',
    'micro_batch',
)  # fmt: skip


def _training(given) -> dict[str, Any] | None:
    """Return the settings of fine-tuning that are not its defaults."""
    usual = {field.name: field.default for field in dataclasses.fields(FinetuneConfig)}
    settings = given.group('train', without=_NOT_OF_TRAINING)
    return {name: each for name, each in settings.items() if each != usual[name]} or None


@analysis(
    question='heads that survive pruning, trained again, compared with others',
    group='What matters',
    report='name',
    settings={
        'share': {
            'help': 'The good one has the fewest heads that reach this share of the full score.',
            'default': 0.9,
            'range': [0.01, 0.99],
        }
    },
    inputs={
        'tuned': 'tuned_here',
        'dev': 'ablated',
        'measured_on': 'measured',
        'training': _training,
    },
    needs=('tuned_here', inputs.needs_own_layers),
    cost=lambda given: 4 * len(given.study.seeds) * given.tokens_of_training(),
)
def subnetworks(
    pretrained: Pretrained,
    tuned: Finetuned,
    train: Sequence[Example],
    dev: Sequence[Example],
    *,
    measured_on: Sequence[Example] | None = None,
    share: Part = SHARE,
    training: Mapping[str, Any] | None = None,
    compute: Compute = Compute(),
) -> Subnetworks:
    """Train the heads that survive pruning again, beside others.

    That takes three times as long as the fine-tuning did.

    Args:
      pretrained: The model that was fine-tuned.
      tuned: Its fine-tuning, of any number of seeds, by `bs.finetune`.
      train: The examples to learn from.
      dev: The labelled examples that scores are on.
      measured_on: The examples on which the good subnetwork is chosen; None takes `train`.
      share: The share of the full score that the good subnetwork reaches there.
      training: The settings of `bs.finetune` for training again, such as `epochs`; give those of
        the first fine-tuning. None takes the defaults.
      compute: As in `ablation`.

    Raises:
      TypeError: An argument is something else.
      ValueError: The share is not between 0 and 1, an example has no fitting label, the model
        shares its layers, or `bs.finetune` refuses the settings.
    """
    own = {'start', 'max_dev_examples', 'mesh'}
    FinetuneConfig(**{name: each for name, each in (training or {}).items() if name not in own})
    check_whole(pretrained, *tuned.models)
    if not inputs.has_own_layers(pretrained.config):
        raise ValueError(
            f'This model ({pretrained.config.summary}) uses layers, keys or values several times, '
            'so that a head cannot be missing once: give one that uses each once.'
        )
    dev, config = as_examples(dev), tuned.models[0].config
    others = as_examples(train if measured_on is None else measured_on)
    labels, metric = inputs.labels_of(dev, config), tuned.metrics[0]
    inputs.check_varied(metric, labels, 'dev')
    inputs.check_varied(metric, inputs.labels_of(others, config), 'measured_on')
    found = []
    for place, (seed, model) in enumerate(zip(tuned.seeds, tuned.models, strict=True), 1):
        logging.info('Subnetworks: fine-tuning %d of %d', place, len(tuned.seeds))
        good = surviving_heads(model, others, metric, share=share, compute=compute)
        of_kinds = kinds.subnetwork_masks(good, seed=seed)
        every = np.stack([np.ones_like(good), *of_kinds.values()])
        swept, pruned = curves.scores_without(model, dev, every, metric, compute=compute)
        retrained = [pruned[0]]
        for kind, mask in of_kinds.items():
            again = finetune(
                kinds.without_heads(pretrained, mask),
                train,
                dev,
                seeds=(seed,),
                metrics=tuned.metrics,
                label_names=tuned.label_names,
                max_length=compute.max_length or pretrained.config.max_length,
                folder=compute.part(f'training/{kind} {seed}').folder,
                **(training or {}),
            )
            # The same examples as the others, of which fine-tuning may score fewer.
            (whole,) = again.models
            retrained += [*curves.scores_without(whole, dev, every[:1], metric, compute=compute)[1]]
        answers = np.asarray(swept.predictions[0])
        learnt = inputs.learning_test((metric,), config.num_labels, answers, labels)
        found.append((pruned, retrained, every, learnt))
    pruned, retrained, masks, learnt = zip(*found, strict=True)
    result = Subnetworks(
        seeds=tuple(tuned.seeds),
        metric=metric,
        pruned=dict(zip(_ROWS, np.transpose(pruned), strict=True)),
        retrained=dict(zip(_ROWS, np.transpose(retrained), strict=True)),
        masks=dict(zip(_ROWS, np.swapaxes(masks, 0, 1), strict=True)),
        examples=len(dev),
        share=share,
        learnt=learnt,
    )
    return _labelled(result)


def _labelled(found: Subnetworks) -> Subnetworks:
    """Return the result with its tables: scores, those of each seed, and which heads are left."""
    pruned, retrained = _points(found.pruned), _points(found.retrained)
    difference, low, high = mean_interval(retrained - retrained[0])
    least, greatest = paper.kappa()
    return found.with_frames(
        {
            'scores': table(
                f'{TITLES[found.metric]} with these heads alone, as they are and trained again. '
                'Published subnetworks also lack feed-forward layers.',
                subnetwork=_ROWS,
                pruned_points=pruned.mean(axis=1),
                retrained_points=retrained.mean(axis=1),
                difference_points=difference,
                low=low,
                high=high,
            ),
            'seeds': table(
                'The scores of each seed.',
                seed=found.seeds,
                subnetwork=np.array(_ROWS)[:, None],
                heads=[each.sum(axis=(1, 2)).astype(int) for each in found.masks.values()],
                pruned_points=pruned,
                retrained_points=retrained,
            ),
            'survivors': table(
                'The heads that the good subnetwork of each seed lacks, and how far seeds agree '
                f"(Fleiss' kappa; published: {least} to {greatest}).",
                seed=found.seeds,
                heads=found.kept,
                removed=list(map(describe, found.masks[GOOD])),
                fleiss_kappa=np.array(
                    curves.fleiss_kappa(found.masks[GOOD].reshape(len(found.seeds), -1))
                ),
            ),
        }
    )


def surviving_heads(
    tuned: Pretrained,
    examples: Sequence[Example],
    metric: str,
    *,
    share: float,
    compute: Compute = Compute(),
) -> Grid:
    """Return the fewest heads, by gradients measured anew, that reach a share of the score."""
    masks = curves.masks_by_gradients(tuned, examples, compute=compute)
    _, reached = curves.scores_without(tuned, examples, masks, metric, compute=compute)
    kept = masks.sum(axis=(1, 2)).astype(int)
    return masks[curves.sparsest(reached, kept, tolerance=(1 - share) * abs(float(reached[0])))]


def _points(scores: Mapping[str, np.ndarray]) -> Float[np.ndarray, 'R S']:
    """Return the scores of the full model and of each kind, in points."""
    return 100 * np.array([*scores.values()])
