"""Probes: how many dependency heads can be read off attention (Clark et al. 2019, section 5)."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging
from jaxtyping import Float

from bert_secrets_jax import plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.inputs import check_several
from bert_secrets_jax.analyses.common.tables import grids_frame, table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.data.treebank import Parse, forms_of
from bert_secrets_jax.files import sha256
from bert_secrets_jax.model.bert import init_params
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.probes.evaluation import RIGHT_BRANCHING, Attachment, attach, scores
from bert_secrets_jax.probes.forms import ATTENTION, ATTENTION_WORDS, DISTANCES_WORDS
from bert_secrets_jax.probes.train import Learning, ProbeConfig, checked_forms, train_probes
from bert_secrets_jax.probes.vectors import Vectors, read_vectors
from bert_secrets_jax.runs.call import Call, an_input, call
from bert_secrets_jax.runs.result import Result, measured, noted, told
from bert_secrets_jax.stats.over_runs import FEWEST_RUNS, Contrasts

SOURCE = 'Clark et al. 2019, section 5, Table 3'
RANDOM = 'random weights: '
RANDOM_ATTENTION = RANDOM + ATTENTION.name
RANDOM_WORDS = RANDOM + ATTENTION_WORDS.name
# UAS of BERT-base, in %, on the development set of the Penn Treebank with Stanford dependencies;
# NaN where it was not published. Probes and baselines are shown in this order.
PUBLISHED = {
    RIGHT_BRANCHING: 26.0,
    DISTANCES_WORDS.name: 58.0,
    RANDOM_ATTENTION: math.nan,
    RANDOM_WORDS: 30.0,
    ATTENTION.name: 61.0,
    ATTENTION_WORDS.name: 77.0,
}
# The differences that are told, each of a probe and another one.
_PAIRS = (
    (ATTENTION.name, RIGHT_BRANCHING),
    (ATTENTION.name, RANDOM_ATTENTION),
    (ATTENTION.name, RANDOM_WORDS),
    (ATTENTION.name, DISTANCES_WORDS.name),
    (ATTENTION_WORDS.name, DISTANCES_WORDS.name),
    (ATTENTION_WORDS.name, RANDOM_WORDS),
    (ATTENTION_WORDS.name, ATTENTION.name),
    (DISTANCES_WORDS.name, RIGHT_BRANCHING),
)
# The claims of the paper, each about a probe and another one.
_CLAIMS = {
    verdicts.PROBE_BEYOND_WORDS: (ATTENTION_WORDS.name, DISTANCES_WORDS.name),
    verdicts.ATTENTION_BEYOND_RANDOM: (ATTENTION.name, RANDOM_WORDS),
}
# Probes learn little from fewer sentences: a small treebank is read several times.
_SENTENCES = 2000


class Probing(Result, Learning, Attachment):
    """How many heads of dev sentences each probe and each baseline finds, and how it has learnt.

    Attributes:
      seeds, reading, curves, seen, steps, learnt: As in `probes.train.Learning`.
      words, right, asked: As in `probes.evaluation.Attachment`.
      weights: [R, 2, L, N] The weights of the probe of attention alone: of the attention from the
        word to its governor, and of that from the governor to the word.
      unknown: The share of all words without a word vector; NaN if there are no vectors.
    """

    title = 'Probes: dependency heads from attention alone'

    weights: Float[np.ndarray, 'R 2 L N']
    unknown: float

    @property
    def names(self) -> list[str]:
        """The names of the probes and baselines, from the weakest in the paper to the best."""
        return [name for name in PUBLISHED if name in self.right]

    def verdicts(self):
        needs = 'probing with word vectors'
        return [
            verdicts.probe_leads(claim, self.words, self.right[name], self.right[other])
            if {name, other} <= self.right.keys()
            else verdicts.not_measured(
                claim, needs + ' and with random weights' * (RANDOM in other)
            )
            for claim, (name, other) in _CLAIMS.items()
        ]

    def uas(self, name: str, other: str | None = None) -> Contrasts:
        """Return the UAS of a probe or baseline in points, or its lead over another one."""
        minus = None if other is None else self.right[other]
        return verdicts.uas_contrasts(self.words, self.right[name], minus)

    def _points(self, name: str) -> np.ndarray:
        """Return the UAS in points, with its interval."""
        return np.clip(self.uas(name).interval(0), 0, 100)

    @property
    def unlearnt(self) -> list[str]:
        """The trained probes, but random weights, that are not clearly above right-branching."""
        trained = [name for name in self.names if not name.startswith((RIGHT_BRANCHING, RANDOM))]
        return [name for name in trained if self.uas(name, RIGHT_BRANCHING).interval(0)[1] <= 0]

    def _draw_probes(self):
        published = np.array([PUBLISHED[name] for name in self.names])
        ours = np.array([self._points(name) for name in self.names])
        return plots.points_by_row(
            self.names,
            {
                self.subject.model: tuple(ours.T),
                'BERT-base, Penn Treebank': (published, None, None),
            },
            label='UAS (% of words, without punctuation)',
        ).captioned(
            'Words whose syntactic parent is found, with 95 % intervals. BERT-base: on the Penn '
            f'Treebank ({SOURCE}).'
        )

    def _say_warning(self):
        if not self.unlearnt:
            return None
        return told(
            'not above right-branching',
            estimate=len(self.unlearnt),
            unit='probes',
            template='After {steps:,} updates, no better than taking the next word: {which}.',
            which=' and '.join(self.unlearnt),
            steps=self.steps,
            warning=True,
            **self._sample,
        )

    def _say_score(self):
        others = (RANDOM_WORDS, RANDOM_ATTENTION, RIGHT_BRANCHING)
        other = next(name for name in others if name in self.right)
        return measured(
            f'UAS of {ATTENTION.name}',
            self._points(ATTENTION.name),
            unit='% of words',
            template='A probe of attention alone finds the syntactic parent of {estimate:.0f} % of '
            'words (BERT-base: {published:.0f} %). Beside it, "{other}" finds {theirs:.0f} %.',
            published=PUBLISHED[ATTENTION.name],
            other=other,
            theirs=self._points(other)[0],
            **self._sample,
        )

    @property
    def _sample(self) -> dict[str, Any]:
        runs = self.uas(ATTENTION.name).runs
        sample_of = f'sentences, {runs} seeds' if runs >= FEWEST_RUNS else 'sentences'
        return {'sample': len(self.words), 'sample_of': sample_of, 'source': SOURCE}

    def notes(self):
        no_words, random = math.isnan(self.unknown), RANDOM_ATTENTION in self.right
        behind = 'As in the published code, each candidate has the vector of the word behind it.'
        return noted(
            {
                'A probe finds the syntactic parent of each word alone, so a sentence need not get '
                'a tree.': True,
                'Published scores are of BERT-base on another treebank (Penn), where baselines '
                'score otherwise, too.': True,
                'If two attention heads do alike, either may have the weight.': True,
                'Without word vectors, no probe that reads words was trained.': no_words,
                behind: self.reading == 'notebook',
                'The random weights are one draw for the whole encoder.': random,
            }
        )


@an_input(content=lambda given, _: sha256(given['probe.vectors']))
def vectors(given) -> Call | None:
    """Return the vectors of the words of the treebank, if there is a file of vectors."""
    if not given['probe.vectors']:
        return None
    words = call(forms_of, given.input('trees'), given.input('dev_trees'))
    return call(read_vectors, given['probe.vectors'], words, bad_rows=given['data.bad_rows'])


@analysis(
    question='dependency heads from attention alone, by a trained probe',
    group='Syntax and meaning',
    time='10 s',
    section='probe',
    file='probes',
    title='probes',
    settings={
        'vectors': {
            'path': True,
            'help': "Word vectors in the format of GloVe (.txt, .gz or .xz); '' trains only the"
            ' probe that reads no words.',
            'default': '',
        },
        'num_seeds': {'default': 3, 'range': [1, 1000], 'smoke': 2},
        'epochs': {
            'help': 'Passes over the training sentences; the paper makes one, over 36,000. 0 '
            'makes as many as give 2,000 updates, and one at least.',
            'default': 0,
            'range': [0, 10_000],
            'smoke': 1,
        },
        'random_weights': {
            'help': 'Whether the same model with random weights is probed, too.',
            'default': True,
        },
        'cache_mb': {
            'help': 'The most megabytes of maps that are kept for further epochs.',
            'default': 1024,
            'range': [0, 1_000_000],
        },
    },
    reads=('probe.', 'treebank.'),
    inputs={
        'train': 'trees',
        'dev': 'dev_trees',
        'folder': ...,
        'seeds': 'probe.num_seeds',
        'cache_mb': 'probe.cache_mb',
    },
    aside=('folder',),
    like=ProbeConfig,
    cost=lambda given: 20_000,
)
def probing(
    pretrained: Pretrained,
    train: Sequence[Parse],
    dev: Sequence[Parse],
    *,
    vectors: Vectors | None = None,
    epochs: int = 1,
    random_weights: bool = True,
    max_length: int | None = None,
    tokens_per_batch: int = 1024,
    folder: str | pathlib.Path | None = None,
    **training: Any,
) -> Probing:
    """Train the probes of Clark et al. 2019 on a frozen model, and count the heads they find.

    There are probes of attention alone and of attention and words, and three baselines: the next
    word as head, a network that reads distances and words, and the probes on random weights.

    Args:
      pretrained: The model.
      train: The sentences to learn from, with their trees (`data.treebank.read_treebank`).
      dev: The sentences to find heads in.
      vectors: The word vectors (`probes.vectors.read_vectors`); None trains no probes of words.
      epochs: The number of passes over `train`; 0 makes as many as read 2,000 sentences.
      random_weights: Whether random weights are probed, too, which takes as long again.
      max_length: The greatest number of tokens, as in `bs.encode`.
      tokens_per_batch: The greatest number of rows times padded length that the encoder reads.
      folder: The folder of unfinished work, as in `train_probes`.
      **training: As in `train_probes`: `seeds`, `batch_size`, `learning_rate`, `reading` and
        `cache_mb`.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is out of range, there is nothing to learn from, or fewer than two dev
        sentences have words that count.
    """
    check_several(dev)
    training['epochs'] = epochs or math.ceil(_SENTENCES / max(len(train), 1))
    forms = checked_forms(None, vectors)
    reads = {'vectors': vectors, 'max_length': max_length, 'tokens_per_batch': tokens_per_batch}
    probes = train_probes(pretrained, train, forms=forms, folder=folder, **training, **reads)
    found = attach(pretrained, probes, dev, **reads)
    right, curves = dict(found.right), dict(probes.curves)
    if random_weights:
        params = init_params(pretrained.bert, seed=0)
        drawn = dataclasses.replace(pretrained, params=params)
        own = {'forms': [form for form in forms if form.reads_maps], 'folder': folder}
        others = train_probes(
            drawn, train, what='Probes (random weights)', **own, **training, **reads
        )
        beside = attach(drawn, others, dev, what='Heads (random weights)', **reads)
        curves |= {RANDOM + name: each for name, each in others.curves.items()}
        right |= {RANDOM + name: beside.right[name] for name in others.curves}
    counting = found.words > 0
    check_enough('dev sentences with words that count', np.flatnonzero(counting), 2)
    weights = np.asarray(probes.params[ATTENTION.name]['maps'], np.float64)
    unknown = math.nan
    if vectors is not None:
        unknown = vectors.unknown(form for parse in (*train, *dev) for form in parse.forms)
        logging.info('%.1f %% of the words have no vector.', 100 * unknown)
    learning: dict[str, Any] = {
        field.name: getattr(probes, field.name) for field in dataclasses.fields(Learning)
    }
    result = Probing(
        words=found.words[counting],
        right={name: each[:, counting] for name, each in right.items()},
        asked=found.asked,
        weights=weights.reshape(len(weights), 2, pretrained.config.num_hidden_layers, -1),
        unknown=unknown,
        **{**learning, 'curves': curves},
    )
    return labelled(result)


def labelled(found: Probing) -> Probing:
    """Return the result with its tables: of probes, seeds, words, weights and curves."""
    share, low, high = np.transpose([found._points(name) for name in found.names])
    pairs = [pair for pair in _PAIRS if set(pair) <= found.right.keys()]
    lead, least, most = np.transpose([found.uas(*pair).interval(0) for pair in pairs])
    trained = [name for name in found.names if name in found.curves]
    asked, mean = (found.learnt, found.asked), found.weights.mean(axis=0)
    spread = found.weights.std(axis=0, ddof=1) if len(found.weights) > 1 else mean * math.nan
    return found.with_frames(
        {
            'uas': table(
                'Share of the words whose syntactic parent is found (UAS).',
                probe=found.names,
                uas_percent=share,
                low=low,
                high=high,
                published_bert_base=[PUBLISHED[name] for name in found.names],
                seeds=[len(found.curves.get(name, ())) for name in found.names],
            ),
            'differences': table(
                'Differences of these shares on the same sentences.',
                probe=[name for name, _ in pairs],
                minus=[other for _, other in pairs],
                difference_points=lead,
                low=least,
                high=most,
                published_difference_points=[PUBLISHED[one] - PUBLISHED[two] for one, two in pairs],
            ),
            'seeds': table(
                'The UAS of each seed.',
                {'probe': trained, 'seed': found.seeds},
                uas_percent=[100 * scores(found.right[name], found.words)[0] for name in trained],
            ),
            'words': table(
                'Words that are left out, and why. Punctuation counts in training.',
                sentences=('training', 'dev'),
                words=[each.words for each in asked],
                without_wordpiece=[each.cut for each in asked],
                head_without_wordpiece=[each.headless for each in asked],
                punctuation=[each.punctuation for each in asked],
                counted=[each.counted for each in asked],
            ),
            'weights': grids_frame(
                {
                    'word_to_governor': mean[0],
                    'deviation_over_seeds': spread[0],
                    'governor_to_word': mean[1],
                    'deviation_over_seeds_of_it': spread[1],
                },
                'The weight of each head in the probe of attention alone (mean over seeds).',
                sure={
                    'word_to_governor': ['deviation_over_seeds'],
                    'governor_to_word': ['deviation_over_seeds_of_it'],
                },
            ),
            'curves': table(
                'The mean loss of sentences before they are learnt from.',
                {'probe': [*found.curves], 'seed': found.seeds, 'sentences': found.seen},
                loss_nats_per_word=list(found.curves.values()),
            ),
        }
    )
