"""Outlier dimensions of LayerNorm, and what the model is without them (Kovaleva et al. 2021).

They are found from the weights alone. The model then loses them, all together and one at a time,
and beside that as many random dimensions, many times.

Shapes: K disabled dimensions, R draws of random sets, S sets that are disabled (all dimensions
together, then each alone if there are several), E texts.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.ablation.masked_lm import FEW, LossEffects, assess_losses
from bert_secrets_jax.ablation.scores import weighted_scores
from bert_secrets_jax.ablation.significance import Assessment, assess
from bert_secrets_jax.analyses.ablation import assessed_metrics
from bert_secrets_jax.analyses.models import labels_of, one_model
from bert_secrets_jax.analyses.verdicts import (
    OUTLIERS_NEEDED,
    Verdict,
    not_measured,
    outliers_are_needed,
)
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.masking import Masking
from bert_secrets_jax.data.tasks import Example, Text
from bert_secrets_jax.finetune.metrics import TITLES, check_metrics, predictions
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.config import MASKED_LM
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.pruning.outliers import (
    FEWEST_DRAWS,
    OutlierDimensions,
    check_dimensions,
    find_outliers,
    logits_without,
    losses_without,
    random_sets,
    rank_p,
)
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

SOURCE = 'Kovaleva et al. 2021'
DRAWS = 39
_NATS = 'nats per hidden wordpiece'
_ALL = 'all together'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class LossWithout:
    """The loss of a masked LM without outliers, and without random dimensions.

    Attributes:
      effects: [S] The loss without each set less that of the intact model.
      beyond: [1] The loss without all together less the mean of the losses without random sets.
      random: [R] The change of the loss without each random set.
    """

    effects: LossEffects
    beyond: LossEffects
    random: np.ndarray

    @property
    def p_value(self) -> float:
        """The p-value of all together by their rank among random sets."""
        return rank_p(float(self.effects.difference[0]), self.random)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ScoreWithout:
    """The score of a classifier without outliers, and without random dimensions.

    Attributes:
      effects: [S] The score without each set, compared with that of the intact model.
      random: [R] The score without each random set less that of the intact model.
    """

    effects: Assessment
    random: np.ndarray

    @property
    def p_value(self) -> float:
        """The p-value of the fall without all together by its rank among random sets."""
        return rank_p(-float(self.effects.difference[0]), -self.random)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Outliers(Result):
    """Outlier dimensions, and what disabling them does.

    Attributes:
      subject: The names of the model and the texts.
      found: The parameters of the output LayerNorm, and the outliers that stand out in them.
      disabled: The dimensions that are disabled: the outliers, or those that were asked for.
      random: [R, K] The random sets that they are compared with; None if nothing is disabled.
      loss: The effect of disabling on the loss of the masked LM; None if that was not measured.
      scores: The effect on the score of a fine-tuned classifier, by the name of the metric; empty
        if that was not measured.
      examples: The number of examples of the scores.
    """

    FORMAT: ClassVar[int] = 1

    subject: Subject
    found: OutlierDimensions
    disabled: tuple[int, ...]
    random: np.ndarray | None = None
    loss: LossWithout | None = None
    scores: Mapping[str, ScoreWithout] = dataclasses.field(default_factory=dict)
    examples: int = 0

    @property
    def title(self) -> str:
        return 'Outlier dimensions of LayerNorm'

    def verdicts(self):
        return [self.verdict or not_measured(OUTLIERS_NEEDED, 'outliers of a masked LM')]

    @property
    def names(self) -> list[str]:
        """The names of the sets that are disabled [S]."""
        alone = [f'dimension {each}' for each in self.disabled]
        return [_ALL, *alone] if len(alone) > 1 else alone

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the claim that the outliers are needed; None if it was not measured."""
        is_about_outliers = set(self.disabled) == set(self.found.dimensions.tolist())
        if self.loss is None or not is_about_outliers or len(self.random) < 2:
            return None
        beyond = self.loss.beyond
        return outliers_are_needed(
            float(self.loss.effects.difference[0]),
            self.loss.random,
            (float(beyond.difference[0]), float(beyond.low[0]), float(beyond.high[0])),
            outliers=len(self.disabled),
            texts=beyond.texts,
        )

    def frames(self):
        frames = {'dimensions': self._dimensions()}
        if self.loss is not None:
            frames['loss'] = self._losses()
        if self.scores:
            frames['scores'] = self._scores()
        if self.random is not None and (self.loss is not None or self.scores):
            frames['random'] = self._random()
        return frames

    def _dimensions(self):
        found, deviations = self.found, self.found.deviations
        counts = {name: each.sum(axis=0) for name, each in found.stands_out.items()}
        both = np.logical_and(*found.stands_out.values()).sum(axis=0)
        farthest = {
            name: np.take_along_axis(each, np.abs(each).argmax(axis=0)[None], axis=0)[0]
            for name, each in deviations.items()
        }
        order = np.argsort(-found.layers, kind='stable')
        # Those that stand out anywhere, or the nearest ones if none does.
        shown = order[: max(int((found.layers > 0).sum()), 1)]
        outliers = set(found.dimensions.tolist())
        return framed(
            (
                'dimension', 'outlier', 'layers', 'layers_scale', 'layers_bias', 'layers_both',
                'farthest_scale_sigma', 'farthest_bias_sigma',
            ),
            [
                (
                    int(each), int(each) in outliers, int(found.layers[each]),
                    *(int(counts[name][each]) for name in ('scale', 'bias')), int(both[each]),
                    *(float(farthest[name][each]) for name in ('scale', 'bias')),
                )
                for each in shown
            ],
            f'Dimensions (from 0) whose scale or bias of the output LayerNorm is more than '
            f'{found.sigma:g} standard deviations from the mean of its layer: in how many of '
            f'{_layers(found)}, and the farthest. An outlier is so in at least {found.at_least}.',
        )  # fmt: skip

    def _losses(self):
        effects = self.loss.effects
        return framed(
            ('disabled', 'loss', 'difference', 'low', 'high', 'p_value', 'p_rank'),
            [
                (
                    name,
                    float(effects.intact + effects.difference[row]),
                    *(
                        float(getattr(effects, column)[row])
                        for column in ('difference', 'low', 'high', 'p_value')
                    ),
                    self.loss.p_value if row == 0 else math.nan,
                )
                for row, name in enumerate(self.names)
            ],
            'Loss in nats per hidden wordpiece without the dimensions, and that loss less that of '
            'the intact model with its 95 % interval over texts. p_value is Student\'s t-test; '
            f'p_rank is the rank among {len(self.loss.random)} random sets.',
        )  # fmt: skip

    def _scores(self):
        columns = ('score', 'difference', 'low', 'high', 'p_value')
        return framed(
            ('metric', 'disabled', *columns, 'p_rank'),
            [
                (
                    metric,
                    name,
                    *(float(getattr(each.effects, column)[row]) for column in columns),
                    each.p_value if row == 0 else math.nan,
                )
                for metric, each in self.scores.items()
                for row, name in enumerate(self.names)
            ],
            'Score of the fine-tuned model without the dimensions, and that score less that of the '
            'intact model with its 95 % interval over examples. p_value is that of a paired test; '
            'p_rank is the rank among random sets.',
        )

    def _random(self):
        effects = {} if self.loss is None else {'loss (nats)': self.loss.random}
        effects |= {metric: each.random for metric, each in self.scores.items()}
        return framed(
            ('dimensions', *effects),
            [
                (
                    ' '.join(map(str, dimensions)),
                    *(float(each[row]) for each in effects.values()),
                )
                for row, dimensions in enumerate(self.random.tolist())
            ],
            'What disabling random dimensions changes, for each draw.',
        )

    def figures(self):
        drawings = {'parameters': functools.partial(_draw_parameters, self)}
        if self.loss is not None:
            drawings['loss'] = functools.partial(_draw_loss, self)
        if self.scores:
            # The others are in the frame.
            drawings['score'] = functools.partial(_draw_score, self, next(iter(self.scores)))
        return Figures(drawings)

    def findings(self):
        return [
            *self._of_weights(),
            *(() if self.loss is None else self._of_loss()),
            *(() if not self.scores else [self._of_score(next(iter(self.scores)))]),
        ]

    def notes(self):
        said = [
            'Dimensions count from zero, as published. To disable one is to set its scale and its '
            'bias to zero in the output LayerNorm of all layers.'
        ]
        if len(self.found.scale) < self.found.at_least:
            said.append(
                'There are too few different layers here to tell outliers from dimensions that '
                'stand out by chance.'
            )
        if not self.disabled:
            said.append('There is no outlier, so nothing was disabled.')
            return said
        said.append(
            'Random sets have as many dimensions as are disabled, and none of these. '
            'Intervals are paired: they are about texts like these, and the same model.'
        )
        if self.loss is None:
            said.append(
                'What disabling does to the loss was not measured: the model has no head of a '
                'masked LM.'
            )
        elif self.loss.effects.texts < FEW:
            said.append('There are few texts: intervals of the loss are a little too narrow.')
        if not self.scores:
            said.append(
                'What disabling does to a score was not measured: there is no fine-tuned model.'
            )
        return said

    def _of_weights(self) -> Iterator[Finding]:
        found = self.found
        layers, width = found.scale.shape
        outliers = found.dimensions.tolist()
        numbers = {
            'width': width,
            'sigma': found.sigma,
            'layers': _layers(found),
            'at_least': found.at_least,
            'by_chance': found.by_chance,
            'listed': ', '.join(map(str, outliers)),
        }
        finding = functools.partial(
            Finding, unit='dimensions', sample=layers, sample_of='layers', source=SOURCE
        )
        if outliers:
            template = (
                'Of {width} dimensions, {estimate} {estimate:|stands|stand} out in scale or bias '
                'of the output LayerNorm, by more than {sigma:g} standard deviations of the layer '
                'and in at least {at_least} of {layers}: {listed}. By chance, {by_chance:.1g} such '
                'dimensions are expected.'
            )
        else:
            most = int(found.layers.argmax())
            numbers |= {'most': most, 'in_layers': int(found.layers[most])}
            template = (
                'None of {width} dimensions is an outlier: none stands out in scale or bias of the '
                'output LayerNorm, by more than {sigma:g} standard deviations of the layer, in '
                'enough of {layers}.'
                + (' Dimension {most} does in {in_layers}.' if numbers['in_layers'] else '')
            )
        yield finding(
            name='outlier dimensions', estimate=len(outliers), template=template, numbers=numbers
        )
        published = paper.outlier_dimensions(self.subject.model)
        if published is not None:
            yield finding(
                name='published outlier dimensions',
                estimate=len(set(published) & set(outliers)),
                sample=len(published),
                sample_of='published dimensions',
                template='Of the {sample} published outliers of this model ({published}), '
                '{estimate} are among them.',
                numbers={'published': ', '.join(map(str, published))},
            )

    def _of_loss(self) -> Iterator[Finding]:
        loss, effects = self.loss, self.loss.effects
        finding = functools.partial(
            Finding, unit=_NATS, sample=effects.texts, sample_of='texts', source=SOURCE
        )
        yield finding(
            name='loss without the outliers',
            estimate=float(effects.difference[0]),
            low=float(effects.low[0]),
            high=float(effects.high[0]),
            template=(
                'Without {which}, the loss of the masked LM changes by {estimate:+.3f} nats per '
                'hidden wordpiece ({low:+.3f} to {high:+.3f}), from {intact:.3f}; without as many '
                'random dimensions by {mean:+.3f} on average and {most:+.3f} at most, of {draws} '
                'draws (p = {rank:.2g} by rank).'
            ),
            numbers={
                'which': _the(self.disabled),
                'intact': effects.intact,
                'mean': float(loss.random.mean()),
                'most': float(loss.random.max()),
                'draws': len(loss.random),
                'rank': loss.p_value,
            },
        )
        yield finding(
            name='loss beyond random dimensions',
            estimate=float(loss.beyond.difference[0]),
            low=float(loss.beyond.low[0]),
            high=float(loss.beyond.high[0]),
            template='That is {estimate:+.3f} nats ({low:+.3f} to {high:+.3f}) beyond the mean of '
            'random dimensions.',
        )
        if len(self.disabled) > 1:
            row = 1 + int(np.abs(effects.difference[1:]).argmax())
            yield finding(
                name='loss without one outlier',
                estimate=float(effects.difference[row]),
                low=float(effects.low[row]),
                high=float(effects.high[row]),
                template='Alone, {which} has the largest effect: {estimate:+.3f} nats '
                '({low:+.3f} to {high:+.3f}).',
                numbers={'which': self.names[row]},
            )

    def _of_score(self, metric: str) -> Finding:
        found = self.scores[metric]
        effects = found.effects
        finding = functools.partial(
            Finding,
            name='score without the outliers',
            unit='points',
            sample=self.examples,
            source=SOURCE,
        )
        change, low, high = (
            100 * float(getattr(effects, name)[0]) for name in ('difference', 'low', 'high')
        )
        known = found.random[~np.isnan(found.random)]
        if math.isnan(change) or not len(known):
            return finding(
                estimate=math.nan,
                template='Without {which}, {metric} is not defined: all predictions are the same.',
                numbers={'which': _the(self.disabled), 'metric': TITLES[metric]},
            )
        return finding(
            estimate=change,
            low=low,
            high=high,
            template=(
                'Without {which}, {metric} of the fine-tuned model changes by {estimate:+.1f} '
                'points ({low:+.1f} to {high:+.1f}), from {intact:.1f}; without as many random '
                'dimensions by {mean:+.1f} on average and {least:+.1f} at worst, of {draws} draws '
                '(p = {rank:.2g} by rank).'
            ),
            numbers={
                'which': _the(self.disabled),
                'metric': TITLES[metric],
                'intact': 100 * effects.baseline_score,
                'mean': 100 * float(known.mean()),
                'least': 100 * float(known.min()),
                'draws': len(found.random),
                'rank': found.p_value,
            },
        )


