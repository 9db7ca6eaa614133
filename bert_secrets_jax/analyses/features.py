"""Attention to linguistic features, before and after fine-tuning (section 4.4, Figure 6)."""

import functools
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.models import Models
from bert_secrets_jax.analyses.common.tables import (
    BeforeAndAfter,
    Tables,
    greatest,
    mean_finding,
    models_frames,
    notes_of,
    significant_change,
    table,
    top_as_text,
    top_head,
    worded,
)
from bert_secrets_jax.analyses.common.texts import TextSettings
from bert_secrets_jax.analyses.declaration import analysis
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
from bert_secrets_jax.runs.result import Finding, drawn, framed

SOURCE = 'Kovaleva et al. 2019, section 4.4'
SPECIAL = ('[CLS]', '[SEP]')
UNIT = 'share of attention'


class Features(BeforeAndAfter):
    """The attention to [CLS], [SEP] and features, in the readings of paper and notebook.

    Attributes:
      before, runs: As in `common.tables.BeforeAndAfter`.
    """

    title: ClassVar[str] = 'Attention to linguistic features'

    @property
    def names(self) -> list[str]:
        """The features that occur in any text."""
        return [name for name in FEATURES if name in self.before and self.before[name].count]

    @property
    def after(self) -> Tables:
        """The tables of the fine-tuned models, as `over_seeds` returns them."""
        return self.over_seeds((*SPECIAL, *self.names))

    @property
    def changed(self) -> Tables:
        """The changes of [CLS], [SEP] and the features, mean over seeds; or empty."""
        names = (*SPECIAL, *self.names)
        tables = self.over_seeds(map(change, names))
        return {name: tables[change(name)] for name in names if tables}

    def gives(self):
        return {'attention after fine-tuning': self.runs} if self.runs else {}

    def verdicts(self):
        runs = verdicts.named_runs(self.runs, self.before)
        # Punctuation is none of the features of the paper.
        titles = {name: name for name in FEATURES if name != 'punctuation'}
        measured = {name: run for name, run in runs.items() if verdicts.known(run, titles)}
        negligible = verdicts.on_runs(
            measured,
            lambda runs: verdicts.features_are_negligible(
                verdicts.each_of(runs, SPECIAL[0]),
                verdicts.each_of(runs, SPECIAL[1]),
                verdicts.known_in_all(runs, titles),
            ),
        )
        return [*verdicts.cls_then_sep(runs), *negligible]

    def frames(self):
        return {'features': self._summary(), 'readings': self._readings()} | models_frames(
            self.before,
            self.runs,
            UNIT,
            'Every head of the model as it is.',
            'Every head of the fine-tuned models, and what changed.',
        )

    def figures(self):
        drawings = {'special_tokens_finetuned': _draw_special} if self.runs else {}
        shown = {'features': 'before', 'features_finetuned': 'after', 'features_change': 'changed'}
        for name, which in shown.items():
            if self.names and (self.runs or which == 'before'):
                drawings[name] = functools.partial(_draw_grids, which=which)
        return drawn(self, **drawings)

    def findings(self):
        tables = self.after or self.before
        several = len(self.names) > 1
        alone = SPECIAL if several else (*SPECIAL, *self.names)
        findings = [self._mean(f'attention to {name}, mean over heads', name) for name in alone]
        if several:
            most = max(self.names, key=lambda name: tables[name].mean.mean())
            special = sum(float(tables[name].mean.mean()) for name in SPECIAL)
            answer = self._mean(
                'the feature with the most attention',
                most,
                where=plural(most),
                template='{when}{where} get more attention than other features ({estimate:.2g}). '
                'That is {ratio:.0%} of what [CLS] and [SEP] get.',
                when='After fine-tuning, ' if self.after else 'In this model, ',
                ratio=float(tables[most].mean.mean()) / special,
            )
            findings = [answer, *findings]
        if several and self.runs:
            findings.append(self._most_changed())
        return findings

    def head_notes(self):
        tuned = self.after
        notes = {
            f'attention to {name}': notes_of(
                [self.before[name], *([tuned[name]] if name in tuned else [])]
            )
            for name in SPECIAL
        }
        if self.names:
            grids = [self.before[name].mean for name in self.names]
            most, share = greatest(list(map(plural, self.names)), grids)
            notes['most attention to a feature'] = worded('{:.2f} to {}', share, most)
        return notes

    def notes(self):
        absent = ', '.join(plural(name) for name in FEATURES if name not in self.names)
        return [
            'Frequent features score higher: the greatest attention to any of them counts.',
            *([f'Left out, for none is known in these texts: {absent}.'] if absent else []),
        ]

    def _mean(self, name: str, which: str, **fields) -> Finding:
        """Return the attention to a type of token, mean over heads, after fine-tuning if any."""
        return mean_finding(name, self.models, [which], unit=UNIT, source=SOURCE, **fields)

    def _most_changed(self) -> Finding:
        size = {name: np.abs(self.changed[name].mean) for name in self.names}
        moved = max(self.names, key=lambda name: size[name].mean())
        head = top_head(size[moved])
        return mean_finding(
            'attention to the feature that fine-tuning changes most',
            self.models,
            [change(moved)],
            head,
            unit=UNIT,
            source=SOURCE,
            where=head_name(*head),
            template='Fine-tuning changes attention to {feature} most: by {size:.2g} per head, '
            'and by {estimate:+.2g} in {where}.',
            feature=plural(moved),
            size=float(size[moved].mean()),
        )

    def _summary(self):
        rows = []
        after = self.after
        for name in (*SPECIAL, *self.names):
            before = self.before[name]
            row = [name, before.count, before.mean.mean(), top_as_text(before)]
            if self.runs:
                moved = [significant_change(run[change(name)]) for run in self.runs.values()]
                counts = [np.nan, np.nan]
                if moved[0] is not None:
                    counts = [
                        int(np.all(sign * np.array(moved) > 0, axis=0).sum()) for sign in (1, -1)
                    ]
                row += [after[name].mean.mean(), top_as_text(after[name]), *counts]
            rows.append(row)
        columns = ['feature', 'examples', 'pretrained', 'pretrained_top_head']
        caption = 'Means are over all heads.'
        if self.runs:
            columns += ['finetuned', 'finetuned_top_head', 'heads_rise', 'heads_fall']
            caption += ' The last columns: heads whose attention rises or falls significantly'
            caption += f' in each of {len(self.runs)} models.' if len(self.runs) > 1 else '.'
        return framed(columns, rows, caption)

    def _readings(self):
        names = [name for name in self.names if name in FEATURES_OF_NOTEBOOK]
        theirs = [self.before[notebook(name)] for name in names]
        return table(
            'The notebook finds words by spelling, and counts their absence as 0.',
            feature=names,
            paper_top_head=[top_as_text(self.before[name]) for name in names],
            notebook_examples=[each.count for each in theirs],
            notebook_top_head=list(map(top_as_text, theirs)),
        )


