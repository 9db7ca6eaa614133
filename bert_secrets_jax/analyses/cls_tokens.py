"""The types of token that [CLS] attends to in the last layer (section 4.5, Figure 7)."""

from collections.abc import Sequence

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.inputs import Models, TextSettings
from bert_secrets_jax.analyses.common.tables import (
    BeforeAndAfter,
    Tables,
    mean_finding,
    mean_over_runs,
    models_frames,
    table,
)
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import (
    FEATURES,
    FEATURES_OF_NOTEBOOK,
    Described,
    from_cls,
    named,
    notebook,
    plural,
)
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.result import drawn

SOURCE = 'Kovaleva et al. 2019, section 4.5, Figure 7'
UNIT = 'share of attention'
_TYPES = ('[CLS]', '[SEP]', *FEATURES)
# The value at which the colours of Figure 7 end.
_HIGHEST = 0.5


class ClsTokens(BeforeAndAfter):
    """The attention of [CLS] to each type of token ('from [CLS] to noun').

    Attributes:
      before, runs: As in `common.tables.BeforeAndAfter`.
    """

    title = '[CLS] in the last layer'

    @property
    def names(self) -> list[str]:
        """The types of token that occur in any text."""
        return [name for name in _TYPES if self.before[from_cls(name)].count]

    @property
    def after(self) -> Tables:
        """The tables of the fine-tuned models, as `over_seeds` returns them."""
        theirs = [notebook(from_cls(name)) for name in FEATURES_OF_NOTEBOOK]
        return self.over_seeds([*map(from_cls, self.names), *theirs])

    def in_last_layer(self, tables: Tables) -> np.ndarray:
        """Return the attention of the last layer's heads to each type of token [N, types]."""
        return np.stack([tables[from_cls(name)].mean[-1] for name in self.names], axis=1)

    def verdicts(self):
        titles = {from_cls(name): name for name in ('[SEP]', '[CLS]', *FEATURES)}
        runs = {
            name: run
            for name, run in verdicts.named_runs(self.runs, self.before).items()
            if len(verdicts.known(run, titles)) > 1
        }
        return verdicts.on_runs(
            runs, lambda runs: verdicts.cls_attends_most_to_sep(verdicts.known_in_all(runs, titles))
        )

    def frames(self):
        return {'cls_tokens': self._summary()} | models_frames(
            self.before,
            self.runs,
            UNIT,
            'Every head of the model as it is.',
            'Every head of the fine-tuned models.',
        )

    def figures(self):
        return drawn(self, cls_tokens=_draw)

    def findings(self):
        means = self.in_last_layer(self.after or self.before).mean(axis=0)
        if len(means) < 2:
            return []
        most, second, *_ = np.argsort(-means)
        where, then = (plural(self.names[index]) for index in (most, second))
        answer = mean_finding(
            'type of token that [CLS] attends to most',
            self.models,
            [from_cls(self.names[most])],
            -1,
            unit=UNIT,
            source=SOURCE,
            where=where,
            template='{when} the last layer, [CLS] attends most to {where} ({estimate:.2f}), '
            'then to {then}.',
            when='After fine-tuning, in' if self.runs else 'In',
            then=then,
        )
        return [answer]

    def notes(self):
        return ['In the paper it is [SEP], or punctuation (STS-B, RTE, QNLI).']

    def _summary(self):
        columns = {
            'feature': self.names,
            'examples': [self.before[from_cls(name)].count for name in self.names],
            'pretrained': self.in_last_layer(self.before).mean(axis=0),
        }
        if self.runs:
            means = [mean_over_runs(self.models, [from_cls(name)], -1) for name in self.names]
            ends = np.transpose([each.interval for each in means])
            names = 'finetuned', 'finetuned_low', 'finetuned_high'
            columns |= dict(zip(names, ends, strict=True))
            after = self.after
            theirs = [after.get(notebook(from_cls(name))) for name in self.names]
            columns['finetuned_top_head'] = self.in_last_layer(after).max(axis=0)
            columns['finetuned_notebook'] = [
                np.nan if each is None else each.mean[-1].mean() for each in theirs
            ]
        published = paper.cls_tokens(self.subject.task)
        if published:
            columns['paper_bert_base'] = [published.get(name, np.nan) for name in self.names]
        return table('Attention of [CLS], mean over the heads of the last layer.', **columns)


def cls_statistics() -> list[Described]:
    """Return the statistics that `cls_tokens` measures."""
    ours = [from_cls(name) for name in _TYPES]
    theirs = [notebook(from_cls(name)) for name in FEATURES_OF_NOTEBOOK]
    return [named(name) for name in (*ours, *theirs)]


@analysis(
    question='what [CLS] attends to in the last layer',
    report='always',
    title='[CLS]',
    reads=('linguistics.',),
    inputs={'tuned': 'tuned_if_any'},
    needs=('annotations',),
    wants=lambda given: cls_statistics(),
    compares=lambda given: cls_statistics(),
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
    wanted = cls_statistics()
    before = settings.tables(pretrained, texts, wanted)
    runs = settings.changes(pretrained, tuned, texts, wanted)
    return ClsTokens(before, runs)


def _draw(result: ClsTokens):
    matrices = {'pre-trained': result.in_last_layer(result.before)}
    if result.runs:
        matrices['fine-tuned'] = result.in_last_layer(result.after)
    return plots.feature_matrices(
        matrices,
        result.names,
        label='attention of [CLS]',
        layer=len(result.before[from_cls(result.names[0])].mean) - 1,
        highest=_HIGHEST,
    ).captioned(
        'Attention of [CLS] in the last layer, by type of token '
        f'({result.subject.as_in("Figure 7")}).',
        {
            'pre-trained': plots.Source('heads', 'mean', from_cls('{}')),
            'fine-tuned': plots.Source('heads_finetuned', 'mean', from_cls('{}')),
        },
    )
