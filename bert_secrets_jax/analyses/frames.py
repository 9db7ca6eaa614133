"""Do heads connect frame elements with their target? (section 4.2, Figures 3 and 4)

The same analysis measures links of any other kind in annotations of your own.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import links
from bert_secrets_jax.analyses.common.inputs import TextSettings, encoded_of, in_one_pass
from bert_secrets_jax.analyses.common.tables import table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.data.annotation import Annotation
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.data.framenet import (
    RELATION,
    FrameSample,
    framenet_sample,
    read_framenet,
    read_framenet_sample,
)
from bert_secrets_jax.data.linguistics import with_word_classes
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.files import sha256
from bert_secrets_jax.measure.catalogue import relation
from bert_secrets_jax.measure.links import (
    LinkTest,
    directions,
    link_scores,
    link_tests,
    with_random_links,
)
from bert_secrets_jax.measure.token_maps import each_kind
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.ranges import Count
from bert_secrets_jax.runs.call import Call, an_input, call
from bert_secrets_jax.runs.result import Subject, drawn
from bert_secrets_jax.runs.run import digest

# The paper's direction.
FRAMES_DIRECTION = RELATION.replace('-', ' to ')


@dataclasses.dataclass(frozen=True, eq=False)
class LinkedMap:
    """The maps of some heads on a text with links.

    Attributes:
      tokens: The T wordpieces.
      heads: The layer and the head of each map, from 0 [H, 2].
      maps: The map of each head [H, T, T]. Rows are queries.
      links: The links [P, 3], the query first (see `measure.links`).
    """

    tokens: tuple[str, ...]
    heads: np.ndarray
    maps: np.ndarray
    links: np.ndarray


class Frames(links.Linked):
    """The attention along frame links, or along any other annotated links.

    Attributes:
      tests, tables: As in `common.links.Linked`.
      maps: The maps of the two best heads on a few texts (Figure 4).
    """

    maps: tuple[LinkedMap, ...]

    SOURCE = 'Kovaleva et al. 2019, section 4.2'
    NAMES = 'frames', 'summary', 'frames'

    @property
    def of_frames(self) -> LinkTest | None:
        """The test of the paper's links in its direction; None for links of another kind."""
        return self.tests.get(FRAMES_DIRECTION)

    @property
    def title(self) -> str:
        return 'Frames' if self.of_frames else 'Links'

    @property
    def FIGURE(self) -> str:
        return ' (Figure 3)' if self.of_frames else ''

    def gives(self):
        test = self.of_frames
        return {'attention along frames': test.table.mean} if test else {}

    def verdicts(self):
        test = self.of_frames
        return [verdicts.heads_follow_links(test)] if test else []

    def figures(self):
        maps = self.maps if self.tests else ()
        drawings = {
            f'frames{number}': functools.partial(_draw_map, example=example)
            for number, example in enumerate(maps, 1)
        }
        return super().figures() | drawn(self, **drawings)


def _missing(given) -> str:
    """Name what is missing: the embedded sentences are English, and suit no other language."""
    if given['frames.sample']:
        return ''
    return given.lacks('sentences', 'frames', lambda: framenet_sample()[0], 'setting frames.sample')


def _name(given) -> str:
    names = {'': 'the example frames', 'framenet': 'FrameNet'}
    sample: str = given['frames.sample']
    return names.get(sample, sample.rpartition('/')[2])


def _content(given, _) -> str:
    sample = given['frames.sample']
    # FrameNet itself is large, and has versions: its folder stands for it.
    own = sample and sample != 'framenet'
    return sha256(sample) if own else digest(frame_sample(given).key)


@an_input(missing=_missing, label=_name, content=_content)
def frame_sample(given) -> Call:
    """Return the texts with annotated frames: the embedded ones, a file's, or those of FrameNet."""
    match given['frames.sample']:
        case '':
            return call(framenet_sample)
        case 'framenet':
            how = {'reading': given['frames.reading'], 'seed': given['seed']}
            how['per_unit'] = given['frames.per_unit'] or None
            return call(read_framenet, given['frames.folder'], **how)
        case path:
            return call(read_framenet_sample, path)


