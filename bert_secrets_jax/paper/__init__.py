"""The numbers that Kovaleva et al. (2019) published, to put beside one's own.

There is one function per table and figure. Those of a task take its title or name ('STS-B',
'sts-b') and return None for any other task, where nothing was published. Arrays are the caller's
own, in float64; shares and scores lie between 0 and 1. Table 1 is as printed; figures are
digitised, and `digitisation_error` says how exactly. All models are BERT-base: 12 layers of 12
heads. Other papers' numbers are in the functions from `what_bert_looks_at` to `subnetworks`.
"""

import dataclasses
import functools
import json
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import Float64

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.stats.correlations import spearman as spearman

TASKS = ('MRPC', 'STS-B', 'SST-2', 'QQP', 'RTE', 'QNLI', 'MNLI')

# The metrics of Table 1 by their names in the JSON file. The paper does not say which correlation
# it took for STS-B.
_METRICS = {
    'F1/accuracy': ('f1', 'accuracy'),
    'accuracy': ('accuracy',),
    'correlation x100 (printed as accuracy)': ('correlation',),
}


@dataclasses.dataclass(frozen=True)
class Table1:
    """A row of Table 1: the scores on the development set, by metric.

    They are those of the pre-trained model with an untrained classifier, and after fine-tuning from
    random and from pre-trained weights. The metrics are 'f1' and 'accuracy' (MRPC, QQP),
    'correlation' (STS-B) or 'accuracy'; a score that is printed as 82.3 is 0.823 here.
    """

    pretrained_no_finetuning: dict[str, float]
    finetuned_from_normal_init: dict[str, float]
    finetuned_from_pretrained: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Disabled:
    """The score of the intact model, and those without each head [12, 12] or each layer [12]."""

    baseline: float
    scores: Float64[np.ndarray, '12 *heads']

    @property
    def differences(self) -> Float64[np.ndarray, '12 *heads']:
        """The score without each head or layer minus the score of the intact model."""
        return self.scores - self.baseline


@dataclasses.dataclass(frozen=True)
class DigitisationError:
    """How far numbers that were read from a figure are off, in the unit of these numbers.

    The mean is for an average of many numbers, and NaN if it is not known; `most` for each number.
    """

    mean: float
    most: float


@dataclasses.dataclass(frozen=True)
class RankCorrelation:
    """The rank correlations of two grids of heads, over all heads and over the means of layers.

    They are Spearman's; NaN where the numbers of a grid are all equal.
    """

    heads: float
    layers: float


@dataclasses.dataclass(frozen=True)
class LooksAt:
    """The numbers of Clark et al. (2019, section 3) for pre-trained BERT-base on Wikipedia.

    Attributes:
      layers: Means over the heads of each layer [12] by the name of the statistic, read from their
        figures; NaN where no mean was read.
      entropy_of_last_cls: The entropy of [CLS] in the last layer, in nats, a mean over heads.
      heads_over_half: The number of heads with more than half of their attention on the 'previous
        token' and the 'next token'.
      error, entropy_error: About how far shares of attention, and entropies in nats, were misread.
    """

    layers: dict[str, Float64[np.ndarray, '12']]
    entropy_of_last_cls: float
    heads_over_half: dict[str, int]
    error: float
    entropy_error: float


@dataclasses.dataclass(frozen=True)
class PublishedRelation:
    """A row of Table 1 of Clark et al. (2019): the share of dependents whose head a head finds.

    It is of the best head of BERT-base. The baseline is the same of the best fixed offset. Layer
    and head count from 1.
    """

    name: str
    head: str
    accuracy: float
    baseline: float
    offset: int


def what_bert_looks_at() -> LooksAt:
    """Return what Clark et al. (2019) published of the attention of BERT-base."""
    clark = _published()['clark_2019']
    return LooksAt(
        layers={name: np.array(each, np.float64) for name, each in clark['layer_means'].items()},
        entropy_of_last_cls=float(clark['entropy_of_last_cls']),
        heads_over_half=dict(clark['heads_over_half']),
        error=float(clark['error']['attention']),
        entropy_error=float(clark['error']['entropy']),
    )


def outlier_dimensions(model: str) -> tuple[int, ...] | None:
    """Return the outlier dimensions of a model, from 0, that Kovaleva et al. (2021) published.

    Those of roberta-base are not from the paper itself: `published.json` says where from. None is
    returned for a model that was not in the paper, or whose numbers are not known.

    Args:
      model: The name of the model on the Hugging Face hub, with or without its owner.
    """
    dimensions = _published()['kovaleva_2021_outliers']['dimensions'].get(model.rpartition('/')[2])
    return None if dimensions is None else tuple(dimensions)


def mixing_ratios() -> dict[str, dict[str, float]]:
    """Return how much of a token comes from others, as Kobayashi et al. (2021) published it.

    The ratio between 0 and 1 is a mean over tokens, layers and texts. It stands under the name of
    the model on the hub and the way in which it is told (`contributions.norms.MIXING`).
    """
    return {
        model: {way: percent / 100 for way, percent in ratios.items()}
        for model, ratios in _published()['kobayashi_2021']['mixing_ratios_percent'].items()
    }


def relations() -> dict[str, PublishedRelation]:
    """Return Table 1 of Clark et al. (2019), by the relations of Universal Dependencies."""
    rows = _published()['clark_2019']['relations']
    return {name: PublishedRelation(**row) for name, row in rows.items()}


def prunable(task: str | None) -> float:
    """Return the share of heads that BERT-base can lose on a task (Michel et al. 2019), or NaN."""
    return _published()['michel_2019']['prunable'].get(task, float('nan'))