def _layers(found: OutlierDimensions) -> str:
    count = len(found.scale)
    return 'the one layer' if count == 1 else f'{count} layers'


def _the(dimensions: Sequence[int]) -> str:
    if len(dimensions) == 1:
        return f'dimension {dimensions[0]}'
    return f'dimensions {", ".join(map(str, dimensions))}'


def outliers(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Pretrained | Finetuned | None = None,
    dimensions: Sequence[int] | None = None,
    draws: int = DRAWS,
    masking: Masking | None = None,
    metrics: Sequence[str] | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
    subject: Subject | None = None,
) -> Outliers:
    """Find outlier dimensions from the weights, and measure what the model is without them.

    The loss is measured if the model has the head of a masked LM, and the score if a fine-tuned
    model is given. A model without either still has its outliers found.

    Args:
      pretrained: The model in whose weights outliers are looked for.
      texts: The texts; labelled ones if a fine-tuned model is given.
      tuned: A classifier, such as the model after fine-tuning, in which the same dimensions are
        disabled. Of several fine-tuned models, the first is used.
      dimensions: The dimensions to disable, from 0; None takes the outliers.
      draws: The number of random sets of as many dimensions, at least 19.
      masking: Which wordpieces are hidden; None hides 15 % of each text.
      metrics: The names of the metrics of the score; None takes those of the task.
      seed: The seed of the random sets and of the tests. What is hidden follows from
        `Masking.seed`.
      compute: How it is computed; nothing is written into its folder.
      subject: As in `ablation`.

    Raises:
      TypeError: The model or the texts are something else.
      ValueError: Heads were removed from the model, its layers do not end with LayerNorm, a
        dimension does not exist, there are too few draws, dimensions are given and there is neither
        a masked LM nor a fine-tuned model, or texts or labels do not go with the model.
    """
    subject = subject or Subject()
    found = find_outliers(pretrained)
    if dimensions is not None:
        check_dimensions(pretrained.config, dimensions)
    if tuned is not None:
        # Losses take long: what is wrong is told before.
        check_whole(one_model(tuned))
        labels_of(texts, one_model(tuned).config)
    disabled = tuple(found.dimensions.tolist() if dimensions is None else map(int, dimensions))
    if dimensions is not None and tuned is None and pretrained.config.head != MASKED_LM:
        raise ValueError(
            f'What the model ({pretrained.config.summary}) is without {_the(disabled)} cannot be '
            "measured: load it with head='masked_lm', or give a fine-tuned model as `tuned`."
        )
    random, loss, scores, examples = None, None, {}, 0
    if disabled:
        random = sets_beside(pretrained, disabled, draws=draws, seed=seed)
        if pretrained.config.head == MASKED_LM:
            loss = loss_without(
                pretrained, texts, disabled, random, masking=masking, seed=seed, compute=compute
            )
        if tuned is not None:
            model = one_model(tuned)
            metrics = metrics or assessed_metrics(model.config.num_labels, subject.task)
            scores = scores_without(
                model, texts, disabled, random, metrics=metrics, seed=seed, compute=compute
            )
            examples = len(texts)
    return Outliers(subject, found, disabled, random, loss, scores, examples)


