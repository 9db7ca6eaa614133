"""How many heads can go, in what order, and what the model is without them (Michel et al. 2019).

Shapes: S seeds, D draws, K numbers of heads that are removed, L layers, N heads, E examples.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from absl import logging

from bert_secrets_jax import paper, plots
from bert_secrets_jax.ablation.masks import describe
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import inputs as arguments
from bert_secrets_jax.analyses.common.disabling import checked_metrics
from bert_secrets_jax.analyses.common.inputs import Learnt, learning_test, seeds_not_learnt
from bert_secrets_jax.analyses.common.tables import grids_frame, table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_name
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example, as_examples
from bert_secrets_jax.finetune.metrics import BELOW_ZERO
from bert_secrets_jax.finetune.metrics import TITLES as METRIC_TITLES
from bert_secrets_jax.model.weights import check_whole, save_pretrained
from bert_secrets_jax.pruning import curves as stepwise
from bert_secrets_jax.pruning.curves import ANEW, RANDOM, Curve, PrunedModel, over_steps
from bert_secrets_jax.pruning.outliers import FEWEST_DRAWS
from bert_secrets_jax.pruning.removal import remove_heads
from bert_secrets_jax.pruning.scores import GRADIENT, TITLES, head_scores
from bert_secrets_jax.pruning.steps import SHARES, ranks, removed_heads
from bert_secrets_jax.ranges import CountOrZero, Range
from bert_secrets_jax.runs.result import Interval, Result, measured, noted
from bert_secrets_jax.stats.scores import METRICS
from bert_secrets_jax.stats.significance import weighted_scores

SOURCE = 'Michel et al. 2019, section 4.2'
ORDERS: Mapping[str, str] = {**TITLES, ANEW: 'gradient, measured anew', RANDOM: 'at random'}
# A model is as good as the full one if its score is at most so much lower.
Tolerance = Annotated[float, Range(0.0, 1.0, whole=False, without=1.0)]
TOLERANCE = 0.01
# Random orders: with one less than 19, none would be so rare that its rank is significant.
DRAWS = 20
_ORDER = 'pruning in the order of gradients'
# A step is one at a share of heads if it is not farther from it.
_NEAR = 0.05


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The sparsest model that is as good as the full one, chosen on other examples.

    Attributes:
      order: The order in which heads were removed.
      mask: [L, N] The heads that it keeps.
      difference: The score less that of the full model, on the examples.
      low, high: The ends of its 95 % interval over examples.
      where_chosen: The difference on the examples that it was chosen on.
    """

    order: str
    mask: np.ndarray
    difference: float
    low: float
    high: float
    where_chosen: float

    @property
    def kept(self) -> int:
        """The number of heads that it keeps."""
        return int((self.mask != 0).sum())


