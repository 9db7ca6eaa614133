"""Outlier dimensions of LayerNorm, and what the model is without them (Kovaleva et al. 2021).

They are found from the weights alone. The model then loses them, all together and one at a time,
and beside that as many random dimensions, many times.

Shapes: K disabled dimensions, R draws of random sets, S sets that are disabled (all dimensions
together, then each alone if there are several), E texts.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.ablation.masked_lm import FEW, assess_losses
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.disabling import checked_metrics
from bert_secrets_jax.analyses.common.effects import (
    INTERVAL,
    effect_of,
    frame_of,
    label_of,
    rows_of,
    title_of,
)
from bert_secrets_jax.analyses.common.inputs import check_several, labels_of, one_model
from bert_secrets_jax.analyses.common.tables import table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.masking import Masking
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.metrics import predictions
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.config import MASKED_LM
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.names import counted
from bert_secrets_jax.pruning import outliers as layer_norm
from bert_secrets_jax.pruning.outliers import FEWEST_DRAWS, OutlierDimensions, rank_p
from bert_secrets_jax.ranges import Range
from bert_secrets_jax.runs.call import INPUTS
from bert_secrets_jax.runs.result import Result, drawn, how_many, noted
from bert_secrets_jax.stats.effects import Effects
from bert_secrets_jax.stats.scores import weighted_scores
from bert_secrets_jax.stats.significance import assess

SOURCE = 'Kovaleva et al. 2021'
# With fewer random sets, none is rarer than one in twenty.
Draws = Annotated[int, Range(FEWEST_DRAWS, 1_000_000)]
DRAWS = 39


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Without:
    """The loss or the score of a model without outliers, and without random dimensions.

    Attributes:
      effects: [S] The outcome without each set, compared with that of the intact model.
      random: [R] The change of the outcome without each random set.
      beyond: [1] The loss without all, compared with the mean without random sets; else None.
    """

    effects: Effects
    random: np.ndarray
    beyond: Effects | None = None

    @property
    def p_value(self) -> float:
        """The p-value of the harm of all together by its rank among random sets."""
        worse = -1 if self.effects.outcome.more_is_better else 1
        return rank_p(worse * float(self.effects.difference[0]), worse * self.random)

    @property
    def defined(self) -> bool:
        """Whether the outcome is known without the outliers, and without any random set."""
        return bool(np.isfinite(self.effects.difference[0]) and np.isfinite(self.random).any())


class Outliers(Result):
    """Outlier dimensions, and what disabling them does.

    Attributes:
      found: The parameters of the output LayerNorm, and the outliers that stand out in them.
      disabled: The dimensions that are disabled: the outliers, or those that were asked for.
      loss: The effect of disabling on the loss of the masked LM; None if that was not measured.
      scores: The effect on the score of a classifier, by the metric; empty if not measured.
    """

    title = 'Outlier dimensions of LayerNorm'

    found: OutlierDimensions
    disabled: tuple[int, ...]
    loss: Without | None = None
    scores: Mapping[str, Without] = dataclasses.field(default_factory=dict)

    def verdicts(self):
        loss, outliers = self.loss, self.found.dimensions.tolist()
        beyond, about_outliers = loss and loss.beyond, set(self.disabled) == set(outliers)
        if loss is None or beyond is None or not about_outliers or len(loss.random) < 2:
            return [verdicts.not_measured(verdicts.OUTLIERS_NEEDED, 'outliers of a masked LM')]
        verdict = verdicts.outliers_are_needed(
            float(loss.effects.difference[0]),
            loss.random,
            (float(beyond.difference[0]), float(beyond.low[0]), float(beyond.high[0])),
            outliers=len(outliers),
            texts=beyond.sample,
        )
        return [verdict]

    def frames(self):
        frames, published = super().frames(), paper.outlier_dimensions(self.subject.model)
        if published is not None:
            frames['dimensions']['published'] = frames['dimensions']['dimension'].isin(published)
        return frames

    def figures(self):
        drawings = {'parameters': _draw_parameters}
        for name, without in self._defined.items():
            drawings[name] = functools.partial(_draw_without, without=without)
        return drawn(self, **drawings)

    def _say_dimensions(self):
        found, outliers = self.found, self.found.dimensions.tolist()
        layers, width = found.scale.shape
        listed = ', '.join(map(str, outliers)) or 'none'
        return how_many(
            'outlier dimensions',
            np.isin(np.arange(width), outliers),
            'dimensions',
            template='{estimate} {unit} {estimate:|has|have} unusual LayerNorm weights in '
            '{at_least} or more of {sample:layer|layers}: {listed}.',
            numbers={'at_least': found.at_least, 'listed': listed},
            sample=layers,
            sample_of='layers',
            source=SOURCE,
        )

    def _say_lost(self):
        return [
            effect_of(
                each.effects,
                0,
                name=f'{name} without the outliers',
                source=SOURCE,
                template='Without {which}, {outcome} changes by {estimate:+.2g} {short}; without '
                'random dimensions by {mean:+.2g} on average.',
                which=_the(self.disabled),
                outcome=title_of(each.effects),
                short=each.effects.outcome.unit,
                mean=each.effects.outcome.scale * float(np.nanmean(each.random)),
            )
            for name, each in self._defined.items()
        ]

    def _say_beyond(self):
        if self.loss is None or self.loss.beyond is None:
            return None
        name = 'loss beyond random dimensions'
        return effect_of(self.loss.beyond, 0, name=name, source=SOURCE)

    def notes(self):
        few_layers = len(self.found.scale) < self.found.at_least
        few_texts = self.loss is not None and self.loss.effects.sample < FEW
        no_loss, no_score = (self.disabled and not each for each in (self.loss, self.scores))
        undefined = len(self._defined) < bool(self.loss) + bool(self.scores)
        return noted(
            {
                'Dimensions count from 0. A disabled one has scale and bias 0 in each output '
                'LayerNorm. Random sets are as large and contain no outlier.': True,
                'With so few different layers, dimensions can stand out by chance.': few_layers,
                'No outlier, so nothing was disabled.': not self.disabled,
                'The loss was not measured: the model has no masked-LM head.': no_loss,
                'With few texts, intervals of the loss are slightly too narrow.': few_texts,
                'The score was not measured: there is no fine-tuned model.': no_score,
                'An outcome without outliers is undefined: predictions are all alike.': undefined,
            }
        )

    @property
    def _defined(self) -> dict[str, Without]:
        """Those that were measured, without correlations of predictions that are all alike."""
        found = {'loss': self.loss, 'score': next(iter(self.scores.values()), None)}
        return {name: each for name, each in found.items() if each is not None and each.defined}


def _the(dimensions: Sequence[int]) -> str:
    return f'dimension{"s" * (len(dimensions) > 1)} {", ".join(map(str, dimensions))}'


def _needs(given) -> str:
    if given.fits('ends with LayerNorm', layer_norm.ends_with_norm):
        return ''
    return 'a model whose layers end with LayerNorm, such as BERT or RoBERTa'


def _tuned(given) -> Any:
    """Return the classifier of a run, if it has one for which nothing must be trained."""
    if INPUTS['model'].missing(given):
        return None
    return given.input('model' if given.study.as_it_is else 'tuned_already')


def _texts(given) -> Any:
    # A score needs the labels of what is ablated.
    return given.drawn('ablated' if _tuned(given) else 'texts', 'outliers.max_examples')


def _cost(given) -> float:
    share = given.share('texts', given['outliers.max_examples'])
    return 2 * (given['outliers.draws'] + 5) * share * given.tokens('texts')


@analysis(
    question='dimensions whose LayerNorm stands out, and the model without them',
    group='What matters',
    time='30 s',
    settings={
        'draws': {
            'help': 'Random sets of dimensions to compare with; at least 19.',
            'default': 39,
            'range': [19, 100_000],
            'smoke': 19,
        },
        'max_examples': {
            'help': 'How many examples outlier dimensions are disabled on; 0 is all.',
            'default': 100,
            'range': [0, 10_000_000],
            'smoke': 12,
        },
    },
    inputs={
        'texts': _texts,
        'tuned': _tuned,
        'metrics': lambda given: given.input('metrics') if _tuned(given) else None,
    },
    needs=(_needs,),
    cost=_cost,
)
def outliers(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Pretrained | Finetuned | None = None,
    dimensions: Sequence[int] | None = None,
    draws: Draws = DRAWS,
    masking: Masking | None = None,
    metrics: Sequence[str] | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
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
      seed: The seed of the random sets and of the tests; what is hidden has its own.
      compute: How it is computed; nothing is written into its folder.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is out of range, or does not fit the model; it lacks heads, or its
        layers do not end with LayerNorm; or dimensions are given, and no loss or score can be
        measured.
    """
    config = pretrained.config
    found = layer_norm.find_outliers(pretrained)
    if dimensions is not None:
        layer_norm.check_dimensions(config, dimensions)
    if tuned is not None:
        # Losses take long: what is wrong is told before.
        model = one_model(tuned)
        check_whole(model)
        labels = labels_of(texts, model.config)
        metrics = checked_metrics(metrics, model.config, texts)
    disabled = tuple(found.dimensions.tolist() if dimensions is None else map(int, dimensions))
    if dimensions is not None and tuned is None and config.head != MASKED_LM:
        raise ValueError(
            f'What the model ({config.summary}) is without {_the(disabled)} cannot be measured: '
            "load it with head='masked_lm', or give a fine-tuned model as `tuned`."
        )
    if not disabled:
        return _labelled(Outliers(found, disabled))
    random = layer_norm.random_sets(config.hidden_size, list(disabled), draws=draws, seed=seed)
    several = len(disabled) > 1
    names = ['all together'] * several + [f'dimension {each}' for each in disabled]
    # The first pass disables nothing, then come the S sets, and then the random ones.
    sets = [[], list(disabled), *([[each] for each in disabled] * several), *random.tolist()]
    count, loss, scores = 1 + len(names), None, {}
    if config.head == MASKED_LM:
        check_several(texts)
        losses, hidden = layer_norm.losses_without(
            pretrained, texts, sets, masking=masking, compute=compute
        )
        intact, outliers, others = losses[0], losses[1:count], losses[count:]
        together = outliers[:1], others.mean(axis=0), hidden
        loss = Without(
            effects=assess_losses(outliers, intact, hidden, names=names, seed=seed),
            beyond=assess_losses(*together, names=names[:1], seed=seed),
            random=(others - intact).sum(axis=1) / hidden.sum(),
        )
    if tuned is not None:
        logits = layer_norm.logits_without(model, texts, sets, compute=compute)
        answers = np.stack([predictions(each) for each in logits])
        for metric in metrics or ():
            reached = weighted_scores(metric, answers, labels)[0]
            compared = metric, answers[1:count], answers[0], labels
            effects = assess(*compared, names=names, seed=seed)
            scores[metric] = Without(effects=effects, random=reached[count:] - reached[0])
    return _labelled(Outliers(found, disabled, loss, scores), random.tolist())


