"""Attention to linguistic features, before and after fine-tuning (section 4.4, Figure 6)."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.models import Models
from bert_secrets_jax.analyses.populations import population
from bert_secrets_jax.analyses.tables import (
    Tables,
    heads_frame,
    mean_over_runs,
    notes_of,
    over_seeds,
    seeds_frame,
    significant_change,
    top_head,
    with_error,
)
from bert_secrets_jax.analyses.texts import TextSettings
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import (
    FEATURES,
    FEATURES_OF_NOTEBOOK,
    Described,
    change,
    named,
    notebook,
    plural,
)
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

SOURCE = 'Kovaleva et al. 2019, section 4.4'
SPECIAL = ('[CLS]', '[SEP]')
UNIT = 'share of attention'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Features(Result):
    """The attention to linguistic features.

    Attributes:
      subject: The names of the model, the texts and the task.
      before: The tables of the model before fine-tuning, by the name of the statistic: [CLS],
        [SEP], and the features in the readings of the paper and of the notebook.
      runs: The tables of each fine-tuned model by its seed: the same statistics, and their changes
        ('change of noun'), which are taken example by example. Empty if no fine-tuned model was
        measured.
    """

    subject: Subject
    before: Tables
    runs: Mapping[str, Tables]

    @property
    def title(self) -> str:
        return 'Attention to linguistic features'

    @property
    def names(self) -> list[str]:
        """The features that occur in any text."""
        return [name for name in FEATURES if name in self.before and self.before[name].count]

    @property
    def after(self) -> Tables:
        """The tables of the fine-tuned models, mean over seeds; empty if there is no such model."""
        return self._over_seeds((*SPECIAL, *self.names))

    @property
    def changed(self) -> Tables:
        """The tables of the changes by fine-tuning, mean over seeds; empty without such models.

        Their names are [CLS], [SEP] and the features.
        """
        names = (*SPECIAL, *self.names)
        tables = self._over_seeds(map(change, names))
        return {name: tables[change(name)] for name in names if tables}

    def _over_seeds(self, names) -> Tables:
        return over_seeds(list(self.runs.values()), names) if self.runs else {}

    def verdicts(self):
        runs = verdicts.named_runs(self.runs, self.before)
        # Punctuation is none of the features of the paper.
        titles = {name: name for name in FEATURES if name != 'punctuation'}
        measured = {name: run for name, run in runs.items() if verdicts.known(run, titles)}
        negligible = verdicts.on_runs(
            measured,
            lambda runs: verdicts.features_are_negligible(
                *(verdicts.each_of(runs, name) for name in SPECIAL),
                verdicts.known_in_all(runs, titles),
            ),
        )
        return [*verdicts.cls_then_sep(runs), *negligible]

    def frames(self):
        frames = {'features': self._summary(), 'readings': self._readings()}
        frames['heads'] = heads_frame(self.before, UNIT, 'Every head of the model as it is.')
        if self.runs:
            frames['heads_finetuned'] = seeds_frame(
                self.runs, UNIT, 'Every head of the fine-tuned models, and what changed.'
            )
        return frames

    def figures(self):
        drawings = {}
        if self.runs:
            drawings['special_tokens_finetuned'] = functools.partial(_draw_special, self)
        if self.names:
            drawings['features'] = functools.partial(
                _draw_grids, self, self.before, 'the model as it is', 'heads'
            )
        if self.names and self.runs:
            drawings['features_finetuned'] = functools.partial(
                _draw_grids, self, self.after, 'the fine-tuned model', 'heads_finetuned'
            )
            drawings['features_change'] = functools.partial(_draw_change, self)
        return Figures(drawings)

    def findings(self):
        findings = [self._special()]
        if self.names:
            findings.append(self._greatest())
            if self.runs:
                findings.append(self._most_changed())
        return findings

    def head_notes(self):
        tuned = self.after
        return {
            f'attention to {name}': notes_of(
                [self.before[name], *([tuned[name]] if name in tuned else [])]
            )
            for name in (*SPECIAL, *self.names)
        }

    def notes(self):
        return [
            'The score of a feature is the greatest attention that any token of the type gets, so '
            'a feature with more tokens in a text has the larger maximum. Examples without the '
            'feature are left out.'
        ]

    @property
    def _models(self) -> list[Tables]:
        """The tables of the fine-tuned models; of the model before if there are none."""
        return list(self.runs.values()) or [self.before]

    def _special(self) -> Finding:
        found = mean_over_runs(self._models, ['[SEP]'])
        tables, which = (self.after, 'fine-tuned') if self.runs else (self.before, 'pre-trained')
        before = {name: float(self.before[name].mean.mean()) for name in SPECIAL}
        now = {name: float(tables[name].mean.mean()) for name in SPECIAL}
        return Finding(
            name='[SEP], mean over heads',
            estimate=found.mean,
            low=found.low,
            high=found.high,
            unit=UNIT,
            sample=int(self.before['[SEP]'].count),
            source=f'{SOURCE}, Figure 6',
            template=(
                'The {which} model gives {cls:.2f} of its attention to [CLS] and {estimate:.2f} to '
                'the greatest [SEP] of a text{interval}, mean over heads{before}.'
            ),
            numbers={
                'which': which,
                'cls': now['[CLS]'],
                'interval': found.words(),
                'before': f' (before: {before["[CLS]"]:.2f} and {before["[SEP]"]:.2f})'
                if self.runs
                else '',
            },
        )

    def _greatest(self) -> Finding:
        tables = self.after or self.before
        means = {name: float(tables[name].mean.mean()) for name in self.names}
        most = max(means, key=means.get)
        found = mean_over_runs(self._models, [most])
        special = sum(float(tables[name].mean.mean()) for name in SPECIAL)
        return Finding(
            name='the feature with the most attention',
            estimate=found.mean,
            low=found.low,
            high=found.high,
            unit=UNIT,
            sample=int(self.before[most].count),
            source=SOURCE,
            template=(
                'Of the linguistic features, {feature} get most: {estimate:.3f}{interval}. This is '
                '{ratio:.2f} of what [CLS] and the greatest [SEP] get together; the paper found '
                'the features negligible beside these.'
            ),
            numbers={
                'feature': plural(most),
                'ratio': means[most] / special,
                'interval': found.words('.3f'),
            },
        )

    def _most_changed(self) -> Finding:
        changed = self.changed
        size = {name: np.abs(changed[name].mean) for name in self.names}
        moved = max(self.names, key=lambda name: size[name].mean())
        head = top_head(size[moved])
        found = mean_over_runs(list(self.runs.values()), [change(moved)], head)
        return Finding(
            name='the feature that fine-tuning changes most',
            estimate=found.mean,
            low=found.low,
            high=found.high,
            unit=UNIT,
            sample=int(changed[moved].count),
            source=SOURCE,
            template=(
                'Fine-tuning changes attention to {feature} most, by {size:.4f} per head and by '
                '{estimate:+.3f} in {head}{interval}, the head that it changes most.'
            ),
            numbers={
                'feature': plural(moved),
                'size': float(size[moved].mean()),
                'head': head_name(*head),
                'interval': found.words('+.3f'),
            },
        )

    def _summary(self):
        rows = []
        after = self.after
        for name in (*SPECIAL, *self.names):
            row = [name, self.before[name].count, self.before[name].mean.mean()]
            row.append(with_error(self.before[name], top_head(self.before[name].mean)))
            if self.runs:
                moved = [significant_change(run[change(name)]) for run in self.runs.values()]
                rise, fall = (
                    np.nan
                    if moved[0] is None
                    else int(np.all([each * sign > 0 for each in moved], axis=0).sum())
                    for sign in (1, -1)
                )
                top = with_error(after[name], top_head(after[name].mean))
                row += [after[name].mean.mean(), top, rise, fall]
            rows.append(row)
        columns = ['feature', 'examples', 'pretrained', 'pretrained_top_head']
        caption = 'Means are over all heads.'
        if self.runs:
            columns += ['finetuned', 'finetuned_top_head', 'heads_rise', 'heads_fall']
            caption += (
                ' Heads rise or fall if the mean difference over examples does so significantly '
                '(t-test, 5 % after correction for all heads, Holm) '
            )
            caption += (
                f'in each of these {len(self.runs)} fine-tunings by itself: for these models, on '
                'examples like these.'
                if len(self.runs) > 1
                else f'for {population(1)}: another fine-tuning may differ.'
            )
        return framed(columns, rows, caption)

    def _readings(self):
        rows = []
        for name in self.names:
            if name in FEATURES_OF_NOTEBOOK:
                theirs = self.before[notebook(name)]
                rows.append(
                    (
                        name,
                        with_error(self.before[name], top_head(self.before[name].mean)),
                        theirs.count,
                        with_error(theirs, top_head(theirs.mean)),
                    )
                )
        return framed(
            ('feature', 'paper_top_head', 'notebook_examples', 'notebook_top_head'),
            rows,
            "The authors' notebook looks words up by their spelling, anywhere in the input, and "
            'counts examples without the feature as 0 (but for negation).',
        )


def feature_statistics() -> list[Described]:
    """Return the statistics that `features` measures."""
    names = (*SPECIAL, *FEATURES, *map(notebook, FEATURES_OF_NOTEBOOK))
    return [named(name) for name in names]


def features(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Models | None = None,
    settings: TextSettings = TextSettings(),
    subject: Subject | None = None,
) -> Features:
    """Measure attention to nouns, verbs, negation and so on, and how fine-tuning changes it.

    Args:
      pretrained: The model before fine-tuning.
      texts: The texts that the models read.
      tuned: The same model fine-tuned, or several of them; None measures only the model before
        fine-tuning.
      settings: The settings for encoding the texts and finding words in them.
      subject: The names of the model, the texts and the task, for sentences and captions.
    """
    wanted = feature_statistics()
    before = settings.tables(pretrained, texts, wanted)
    runs = settings.changes(pretrained, tuned, texts, wanted)
    return Features(subject or Subject(), before, runs)


def _draw_special(result: Features):
    published = paper.special_token_attention(result.subject.task) or {}
    after = result.after
    figure = plots.layer_profiles(
        {name: after[name].mean for name in SPECIAL},
        label=UNIT,
        published=published,
        published_name='paper: BERT-base',
    )
    figure.source = plots.Source('heads_finetuned', 'mean')
    figure.caption = (
        'Attention to [CLS] and [SEP] in the fine-tuned model by layer: mean over heads, and the '
        f'range of the heads ({result.subject.as_in("Figure 6")}).'
    )
    for name, grid in published.items():
        rank = paper.rank_correlation(after[name].mean, grid)
        if rank is not None:
            figure.caption += (
                f' {name}: rank correlation with the paper {rank.heads:.2f} over heads, '
                f'{rank.layers:.2f} over layers.'
            )
    return figure


def _draw_grids(result: Features, tables: Tables, model: str, frame: str):
    figure = plots.head_grids({name: tables[name].mean for name in result.names}, label=UNIT)
    figure.source = plots.Source(frame, 'mean')
    figure.caption = (
        f'Attention to linguistic features in {model}: mean over query tokens, the greatest of '
        'several tokens of the type, mean over examples that have any.'
    )
    return figure


def _draw_change(result: Features):
    changed = result.changed
    figure = plots.head_grids(
        {name: changed[name].mean for name in result.names},
        label='change (share)',
        differences=True,
    )
    figure.source = plots.Source('heads_finetuned', 'mean', 'change of {}')
    figure.caption = (
        'What fine-tuning changes of it: blue heads attend more to the feature than before, red '
        'ones less.'
    )
    return figure
