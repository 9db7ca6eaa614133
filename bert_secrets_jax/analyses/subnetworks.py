"""Are the heads that survive pruning the ones to train? (Prasanna et al. 2020, sections 3 to 5)

Each fine-tuned model is pruned, and the heads that survive are trained again from the pre-trained
weights, beside as many at random and as many of the others.

Shapes: S seeds, L layers, N heads.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.stats
from absl import logging
from jaxtyping import Float

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.masks import describe
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.significance import weighted_scores
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.analyses.ablation import what_is_tested
from bert_secrets_jax.analyses.learnt import seeds_not_learnt
from bert_secrets_jax.analyses.models import check_varied, labels_of
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example, as_examples
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.finetune.train import Finetuned, finetune
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.paper import prasanna
from bert_secrets_jax.pruning.curves import fleiss_kappa, masks_by_gradients, sparsest
from bert_secrets_jax.pruning.subnetworks import (
    BAD,
    GOOD,
    KINDS,
    RANDOM,
    subnetwork_masks,
    without_heads,
)
from bert_secrets_jax.runs.findings import measured
from bert_secrets_jax.runs.result import Finding, Result, Subject, drawn, framed

SOURCE = 'Prasanna et al. 2020, sections 3 to 5'
# The good subnetwork has the fewest heads with which this share of the full score is reached, as
# published.
SHARE = 0.9
FULL = 'full model'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Subnetworks(Result):
    """The scores of subnetworks before and after they are trained again.

    Attributes:
      subject: The names of the model, the texts and the task.
      seeds: The seed of each fine-tuning.
      metric: The name of the metric.
      full: [S] The score of the full model, fine-tuned.
      pruned: By the kind of the subnetwork, [S] the score of the fine-tuned model with these heads
        alone.
      retrained: By the kind, [S] the score of the subnetwork trained again from the start.
      masks: By the kind, [S, L, N] the heads that it has.
      examples: The number of examples that scores are on.
      share: The share of the full score that the good subnetwork reaches where it was chosen.
      learnt: For each seed what is tested of the full model: the metric, its value, the share of
        the larger class, and the p-value.
    """

    title: ClassVar[str] = 'Subnetworks, trained again'
    FORMAT: ClassVar[int] = 1

    subject: Subject
    seeds: tuple[int, ...]
    metric: str
    full: Float[np.ndarray, ' S']
    pruned: Mapping[str, Float[np.ndarray, ' S']]
    retrained: Mapping[str, Float[np.ndarray, ' S']]
    masks: Mapping[str, Float[np.ndarray, 'S L N']]
    examples: int
    share: float
    learnt: tuple[tuple[str, float, float, float], ...]

    @property
    def kept(self) -> np.ndarray:
        """The number of heads of the subnetworks of each seed [S]."""
        return self.masks[GOOD].sum(axis=(1, 2)).astype(int)

    @property
    def kappa(self) -> float:
        """How far seeds agree on the heads that survive (Fleiss' kappa); NaN for one seed."""
        return fleiss_kappa(self.masks[GOOD].reshape(len(self.seeds), -1))

    def frames(self):
        rows = [
            (
                seed,
                kind,
                int(self.masks[kind][place].sum()) if kind in self.masks else heads,
                100 * pruned[place],
                100 * retrained[place],
            )
            for heads in [self.masks[GOOD][0].size]
            for kind, pruned, retrained in self._kinds()
            for place, seed in enumerate(self.seeds)
        ]
        means = [
            (
                kind,
                100 * pruned.mean(),
                100 * retrained.mean(),
                *(100 * value for value in _mean_of(retrained - self.full)),
                getattr(published, _PUBLISHED[kind]) if published else np.nan,
            )
            for published in [self._published]
            for kind, pruned, retrained in self._kinds()
        ]
        return {
            'scores': framed(
                ('subnetwork', 'pruned_points', 'retrained_points', 'difference_points', 'low',
                 'high', 'published'),
                means,
                f'{TITLES[self.metric]} with these heads alone, and trained again from the '
                'pre-trained weights. The published subnetworks also lack feed-forward layers.',
            ),
            'seeds': framed(
                ('seed', 'subnetwork', 'heads', 'pruned_points', 'retrained_points'),
                rows,
                'The same of each seed.',
            ),
            'survivors': framed(
                ('seed', 'heads', 'removed'),
                [
                    (seed, int(mask.sum()), describe(mask) if not mask.all() else '')
                    for seed, mask in zip(self.seeds, self.masks[GOOD], strict=True)
                ],
                'The heads that the good subnetwork of each seed lacks.',
            ),
        }  # fmt: skip

    def figures(self):
        return drawn(self, subnetworks=_draw)

    def findings(self):
        return [
            *seeds_not_learnt(self.seeds, self.learnt, 'the full model', self.examples),
            self._size_finding(),
            *self._kind_findings(),
            *self._survivor_findings(),
        ]

    def notes(self):
        return [
            'The good subnetwork has the heads that survive pruning by the gradient of the mask, '
            f'down to {self.share:.0%} of the full score.',
            'The bad one has heads that do not survive.',
            'Training again starts from the pre-trained weights, with a new classifier.',
        ]

    @property
    def _published(self) -> prasanna.PublishedSubnetworks | None:
        return prasanna.SUBNETWORKS.get(self.subject.task or '')

    def _kinds(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        yield FULL, self.full, self.full
        for kind in KINDS:
            yield kind, self.pruned[kind], self.retrained[kind]

    @property
    def _of(self) -> dict[str, Any]:
        """The unit, the sample and the source of most findings."""
        return {
            'unit': f'points of {TITLES[self.metric]}',
            'sample': len(self.seeds),
            'sample_of': 'seeds',
            'source': SOURCE,
        }

    def _size_finding(self) -> Finding:
        return measured(
            'size of subnetworks',
            self.kept.mean(),
            template='With {estimate:.3g} of {heads} heads, at least {share:.0f} % of the full '
            'score is left where they were chosen.',
            numbers={'heads': self.masks[GOOD][0].size, 'share': 100 * self.share},
            **self._of | {'unit': 'heads'},
        )

    def _kind_findings(self) -> Iterator[Finding]:
        for kind in KINDS:
            yield measured(
                f'{kind} subnetwork, trained again, less the full model',
                100 * np.array(_mean_of(self.retrained[kind] - self.full)),
                template='Trained again, the {kind} subnetworks change {metric} by '
                '{estimate:+z.1f} points, from {full:.1f} with all heads.',
                numbers={
                    'kind': kind,
                    'metric': TITLES[self.metric],
                    'full': 100 * float(self.full.mean()),
                },
                **self._of,
            )
            yield measured(
                f'{kind} subnetwork as it is', 100 * self.pruned[kind].mean(), **self._of
            )
        if len(self.seeds) > 1:
            for other in (RANDOM, BAD):
                yield self._against(other)

    def _against(self, other: str) -> Finding:
        lead = self.retrained[GOOD] - self.retrained[other]
        # Without any difference between seeds, there is nothing to test by.
        tested = bool(np.ptp(lead))
        return measured(
            f'good less {other}, trained again',
            100 * (np.array(_mean_of(lead)) if tested else lead.mean()),
            p=float(scipy.stats.ttest_1samp(lead, 0).pvalue) if tested else math.nan,
            template='Trained again, the heads that survive lead as many {other} ones by '
            '{estimate:+z.1f} points.',
            numbers={'other': other},
            **self._of,
        )

    def _survivor_findings(self) -> Iterator[Finding]:
        if np.isnan(self.kappa):
            return
        yield measured(
            'agreement of surviving heads',
            self.kappa,
            template='On which heads survive, {sample:seed|seeds} {sample:|agrees|agree} with a '
            'kappa of {estimate:.2f} (published: {least:.2f} to {most:.2f}, by task).',
            numbers=dict(zip(('least', 'most'), prasanna.KAPPA, strict=True)),
            **self._of | {'unit': "Fleiss' kappa"},
        )


_PUBLISHED = {FULL: 'full', GOOD: 'good', RANDOM: 'random', BAD: 'bad'}


def subnetworks(
    pretrained: Pretrained,
    tuned: Finetuned,
    train: Sequence[Example],
    dev: Sequence[Example],
    *,
    measured_on: Sequence[Example] | None = None,
    share: float = SHARE,
    training: Mapping[str, Any] | None = None,
    compute: Compute = Compute(),
    subject: Subject | None = None,
) -> Subnetworks:
    """Train the heads that survive pruning again, beside others.

    That takes three times as long as the fine-tuning did.

    Args:
      pretrained: The model that was fine-tuned.
      tuned: Its fine-tuning, of any number of seeds, by `bs.finetune`.
      train: The examples to learn from.
      dev: The labelled examples that scores are on.
      measured_on: The examples on which heads are scored and the size of the good subnetwork is
        chosen; None takes `train`.
      share: The share of the full score that the good subnetwork reaches there.
      training: The settings of `bs.finetune` for training again, such as `epochs`; give those of
        the first fine-tuning. None takes the defaults.
      compute: How it is computed.
      subject: The names of the model, the texts and the task, for sentences and captions.

    Raises:
      TypeError: A model or the examples are something else.
      ValueError: The share is not between 0 and 1, an example has no fitting label, the model
        shares its layers, or `bs.finetune` would refuse the settings.
    """
    if not 0 < share < 1:
        raise ValueError(f'{share=} must be above 0 and below 1, such as {SHARE}.')
    check_whole(pretrained, *tuned.models)
    if not has_own_layers(pretrained.config):
        raise ValueError(
            f'This model ({pretrained.config.summary}) uses the same layer several times, so that '
            'a head cannot be missing once: give one whose layers are all different.'
        )
    dev = as_examples(dev)
    others = as_examples(train if measured_on is None else measured_on)
    labels, metric = labels_of(dev, tuned.models[0].config), tuned.metrics[0]

    def scored(model: Pretrained, masks: np.ndarray) -> tuple[np.ndarray, Swept]:
        swept = sweep_examples(model, dev, masks, baseline='zero', compute=compute)
        return _scores(metric, swept, labels), swept

    check_varied(metric, labels, 'dev')
    check_varied(metric, labels_of(others, tuned.models[0].config), 'measured_on')
    pruned, retrained = ({kind: [] for kind in KINDS} for _ in range(2))
    masks, full, learnt = {kind: [] for kind in KINDS}, [], []
    for place, (seed, model) in enumerate(zip(tuned.seeds, tuned.models, strict=True), 1):
        logging.info('Subnetworks: fine-tuning %d of %d', place, len(tuned.seeds))
        good = surviving_heads(model, others, metric, share=share, compute=compute)
        of_kinds = subnetwork_masks(good, seed=seed)
        every = np.stack([np.ones_like(good), *of_kinds.values()])
        reached, swept = scored(model, every)
        full.append(reached[0])
        test = what_is_tested(
            (metric,), swept.logits.shape[-1], np.asarray(swept.predictions[0]), labels
        )
        learnt.append(tuple(test.values()))
        for kind, score in zip(KINDS, reached[1:], strict=True):
            again = finetune(
                without_heads(pretrained, of_kinds[kind]),
                train,
                dev,
                seeds=(seed,),
                metrics=tuned.metrics,
                label_names=tuned.label_names,
                max_length=compute.max_length,
                folder=compute.part(f'training/{kind} {seed}').folder,
                **(training or {}),
            )
            # The same examples as the others, of which fine-tuning may score fewer.
            of_again, _ = scored(again.models[0], every[:1])
            masks[kind].append(of_kinds[kind])
            pruned[kind].append(score)
            retrained[kind].append(of_again[0])
    return Subnetworks(
        subject=subject or Subject(),
        seeds=tuple(tuned.seeds),
        metric=metric,
        full=np.array(full),
        pruned={kind: np.array(each) for kind, each in pruned.items()},
        retrained={kind: np.array(each) for kind, each in retrained.items()},
        masks={kind: np.stack(each) for kind, each in masks.items()},
        examples=len(dev),
        share=share,
        learnt=tuple(learnt),
    )


def has_own_layers(config: BertConfig) -> bool:
    """Return whether a model uses each of its layers once."""
    return config.num_hidden_groups in (None, config.num_hidden_layers)


def surviving_heads(
    tuned: Pretrained,
    examples: Sequence[Example],
    metric: str,
    *,
    share: float,
    compute: Compute = Compute(),
) -> Float[np.ndarray, 'L N']:
    """Return the fewest heads with which a model still reaches a share of its score.

    Heads go by the gradient of the mask, measured anew after each step of a tenth.

    Args:
      tuned: The fine-tuned model.
      examples: The labelled examples to measure on.
      metric: The name of the metric.
      share: The share of the score.
      compute: How it is computed.
    """
    labels = labels_of(examples, tuned.config)
    masks = masks_by_gradients(tuned, examples, labels, compute=compute)
    swept = sweep_examples(tuned, examples, masks, baseline='zero', compute=compute)
    reached = _scores(metric, swept, labels)
    kept = masks.sum(axis=(1, 2)).astype(int)
    return masks[sparsest(reached, kept, tolerance=(1 - share) * abs(float(reached[0])))]


def _scores(metric: str, swept: Swept, labels: np.ndarray) -> np.ndarray:
    return weighted_scores(metric, swept.predictions, labels, np.ones((1, len(labels))))[0]


def _mean_of(values: Float[np.ndarray, ' S']) -> tuple[float, float, float]:
    """Return a mean over seeds and the ends of its 95 % interval (Student's t)."""
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return mean, math.nan, math.nan
    reach = scipy.stats.t.ppf(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count)
    return mean, mean - float(reach), mean + float(reach)


def _draw(result: Subnetworks):
    kinds = list(result._kinds())
    rows = [kind for kind, _, _ in kinds]
    points = {}
    for title, place in (('as it is', 1), ('trained again', 2)):
        found = [_mean_of(100 * each[place]) for each in kinds]
        points[title] = tuple(np.array(column) for column in zip(*found, strict=True))
    if result._published:
        published = [100 * getattr(result._published, _PUBLISHED[kind]) for kind in rows]
        points['published, trained again'] = (np.array(published), None, None)
    return plots.points_by_row(rows, points, label=f'{TITLES[result.metric]} (points)').captioned(
        f'{TITLES[result.metric]} of subnetworks of {result.kept.mean():.0f} of '
        f'{result.masks[GOOD][0].size} heads'
        + ('.' if len(result.seeds) == 1 else '; lines are 95 % intervals over seeds.'),
    )
