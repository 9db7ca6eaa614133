"""The scores of fine-tuning from pre-trained and from random weights (section 4.3, Table 1)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.inputs import learnt_nothing, not_learnt
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.finetune.metrics import TITLES, mean_ends
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.runs.result import Finding, Result, framed, measured

SOURCE = 'Kovaleva et al. 2019, section 4.3, Table 1'
_INTERVALS = 'Intervals (95 %) are over dev examples.'
# The columns of scores, and those that each has: of which start, and when.
_SCORES = {
    'pre-trained, not fine-tuned': ('pretrained', 'first_scores'),
    'fine-tuned from random weights': ('random', 'scores'),
    'fine-tuned': ('pretrained', 'scores'),
}


class Finetuning(Result):
    """The scores that fine-tuning reaches.

    Attributes:
      starts: The fine-tuning from each start, 'pretrained' or 'random', without its models; one
        that was not made is left out.
    """

    title = 'Fine-tuning'

    starts: Mapping[str, Finetuned]

    @property
    def _main(self) -> Finetuned:
        return self.starts.get('pretrained') or next(iter(self.starts.values()))

    @property
    def titles(self) -> str:
        """The names of the metrics for readers."""
        return '/'.join(TITLES[name] for name in self._main.metrics)

    @property
    def score(self) -> str:
        """How well the fine-tuned model does in the metric that is tested, and guessing."""
        return f'{self._main.score}.'

    @property
    def unlearnt(self) -> list[int]:
        """The seeds whose model, fine-tuned from pre-trained weights, has learnt nothing at 5 %."""
        start = self.starts.get('pretrained')
        runs = zip(start.seeds, start.p_learnt, strict=True) if start else ()
        return [seed for seed, p_value in runs if learnt_nothing(p_value)]

    def gives(self):
        given: dict[str, Any] = {'unlearnt': tuple(self.unlearnt)}
        start = self.starts.get('pretrained')
        published = verdicts.published_gain(self.subject.task or '')
        if published is not None and start is not None:
            regression = bool(np.isnan(start.larger_class))
            metric = 'pearson' if regression else 'accuracy'
            before, after = (
                # Predictions that are all the same have no correlation with anything.
                [float(np.nan_to_num(row[metric])) for row in rows]
                for rows in (start.first_scores, start.scores)
            )
            given['gain'] = verdicts.Gain(before, after, start.dev_examples, regression, published)
        return given

    def at_a_glance(self):
        texts, published = {}, paper.finetuning(self.subject.task)
        if 'pretrained' in self.starts:
            score = self.labelled['table1'].columns['fine-tuned'][0]
            texts = {'metric': self.titles, 'fine-tuned': score}
        if published is not None:
            texts['paper: BERT-base'] = shown(published.finetuned_from_pretrained)
        return texts

    def verdicts(self):
        metric = self._main.metrics[0]
        scores = {name: [row[metric] for row in each.scores] for name, each in self.starts.items()}
        if len(scores) < 2:
            return []
        return [verdicts.pretraining_helps(**scores, unlearnt=len(self.unlearnt))]

    def frames(self):
        frames, published = super().frames(), paper.finetuning(self.subject.task)
        ours = frames['table1']
        ours.attrs['caption'] += f' ({self.subject.as_in("Table 1")}). {_INTERVALS}'
        if published is not None:
            after = published.finetuned_from_normal_init, published.finetuned_from_pretrained
            theirs = map(shown, (published.pretrained_no_finetuning, *after))
            ours.loc[len(ours)] = ['paper: BERT-base', *theirs, '–']
        return frames

    def _draw_learning_curves(self):
        curves = {
            start: [row for row in runs.history if row['split'] == 'dev']
            for start, runs in self.starts.items()
        }
        mean = ', mean' * (len(self._main.metrics) > 1)
        return plots.learning_curves(
            curves, label=f'{self.titles.replace("/", " and ")}{mean}'
        ).captioned('Dev score by epoch, a line per seed; epoch 0 is before training.')

    def _say_unlearnt(self):
        if not self.unlearnt:
            return None
        # One is enough to say first: a model that learnt nothing has nothing to tell.
        start, seed = self._main, self.unlearnt[0]
        place, metric = start.seeds.index(seed), start.tested
        reached = start.scores[place][metric], start.larger_class, start.p_learnt[place]
        return not_learnt(f'the model of seed {seed}', (metric, *reached), start.dev_examples)

    def _say_scores(self):
        return [self._score(*each) for each in self.starts.items()]

    def _score(self, name: str, runs: Finetuned) -> Finding:
        """Return what is reached from such weights, with an interval over examples."""
        metric, scores = runs.metrics[0], runs.scores
        said = [f'{TITLES[each]} {spread(scores, [each])}' for each in runs.metrics]
        return measured(
            f'score from {name} weights',
            [
                np.mean([100 * row[metric] for row in scores]),
                *mean_ends(metric, scores, runs.dev_examples),
            ],
            unit=f'{TITLES[metric]} x 100',
            sample=runs.dev_examples,
            source=SOURCE,
            template='Fine-tuned on {train:example|examples} from {start} weights: {scores} '
            '({texts}, {sample:example|examples}).',
            train=runs.train_examples,
            start='pre-trained' if name == 'pretrained' else name,
            scores=', '.join(said),
            texts=self.subject.texts,
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
def finetuning(*tuned: Finetuned) -> Finetuning:
    """Report the scores of fine-tuning beside the paper's Table 1.

    Args:
      *tuned: The results of `bs.finetune` from pre-trained weights, random weights, or both. Of two
        with the same start, the later one is reported.

    Raises:
      ValueError: No result is given, or the results have different metrics.
    """
    check_enough('fine-tunings', tuned, mend=' of those that bs.finetune returns')
    if len({each.metrics for each in tuned}) > 1:
        raise ValueError('The runs have different metrics: report them apart.')
    # The models stay where they are.
    kept = (dataclasses.replace(each, folder=None, in_memory=()) for each in tuned)
    found = Finetuning({each.start: each for each in kept})
    main, starts = found._main, found.starts
    ours = [getattr(starts.get(start), rows, []) for start, rows in _SCORES.values()]
    ends = [mean_ends(each, ours[-1], main.dev_examples) for each in main.metrics]
    said = ['–' if np.isnan(low) else f'{low:.1f} to {high:.1f}' for low, high in ends]
    curve = [
        (start, row['split'], row['seed'], row['step'], row['epoch'], name, value)
        for start, runs in starts.items()
        for row in runs.history
        # Rows that were written and read again have their names in another order.
        for name, value in sorted(row.items())
        if name not in ('split', 'seed', 'step', 'epoch') and not name.endswith(('_low', '_high'))
    ]
    frames = {
        'table1': framed(
            ('model', *_SCORES, 'interval'),
            [('ours', *(spread(each, main.metrics) for each in ours), ' / '.join(said))],
            f'{found.titles} x 100, mean ± standard deviation over seeds',
        ),
        'curve': framed(
            ('start', 'split', 'seed', 'step', 'epoch', 'metric', 'value'),
            curve,
            'Training loss, and every metric on the dev examples.',
        ),
    }
    return found.with_frames(frames)


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