def feature_statistics() -> list[Described]:
    """Return the statistics that `features` measures."""
    names = (*SPECIAL, *FEATURES, *map(notebook, FEATURES_OF_NOTEBOOK))
    return [named(name) for name in names]


@analysis(
    question='attention to nouns, verbs, negation, before and after fine-tuning',
    group='Syntax and meaning',
    report='always',
    reads=('linguistics.',),
    inputs={'tuned': 'tuned_if_any'},
    needs=('annotations',),
    wants=lambda given: feature_statistics(),
    compares=lambda given: feature_statistics(),
    words=True,
    cost=lambda given: given.one_pass('features', 0, 0, 5) | given.compared(),
)
def features(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Models | None = None,
    settings: TextSettings = TextSettings(),
) -> Features:
    """Measure attention to nouns, verbs, negation and so on, and how fine-tuning changes it.

    Args:
      tuned: `pretrained` fine-tuned, or several such models; None measures only `pretrained`.
      pretrained, texts, settings: As in `special_tokens`.
    """
    wanted = feature_statistics()
    before = settings.tables(pretrained, texts, wanted)
    runs = settings.changes(pretrained, tuned, texts, wanted)
    return Features(before, runs)


def _draw_special(result: Features):
    published = paper.special_token_attention(result.subject.task) or {}
    after = result.after
    agreement = ''
    for name in published:
        rank = paper.rank_correlation(after[name].mean, published[name])
        if rank is not None:
            ranks = f'{rank.heads:.2f} (layers: {rank.layers:.2f})'
            agreement += f' {name}: rank correlation with the paper {ranks}.'
    return plots.layer_profiles(
        {name: after[name].mean for name in SPECIAL},
        label=UNIT,
        published=published,
        published_name='paper: BERT-base',
    ).captioned(
        'Attention to [CLS] and [SEP] after fine-tuning: mean and range of the heads of a layer '
        f'({result.subject.as_in("Figure 6")}).{agreement}',
        plots.Source('heads_finetuned', 'mean'),
    )


_CAPTIONS = {
    'before': 'Attention to linguistic features in the model as it is.',
    'after': 'Attention to linguistic features in the fine-tuned model.',
    'changed': 'The change of attention to linguistic features by fine-tuning.',
}


def _draw_grids(result: Features, which: str):
    tables, is_change = getattr(result, which), which == 'changed'
    grids = {name: tables[name].mean for name in result.names}
    figure = plots.head_grids(
        grids, label='change (share)' if is_change else UNIT, differences=is_change
    )
    frame = 'heads' if which == 'before' else 'heads_finetuned'
    source = plots.Source(frame, 'mean', 'change of {}' if is_change else '{}')
    return figure.captioned(_CAPTIONS[which], source)