def sets_beside(
    pretrained: Pretrained, disabled: Sequence[int], *, draws: int, seed: int
) -> np.ndarray:
    """Return the random sets [R, K] that disabled dimensions are compared with.

    Args:
      pretrained: The model.
      disabled: The dimensions that are disabled.
      draws, seed: As in `outliers`.

    Raises:
      ValueError: There are too few draws, or too many disabled dimensions.
    """
    if draws < FEWEST_DRAWS:
        raise ValueError(
            f'{draws=} must be at least {FEWEST_DRAWS}: of fewer random sets, none is rarer than '
            'one in twenty.'
        )
    return random_sets(pretrained.config.hidden_size, list(disabled), draws=draws, seed=seed)


def _sets(disabled: Sequence[int], random: np.ndarray) -> tuple[list[list[int]], int]:
    """Return what is disabled in each pass, and the number S.

    The first is nothing, then come the S sets, and then the random ones.
    """
    alone = [[each] for each in disabled] if len(disabled) > 1 else []
    return [[], list(disabled), *alone, *random.tolist()], 1 + len(alone)


def loss_without(
    pretrained: Pretrained,
    texts: Sequence[Text],
    disabled: Sequence[int],
    random: np.ndarray,
    *,
    masking: Masking | None = None,
    seed: int = 0,
    **given: object,
) -> LossWithout:
    """Measure the loss of a masked LM without dimensions.

    Args:
      pretrained: The masked LM.
      texts: The texts.
      disabled: The dimensions that are disabled.
      random: The random sets [R, K] of dimensions that are disabled beside them.
      masking, seed: As in `outliers`.
      **given: The arguments of `losses_without`.

    Raises:
      TypeError, ValueError: As in `losses_without`; or there are fewer than two texts.
    """
    sets, count = _sets(disabled, random)
    losses, hidden = losses_without(pretrained, texts, sets, masking=masking, **given)
    intact, of_outliers, of_random = losses[0], losses[1 : 1 + count], losses[1 + count :]
    return LossWithout(
        effects=assess_losses(of_outliers, intact, hidden, seed=seed),
        beyond=assess_losses(of_outliers[:1], of_random.mean(axis=0), hidden, seed=seed),
        random=(of_random - intact).sum(axis=1) / hidden.sum(),
    )


