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
from bert_secrets_jax.ablation.effects import Effects
from bert_secrets_jax.ablation.masked_lm import FEW, assess_losses
from bert_secrets_jax.ablation.scores import weighted_scores
from bert_secrets_jax.ablation.significance import assess
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.ablation import assessed_metrics
from bert_secrets_jax.analyses.effects import effect_of, label_of, rows_of, title_of
from bert_secrets_jax.analyses.models import labels_of, one_model
from bert_secrets_jax.analyses.verdicts import Verdict
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.masking import Masking
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.metrics import check_metrics, predictions
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
from bert_secrets_jax.runs.findings import how_many
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

SOURCE = 'Kovaleva et al. 2021'
DRAWS = 39
_ALL = 'all together'


# The attribute of the effects in each column of a frame.
_COLUMNS = {name: name for name in ('difference', 'low', 'high', 'p_value')}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Without:
    """The loss or the score of a model without outliers, and without random dimensions.

    Attributes:
      effects: [S] The outcome without each set, compared with that of the intact model.
      random: [R] The change of the outcome without each random set.
      beyond: [1] The outcome without all together, compared with the mean of those without random
        sets; None for a score.
    """

    effects: Effects
    random: np.ndarray
    beyond: Effects | None = None

    @property
    def p_value(self) -> float:
        """The p-value of the harm of all together by its rank among random sets."""
        worse = -1 if self.effects.outcome.more_is_better else 1
        return rank_p(worse * float(self.effects.difference[0]), worse * self.random)

    def rows(self, outcome: str) -> list[tuple]:
        """Return a row of a frame for each set.

        Args:
          outcome: The name of the column with the outcome.
        """
        rows = rows_of(self.effects, {outcome: 'value'} | _COLUMNS)
        return [(*row, math.nan if place else self.p_value) for place, row in enumerate(rows)]


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

    title: ClassVar[str] = 'Outlier dimensions of LayerNorm'
    FORMAT: ClassVar[int] = 3

    subject: Subject
    found: OutlierDimensions
    disabled: tuple[int, ...]
    random: np.ndarray | None = None
    loss: Without | None = None
    scores: Mapping[str, Without] = dataclasses.field(default_factory=dict)
    examples: int = 0

    def verdicts(self):
        needs = 'outliers of a masked LM'
        return [self.verdict or verdicts.not_measured(verdicts.OUTLIERS_NEEDED, needs)]

    @property
    def names(self) -> list[str]:
        """The names of the sets that are disabled [S]."""
        return _names(self.disabled)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the claim that the outliers are needed; None if it was not measured."""
        is_about_outliers = set(self.disabled) == set(self.found.dimensions.tolist())
        if self.loss is None or not is_about_outliers or len(self.random) < 2:
            return None
        beyond = self.loss.beyond
        return verdicts.outliers_are_needed(
            float(self.loss.effects.difference[0]),
            self.loss.random,
            (float(beyond.difference[0]), float(beyond.low[0]), float(beyond.high[0])),
            outliers=len(self.disabled),
            texts=beyond.sample,
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
            'Dimensions (from 0) whose scale or bias of the output LayerNorm is more than '
            f'{found.sigma:g} standard deviations from the mean of its layer. An outlier is so in '
            f'at least {found.at_least} of {_layers(found)}.',
        )  # fmt: skip

    def _losses(self):
        return framed(
            ('disabled', 'loss', *_COLUMNS, 'p_rank'),
            self.loss.rows('loss'),
            'Loss in nats per hidden wordpiece without the dimensions, and its change (95 % '
            f'interval); p_rank is the rank among {len(self.loss.random)} random sets.',
        )  # fmt: skip

    def _scores(self):
        return framed(
            ('metric', 'disabled', 'score', *_COLUMNS, 'p_rank'),
            [(metric, *row) for metric, each in self.scores.items() for row in each.rows('score')],
            'Score of the fine-tuned model without the dimensions, and its change (95 % interval).',
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
            of_model = 'Loss per hidden wordpiece of the masked LM'
            drawings['loss'] = functools.partial(_draw_without, self, self.loss, of_model)
        if self.scores:
            # The others are in the frame.
            score = next(iter(self.scores.values()))
            of_model = f'{title_of(score.effects)} of the fine-tuned model'
            drawings['score'] = functools.partial(_draw_without, self, score, of_model)
        return Figures(drawings)

    def findings(self):
        return [
            *self._weight_findings(),
            *(() if self.loss is None else self._loss_findings()),
            *(self._without('score', each) for each in list(self.scores.values())[:1]),
        ]

    def notes(self):
        said = [
            'Dimensions count from zero. A disabled one has scale and bias zero in the output '
            'LayerNorm of all layers.'
        ]
        if len(self.found.scale) < self.found.at_least:
            said.append(
                'There are too few different layers here to tell outliers from dimensions that '
                'stand out by chance.'
            )
        if not self.disabled:
            said.append('There is no outlier, so nothing was disabled.')
            return said
        said.append('Random sets have as many dimensions as are disabled, and none of these.')
        if self.loss is None:
            said.append(
                'What disabling does to the loss was not measured: the model has no head of a '
                'masked LM.'
            )
        elif self.loss.effects.sample < FEW:
            said.append('There are few texts: intervals of the loss are a little too narrow.')
        if not self.scores:
            said.append(
                'What disabling does to a score was not measured: there is no fine-tuned model.'
            )
        return said

    def _weight_findings(self) -> Iterator[Finding]:
        found = self.found
        layers, width = found.scale.shape
        outliers = found.dimensions.tolist()
        fields = {'sample': layers, 'sample_of': 'layers', 'source': SOURCE}
        numbers = {'sigma': found.sigma, 'layers': _layers(found), 'at_least': found.at_least}
        yield how_many(
            'outlier dimensions',
            np.isin(np.arange(width), outliers),
            'dimensions',
            template='{estimate} {unit} {estimate:|stands|stand} out by more than {sigma:g} '
            'standard deviations in at least {at_least} of {layers}'
            + (': {listed}.' if outliers else '.'),
            numbers=numbers | {'listed': ', '.join(map(str, outliers))},
            **fields,
        )
        most = int(found.layers.argmax())
        if found.layers[most]:
            yield Finding(
                name='most layers in which a dimension stands out',
                where=f'dimension {most}',
                estimate=int(found.layers[most]),
                unit=f'of {_layers(found)}',
                **fields,
            )
        yield Finding(
            name='outlier dimensions that chance makes',
            estimate=found.by_chance,
            unit='dimensions',
            **fields,
        )
        yield from self._published_findings(outliers, fields)

    def _published_findings(
        self, outliers: Sequence[int], fields: Mapping[str, object]
    ) -> Iterator[Finding]:
        published = paper.outlier_dimensions(self.subject.model)
        if published is not None:
            yield how_many(
                'published outlier dimensions that are among them',
                np.isin(published, outliers),
                'dimensions',
                template='{estimate} {unit} that are published for this model ({published}) '
                '{estimate:|is|are} among them.',
                numbers={'published': ', '.join(map(str, published))},
                **fields,
            )

    def _loss_findings(self) -> Iterator[Finding]:
        effects = self.loss.effects
        yield self._without('loss', self.loss)
        yield effect_of(self.loss.beyond, 0, name='loss beyond random dimensions', source=SOURCE)
        if len(self.disabled) > 1:
            largest = 1 + int(np.abs(effects.difference[1:]).argmax())
            yield effect_of(effects, largest, name='loss without one outlier', source=SOURCE)

    def _without(self, name: str, without: Without) -> Finding:
        """Return what is lost without all together, beside random dimensions."""
        effects = without.effects
        scale, form = effects.outcome.scale, f'+.{effects.outcome.digits}f'
        known = without.random[~np.isnan(without.random)]
        defined = len(known) and not math.isnan(effects.difference[0])
        return effect_of(
            effects,
            0,
            name=f'{name} without the outliers',
            source=SOURCE,
            template=f'Without {{which}}, {{outcome}} changes by {{estimate:{form}}} {{short}}; '
            f'without random dimensions by {{mean:{form}}} on average (p = {{rank:.2g}} by rank).'
            if defined
            else 'Without {which}, {outcome} is not defined: all predictions are the same.',
            numbers={
                'which': _the(self.disabled),
                'outcome': title_of(effects),
                'mean': scale * float(known.mean()) if defined else math.nan,
                'short': effects.outcome.unit,
                'rank': without.p_value,
            },
        )


def _names(disabled: Sequence[int]) -> list[str]:
    """Return the names of the sets that are disabled [S]."""
    alone = [f'dimension {each}' for each in disabled]
    return [_ALL, *alone] if len(alone) > 1 else alone


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
        if draws < FEWEST_DRAWS:
            raise ValueError(
                f'{draws=} must be at least {FEWEST_DRAWS}: of fewer random sets, none is rarer '
                'than one in twenty.'
            )
        width = pretrained.config.hidden_size
        random = random_sets(width, list(disabled), draws=draws, seed=seed)
        sets, names = _sets(disabled, random)
        if pretrained.config.head == MASKED_LM:
            loss = _loss_without(
                pretrained, texts, sets, names, masking=masking, seed=seed, compute=compute
            )
        if tuned is not None:
            model = one_model(tuned)
            metrics = metrics or assessed_metrics(model.config.num_labels, subject.task)
            check_metrics(metrics, model.config.num_labels)
            labels, examples = labels_of(texts, model.config), len(texts)
            logits = logits_without(model, texts, sets, compute=compute)
            answers = np.stack([predictions(each) for each in logits])
            scores = {
                metric: _score_without(metric, answers, labels, names, seed=seed)
                for metric in metrics
            }
    return Outliers(subject, found, disabled, random, loss, scores, examples)


def _sets(disabled: Sequence[int], random: np.ndarray) -> tuple[list[list[int]], list[str]]:
    """Return what is disabled in each pass, and the names of the S sets.

    The first is nothing, then come the S sets, and then the random ones.
    """
    alone = [[each] for each in disabled] if len(disabled) > 1 else []
    return [[], list(disabled), *alone, *random.tolist()], _names(disabled)


def _loss_without(
    pretrained: Pretrained,
    texts: Sequence[Text],
    sets: Sequence[Sequence[int]],
    names: Sequence[str],
    *,
    masking: Masking | None,
    seed: int,
    compute: Compute,
) -> Without:
    """Return the loss of a masked LM without the dimensions of `_sets`."""
    losses, hidden = losses_without(pretrained, texts, sets, masking=masking, compute=compute)
    intact, outliers, random = np.split(losses, [1, 1 + len(names)])
    together = outliers[:1], random.mean(axis=0), hidden
    return Without(
        effects=assess_losses(outliers, intact[0], hidden, names=names, seed=seed),
        beyond=assess_losses(*together, names=names[:1], seed=seed),
        random=(random - intact).sum(axis=1) / hidden.sum(),
    )


def _score_without(
    metric: str, answers: np.ndarray, labels: np.ndarray, names: Sequence[str], *, seed: int
) -> Without:
    """Return the score of a classifier that answers so [1 + S + R, E] without each of `_sets`."""
    scores = weighted_scores(metric, answers, labels)[0]
    count = 1 + len(names)
    return Without(
        effects=assess(metric, answers[1:count], answers[0], labels, names=names, seed=seed),
        random=scores[count:] - scores[0],
    )


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


def _draw_without(result: Outliers, without: Without, outcome: str):
    effects = without.effects
    scale = effects.outcome.scale
    figure = plots.beside_random(
        scale * without.random,
        {name: tuple(scale * each for each in ends)
         for name, *ends in rows_of(effects, dict(list(_COLUMNS.items())[:3]))},
        label=label_of(effects),
        random_name=f'random, {len(without.random)} draws',
    )  # fmt: skip
    figure.caption = (
        f'{outcome} without dimensions less that of the intact model, with 95 % intervals: '
        f'{result.subject.model}, {result.subject.texts}. Points are draws of as many random '
        'dimensions as are disabled together.'
    )
    return figure