class Pruning(Result):
    """The behaviour of a model as its heads are removed, step by step.

    Attributes:
      seeds: The seed of each fine-tuned model.
      metric: The name of the metric.
      intact: [S] The score of each model with all heads.
      kept: [K] The number of heads that are left at each step.
      curves: The change of the score at each step, by the name of the order.
      chosen: The sparsest model of each seed that is as good as the full one.
      stays: By the name of the order, [S, L, N] the share of steps in which each head is left.
      examples: The number of examples.
      others: The name of the other examples, from which orders and the sparsest model come.
      shared: How many of these have the same text as one of the examples.
      learnt: The test of what each model has learnt: metric, value, larger class, p-value.
      tolerance: How much lower the score of a model may be that counts as good as the full one.
      lead: The score in the order of gradients less that in random orders, mean over the steps that
        remove heads, with the ends of its 95 % interval; None without both.
    """

    title = 'How many heads can go'

    seeds: tuple[int, ...]
    metric: str
    intact: np.ndarray
    kept: np.ndarray
    curves: Mapping[str, Curve]
    chosen: tuple[Chosen, ...]
    stays: Mapping[str, np.ndarray]
    examples: int
    others: str
    shared: int
    learnt: tuple[Learnt, ...]
    tolerance: float = TOLERANCE
    lead: Interval | None = None

    @property
    def heads(self) -> int:
        """The number of all heads."""
        return int(self.kept[0])

    def frames(self):
        frames = super().frames()
        frames['chosen']['published_share_that_can_go'] = paper.prunable(self.subject.task)
        return frames

    def _draw_pruning(self):
        curves, full = dict(self.curves), 100 * float(self.intact.mean())
        # Student's intervals of few fine-tunings reach beyond what a score can be.
        limits = -100 * (self.metric in BELOW_ZERO), 100
        random = curves.pop(RANDOM, None)
        if random is not None:
            random = np.clip(full + 100 * random.draws.mean(axis=0), *limits)
        ends = {
            ORDERS[order]: np.clip(full + _points(each), *limits) for order, each in curves.items()
        }
        return plots.pruning_curves(
            {order: tuple(each) for order, each in ends.items()},
            self.kept / self.heads,
            full=full,
            random=random,
            label=f'{self._title} (points)',
        ).captioned(
            f'{self._title} as heads are removed, with 95 % intervals. Dashed: all heads.'
            + ' Grey: the range of random orders, and their mean.' * (random is not None)
        )

    def findings(self):
        warnings = seeds_not_learnt(self.seeds, self.learnt, 'the model', self.examples)
        often = 'On average, ' * (len(self.chosen) > 1)
        sparsest = measured(
            'sparsest model',
            np.mean([each.kept for each in self.chosen]),
            unit='heads',
            sample=self.examples,
            source=SOURCE,
            template=f'{often}{{estimate:.3g}} of {{heads}} heads are enough to stay within '
            '{tolerance:point|points} of {metric} (chosen on {others}).',
            tolerance=100 * self.tolerance,
            metric=self._title,
            others=self.others,
            heads=self.heads,
        )
        return [*warnings, sparsest]

    def notes(self):
        few = RANDOM in self.curves and self.curves[RANDOM].draws.shape[1] < FEWEST_DRAWS
        return noted(
            {
                'A head that is removed puts out nothing, and nothing is trained again.': True,
                'bs.remove_heads cuts heads out; bs.restore_heads makes an ordinary model of the '
                'rest.': True,
                f'Orders and the sparsest model come from {self.others}: where these are the '
                'same, scores are too good.': self.shared,
                f'It takes {FEWEST_DRAWS} random orders to tell if another one is better.': few,
            }
        )

    def gives(self):
        return {'stays': {ORDERS[order]: each.mean(axis=0) for order, each in self.stays.items()}}

    def verdicts(self):
        curve = self.curves.get(GRADIENT)
        tells = verdicts.not_measured(verdicts.ORDER_TELLS, f'{_ORDER} and in random orders')
        if curve is None:
            return [verdicts.not_measured(verdicts.HEADS_CAN_GO, _ORDER), tells]
        if self.lead is not None and np.isfinite(self.lead).all():
            ordered, random = (over_steps(each, self.kept) for each in (curve, self.curves[RANDOM]))
            tells = verdicts.order_tells(self.lead, ordered[:, 0], random, examples=self.examples)
        return [self._can_go(curve), tells]

    def _can_go(self, curve: Curve):
        share = 1 - verdicts.SHARE_THAT_CAN_GO
        step = int(np.abs(self.kept / self.heads - share).argmin())
        kept, change, needs = int(self.kept[step]), tuple(_points(curve)[:, step] / 100), _ORDER
        # With few heads, or with other steps, none may be near this share.
        if abs(kept / self.heads - share) > _NEAR:
            needs = f'a step of pruning with about {share:.0%} of the heads left; the nearest one '
            needs += f'has {kept} of {self.heads}'
        elif np.isfinite(change).all():
            of = {'kept': kept, 'heads': self.heads, 'examples': self.examples}
            return verdicts.heads_can_go(change, curve.draws[:, 0, step], **of)
        return verdicts.not_measured(verdicts.HEADS_CAN_GO, needs)

    @property
    def _title(self) -> str:
        return METRIC_TITLES[self.metric]


def _check(given) -> None:
    """Refuse a metric that is not offered for pruning."""
    metric = given.value('metric')
    if metric is not None:
        check_name('metric', metric, METRICS)


def _cost(given) -> float:
    # Five orders are scored twice.
    orders, steps = 5, len(SHARES)
    seeds = max(len(given.study.ablated_seeds), 1)
    here = given.MANY * steps * (orders + given['prune.draws']) * given.tokens('ablated')
    there = (given.MANY * orders + 5) * steps * given.tokens('measured')
    return seeds * (here + there)


