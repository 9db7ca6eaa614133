"""Attention to linguistic features (section 4.4, Figure 6), and of [CLS] (section 4.5, Figure 7).

Both are measured before and after fine-tuning.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.inputs import Models, TextSettings
from bert_secrets_jax.analyses.common.tables import (
    BeforeAndAfter,
    Tables,
    heads_frames,
    mean_over_runs,
    means_of,
    significant_changes,
    table,
    tops,
    with_ends,
)
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.analyses.verdicts import Verdict
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import (
    FEATURES,
    FEATURES_OF_NOTEBOOK,
    change,
    from_cls,
    named,
    notebook,
    plural,
)
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.result import Finding, agreement_of_grids, drawn

SPECIAL = ('[CLS]', '[SEP]')
_TYPES = (*SPECIAL, *FEATURES)
_STATISTICS = (*_TYPES, *map(notebook, FEATURES_OF_NOTEBOOK))
_OF_CLS = (*map(from_cls, _TYPES), *(notebook(from_cls(name)) for name in FEATURES_OF_NOTEBOOK))
# The value at which the colours of Figure 7 end.
_HIGHEST = 0.5


class _OfTypes(BeforeAndAfter):
    """Attention to types of token, of which some may be known in no text."""

    def known(self, names: Sequence[str]) -> list[str]:
        """Return the statistics that are known of any text."""
        return [name for name in names if name in self.before and self.before[name].count]

    def decided(
        self,
        test: Callable[[dict[str, list[HeadTable]], Sequence[Tables]], Verdict],
        titles: Mapping[str, str],
        *,
        least: int = 1,
    ) -> list[Verdict]:
        """Return the verdict on the models of which so many statistics are known, by title."""
        runs = verdicts.named_runs(self.runs, self.before)
        several = {
            name: run for name, run in runs.items() if len(verdicts.known(run, titles)) >= least
        }
        return verdicts.on_runs(
            several, lambda runs: test(verdicts.known_in_all(runs, titles), runs)
        )


class Features(_OfTypes):
    """The attention to [CLS], [SEP] and features, in the readings of paper and notebook.

    Attributes:
      before, runs: As in `common.tables.BeforeAndAfter`.
    """

    title = 'Attention to linguistic features'
    source = 'Kovaleva et al. 2019, section 4.4'

    @property
    def names(self) -> list[str]:
        """The features that occur in any text."""
        return self.known(FEATURES)

    def gives(self):
        return {'attention after fine-tuning': self.runs} if self.runs else {}

    def verdicts(self):
        def negligible(of_features: dict[str, list[HeadTable]], runs: Sequence[Tables]) -> Verdict:
            to_cls, to_sep = (verdicts.each_of(runs, name) for name in SPECIAL)
            return verdicts.features_are_negligible(to_cls, to_sep, of_features)

        # Punctuation is none of the features of the paper.
        titles = {name: name for name in FEATURES if name != 'punctuation'}
        runs = verdicts.named_runs(self.runs, self.before)
        return [*verdicts.cls_then_sep(runs), *self.decided(negligible, titles)]

    def figures(self):
        return drawn(self, **{'special_tokens_finetuned': _draw_special} if self.runs else {})

    def findings(self):
        found = []
        if len(self.names) > 1:
            found = [self._most(), *([self._moved()] if self.runs else [])]
        published = paper.special_token_attention(self.subject.task) if self.runs else None
        for name, theirs in (published or {}).items():
            label = f'attention to {name}: agreement with the paper'
            found += agreement_of_grids(label, self.after[name].mean, theirs, source=self.source)
        return found

    def notes(self):
        absent = ', '.join(plural(name) for name in FEATURES if name not in self.names)
        return [
            'Frequent features score higher: the greatest attention to any of them counts.',
            *([f'Left out, for none is known in these texts: {absent}.'] if absent else []),
        ]

    def _most(self) -> Finding:
        """Return the feature with the most attention, beside that of special tokens."""
        columns = self.labelled['features'].columns
        sizes = np.asarray(columns['finetuned' if self.runs else 'pretrained'], np.float64)
        special, means = np.split(sizes, [len(SPECIAL)])
        most = self.names[means.argmax()]
        return self.mean(
            'the feature with the most attention',
            most,
            where=plural(most),
            template='{when}most attention to features goes to {where} ({estimate:.2g}). That is '
            '{ratio:.0%} of what [CLS] and [SEP] get.',
            when='After fine-tuning, ' if self.runs else 'In this model, ',
            ratio=float(means.max() / special.sum()),
        )

    def _moved(self) -> Finding:
        """Return the feature whose attention changes most, mean over heads."""
        columns = self.labelled['features'].columns
        changes = np.abs(columns['finetuned'] - columns['pretrained'])
        most = self.names[changes[len(SPECIAL) :].argmax()]
        return self.mean(
            'attention to the feature that fine-tuning changes most',
            change(most),
            where=plural(most),
            template='Fine-tuning changes attention to {where} most: by {estimate:+.2g} per head.',
        )


class ClsTokens(_OfTypes):
    """The attention of [CLS] to each type of token ('from [CLS] to noun').

    Attributes:
      before, runs: As in `common.tables.BeforeAndAfter`.
    """

    title = '[CLS] in the last layer'
    source = 'Kovaleva et al. 2019, section 4.5, Figure 7'

    @property
    def names(self) -> list[str]:
        """The types of token that occur in any text."""
        return [name for name in _TYPES if self.known([from_cls(name)])]

    def in_last_layer(self, tables: Tables) -> np.ndarray:
        """Return the attention of the last layer's heads to each type of token [N, types]."""
        return np.stack([tables[from_cls(name)].mean[-1] for name in self.names], axis=1)

    def verdicts(self):
        titles = {from_cls(name): name for name in ('[SEP]', '[CLS]', *FEATURES)}
        return self.decided(
            lambda of_types, _: verdicts.cls_attends_most_to_sep(of_types), titles, least=2
        )

    def frames(self):
        frames, published = super().frames(), paper.cls_tokens(self.subject.task)
        if published:
            theirs = [published.get(name, np.nan) for name in self.names]
            frames['cls_tokens'] = frames['cls_tokens'].assign(paper_bert_base=theirs)
        return frames

    def _draw_cls_tokens(self):
        models = zip(self.by_model, ('heads', 'heads_finetuned'), strict=False)
        tables = zip(self.by_model, (self.before, self.after), strict=False)
        return plots.feature_matrices(
            {name: self.in_last_layer(each) for name, each in tables},
            self.names,
            label='attention of [CLS]',
            layer=len(self.before[from_cls(self.names[0])].mean) - 1,
            highest=_HIGHEST,
        ).captioned(
            'Attention of [CLS] in the last layer, by type of token '
            f'({self.subject.as_in("Figure 7")}).',
            {name: plots.Source(frame, 'mean', from_cls('{}')) for name, frame in models},
        )

    def findings(self):
        columns = self.labelled['cls_tokens'].columns
        means = columns['finetuned' if self.runs else 'pretrained']
        if len(means) < 2:
            return []
        most, second, *_ = (self.names[place] for place in np.argsort(-means))
        return [
            self.mean(
                'type of token that [CLS] attends to most',
                from_cls(most),
                -1,
                where=plural(most),
                template='{when} the last layer, [CLS] attends most to {where} ({estimate:.2f}), '
                'then to {then}.',
                when='After fine-tuning, in' if self.runs else 'In',
                then=plural(second),
            )
        ]

    def notes(self):
        return ['In the paper it is [SEP], or punctuation (STS-B, RTE, QNLI).']