def scores_without(
    tuned: Pretrained,
    examples: Sequence[Example],
    disabled: Sequence[int],
    random: np.ndarray,
    *,
    metrics: Sequence[str],
    seed: int = 0,
    **given: object,
) -> dict[str, ScoreWithout]:
    """Measure the scores of a classifier without dimensions, by the name of the metric.

    Args:
      tuned: The classifier.
      examples: The labelled texts.
      disabled, random: As in `loss_without`.
      metrics, seed: As in `outliers`.
      **given: The arguments of `logits_without`.

    Raises:
      TypeError, ValueError: As in `logits_without`; or an example has no label or a wrong one, or a
        metric is unknown.
    """
    labels = labels_of(examples, tuned.config)
    check_metrics(metrics, tuned.config.num_labels)
    sets, count = _sets(disabled, random)
    logits = logits_without(tuned, examples, sets, **given)
    answers = np.stack([predictions(each) for each in logits])
    found = {}
    for metric in metrics:
        scores = weighted_scores(metric, answers, labels, np.ones((1, len(labels))))[0]
        found[metric] = ScoreWithout(
            effects=assess(metric, answers[1 : 1 + count], answers[0], labels, seed=seed),
            random=scores[1 + count :] - scores[0],
        )
    return found


def _draw_parameters(result: Outliers):
    found = result.found
    outliers = found.dimensions.tolist()
    figure = plots.dimensions_by_layer(
        found.deviations,
        {f'dimension {each}': each for each in outliers},
        label='standard deviations from the mean',
        bound=found.sigma,
    )
    marked = 'Lines are the outliers, which' if outliers else 'None is an outlier, which would'
    figure.caption = (
        'Scale and bias of the output LayerNorm of every dimension, as deviations from the mean of '
        f'the layer. {marked} stand out in either by more than {found.sigma:g} standard deviations '
        f'(dashed) in at least {found.at_least} of {_layers(found)}.'
    )
    return figure


