"""The scores of fine-tuning from pre-trained and from random weights (section 4.3, Table 1)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.learnt import learnt_nothing, not_learnt
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.finetune.metrics import TITLES, described, mean_ends
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.runs.findings import measured
from bert_secrets_jax.runs.result import Finding, Result, drawn, framed

SOURCE = 'Kovaleva et al. 2019, section 4.3, Table 1'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Start:
    """The runs that began from the same weights.

    Attributes:
      seeds: The seed of each run.
      history: The rows of all training curves, as in `Finetuned.history`.
      before, last: The row of each run on the dev examples before training, and after the last
        epoch.
      p_learnt: The one-sided p-value of each run [runs] if it has learnt nothing: if it is no
        better than always answering the larger class (exact binomial test), or, in a regression, if
        its correlation is zero.
    """

    seeds: tuple[int, ...]
    history: list[dict[str, Any]]
    before: list[dict[str, Any]]
    last: list[dict[str, Any]]
    p_learnt: tuple[float, ...]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Finetuning(Result):
    """The scores that fine-tuning reaches.

    Attributes:
      train_texts: The name of the training texts.
      train_examples, dev_examples: The numbers of training and of dev examples.
      metrics: The names of the metrics, the task's own first.
      larger_class: The share of the most frequent class among the dev examples; NaN for a
        regression.
      tested: The metric by which it is tested whether a model has learnt anything.
      starts: The runs from each start, 'pretrained' or 'random'; one without runs is left out.
    """

    title: ClassVar[str] = 'Fine-tuning'
    FORMAT: ClassVar[int] = 3

    train_texts: str
    train_examples: int
    dev_examples: int
    metrics: tuple[str, ...]
    larger_class: float
    tested: str
    starts: Mapping[str, Start]

    @property
    def titles(self) -> str:
        """The names of the metrics for readers."""
        return '/'.join(TITLES[name] for name in self.metrics)

    @property
    def score(self) -> str:
        """How well the fine-tuned model does in the metric that is tested, and guessing."""
        runs = self.starts.get('pretrained') or next(iter(self.starts.values()))
        sizes = self.dev_examples, self.larger_class
        return f'{described(self.tested, self.metrics, runs.last, *sizes)}.'

    @property
    def unlearnt(self) -> list[int]:
        """The seeds whose model, fine-tuned from pre-trained weights, has learnt nothing at 5 %."""
        if 'pretrained' not in self.starts:
            return []
        start = self.starts['pretrained']
        runs = zip(start.seeds, start.p_learnt, strict=True)
        return [seed for seed, p_value in runs if learnt_nothing(p_value)]

    def gives(self):
        given: dict[str, Any] = {'unlearnt': tuple(self.unlearnt)}
        task = self.subject.task
        published = None if task is None else verdicts.published_gain(task)
        if published is not None and 'pretrained' in self.starts:
            start, regression = self.starts['pretrained'], bool(np.isnan(self.larger_class))
            metric = 'pearson' if regression else 'accuracy'
            before, after = (
                # Predictions that are all the same have no correlation with anything.
                [float(np.nan_to_num(row[metric])) for row in rows]
                for rows in (start.before, start.last)
            )
            sizes = self.dev_examples, regression, published
            given['gain'] = verdicts.Gain(before, after, *sizes)
        return given

    def at_a_glance(self):
        texts, published = {}, paper.finetuning(self.subject.task)
        if 'pretrained' in self.starts:
            score = spread(self.starts['pretrained'].last, self.metrics)
            texts = {'metric': self.titles, 'fine-tuned': score}
        if published is not None:
            texts['paper: BERT-base'] = shown(published.finetuned_from_pretrained)
        return texts

    def verdicts(self):
        metric = self.metrics[0]
        scores = {start: [row[metric] for row in runs.last] for start, runs in self.starts.items()}
        if len(scores) < 2:
            return []
        return [verdicts.pretraining_helps(**scores, unlearnt=len(self.unlearnt))]

    def frames(self):
        curve = [
            (start, row['split'], row['seed'], row['step'], row['epoch'], name, value)
            for start, runs in self.starts.items()
            for row in runs.history
            # Rows that were written and read again have their names in another order.
            for name, value in sorted(row.items())
            if name not in ('split', 'seed', 'step', 'epoch')
            and not name.endswith(('_low', '_high'))
        ]
        return {
            'table1': self._table1(),
            'curve': framed(
                ('start', 'split', 'seed', 'step', 'epoch', 'metric', 'value'),
                curve,
                'Training loss, and every metric on the dev examples.',
            ),
        }

    def figures(self):
        return drawn(self, learning_curves=_draw)

    def findings(self):
        return [*self._warnings(), *(self._score(*each) for each in self.starts.items())]

    def _score(self, name: str, runs: Start) -> Finding:
        """Return what is reached from such weights, with an interval over examples."""
        metric = self.metrics[0]
        mean = np.mean([100 * row[metric] for row in runs.last])
        scores = [f'{TITLES[each]} {spread(runs.last, [each])}' for each in self.metrics]
        return measured(
            f'score from {name} weights',
            [mean, *mean_ends(metric, runs.last, self.dev_examples)],
            unit=f'{TITLES[metric]} x 100',
            sample=self.dev_examples,
            source=SOURCE,
            template='Fine-tuned on {train:example|examples} from {start} weights: {scores} '
            '({texts}, {sample:example|examples}).',
            train=self.train_examples,
            start='pre-trained' if name == 'pretrained' else name,
            scores=', '.join(scores),
            texts=self.subject.texts,
        )

    def _warnings(self) -> list[Finding]:
        """Return what must be said first: a model that learnt nothing has nothing to tell."""
        if not self.unlearnt:
            return []
        start, seed = self.starts['pretrained'], self.unlearnt[0]
        place = start.seeds.index(seed)
        reached = start.last[place][self.tested], self.larger_class, start.p_learnt[place]
        whose = f'the model of seed {seed}'
        return [not_learnt(whose, (self.tested, *reached), self.dev_examples)]

    def _table1(self):
        columns = {
            'pre-trained, not fine-tuned': ('pretrained', 'before', 'pretrained_no_finetuning'),
            'fine-tuned from random weights': ('random', 'last', 'finetuned_from_normal_init'),
            'fine-tuned': ('pretrained', 'last', 'finetuned_from_pretrained'),
        }
        ours = [getattr(self.starts.get(start), which, []) for start, which, _ in columns.values()]
        ends = [mean_ends(each, ours[-1], self.dev_examples) for each in self.metrics]
        said = ['–' if np.isnan(low) else f'{low:.1f} to {high:.1f}' for low, high in ends]
        rows = [('ours', *(spread(each, self.metrics) for each in ours), ' / '.join(said))]
        theirs = paper.finetuning(self.subject.task)
        if theirs is not None:
            published = [getattr(theirs, name) for _, _, name in columns.values()]
            rows.append(('paper: BERT-base', *map(shown, published), '–'))
        return framed(
            ('model', *columns, 'interval'),
            rows,
            f'{self.titles} x 100, mean ± standard deviation over seeds '
            f'({self.subject.as_in("Table 1")}). Intervals (95 %) are over dev examples.',
        )


# The names of inputs by those of starts.
_TUNED = {'pretrained': 'tuned', 'random': 'tuned_random'}


@analysis(
    question='fine-tuning pre-trained and random weights, several seeds',
    group='What training changed',
    report='always',
    section='finetune',
    reads=('train.',),
    inputs={'tuned': lambda given: [given.input(_TUNED[start]) for start in given['train.starts']]},
    needs=('tuned',),
)
def finetuning(*tuned: Finetuned, train_texts: str = 'the training texts') -> Finetuning:
    """Report the scores of fine-tuning beside the paper's Table 1.

    Args:
      *tuned: The results of `bs.finetune` from pre-trained weights, random weights, or both. Of two
        with the same start, the later one is reported; numbers of examples are those of the first.
      train_texts: The name of the training texts.

    Raises:
      ValueError: No result is given, or the results have different metrics.
    """
    check_enough('fine-tunings', tuned, mend=' of those that bs.finetune returns')
    first = tuned[0]
    if any(each.metrics != first.metrics for each in tuned):
        raise ValueError('The runs have different metrics: report them apart.')
    return Finetuning(
        train_texts=train_texts,
        train_examples=first.train_examples,
        dev_examples=first.dev_examples,
        metrics=tuple(first.metrics),
        larger_class=float(first.larger_class),
        tested=first.tested,
        starts={
            each.start: Start(
                seeds=tuple(each.seeds),
                history=list(each.history),
                before=list(each.first_scores),
                last=list(each.scores),
                p_learnt=tuple(map(float, each.p_learnt)),
            )
            for each in tuned
        },
    )


def spread(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> str:
    """Return means and deviations of scores over runs, times 100: '88.1 ± 0.5 / 82.0 ± 0.7'."""
    if not rows:
        return '–'
    cells = []
    for name in metrics:
        values = 100 * np.array([row[name] for row in rows])
        deviation = f' ± {values.std(ddof=1):.1f}' if len(values) > 1 else ''
        cells.append(f'{values.mean():.1f}{deviation}')
    return ' / '.join(cells)


def shown(scores: Mapping[str, float]) -> str:
    """Return published scores, times a hundred, as text: '87.9 / 82.3'."""
    return ' / '.join(f'{100 * score:.1f}' for score in scores.values())


def _draw(result: Finetuning):
    curves = {
        start: [row for row in runs.history if row['split'] == 'dev']
        for start, runs in result.starts.items()
    }
    titles = [TITLES[name] for name in result.metrics]
    return plots.learning_curves(
        curves, label=f'{" and ".join(titles)}, mean' if len(titles) > 1 else titles[0]
    ).captioned('Dev score by epoch, a line per seed; epoch 0 is before training.')