@analysis(
    question='attention to nouns, verbs, negation, before and after fine-tuning',
    group='Syntax and meaning',
    report='always',
    reads=('linguistics.',),
    inputs={'tuned': 'tuned_if_any'},
    needs=('annotations',),
    wants=lambda given: map(named, _STATISTICS),
    compares=lambda given: map(named, _STATISTICS),
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
    wanted = list(map(named, _STATISTICS))
    before = settings.tables(pretrained, texts, wanted)
    found = Features(before, settings.changes(pretrained, tuned, texts, wanted))
    both = [name for name in found.names if name in FEATURES_OF_NOTEBOOK]
    theirs = [before[notebook(name)] for name in both]
    readings = table(
        'The notebook finds words by spelling, and counts their absence as 0.',
        feature=both,
        paper_top_head=tops(before[name] for name in both),
        notebook_examples=[each.count for each in theirs],
        notebook_top_head=tops(theirs),
    )
    frames = {'features': _summary(found), 'readings': readings}
    return found.with_frames(frames | heads_frames(found))


def _summary(found: Features):
    """Return the table of features, and of how many heads change their attention to each."""
    names, caption = [*SPECIAL, *found.names], 'Means are over all heads.'
    before = [found.before[name] for name in names]
    columns = {'feature': names, 'examples': [each.count for each in before]}
    columns |= means_of(before, 'pretrained')
    if found.runs:
        runs, after = found.runs.values(), found.after
        moved = [significant_changes([run[change(name)] for run in runs]) for name in names]
        columns |= means_of([after[name] for name in names], 'finetuned')
        columns['heads_rise'], columns['heads_fall'] = np.transpose(moved)
        caption += ' The last columns: heads whose attention rises or falls significantly'
        caption += f' in each of {len(runs)} models.' if len(runs) > 1 else '.'
    return table(caption, **columns)


@analysis(
    question='what [CLS] attends to in the last layer',
    report='always',
    title='[CLS]',
    reads=('linguistics.',),
    inputs={'tuned': 'tuned_if_any'},
    needs=('annotations',),
    wants=lambda given: map(named, _OF_CLS),
    compares=lambda given: map(named, _OF_CLS),
    words=True,
)
def cls_tokens(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Models | None = None,
    settings: TextSettings = TextSettings(),
) -> ClsTokens:
    """Measure the attention of [CLS] to each type of token, before and after fine-tuning.

    The arguments are those of `features`.
    """
    wanted = list(map(named, _OF_CLS))
    before = settings.tables(pretrained, texts, wanted)
    found = ClsTokens(before, settings.changes(pretrained, tuned, texts, wanted))
    names, after = found.names, found.after
    columns = {
        'feature': names,
        'examples': [before[from_cls(name)].count for name in names],
        'pretrained': found.in_last_layer(before).mean(axis=0),
    }
    if found.runs:
        means = [mean_over_runs(found.models, [from_cls(name)], -1) for name in names]
        theirs = [after.get(notebook(from_cls(name))) for name in names]
        columns |= with_ends('finetuned', [each.interval for each in means])
        columns['finetuned_top_head'] = found.in_last_layer(after).max(axis=0)
        columns['finetuned_notebook'] = [
            np.nan if each is None else each.mean[-1].mean() for each in theirs
        ]
    caption = 'Attention of [CLS], mean over the heads of the last layer.'
    return found.with_frames({'cls_tokens': table(caption, **columns)} | heads_frames(found))


def _draw_special(result: Features):
    return plots.layer_profiles(
        {name: result.after[name].mean for name in SPECIAL},
        label=result.unit,
        published=paper.special_token_attention(result.subject.task) or {},
        published_name='paper: BERT-base',
    ).captioned(
        'Attention to [CLS] and [SEP] after fine-tuning: mean and range of the heads of a layer '
        f'({result.subject.as_in("Figure 6")}).',
        plots.Source('heads_finetuned', 'mean'),
    )
