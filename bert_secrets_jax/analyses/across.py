"""Is it only English? The same heads on several corpora, such as one text in several languages.

Shapes: K corpora, L layers, N heads.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, cast

import numpy as np
from jaxtyping import Float, Int

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.agreement import across_halves, agreement, around, explained
from bert_secrets_jax.analyses.declaration import Declaration
from bert_secrets_jax.analyses.special_tokens import STATISTICS
from bert_secrets_jax.analyses.syntax_heads import SyntaxHeads, syntax_heads
from bert_secrets_jax.analyses.tables import grids_frame
from bert_secrets_jax.analyses.texts import TextSettings, with_progress
from bert_secrets_jax.data.encoding import bucket, tokenize
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.data.treebank import Parse, PieceCounts, count_pieces, encode_parses
from bert_secrets_jax.measure.catalogue import Described, measure, named
from bert_secrets_jax.measure.word_links import ALL
from bert_secrets_jax.model.weights import Pretrained, check_heads_alike, without_head
from bert_secrets_jax.patterns.classes import CLASSES
from bert_secrets_jax.patterns.classifier import load_classifier, pattern_statistics
from bert_secrets_jax.runs.findings import how_many, measured
from bert_secrets_jax.runs.result import Finding, Result, Subject, drawn, framed

SOURCE = 'Ravishankar et al. 2021, section 4'
_NONE: Mapping[str, Pretrained] = MappingProxyType({})
# What the section of relations says, but for random weights and other places.
_COLUMNS = ['relation', 'links', 'name', 'layer', 'head', 'way', 'share_of_links', 'low', 'high']
_COLUMNS += ['offset', 'share_at_offset', 'gain', 'gain_low', 'gain_high', 'p_corrected']


@dataclasses.dataclass(frozen=True)
class Alike:
    """How alike heads are on K corpora in one statistic.

    Attributes:
      ranks: [K, K] The rank correlation over heads of two corpora; on the diagonal, of the halves of
        one. All are of different sentences.
      between, within: Their means off and on the diagonal, with the ends of 95 % intervals over
        sentences. A head that finds a relation has none.
      icc: ICC(1) over heads (Shrout and Fleiss 1979), to which the level of a corpus matters.
      icc_within: The same of the halves of a corpus, mean over corpora.
      explained: The share of the variance between corpora that goes with the lengths of sentences
        and with the wordpieces of a word (without trees, only with the former).
    """

    ranks: Float[np.ndarray, 'K K']
    between: tuple[float, float, float]
    within: tuple[float, float, float]
    icc: float
    icc_within: float
    explained: float


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Across(Result):
    """The same heads on K corpora.

    Attributes:
      corpora: The names of the corpora; the word order of others is compared with the first's.
      means: [K, L, N] The mean of each statistic of each head, by the name of the statistic.
      alike: How alike heads are, by statistic, and by relation that all corpora have.
      syntax: The heads that find relations, by corpus with trees: chosen on every second sentence,
        and measured on the others.
      pieces: How words and wordpieces fall together, by corpus with trees.
    """

    title: ClassVar[str] = 'Heads across languages'

    subject: Subject
    corpora: tuple[str, ...]
    means: Mapping[str, Float[np.ndarray, 'K L N']]
    alike: Mapping[str, Alike]
    syntax: Mapping[str, SyntaxHeads]
    pieces: Mapping[str, PieceCounts]

    @property
    def patterns(self) -> Int[np.ndarray, 'K L N']:
        """The number of the most frequent pattern of each head in each corpus."""
        return np.argmax([self.means[f'pattern: {name}'] for name in CLASSES], axis=0)

    def frames(self):
        ends = [f'{of}{end}' for of in ('rank', 'rank_of_halves') for end in ('', '_low', '_high')]
        rows = [
            (name, *each.between, *each.within, each.icc, each.icc_within, each.explained)
            for name, each in self.alike.items()
        ]
        columns = ('statistic', *ends, 'icc', 'icc_of_halves', 'explained_by_lengths')
        caption = 'How alike heads are on two corpora, compared with two halves of one.'
        values = np.stack(list(self.means.values()))
        grids = {'mean': values.mean(axis=1), 'spread': values.std(axis=1, ddof=1)}
        grids |= {f'in {name}': values[:, place] for place, name in enumerate(self.corpora)}
        by = {'statistic': list(self.means)}
        frames = {
            'agreement': framed(columns, rows, caption),
            'heads': grids_frame(grids, 'Each head: its mean and spread over corpora.', by=by),
        }
        if self.relations:
            frames['relations'] = self._relations()
        if self.pieces:
            fields = [each.name for each in dataclasses.fields(PieceCounts)]
            counts = [(name, *vars(each).values()) for name, each in self.pieces.items()]
            caption = 'Words and wordpieces that share, and lone boundaries of words.'
            frames['pieces'] = framed(['corpus', *fields], counts, caption)
        return frames

    def figures(self):
        return drawn(self, across=_draw)

    def findings(self):
        known = [name for name in self.means if not np.isnan(self.alike[name].between[0])]
        least = min(known, key=lambda name: self.alike[name].between[0])
        most = max(known, key=lambda name: np.nan_to_num(self.alike[name].explained))
        same = (self.patterns == self.patterns[0]).all(axis=0)
        patterns = '{estimate:.0f} {unit} {estimate:|has|have} one main pattern in all corpora.'
        halves = (
            'Corpora differ most in "{where}": the rank correlation of heads is {estimate:.2f}, '
            'and {halves:.2f} between halves of a corpus.'
        )
        lengths = 'Lengths explain most in "{where}": {estimate:.0%} of what differs by corpus.'
        found = [
            how_many('heads with one main pattern', same, template=patterns, **self._of),
            measured(
                'least agreement of corpora', self.alike[least].between, where=least,
                unit='rank correlation', template=halves,
                numbers={'halves': self.alike[least].within[0]}, **self._of,
            ),
            measured(
                'explained by lengths', self.alike[most].explained, where=most,
                unit='share of variance', template=lengths, **self._of,
            ),
        ]  # fmt: skip
        return [*found, *filter(None, map(self._order, self.relations))]

    def notes(self):
        return [
            'Correlations of corpora are of different sentences, as those of halves are.',
            'A wordpiece that several words share counts as the first of them.',
        ]

    @property
    def relations(self) -> list[str]:
        """The relations that all corpora have."""
        return [name for name in self.alike if name not in self.means]

    @property
    def _of(self) -> dict[str, Any]:
        return {'sample': len(self.corpora), 'sample_of': 'corpora', 'source': SOURCE}

    def _of_first(self, relation: str) -> tuple[np.ndarray, np.ndarray]:
        """Return what the best head of the first corpus finds in each [K], and the offsets [K]."""
        every = [(each, each.relations.index(relation)) for each in self.syntax.values()]
        head = every[0][0].best[every[0][1]]
        found = [(each.dev.right[place, *head], each.offsets[place]) for each, place in every]
        shares, offsets = np.transpose(found)
        return shares, offsets

    def _order(self, relation: str) -> Finding | None:
        shares, offsets = self._of_first(relation)
        other = np.sign(offsets) != np.sign(offsets[0])
        if not other.any() or other[1:].all():
            return None
        template = (
            'For "{relation}", the best head of {first} finds {estimate:.0%} of the links of '
            'others in its word order, and {other:.0%} in the reverse order.'
        )
        first = self.corpora[0]
        numbers = {'relation': relation, 'first': first, 'other': shares[other].mean()}
        same = float(shares[1:][~other[1:]].mean())
        said = {'template': template, 'numbers': numbers, 'unit': 'share of links', **self._of}
        return measured(f'{relation}: best head of {first}', same, **said)

    def _relations(self):
        import pandas

        found = []
        for place, (corpus, each) in enumerate(self.syntax.items()):
            frame = each.frames()['relations'][_COLUMNS]
            frame = frame[frame['relation'].isin(self.relations)].assign(corpus=corpus)
            shares = [self._of_first(name)[0][place] for name in frame['relation']]
            found.append(frame.assign(share_of_best_head_of_first_corpus=shares))
        frame = pandas.concat(found, ignore_index=True)
        frame.attrs = {'caption': 'The head that finds most links of each relation, by corpus.'}
        return frame


def across(
    pretrained: Pretrained,
    texts: Mapping[str, Sequence[Parse] | Sequence[Text]],
    *,
    models: Mapping[str, Pretrained] = _NONE,
    statistics: Sequence[str | Described] = STATISTICS,
    resamples: int = 200,
    seed: int = 0,
    settings: TextSettings = TextSettings(),
    subject: Subject | None = None,
) -> Across:
    """Measure the same heads on several corpora, and how far they agree.

    Args:
      pretrained: The model.
      texts: By the name of the corpus, sentences of `bs.read_treebank`, or texts. Corpora of one
        size are taken as parallel: what stands at one place is resampled together.
      models: The models that read some corpora instead, by the name of the corpus.
      statistics: Statistics as in `special_tokens`; the five patterns are always among them.
      resamples: How often sentences are resampled for intervals.
      seed: The seed of the resamples.
      settings, subject: As in `special_tokens`.

    Raises:
      ValueError: There are fewer than two corpora, a corpus has fewer than four texts, models are
        for other corpora or have other heads, or a treebank has too few links.
    """
    if len(texts) < 2 or min(map(len, texts.values())) < 4 or set(models) - set(texts):
        sizes = {name: len(each) for name, each in texts.items()}
        raise ValueError(
            f'The corpora have {sizes} texts, and models are for {list(models)}: give two corpora '
            'or more, of four texts or more, and models by their names.'
        )
    wanted = [named(each) if isinstance(each, str) else each for each in statistics]
    wanted += pattern_statistics(load_classifier())
    tables, lengths, syntax, pieces = [], [], {}, {}
    for name, corpus in texts.items():
        model = without_head(models.get(name, pretrained))
        check_heads_alike(pretrained, model)
        parses = [each for each in corpus if isinstance(each, Parse)]
        given: Any = parses or cast(Sequence[Text], corpus)
        encode = encode_parses if parses else tokenize
        encoded = encode(model.tokenizer, given, max_length=settings.max_length)
        shown = with_progress(bucket(encoded, **settings.bucketing), name)
        tables.append(measure(model, shown, wanted, keep_values=True, mesh=settings.mesh))
        words = np.array([len(each.words) for each in parses]) if parses else encoded.lengths
        lengths.append(np.log(np.stack([encoded.lengths, encoded.lengths / words], axis=1)))
        if parses:
            pieces[name] = count_pieces(encoded, parses)
            quick = {'random_weights': False, 'draws': 0, 'settings': settings}
            syntax[name] = syntax_heads(model, parses[::2], parses[1::2], **quick)
    how = {'paired': len(set(map(len, texts.values()))) == 1, 'seed': seed, 'resamples': resamples}
    means, alike, every = {}, {}, list(syntax.values())
    for name in tables[0]:
        means[name] = np.stack([table[name].mean for table in tables])
        values = [table[name].values.reshape(len(table[name].values), -1) for table in tables]
        alike[name] = _alike(values, explained(values, lengths), **how)
    for name in every[0].relations if len(every) == len(texts) else ():
        if name != ALL and all(name in each.relations for each in every):
            places = [(each, each.relations.index(name)) for each in every]
            halves = [
                np.stack([each.train.right[place].ravel(), each.dev.right[place].ravel()])
                for each, place in places
            ]
            alike[name] = _alike(halves, np.nan, paired=True)
    return Across(subject or Subject(), tuple(texts), means, alike, syntax, pieces)


def _alike(samples: Sequence[np.ndarray], explained: float, **how: Any) -> Alike:
    ranks = across_halves(samples, **how)
    own = np.einsum('RSS->RS', ranks)
    count = len(samples)
    between = (ranks.sum(axis=(1, 2)) - own.sum(axis=1)) / count / (count - 1)
    halves = [np.stack([np.nanmean(each[half::2], axis=0) for half in (0, 1)]) for each in samples]
    whole = np.stack([np.nanmean(each, axis=0) for each in samples])
    within = float(np.mean([agreement(each).icc1 for each in halves]))
    ends = around(between), around(own.mean(axis=1))
    return Alike(ranks[0], *ends, agreement(whole).icc1, within, explained)


def _draw(result: Across):
    known = {k: each for k, each in result.alike.items() if not np.isnan(each.between[0])}
    points = {
        'two corpora': np.transpose([each.between for each in known.values()]),
        'two halves of a corpus': np.transpose([each.within for each in known.values()]),
    }
    rows = [f'finds {name}' if name in result.relations else name for name in known]
    return plots.points_by_row(
        rows,
        {title: (each[0], each[1], each[2]) for title, each in points.items()},
        label='rank correlation of heads',
    ).captioned('How alike heads are, in each statistic. Lines: 95 % intervals over sentences.')


SECTION = Declaration(
    analysis=across,
    title='whether heads do the same in several languages',
    inputs=('pretrained', 'parallel'),
    needs=('parallel',),
    passes=20,
    seconds=60,
    asked='name',
)
