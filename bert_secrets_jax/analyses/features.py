"""Attention to linguistic features, before and after fine-tuning (section 4.4, Figure 6)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.inputs import Models, TextSettings
from bert_secrets_jax.analyses.common.tables import (
    BeforeAndAfter,
    Tables,
    mean_finding,
    means_of,
    models_frames,
    significant_changes,
    table,
    tops,
)
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
from bert_secrets_jax.runs.result import Finding, agreement_of_grids, drawn

SOURCE = 'Kovaleva et al. 2019, section 4.4'
SPECIAL = ('[CLS]', '[SEP]')
UNIT = 'share of attention'


class Features(BeforeAndAfter):
    """The attention to [CLS], [SEP] and features, in the readings of paper and notebook.

    Attributes:
      before, runs: As in `common.tables.BeforeAndAfter`.
    """

    title = 'Attention to linguistic features'

    @property
    def names(self) -> list[str]:
        """The features that occur in any text."""
        return [name for name in FEATURES if name in self.before and self.before[name].count]

    @property
    def after(self) -> Tables:
        """The tables of the fine-tuned models, as `over_seeds` returns them."""
        return self.over_seeds((*SPECIAL, *self.names))

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
        return drawn(self, **{'special_tokens_finetuned': _draw_special} if self.runs else {})

    def findings(self):
        tables, found = self.after or self.before, []
        if len(self.names) > 1:
            found = [self._most(tables), *([self._moved()] if self.runs else [])]
        published = paper.special_token_attention(self.subject.task) if self.runs else None
        for name, theirs in (published or {}).items():
            label = f'attention to {name}: agreement with the paper'
            found += agreement_of_grids(label, tables[name].mean, theirs, source=SOURCE)
        return found

    def _most(self, tables: Tables) -> Finding:
        """Return the feature with the most attention, beside that of special tokens."""
        size = {name: float(each.mean.mean()) for name, each in tables.items()}
        most = max(self.names, key=lambda name: size[name])
        return self._mean(
            'the feature with the most attention',
            most,
            where=plural(most),
            template='{when}most attention to features goes to {where} ({estimate:.2g}). That is '
            '{ratio:.0%} of what [CLS] and [SEP] get.',
            when='After fine-tuning, ' if self.runs else 'In this model, ',
            ratio=size[most] / sum(size[name] for name in SPECIAL),
        )

    def _moved(self) -> Finding:
        """Return the feature whose attention changes most, mean over heads."""
        changes = self.over_seeds(map(change, self.names))
        most = max(self.names, key=lambda name: abs(changes[change(name)].mean.mean()))
        return self._mean(
            'attention to the feature that fine-tuning changes most',
            change(most),
            where=plural(most),
            template='Fine-tuning changes attention to {where} most: by {estimate:+.2g} per head.',
        )

    def notes(self):
        absent = ', '.join(plural(name) for name in FEATURES if name not in self.names)
        return [
            'Frequent features score higher: the greatest attention to any of them counts.',
            *([f'Left out, for none is known in these texts: {absent}.'] if absent else []),
        ]

    def _mean(self, name: str, which: str, **fields: Any) -> Finding:
        """Return a statistic of the fine-tuned models, or of the only one, mean over heads."""
        return mean_finding(name, self.models, [which], unit=UNIT, source=SOURCE, **fields)

    def _summary(self):
        names, caption = [*SPECIAL, *self.names], 'Means are over all heads.'
        before = [self.before[name] for name in names]
        columns = {'feature': names, 'examples': [each.count for each in before]}
        columns |= means_of(before, 'pretrained')
        if self.runs:
            runs, after = self.runs.values(), self.after
            moved = [significant_changes([run[change(name)] for run in runs]) for name in names]
            columns |= means_of([after[name] for name in names], 'finetuned')
            columns['heads_rise'], columns['heads_fall'] = np.transpose(moved)
            caption += ' The last columns: heads whose attention rises or falls significantly'
            caption += f' in each of {len(runs)} models.' if len(runs) > 1 else '.'
        return table(caption, **columns)

    def _readings(self):
        names = [name for name in self.names if name in FEATURES_OF_NOTEBOOK]
        theirs = [self.before[notebook(name)] for name in names]
        return table(
            'The notebook finds words by spelling, and counts their absence as 0.',
            feature=names,
            paper_top_head=tops(self.before[name] for name in names),
            notebook_examples=[each.count for each in theirs],
            notebook_top_head=tops(theirs),
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
    return plots.layer_profiles(
        {name: result.after[name].mean for name in SPECIAL},
        label=UNIT,
        published=paper.special_token_attention(result.subject.task) or {},
        published_name='paper: BERT-base',
    ).captioned(
        'Attention to [CLS] and [SEP] after fine-tuning: mean and range of the heads of a layer '
        f'({result.subject.as_in("Figure 6")}).',
        plots.Source('heads_finetuned', 'mean'),
    )