def _save(given, result: Pruning, folder: pathlib.Path) -> None:
    """Write the sparsest model of the first seed, with its heads cut out."""
    mask = result.chosen[0].mask
    if (mask != 0).all():
        return
    save_pretrained(remove_heads(given.value('model'), mask), folder)
    logging.info('%s: the model with heads cut out, %d left.', folder, result.chosen[0].kept)


@analysis(
    question='how many heads can go, and in which order',
    group='What matters',
    time='2 min',
    section='prune',
    settings={
        'draws': {
            'help': 'Random orders to compare with; of fewer than 19, none is rarer than one in '
            'twenty.',
            'default': 20,
            'range': [0, 1000],
            'smoke': 2,
        },
        'tolerance': {
            'help': 'As good as the full model is one whose score is at most so much lower; '
            '0.01 is a point.',
            'default': 0.01,
            'range': [0.0, 1.0],
            'without': 1.0,
        },
    },
    inputs={
        'tuned': 'models',
        'examples': 'ablated',
        'measured_on': 'measured',
        'permutations': 'importance.permutations',
    },
    check=_check,
    cost=_cost,
    shares=True,
    also=('pruned/model', _save),
)
def pruning(
    tuned: arguments.Models,
    examples: Sequence[Example],
    *,
    measured_on: Sequence[Example],
    methods: Sequence[str] | None = None,
    permutations: int = 0,
    shares: Sequence[float | int] = SHARES,
    anew: bool = True,
    draws: CountOrZero = DRAWS,
    tolerance: Tolerance = TOLERANCE,
    metric: str | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
) -> Pruning:
    """Remove the heads of fine-tuned models step by step, in the order of several scores.

    Args:
      tuned: The model, or several fine-tunings of one recipe.
      examples: The labelled examples that the models are scored on.
      measured_on: Other labelled examples, from which scores of heads and the sparsest model come.
      methods, permutations: The scores, as in `importance`.
      shares: The shares of all heads that are removed, in ascending order; tenths, as published.
      anew: Whether gradients are also measured again after each step.
      draws: The number of random orders, at least 19 to tell whether others are better; 0 for none.
      tolerance: How much lower the score of a model as good as the full one is; 0.01 is one point.
      metric: The name of the metric; None takes that of the task.
      seed: The seed of random orders, permutations and bootstraps.
      compute: As in `ablation`.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is unknown or out of range; a model has no classifier, or another
        shape than the others; or labels are missing or all the same.
    """
    models = arguments.all_models(tuned)
    examples, others = as_examples(examples), as_examples(measured_on)
    check_whole(*models)
    arguments.check_alike(models)
    config = models[0].config
    labels, their_labels = (arguments.labels_of(each, config) for each in (examples, others))
    metric = checked_metrics(metric and (metric,), config, examples)[0]
    check_name('metric', metric, METRICS)
    arguments.check_varied(metric, labels, 'examples')
    arguments.check_varied(metric, their_labels, 'measured_on')
    removed_heads(config.num_heads, shares)
    shared, found = arguments.in_both(examples, others), []
    seeds, scored = arguments.seeds_of(tuned), {'methods': methods, 'permutations': permutations}
    how = {'shares': shares, 'anew': anew, 'draws': draws, 'compute': compute}
    for place, (own, model) in enumerate(zip(seeds, models, strict=True), 1):
        logging.info('Pruning: fine-tuning %d of %d', place, len(models))
        scores = head_scores(model, others, **scored, seed=seed, compute=compute)
        given = model, examples, others, scores, metric
        found.append(stepwise.prune_model(*given, seed=seed + own, **how))
    return assemble(
        found,
        labels,
        metric,
        seeds=seeds,
        others=arguments.elsewhere(len(others), shared),
        shared=shared,
        tolerance=tolerance,
    )