@analysis(
    question='frame elements and their target, or links of your own',
    group='Syntax and meaning',
    report='always',
    settings={
        'sample': {
            'path': True,
            'help': "A sample of frames: '' (embedded), a prepared .jsonl, or 'framenet' "
            '(FrameNet itself, in `folder` or as NLTK has downloaded it).',
            'default': '',
        },
        'folder': {'path': True},
        'reading': {
            'help': "How FrameNet is sampled: 'paper' or 'notebook', and at most so many "
            'sentences of a lexical unit (0: all).',
            'default': 'paper',
            'words': ['paper', 'notebook'],
        },
        'per_unit': {'default': 0, 'range': [0, 10_000_000]},
    },
    reads=('frames.', 'links.'),
    inputs={'sample': 'frame_sample', 'draws': 'links.draws', 'shown': 'maps.examples'},
    cost=lambda given: 10_000,
)
def frames(
    pretrained: Pretrained,
    sample: FrameSample | tuple[Sequence[Example], Sequence[Annotation]] | None = None,
    *,
    draws: Count = 100,
    seed: int = 0,
    shown: int = 3,
    settings: TextSettings = TextSettings(),
) -> Frames:
    """Measure attention along frame links, and at places where these could stand as well.

    The places are those of `relations`. Where the sample has no parts of speech, spaCy finds them,
    if the pipeline is installed.

    Args:
      pretrained: The model.
      sample: Texts with annotated relations from `bs.read_framenet`, `bs.read_framenet_sample` or
        `bs.read_annotations`. None takes the 253 sentences that come with the package.
      draws: The number of places to draw for each link, of each kind.
      seed: The seed of the draws, and of the choice of texts whose maps are shown.
      shown: The number of texts whose maps are shown.
      settings: The settings for encoding the texts. Its annotations are not used.

    Raises:
      ValueError: The sample has no relation, two relations have the same ends, or the number of
        draws is below 1.
    """
    called, more = 'the sample', {}
    if sample is None:
        called, sample = 'the example frames', framenet_sample()
    if isinstance(sample, FrameSample):
        if sample.counts:
            more['filters'] = table(
                'How FrameNet was sampled.',
                filter=[*sample.counts],
                sentences=[*sample.counts.values()],
            )
        sample = sample.examples, sample.annotations
    examples, annotations = sample
    names = list(annotations[0].relations) if annotations else []
    check_enough('annotated relations in the sample', names)
    annotations = with_word_classes(
        examples, annotations, pipeline=settings.pipeline, cache=settings.cache
    )
    settings = dataclasses.replace(settings, annotations=annotations)
    encoded = encoded_of(pretrained, examples, settings, annotated=True)
    wanted = [
        relation(each.relation, each.reverse, reading)
        for each in directions(names).values()
        for reading in ('paper', 'notebook')
    ]
    with_random, random = with_random_links(encoded, names, draws=draws, seed=seed)
    tables = in_one_pass(pretrained, with_random, wanted, settings, 'Frames', also=random)
    tests = link_tests(tables, link_scores(encoded, names, tables))
    known = {each.name: tables[each.name] for each in wanted if tables[each.name].count}
    test = next(iter(tests.values()), None)
    maps = _maps(pretrained, encoded, names[0], test.table.mean, shown, seed) if test else ()
    if FRAMES_DIRECTION in tests:
        theirs = paper.frame_heads()
        more['published'] = table(
            'BERT-base along frame links of 473 sentences (Figure 3), without a baseline: the '
            "scores of the authors' notebook.",
            name=[*theirs],
            score=[*theirs.values()],
        )
    found = Frames(tests, known, maps, subject=Subject(texts=called))
    return found.with_frames(links.links_frames(found) | more)


def _maps(
    pretrained: Pretrained, encoded: Encoded, name: str, score: np.ndarray, shown: int, seed: int
) -> tuple[LinkedMap, ...]:
    """Return maps of the two best heads on texts with a link, drawn at random (Figure 4)."""
    marked = encoded.marks[name]
    linked = np.flatnonzero((marked[..., 2] >= 0).any(axis=1))
    chosen = np.random.default_rng(seed).permutation(linked)[:shown].tolist()
    best = np.array(np.unravel_index(np.argsort(-score, axis=None)[:2], score.shape)).T
    found = []
    for example, kinds in zip(chosen, each_kind(pretrained, encoded, chosen), strict=True):
        maps = kinds['weights']
        ids = encoded.input_ids[example, : maps.shape[-1]].tolist()
        tokens, pairs = pretrained.tokenizer.convert_ids_to_tokens(ids), marked[example]
        linked = pairs[pairs[:, 2] >= 0]
        found.append(LinkedMap(tuple(tokens), best, maps[tuple(best.T)], linked))
    return tuple(found)


def _draw_map(result: Frames, example: LinkedMap):
    score = next(iter(result.tests.values())).table.mean
    maps = {
        f'{head_name(*head)} ({score[tuple(head)]:.2f} on average)': values
        for head, values in zip(example.heads, example.maps, strict=True)
    }
    sources, targets = (set(ends.tolist()) for ends in example.links[:, :2].T)
    return plots.head_maps(maps, example.tokens, sources=sources, targets=targets).captioned(
        'The two heads with most attention along links, from blue rows to red columns (Figure 4).'
    )