def subnetworks(task: str | None) -> dict[str, float]:
    """Return the scores of BERT-base and of its subnetworks that Prasanna et al. (2020) published.

    They are those of the 'full' model, and of 'good', 'random' and 'bad' subnetworks, which are
    trained again from pre-trained weights; none for a task without them.
    """
    return dict(_published()['prasanna_2020']['subnetworks'].get(task, {}))


def kappa() -> tuple[float, float]:
    """Return Fleiss' kappa of the heads that survive: the least and the greatest of their tasks."""
    least, greatest = _published()['prasanna_2020']['kappa']
    return least, greatest


def title(task: str | None) -> str | None:
    """Return the task as the paper spells it; None for a task that is not in the paper."""
    titles = {_letters(each): each for each in TASKS}
    return None if task is None else titles.get(_letters(task))


def finetuning(task: str | None) -> Table1 | None:
    """Return Table 1 for a task. For MNLI, the development set is the matched one."""
    name = title(task)
    if name is None:
        return None
    table = _published()['table1']
    row = table['MNLI-m' if name == 'MNLI' else name]
    scores = {}
    for column, printed in zip(table['columns'], row['values'], strict=True):
        shares = np.atleast_1d(np.array(printed, float) / 100).tolist()
        scores[column] = dict(zip(_METRICS[row['metric']], shares, strict=True))
    return Table1(**scores)


def pattern_shares(task: str | None) -> dict[str, float] | None:
    """Return Figure 2 for a task: the share of the maps in each class of `patterns.CLASSES`."""
    percent = _grid('fig2_percent', task)
    classes = _published()['fig2_percent']['classes']
    return None if percent is None else dict(zip(classes, (percent / 100).tolist(), strict=True))


def frame_heads() -> dict[str, float]:
    """Return Figure 3: the attention from frame elements to their target of two heads, by name.

    They are heads of the pre-trained model, in the reading of the authors' notebook.
    """
    heads = _published()['fig3_heads']
    return {name.replace('H', '-H'): float(score) for name, score in heads.items()}


def attention_change(task: str | None) -> Float64[np.ndarray, '12 12'] | None:
    """Return Figure 5 for a task: the cosine similarity of maps before and after fine-tuning."""
    return _grid('fig5_cosine', task)


def special_token_attention(task: str | None) -> dict[str, Float64[np.ndarray, '12 12']] | None:
    """Return Figure 6 for a task: the fine-tuned model's attention to '[CLS]' and '[SEP]'."""
    cls, sep = _grid('fig6_CLS', task), _grid('fig6_SEP', task)
    return None if cls is None or sep is None else {'[CLS]': cls, '[SEP]': sep}


def cls_tokens(task: str | None) -> dict[str, float] | None:
    """Return Figure 7 for a task: the attention of [CLS] in the last layer, by type of token.

    The numbers are means over heads, for '[SEP]', 'noun', 'verb' and '[CLS]'.
    """
    means = _grid('fig7_cls_last_layer', task)
    columns = _published()['fig7_cls_last_layer']['columns']
    return None if means is None else dict(zip(columns, means.tolist(), strict=True))


def disable_one_head(task: str | None) -> Disabled | None:
    """Return Figure 8 for a task: the score without each head."""
    return _disabled('fig8_disable_one_head', 'fig8_baseline', task)


def disable_one_layer(task: str | None) -> Disabled | None:
    """Return Figure 9 for a task: the score without each layer."""
    return _disabled('fig9_disable_one_layer', 'fig9_baseline', task)


def digitisation_error(figure: int, task: str | None = None) -> DigitisationError:
    """Return how far the numbers that were read from a figure are off.

    The authors' notebook printed the numbers of Figure 3, and those of Figure 5 for QQP, so these
    errors are known. The others are taken from these two, or estimated (`published.json`). The
    colour bars of Figures 8 and 9 differ between tasks, and so do their errors; without a task, the
    longest bar counts.

    Raises:
      ValueError: No figure of that number was digitised.
    """
    errors = {
        int(name[3]): error
        for name, error in _published()['digitisation_error'].items()
        if name.startswith('fig')
    }
    check_name('The digitised figure', figure, errors)
    unit = 0.01 if figure == 2 else 1.0
    if figure in (8, 9):
        disabled = {8: disable_one_head, 9: disable_one_layer}[figure]
        shown = map(disabled, [task] if title(task) else TASKS)
        bars = [np.ptp(each.scores) for each in shown if each is not None]
        unit = float(max(bars))
    mean, most = (errors[figure][name] for name in ('mean', 'most'))
    return DigitisationError(mean=float('nan') if mean is None else unit * mean, most=unit * most)


def rank_correlation(ours: np.ndarray, theirs: np.ndarray | None) -> RankCorrelation | None:
    """Return the rank correlations of two grids [L, N]; None without a second one of this shape."""
    if theirs is None or np.shape(ours) != np.shape(theirs):
        return None
    return RankCorrelation(
        heads=spearman(ours, theirs),
        layers=spearman(np.mean(ours, axis=1), np.mean(theirs, axis=1)),
    )


@functools.cache
def _published() -> dict[str, Any]:
    """Return the file: tables as printed, figures digitised, grids as [layer][head]."""
    return json.loads((resources.files(__name__) / 'published.json').read_text('utf-8'))


def _letters(name: str) -> str:
    return name.lower().replace('-', '').replace('_', '')


def _grid(figure: str, task: str | None) -> np.ndarray | None:
    name = title(task)
    return None if name is None else np.array(_published()[figure][name], np.float64)


def _disabled(figure: str, baseline: str, task: str | None) -> Disabled | None:
    scores, intact = _grid(figure, task), _grid(baseline, task)
    if scores is None or intact is None:
        return None
    return Disabled(baseline=float(intact), scores=scores)