def assemble(
    models: Sequence[PrunedModel],
    labels: np.ndarray,
    metric: str,
    *,
    tolerance: float,
    seeds: Sequence[int],
    **fields: Any,
) -> Pruning:
    """Return the result from models pruned in the same orders and steps, and its other fields."""
    intact, first = np.stack([each.intact for each in models]), models[0]
    kept = next(iter(first.masks.values()))[0].sum(axis=(-2, -1)).astype(int)
    removed = kept < kept[0]
    predictions = {
        order: np.stack([each.predictions[order] for each in models]) for order in first.masks
    }
    curves = {}
    for order, each in predictions.items():
        curve = stepwise.curve_of(metric, each, intact, labels)
        # Where no head is removed, nothing is in doubt.
        low, high = (np.where(removed, end, curve.difference) for end in (curve.low, curve.high))
        curves[order] = dataclasses.replace(curve, low=low, high=high)
    lead = None
    if {GRADIENT, RANDOM} <= curves.keys() and predictions[RANDOM].shape[1] > 1 and removed.any():
        ordered, random = (predictions[order][:, :, removed] for order in (GRADIENT, RANDOM))
        lead = stepwise.lead_over_random(metric, ordered[:, 0], random, labels)
    found = Pruning(
        seeds=tuple(seeds),
        metric=metric,
        intact=weighted_scores(metric, intact, labels)[0],
        kept=kept,
        curves=curves,
        chosen=tuple(_choose(each, labels, metric, kept, tolerance=tolerance) for each in models),
        stays={
            order: np.stack([ranks(each.masks[order][0]) for each in models])
            for order in first.masks
            if order != RANDOM
        },
        examples=len(labels),
        learnt=tuple(learning_test((metric,), first.classes, each, labels) for each in intact),
        tolerance=tolerance,
        lead=lead,
        **fields,
    )
    return _labelled(found)


def _labelled(found: Pruning) -> Pruning:
    """Return the result with its tables: curves, the sparsest models, heads, and agreement."""
    points, low, high = np.stack([_points(each) for each in found.curves.values()], axis=1)
    change, least, most = np.transpose([_points(each) for each in found.chosen])
    stays = [ORDERS[order] for order in found.stays]
    frames = {
        'curves': table(
            f'{found._title} in points as heads are removed, and its change.',
            {'order': [ORDERS[order] for order in found.curves], 'heads_kept': found.kept},
            share_kept=found.kept / found.heads,
            score_points=100 * found.intact.mean() + points,
            difference_points=points,
            low=low,
            high=high,
        ),
        'chosen': table(
            f'The fewest heads with which the model is as good on {found.others}.',
            seed=found.seeds,
            order=[ORDERS[each.order] for each in found.chosen],
            heads_kept=[each.kept for each in found.chosen],
            difference_points=change,
            low=least,
            high=most,
            where_chosen_points=[100 * each.where_chosen for each in found.chosen],
            heads_removed=[describe(each.mask) for each in found.chosen],
        ),
        'heads': grids_frame(
            {'share_of_steps_kept': np.stack([*found.stays.values()]).mean(axis=1)},
            'How long each head is left (1: those that go last), mean over models.',
            by={'order': stays},
        ),
    }
    if len(found.seeds) > 1:
        # Masks are nested: a head is left at a step if it is left in more than that many steps.
        steps = np.arange(1, len(found.kept)) + 0.5
        shares = [each.reshape(len(each), -1) for each in found.stays.values()]
        frames['agreement'] = table(
            "How far fine-tunings agree on which heads are left (Fleiss' kappa; 0: by chance).",
            {'order': stays, 'heads_kept': found.kept[1:]},
            fleiss_kappa=[
                [stepwise.fleiss_kappa(each * len(found.kept) > step) for step in steps]
                for each in shares
            ],
        )
    return found.with_frames(frames)


def _choose(
    model: PrunedModel, labels: np.ndarray, metric: str, kept: np.ndarray, *, tolerance: float
) -> Chosen:
    """Return the sparsest step that is as good as the full model elsewhere, and scores highest."""
    steps = {
        order: stepwise.sparsest(each, kept, tolerance=tolerance)
        for order, each in model.choosing.items()
    }
    order = min(steps, key=lambda order: (kept[steps[order]], -model.choosing[order][steps[order]]))
    step, choosing = steps[order], model.choosing[order]
    predictions = model.predictions[order][None, :, step : step + 1]
    curve = stepwise.curve_of(metric, predictions, model.intact[None], labels)
    difference, low, high = (float(each[0]) for each in (curve.difference, curve.low, curve.high))
    gained = float(choosing[step] - choosing[0])
    return Chosen(order, model.masks[order][0, step], difference, low, high, gained)


def _points(change: Curve | Chosen) -> np.ndarray:
    """Return the change and the ends of its interval in points [3, ...]."""
    return 100 * np.array([change.difference, change.low, change.high])
