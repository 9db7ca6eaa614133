"""Heads that do alike: the same ones in several corpora or models, and pairs in two models.

Shapes: K corpora or models, L layers, N heads.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_secrets_jax import plots
from bert_secrets_jax.analyses.common.inputs import TextSettings, batches_of, with_progress
from bert_secrets_jax.analyses.common.relation_heads import RelationHeads, search
from bert_secrets_jax.analyses.common.tables import ends_of, grids_frame, records, table, with_ends
from bert_secrets_jax.analyses.declaration import analysis, with_subject
from bert_secrets_jax.checks import check_enough, check_rules
from bert_secrets_jax.data.encoding import bucket, bytes_of_pieces, tokenize
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.data.treebank import (
    Parse,
    count_pieces,
    encode_parses,
    named_by_file,
    read_treebanks,
)
from bert_secrets_jax.measure.catalogue import DEFAULTS, measure, named
from bert_secrets_jax.measure.statistics import Maps, Marks, head_divergences
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.model.weights import Pretrained, without_head
from bert_secrets_jax.patterns.classes import CLASSES
from bert_secrets_jax.patterns.classifier import load_classifier, pattern_statistics
from bert_secrets_jax.runs.call import Call, an_input, call
from bert_secrets_jax.runs.result import Result, how_many, measured
from bert_secrets_jax.stats.agreement import (
    across_halves,
    agreement,
    explained,
    pairs_of,
    ranks_with_errors,
    without_noise,
)
from bert_secrets_jax.stats.correlations import interval_of_resamples

SOURCE = 'Ravishankar et al. 2021, section 4'
# In nine languages of UD PUD, a wordpiece of multilingual-e5 spells 3.4 to 6.7 bytes, and one of an
# English BERT 4.1 of English and 1.2 to 2.9 of the others. In each 20 sentences in order it is 3.19
# or more, and 3.03 or less (docs/how_to/another_language.md).
_ENOUGH_BYTES = 3.1


class Across(Result):
    """The same heads on K corpora, or in K models.

    Attributes:
      corpora: The names of the corpora, or of the models; the word order of other corpora is
        compared with the first's.
      means: [K, L, N] The mean of each statistic of each head, by the name of the statistic.
      alike: By statistic, and by relation that all corpora have: rank correlations over heads of
        one half of a corpus with the other half of another and of the same one, 95 % intervals over
        sentences, ICC(1), and the share of the variance between corpora that goes with the lengths
        of sentences and the wordpieces of a word (NaN for relations, and for models).
      spelt: The bytes that a wordpiece spells (`bytes_of_pieces`), by corpus. With fewer than 3.1,
        the tokenizer was hardly made for the language, which a finding says.
      unit: 'corpora', or 'models' of which all read the same texts.
    """

    title = 'Heads across languages'

    corpora: tuple[str, ...]
    means: Mapping[str, Float[np.ndarray, 'K L N']]
    alike: Mapping[str, Mapping[str, float]]
    spelt: Mapping[str, float]
    unit: str = 'corpora'

    @property
    def relations(self) -> list[str]:
        """The relations that all corpora have."""
        return [name for name in self.alike if name not in self.means]

    @property
    def beside_noise(self) -> dict[str, float]:
        """The agreement of two corpora without noise, of each statistic of which it is known."""
        ratios = {
            name: without_noise(each['rank'], each['rank_of_halves'])
            for name, each in self.alike.items()
        }
        return {name: ratio for name, ratio in ratios.items() if not np.isnan(ratio)}

    def _draw_across(self):
        known = {name: each for name, each in self.alike.items() if np.isfinite(each['rank'])}
        points = {
            title: ends_of(known.values(), name)
            for title, name in (
                (f'two {self.unit}', 'rank'),
                ('two halves of one', 'rank_of_halves'),
            )
        }
        rows = [f'finds {name}' if name in self.relations else name for name in known]
        figure = plots.points_by_row(rows, points, label='rank correlation of heads')
        return figure.captioned('How alike heads are, in each statistic. Lines: 95 % intervals.')

    def _say_foreign(self):
        # Corpora whose language the tokenizer was not made for.
        return [
            measured(
                f'{name}: bytes of a wordpiece',
                each,
                unit='bytes',
                warning=True,
                template='A wordpiece spells only {estimate:.1f} bytes of "{where}": the tokenizer '
                'is hardly made for its language.',
                where=name,
                **self._sample,
            )
            for name, each in self.spelt.items()
            if each < _ENOUGH_BYTES
        ]

    def _say_patterns(self):
        main = np.argmax([self.means[f'pattern: {name}'] for name in CLASSES], axis=0)
        return how_many(
            'heads with one main pattern',
            (main == main[0]).all(axis=0),
            template='{estimate} {unit} {estimate:|has|have} one main pattern in all {sample_of}.',
            **self._sample,
        )

    def _say_least(self):
        if not self.beside_noise:
            return None
        least, _ = min(self.beside_noise.items(), key=lambda each: each[1])
        numbers = self.alike[least]
        return measured(
            'least agreement',
            [numbers['rank'], numbers['rank_low'], numbers['rank_high']],
            unit='rank correlation',
            where=f'finds {least}' if least in self.relations else least,
            template='Beside noise, two {sample_of} differ most in "{where}": the rank '
            'correlation of heads is {estimate:.2f}, and {halves:.2f} between halves of one.',
            halves=numbers['rank_of_halves'],
            **self._sample,
        )

    @property
    def _sample(self) -> dict[str, Any]:
        return {'sample': len(self.corpora), 'sample_of': self.unit, 'source': SOURCE}


class Matching(Result):
    """Pairs of heads of two models, matched on half of the texts and measured on the rest.

    Attributes:
      divergences: [L, N, M, K] The Jensen-Shannon divergence in nats, a mean over the tokens of the
        second half, between heads of the first model and of the second (M layers of K heads).
      first, second: [P, 2] The layer and head of each pair, from 0, in either model. The model with
        fewer heads has all of them matched.
      texts: The number of texts that the divergences are measured on.
      by_chance: [R] The mean divergence of as many pairs, drawn at random.
    """

    title = 'Heads of two models that behave alike'

    divergences: Float[np.ndarray, 'L N M K']
    first: np.ndarray
    second: np.ndarray
    texts: int
    by_chance: Float[np.ndarray, ' R']

    @property
    def matched(self) -> Float[np.ndarray, ' P']:
        """The divergence of each pair."""
        return self.divergences[*self.first.T, *self.second.T]

    @property
    def same_place(self) -> float:
        """The mean divergence of heads with one number; NaN for models of other shapes."""
        layers, heads, *other = self.divergences.shape
        if [layers, heads] != other:
            return float('nan')
        return float(np.einsum('lnln->ln', self.divergences).mean())

    def findings(self):
        chance = float(self.by_chance.mean())
        values = {'matched heads': float(self.matched.mean())}
        if not np.isnan(self.same_place):
            values['heads with the same number'] = self.same_place
        return [
            measured(
                name,
                value,
                p=(1 + int((self.by_chance <= value + 1e-12).sum())) / (1 + len(self.by_chance)),
                template='{Name} differ by {estimate:.2g} nats, random pairs by {chance:.2g}.',
                numbers={'Name': name.capitalize(), 'chance': chance},
                unit='nats',
                sample=self.texts,
                sample_of='texts',
                null=chance,
                source='matching of heads by their maps',
            )
            for name, value in values.items()
        ]

    def notes(self):
        return [
            'Heads are matched on half of the texts and measured on the other half.',
            'Matched heads of unrelated models are closer than random pairs, too.',
        ]


@an_input(label=lambda given: ', '.join(named_by_file(given['across.files'])))
def parallel(given) -> Call:
    """Return the sentences of parallel treebanks, by the names of their files."""
    return call(read_treebanks, *given['across.files'], bad_rows=given['data.bad_rows'])


@analysis(
    question='whether heads do the same in several languages, on parallel treebanks',
    group='Syntax and meaning',
    report='name',
    settings={
        'files': {
            'path': True,
            'help': "Two .conllu files or more, such as ('en.conllu', 'tr.conllu'), in which "
            'the same heads are compared.',
            'default': [],
        }
    },
    inputs={'texts': 'parallel', 'statistics': ...},
    cost=lambda given: 90_000,
)
def across(
    pretrained: Pretrained | Mapping[str, Pretrained],
    texts: Mapping[str, Sequence[Parse] | Sequence[Text]] | Sequence[Parse] | Sequence[Text],
    *,
    statistics: Sequence[str] = DEFAULTS,
    resamples: int = 200,
    seed: int = 0,
    settings: TextSettings = TextSettings(),
) -> Across:
    """Measure the same heads on several corpora, or in several models, and how far they agree.

    Args:
      pretrained: The model; or by their names, models with the same heads, such as fine-tunings in
        two languages, each for the texts of its name or all for the same texts.
      texts: By the name of the corpus, sentences of `bs.read_treebank`, or texts. Corpora of one
        size are taken as parallel: what stands at one place is resampled together.
      statistics: The names of statistics; the five patterns are always among them.
      resamples, seed: How often sentences are resampled for intervals, and the seed of that.
      settings: As in `special_tokens`.

    Raises:
      ValueError: There are fewer than two corpora or models; a corpus has fewer than four texts, no
        link, or trees for some texts alone; or models have other names than the corpora, or other
        layers or heads than each other.
    """
    models, texts, unit = _paired(pretrained, texts)
    check_enough('corpora', texts, 2, ' (setting across.files)')
    for name, corpus in texts.items():
        check_enough(f'texts of {name!r}', corpus, 4)
        trees = [isinstance(each, Parse) for each in corpus]
        if any(trees) and not all(trees):
            raise ValueError(f'{name!r} has sentences with trees, and texts: give it one of both.')
        for half in cast(Any, (corpus[::2], corpus[1::2])):
            if all(trees) and not any(each.annotation.relations for each in half):
                raise ValueError(f'One half of {name!r} (every second sentence) has no links.')
    # One for each of CLASSES; the last is how many maps are of none.
    *patterns, _ = pattern_statistics(load_classifier())
    wanted = [*map(named, statistics), *patterns]
    tables, lengths, syntax, pieces, spelt = [], [], {}, {}, {}
    for name, corpus in texts.items():
        parses, given = [each for each in corpus if isinstance(each, Parse)], cast(Any, corpus)
        model, encode = without_head(models[name]), encode_parses if parses else tokenize
        encoded = encode(model.tokenizer, given, max_length=settings.max_length)
        examples = [each.example for each in parses] or as_examples(given)
        spelt[name] = bytes_of_pieces(encoded, examples)
        shown = with_progress(bucket(encoded, **settings.bucketing), name)
        tables.append(measure(model, shown, wanted, keep_values=True, mesh=settings.mesh))
        words = np.array([len(each.words) for each in parses] or encoded.lengths)
        lengths.append(np.log(np.stack([encoded.lengths, encoded.lengths / words], axis=1)))
        if parses:
            pieces[name] = count_pieces(encoded, parses)
            syntax[name], *_ = search(model, parses[::2], parses[1::2], settings)
    paired = len({len(each) for each in texts.values()}) == 1
    names, means, alike, every = tuple(texts), {}, {}, list(syntax.values())
    for name in tables[0]:
        means[name] = np.stack([table[name].mean for table in tables])
        values = [table[name].values.reshape(len(table[name].values), -1) for table in tables]
        ranks = across_halves(values, paired=paired, resamples=resamples, seed=seed)
        by_length = explained(values, lengths) if unit == 'corpora' else np.nan
        alike[name] = _alike(names, values, ranks, by_length)
    for name in every[0].relations if len(every) == len(texts) else ():
        if all(name in each.relations for each in every):
            values, errors = (
                [
                    np.stack([getattr(each, kind)[n].ravel() for each in (heads.train, heads.dev)])
                    for n, heads in ((heads.relations.index(name), heads) for heads in every)
                ]
                for kind in ('right', 'error')
            )
            ranks = ranks_with_errors(values, errors, resamples=resamples, seed=seed)
            alike[name] = _alike(names, values, ranks, np.nan)
    return _labelled(Across(names, means, alike, spelt, unit), syntax, pieces)


def _paired(
    pretrained: Any, texts: Any
) -> tuple[Mapping[str, Pretrained], Mapping[str, Sequence[Any]], str]:
    """Return the model and the texts of each name, and the unit that differs."""
    if isinstance(pretrained, Pretrained):
        if not isinstance(texts, Mapping):
            raise ValueError('Give texts by the names of two corpora or more, or several models.')
        return dict.fromkeys(texts, pretrained), texts, 'corpora'
    check_enough('models by their names', pretrained, 2)
    unit = 'corpora' if isinstance(texts, Mapping) else 'models'
    texts = texts if isinstance(texts, Mapping) else dict.fromkeys(pretrained, texts)
    configs, names = [each.config for each in pretrained.values()], [*pretrained]
    shapes = {(each.num_hidden_layers, each.num_attention_heads) for each in configs}
    check_rules(
        ({*names} != {*texts}, f'Models {names} and texts {[*texts]} need the same names.'),
        (len(shapes) > 1, f'Models {names} need the same numbers of layers and heads.'),
    )
    return pretrained, texts, unit


def _alike(
    corpora: Sequence[str], samples: Sequence[np.ndarray], ranks: np.ndarray, lengths: float
) -> dict[str, float]:
    above = np.triu_indices(len(corpora), 1)
    own = np.einsum('RSS->R', ranks) / len(corpora)
    halves = [np.stack([np.nanmean(x[half::2], 0, float) for half in (0, 1)]) for x in samples]
    pairs = [f'{one} and {other}' for one, other in itertools.combinations(corpora, 2)]
    return {
        **with_ends('rank', interval_of_resamples(ranks[:, *above].mean(axis=1))),
        **with_ends('rank_of_halves', interval_of_resamples(own)),
        'icc': agreement(np.mean(halves, axis=1)).icc1,
        'icc_of_halves': float(np.mean([agreement(each).icc1 for each in halves])),
        'explained_by_lengths': lengths,
        **dict(zip(pairs, ranks[0][above].tolist(), strict=True)),
    }


@with_subject
def matching(
    one: Pretrained,
    other: Pretrained,
    texts: Sequence[Text],
    *,
    seed: int = 0,
    settings: TextSettings = TextSettings(),
) -> Matching:
    """Match the heads of two models by their maps on the same texts.

    Pairs have the least total divergence (`scipy.optimize.linear_sum_assignment`) on every other
    text from the first; the rest of the texts measures them. The models may differ in depth and
    number of heads, but must read the same wordpieces.

    Args:
      one, other: The models.
      texts: The texts that both read.
      seed: The seed of the random pairs.
      settings: As in `special_tokens`.

    Raises:
      ValueError: The models' tokenizers give other wordpieces, or there are fewer than two texts.
    """
    check_enough('texts', texts, 2, ': one to match heads on, one to measure them')
    choosing, divergences = (
        _divergences(one, other, texts[half::2], settings).astype(np.float64) for half in (0, 1)
    )
    first, second, by_chance = pairs_of(choosing, divergences, seed)
    found = Matching(divergences, first, second, len(texts) // 2, by_chance)
    places = 1 + np.concatenate([first, second], axis=1)
    columns = zip(('layer_a', 'head_a', 'layer_b', 'head_b'), places.T, strict=True)
    caption = 'Matched heads, on held-out texts (0: equal maps; 0.69: no token shared).'
    return found.with_frames({'pairs': table(caption, **dict(columns), divergence=found.matched)})


def _divergences(one: Pretrained, other: Pretrained, texts: Sequence[Text], settings: TextSettings):
    """Return the divergence of each head of one model from each of the other on these texts."""
    settings = dataclasses.replace(settings, annotations=None)  # They are those of all texts.
    batches, others = (
        batches_of(model, texts, settings, annotated=False) for model in (one, other)
    )
    ids = ([batch.input_ids for batch in each] for each in (batches, others))
    if len(batches) != len(others) or not all(map(np.array_equal, *ids)):
        raise ValueError('The models read other wordpieces: maps can only be compared on the same.')
    shown = with_progress(batches, 'Matching')
    mean = stream((one, other), shown, {'divergences': _between})['divergences'].mean
    shape = other.config.num_hidden_layers, other.config.num_attention_heads
    return mean.reshape(*mean.shape[:2], *shape)


def _between(
    attentions: Maps, others: Float[Array, 'M K T S'], marks: Marks
) -> tuple[Array, Array]:
    """Divergence of each head of one model from each of another [L, N, H], a mean over tokens."""
    layers, heads, *square = attentions.shape
    rows = jnp.concatenate([each.reshape(-1, *square) for each in (attentions, others)])
    values, count = head_divergences(rows[None], marks)
    return values[0, : layers * heads, layers * heads :].reshape(layers, heads, -1), count


def _labelled(
    found: Across, syntax: Mapping[str, RelationHeads], pieces: Mapping[str, Mapping[str, int]]
) -> Across:
    """Return the result with its tables: of agreement, heads, relations and wordpieces."""
    values = np.stack(list(found.means.values()))
    grids = {'mean': values.mean(axis=1), 'spread': values.std(axis=1, ddof=1)}
    grids |= {f'in {name}': values[:, place] for place, name in enumerate(found.corpora)}
    by = {'statistic': list(found.means)}
    frames = {
        'agreement': records(
            f'Heads in two {found.unit}, and on two halves of the texts.',
            [{'statistic': name, **each} for name, each in found.alike.items()],
        ),
        'heads': grids_frame(grids, f'Each head, and its spread over {found.unit}.', by=by),
    }
    if found.relations:
        frames['relations'] = _relations(found, syntax)
    if pieces:
        frames['pieces'] = records(
            'Words and wordpieces that share.',
            [
                {'corpus': name, **each, 'bytes of a wordpiece': found.spelt[name]}
                for name, each in pieces.items()
            ],
        )
    return found.with_frames(frames)


def _relations(found: Across, syntax: Mapping[str, RelationHeads]):
    import pandas

    first, frames = syntax[found.corpora[0]], []
    best = dict(zip(first.relations, first.best, strict=True))
    for corpus, each in syntax.items():
        frame = table('', **each.columns).assign(corpus=corpus)
        frame = frame[frame['relation'].isin(found.relations)].dropna(axis=1)
        places = [(each.relations.index(name), *best[name]) for name in frame['relation']]
        shares = [each.dev.right[place] for place in places]
        frames.append(frame.assign(share_of_best_head_of_first_corpus=shares))
    frame = pandas.concat(frames, ignore_index=True)
    frame.attrs = {'caption': 'The head that finds most links of each relation, by corpus.'}
    return frame
