"""Attention to special tokens and neighbours, and its entropy (section 4.4, Figure 6).

Any other statistic of single heads can be shown with these, from the catalogue or your own.
"""

import functools
import re
from collections.abc import Sequence

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import marks
from bert_secrets_jax.analyses.common.inputs import TextSettings
from bert_secrets_jax.analyses.common.tables import (
    Description,
    Tables,
    beside_published,
    describe,
    grids_frame,
    heads_frame,
    interval_of,
    records,
    top_head,
)
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import DEFAULTS, Described, limits_of, named
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import Finding, Result, agreement_of_grids, drawn, extreme, framed

# The kinds of tokens that a head can attend mostly to.
_MARKED = ('[CLS]', '[SEP]', 'self', 'previous token', 'next token')
# Those of the paper's figure by layer.
_PUBLISHED = ('[CLS]', '[SEP]')


class SpecialTokens(Result):
    """The statistics of every head, such as its attention to [SEP].

    Attributes:
      statistics: The descriptions of the statistics.
      tables: The table of all heads for each statistic, by its name.
    """

    title = 'Attention to special tokens and neighbours'

    statistics: tuple[Description, ...]
    tables: Tables

    def verdicts(self):
        if not set(_PUBLISHED) <= self.tables.keys():
            return []
        return verdicts.cls_then_sep(verdicts.named_runs({}, self.tables))

    def frames(self):
        published = paper.special_token_attention(self.subject.task) or {}
        theirs = {f'paper {name}': grid for name, grid in published.items()}
        return beside_published(super().frames(), theirs)

    def figures(self):
        by_layer = set(_PUBLISHED) <= self.tables.keys()
        drawings = {'special_tokens_by_layer': _draw_layers} if by_layer else {}
        for each in self.statistics:
            if each.name not in DEFAULTS:
                name = re.sub(r'\W+', '_', each.name).strip('_').lower() or 'statistic'
                drawings[name] = functools.partial(_draw_grid, statistic=each)
        return drawn(self, **drawings)

    def findings(self):
        known = [each for each in self.statistics if self.tables[each.name].count]
        published = paper.special_token_attention(self.subject.task) or {}
        found = [self._extreme(each) for each in known[:1]]
        for each in known:
            grids = self.tables[each.name].mean, published.get(each.name)
            name = f'{each.title}: agreement with the paper'
            found += agreement_of_grids(name, *grids, source=each.source)
        return found

    def head_marks(self):
        return marks.mark_shares(self.tables, _MARKED)

    def _extreme(self, statistic: Description) -> Finding:
        """Return the head with the greatest or smallest mean, which of one head is none."""
        table = self.tables[statistic.name]
        sign, most = (-1, 'smallest') if statistic.least_first else (1, 'greatest')
        head, several = top_head(sign * table.mean), table.mean.size > 1
        return extreme(
            f'{statistic.title}, {most}' if several else statistic.title,
            head,
            interval_of(table, head, limits_of(statistic.name)),
            unit=statistic.unit,
            sample=int(table.count),
            source=statistic.source,
            template='{Title} is {most}in {where} ({estimate:.2f}).',
            Title=_sentence(statistic.title),
            most=f'{most} ' * several,
        )


@analysis(
    question='attention to [CLS], [SEP], neighbours, its entropy, your own statistics',
    report='always',
    reads=('statistics',),
    wants=lambda given: map(named, given['statistics']),
)
def special_tokens(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    statistics: Sequence[str | Described] = DEFAULTS,
    settings: TextSettings = TextSettings(),
) -> SpecialTokens:
    """Measure attention to special tokens and neighbours, its entropy, or any other statistics.

    Args:
      pretrained, texts: The model, and the texts that it reads.
      statistics: The statistics to measure: names of the catalogue (`bs.catalogue`),
        'package.module:name' for your own, or `Described` objects.
      settings: The settings for encoding the texts and finding words in them.

    Raises:
      ValueError: A statistic is unknown.
    """
    wanted = [named(each) if isinstance(each, str) else each for each in statistics]
    tables = settings.tables(pretrained, texts, wanted)
    frames = {
        'top_heads': _top_heads(wanted, tables),
        'layers': grids_frame(
            {name: each.mean.mean(axis=1) for name, each in tables.items()},
            'Mean over the heads of a layer.',
        ),
        'heads': heads_frame(
            tables, {each.name: each.unit for each in wanted}, 'Every statistic of every head.'
        ),
    }
    reaches = [kind.reach for kind in pretrained.config.layer_kinds]
    if any(reach is not None for reach in reaches):
        frames['reach'] = _by_reach(reaches, tables)
    return SpecialTokens(describe(wanted), tables).with_frames(frames)


def _top_heads(statistics: Sequence[Described], tables: Tables):
    rows = []
    for each in statistics:
        table = tables[each.name]
        sign, order = (1, 'least') if each.least_first else (-1, 'most')
        first = np.argsort(sign * table.mean, axis=None, kind='stable')[:3]
        for rank, index in enumerate(first if table.count else (), 1):
            head = np.unravel_index(index, table.mean.shape)
            numbers = table.mean[head], table.standard_error[head], each.unit
            rows.append((each.title, order, rank, head_name(*head), *numbers))
    return framed(
        ('statistic', 'order', 'rank', 'name', 'mean', 'standard_error', 'unit'),
        rows,
        'The three heads that attend most to each.',
    )


def _by_reach(reaches: Sequence[int | None], tables: Tables):
    """Return the table of layers that see as many tokens on either side; None sees all."""
    rows = []
    for reach in sorted(set(reaches), key=lambda each: (each is not None, each)):
        of = np.array([each == reach for each in reaches])
        kind = 'global' if reach is None else f'local, {reach} tokens to each side'
        means = {name: table.mean[of].mean() for name, table in tables.items()}
        rows.append({'layers': kind, 'number': int(of.sum()), **means})
    caption = 'Mean over the heads of global and of local layers, which see [CLS] from near alone.'
    return records(caption, rows)


def _draw_grid(result: SpecialTokens, statistic: Description):
    return plots.head_grids(
        {statistic.name: result.tables[statistic.name].mean}, label=statistic.unit
    ).captioned(
        f'{_sentence(statistic.title)} ({statistic.unit}), mean over examples.',
        plots.Source('heads', 'mean'),
    )


def _draw_layers(result: SpecialTokens):
    published = paper.special_token_attention(result.subject.task) or {}
    error = paper.digitisation_error(6).mean
    return plots.layer_profiles(
        {name: result.tables[name].mean for name in _PUBLISHED},
        label='share of attention',
        published=published,
        published_name='paper: BERT-base,\nfine-tuned',
    ).captioned(
        'Attention to [CLS] and to [SEP] (of two, the one with more): mean and range of the heads '
        f'of a layer ({result.subject.as_in("Figure 6")}).'
        + (f' The values of the paper are digitised to about {error:.2g}.' if published else ''),
        plots.Source('heads', 'mean'),
    )


def _sentence(title: str) -> str:
    return title[:1].upper() + title[1:]
