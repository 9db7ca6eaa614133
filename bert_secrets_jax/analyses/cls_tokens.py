"""The types of token that [CLS] attends to in the last layer (section 4.5, Figure 7)."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.models import Models
from bert_secrets_jax.analyses.populations import population
from bert_secrets_jax.analyses.tables import (
    OverRuns,
    Tables,
    heads_frame,
    mean_over_runs,
    over_seeds,
    seeds_frame,
)
from bert_secrets_jax.analyses.texts import TextSettings
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
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

SOURCE = 'Kovaleva et al. 2019, section 4.5, Figure 7'
UNIT = 'share of attention'
_TYPES = ('[CLS]', '[SEP]', *FEATURES)
# The value at which the colours of Figure 7 end.
_HIGHEST = 0.5


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ClsTokens(Result):
    """The attention of [CLS] to each type of token.

    Attributes:
      subject: The names of the model, the texts and the task.
      before: The tables of the model before fine-tuning, by the name of the statistic ('from [CLS]
        to noun').
      runs: The tables of each fine-tuned model by its seed: the same statistics, and their changes
        ('change of from [CLS] to noun'). Empty if no fine-tuned model was measured.
    """

    subject: Subject
    before: Tables
    runs: Mapping[str, Tables]

    @property
    def title(self) -> str:
        return '[CLS] in the last layer'

    @property
    def names(self) -> list[str]:
        """The types of token that occur in any text."""
        return [name for name in _TYPES if self.before[from_cls(name)].count]

    @property
    def after(self) -> Tables:
        """The tables of the fine-tuned models, mean over seeds; empty if there is no such model."""
        if not self.runs:
            return {}
        theirs = [notebook(from_cls(name)) for name in FEATURES_OF_NOTEBOOK]
        return over_seeds(list(self.runs.values()), [*map(from_cls, self.names), *theirs])

    def _mean(self, name: str) -> OverRuns:
        """Return the attention to a type of token, mean over heads of the last layer and models."""
        models = list(self.runs.values()) or [self.before]
        return mean_over_runs(models, [from_cls(name)], -1)

    def in_last_layer(self, tables: Tables) -> np.ndarray:
        """Return the attention of each head of the last layer to each type of token [N, types].

        Args:
          tables: The tables of a model, such as `before` or `after`. The types are those in
            `names`.
        """
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
        frames = {
            'cls_tokens': self._summary(),
            'heads': heads_frame(self.before, UNIT, 'Every head of the model as it is.'),
        }
        if self.runs:
            frames['heads_finetuned'] = seeds_frame(
                self.runs, UNIT, 'Every head of the fine-tuned models.'
            )
        return frames

    def figures(self):
        return Figures({'cls_tokens': functools.partial(_draw, self)})

    def findings(self):
        tables, which = (self.after, 'fine-tuned') if self.runs else (self.before, 'pre-trained')
        matrix = self.in_last_layer(tables)
        means = matrix.mean(axis=0)
        if len(means) < 2:
            return []
        most, second, *_ = np.argsort(-means)
        head = int(matrix[:, most].argmax())
        found = self._mean(self.names[most])
        return [
            Finding(
                name='type of token that [CLS] attends to most',
                estimate=found.mean,
                low=found.low,
                high=found.high,
                unit=UNIT,
                sample=int(self.before[from_cls(self.names[most])].count),
                source=SOURCE,
                template=(
                    'In the last layer of the {which} model [CLS] attends most to {first}, with '
                    '{estimate:.2f} as a mean over heads{interval} and {highest:.2f} in {head}, '
                    'then to {second} ({next:.2f}). In the paper it is [SEP], except for STS-B, '
                    'RTE and QNLI, where it is punctuation.'
                ),
                numbers={
                    'which': which,
                    'first': plural(self.names[most]),
                    'interval': found.words(),
                    'head': head_name(len(self.before[from_cls(self.names[most])].mean) - 1, head),
                    'highest': float(matrix[head, most]),
                    'second': plural(self.names[second]),
                    'next': float(means[second]),
                },
            )
        ]

    def _summary(self):
        published = paper.cls_tokens(self.subject.task) or {}
        after = self.after
        pretrained = self.in_last_layer(self.before)
        finetuned = self.in_last_layer(after) if self.runs else None
        rows = []
        for column, name in enumerate(self.names):
            row = [name, self.before[from_cls(name)].count, pretrained[:, column].mean()]
            if finetuned is not None:
                theirs, found = notebook(from_cls(name)), self._mean(name)
                row += [
                    found.mean,
                    found.low,
                    found.high,
                    finetuned[:, column].max(),
                    after[theirs].mean[-1].mean() if theirs in after else np.nan,
                ]
            if published:
                row.append(published.get(name, np.nan))
            rows.append(row)
        columns = ['feature', 'examples', 'pretrained']
        if finetuned is not None:
            columns += ['finetuned', 'finetuned_low', 'finetuned_high']
            columns += ['finetuned_top_head', 'finetuned_notebook']
        if published:
            columns.append('paper_bert_base')
        caption = 'Share of the attention of [CLS], mean over the heads of the last layer.'
        if finetuned is not None:
            caption += f' Low and high: its 95 % interval for {population(len(self.runs))}.'
        return framed(columns, rows, caption)


def cls_statistics() -> list[Described]:
    """Return the statistics that `cls_tokens` measures."""
    ours = [from_cls(name) for name in _TYPES]
    theirs = [notebook(from_cls(name)) for name in FEATURES_OF_NOTEBOOK]
    return [named(name) for name in (*ours, *theirs)]


def cls_tokens(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Models | None = None,
    settings: TextSettings = TextSettings(),
    subject: Subject | None = None,
) -> ClsTokens:
    """Measure the attention of [CLS] to each type of token, before and after fine-tuning.

    Args:
      pretrained: The model before fine-tuning.
      texts: The texts that the models read.
      tuned: The same model fine-tuned, or several of them; None measures only the model before
        fine-tuning.
      settings: The settings for encoding the texts and finding words in them.
      subject: The names of the model, the texts and the task, for sentences and captions.
    """
    wanted = cls_statistics()
    before = settings.tables(pretrained, texts, wanted)
    runs = settings.changes(pretrained, tuned, texts, wanted)
    return ClsTokens(subject or Subject(), before, runs)


def _draw(result: ClsTokens):
    matrices = {'pre-trained': result.in_last_layer(result.before)}
    if result.runs:
        matrices['fine-tuned'] = result.in_last_layer(result.after)
    figure = plots.feature_matrices(
        matrices,
        result.names,
        label='attention of [CLS]',
        layer=len(result.before[from_cls(result.names[0])].mean) - 1,
        highest=_HIGHEST,
    )
    figure.source = {
        'pre-trained': plots.Source('heads', 'mean', from_cls('{}')),
        'fine-tuned': plots.Source('heads_finetuned', 'mean', from_cls('{}')),
    }
    figure.caption = (
        'Attention of [CLS] in the last layer: the greatest of the tokens of a type, mean over '
        f'examples that have any ({result.subject.as_in("Figure 7")}, whose colours end at 0.5, '
        'too).'
    )
    return figure