def _rows(names: Sequence[str], effects: LossEffects | Assessment, unit: float = 1.0):
    return {
        name: tuple(
            unit * float(getattr(effects, column)[row]) for column in ('difference', 'low', 'high')
        )
        for row, name in enumerate(names)
    }


def _draw_loss(result: Outliers):
    figure = plots.beside_random(
        result.loss.random,
        _rows(result.names, result.loss.effects),
        label='change of the loss (nats)',
        random_name=f'random, {len(result.loss.random)} draws',
    )
    figure.caption = (
        'Loss per hidden wordpiece of the masked LM without dimensions less that of the intact '
        'model, with 95 % intervals, and without as many random dimensions as are disabled '
        f'together, a point for each draw: {result.subject.model}, {result.subject.texts}.'
    )
    return figure


def _draw_score(result: Outliers, metric: str):
    found = result.scores[metric]
    figure = plots.beside_random(
        100 * found.random,
        _rows(result.names, found.effects, 100.0),
        label=f'change of {TITLES[metric]} (points)',
        random_name=f'random, {len(found.random)} draws',
    )
    figure.caption = (
        f'{TITLES[metric]} of the fine-tuned model without dimensions less that of the intact '
        'model, with 95 % intervals, and without as many random dimensions as are disabled '
        f'together, a point for each draw: {result.subject.model}, {result.subject.texts}.'
    )
    return figure