def _draw_parameters(result: Outliers):
    found, outliers = result.found, result.found.dimensions.tolist()
    return plots.dimensions_by_layer(
        found.deviations,
        {f'dimension {each}': each for each in outliers},
        label='standard deviations from the mean',
        bound=found.sigma,
    ).captioned(
        'LayerNorm scale and bias of every dimension, layer by layer, compared with the mean of '
        f'the layer. Lines: outliers, if any. Dashed: {found.sigma:g} standard deviations.'
    )


def _draw_without(result: Outliers, without: Without):
    effects, scale = without.effects, without.effects.outcome.scale
    return plots.beside_random(
        scale * without.random,
        {
            name: tuple(scale * each for each in interval)
            for name, *interval in rows_of(effects, INTERVAL)
        },
        label=label_of(effects),
        random_name=f'random, {len(without.random)} draws',
    ).captioned(
        f'Change of {title_of(effects)} without the dimensions (lines: 95 % intervals). '
        'Points: without as many random ones, draw by draw.'
    )


def _labelled(result: Outliers, sets: Sequence[Sequence[int]] = ()) -> Outliers:
    """Return the result with its tables: dimensions, losses, scores, and random sets."""
    found, every = result.found, np.arange(len(result.found.layers))
    columns = {'dimension': every, 'outlier': np.isin(every, found.dimensions)}
    columns['layers'] = found.layers
    for name, each in found.stands_out.items():
        columns[f'layers_{name}'] = each.sum(axis=0)
    columns['layers_both'] = np.logical_and(*found.stands_out.values()).sum(axis=0)
    for name, each in found.deviations.items():
        columns[f'farthest_{name}_sigma'] = each[np.abs(each).argmax(axis=0), every]
    # Those that stand out anywhere, or the nearest ones if none does.
    shown = np.argsort(-found.layers, kind='stable')[: max((found.layers > 0).sum(), 1)]
    frames = {
        'dimensions': table(
            'Dimensions (from 0) whose scale or bias of the output LayerNorm is more than '
            f'{found.sigma:g} standard deviations from the mean of its layer. An outlier is so '
            f'in at least {found.at_least} of {counted(len(found.scale), "layer")}. Chance '
            f'makes {found.by_chance:.2g}.',
            **{name: each[shown] for name, each in columns.items()},
        )
    }
    loss = {} if result.loss is None else {'loss (nats)': result.loss}
    for name, outcome, without, by in (
        ('loss', 'Loss in nats per hidden wordpiece', loss, ()),
        ('scores', 'Score of the fine-tuned model', result.scores, ('metric',)),
    ):
        if without:
            effects = {key: each.effects for key, each in without.items()}
            columns = {'score' if by else 'loss': 'value', **INTERVAL, 'p_value': 'p_value'}
            caption = f'{outcome} without the dimensions, and its change.'
            frames[name] = frame = frame_of(effects, columns, caption, *by)
            # Random sets are as large as all together, the first.
            first = frame['disabled'] == frame['disabled'][0]
            frame.loc[first, 'p_rank'] = [each.p_value for each in without.values()]
    random = {**loss, **result.scores}
    if random:
        frames['random'] = table(
            'What disabling random dimensions changes, for each draw.',
            dimensions=[' '.join(map(str, each)) for each in sets],
            **{name: each.random for name, each in random.items()},
        )
    return result.with_frames(frames)
