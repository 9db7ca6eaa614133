"""Frame elements and their targets from three sources: a small sample, FrameNet, your own file.

Section 4.2 of the paper asks for heads that connect a frame element ("he", the Experiencer) with
the word that evokes the frame ("agitated", of Emotion_directed). Each such connection is a link of
the relation `frame element-target`, from the frame element to the target, the direction in which
the authors' notebook reads attention.
"""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from absl import logging

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.data.annotation import (
    Annotation,
    Link,
    Span,
    check_spans,
    read_annotations,
    spans_of,
)
from bert_secrets_jax.data.rows import AnyPath, Lines, Row, good_rows
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.extras import require
from bert_secrets_jax.files import of_kind
from bert_secrets_jax.progress import progress

RELATION = 'frame element-target'
_DOWNLOADS = ('framenet_v17', 'framenet_v15')  # names that NLTK has for them, the newest first


@dataclasses.dataclass(frozen=True)
class FrameSample:
    """Sentences of FrameNet that passed all filters.

    An id such as 'lift.v/337812' has the lexical unit and FrameNet's number of the sentence. The
    annotations have the links of each sentence, in the relation `frame element-target`. The counts
    are the numbers of sentences left after each filter, in the order of the filters.
    """

    examples: list[Example]
    annotations: list[Annotation]
    counts: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Exemplar:
    """A sentence that FrameNet annotated for one lexical unit.

    The targets are the places of the lexical unit, if any; elements are named, from left to right.
    Core are the names of coreType 'Core'; the authors' notebook took those in the frame's core
    sets, which few frames have.
    """

    text: str
    id: str
    targets: tuple[Span, ...]
    elements: tuple[tuple[str, Span], ...]
    core: frozenset[str]
    core_sets: frozenset[str]

    @functools.cached_property
    def tokens(self) -> tuple[Span, ...]:
        """Words and punctuation as the Penn Treebank has them, without a download of NLTK."""
        from nltk.tokenize import NLTKWordTokenizer

        return tuple(Span(*span) for span in NLTKWordTokenizer().span_tokenize(self.text))

    def tokens_of(self, span: Span) -> list[int]:
        """Return the positions of the tokens in a span."""
        placed = enumerate(self.tokens)
        return [at for at, token in placed if token.start < span.end and span.start < token.end]


def framenet_sample() -> tuple[list[Example], list[Annotation]]:
    """Return the embedded sample: short sentences with targets and core frame elements.

    All pass the paper's filters (section 4.2): a sentence has at most 12 tokens, a frame element at
    most 3, and no linked frame element is within 2 tokens of the target. The file also has, under
    `note`, the frames, the lexical units and the names of the elements.
    """
    path = pathlib.Path(__file__).parent / 'frames' / 'sentences.jsonl'
    examples, annotations = read_annotations(path)
    named = [dataclasses.replace(example, id=f'frames/{i}') for i, example in enumerate(examples)]
    return named, annotations


def read_framenet_sample(
    path: AnyPath, *, bad_rows: str = 'error'
) -> tuple[list[Example], list[Annotation]]:
    """Read a prepared sample from JSON lines, as `read_annotations` does.

    The file has the format of `annotation.py`, with any relations (those of frames, or of your own
    theory); or its lines have a `sentence`, its `target_span` and some `link_spans` (the frame
    elements):

        {"sentence": "He was agitated .", "target_span": [7, 15], "link_spans": [[0, 2]]}

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: Some lines are bad (one error names them all), or the file has no links.
    """
    # A bad first line is told later.
    if 'sentence' in (next(Lines(path).objects, Row('')).value or ()):
        read = list(good_rows(path, None, _read_prepared, bad_rows))
        return [example for example, _ in read], [annotation for _, annotation in read]
    examples, annotations = read_annotations(path, bad_rows=bad_rows)
    if not any(links for each in annotations for links in each.relations.values()):
        raise ValueError(f'{path} has no links: there is nothing to measure along.')
    return examples, annotations


def _read_prepared(record: dict[str, Any], identity: str, where: str) -> tuple[Example, Annotation]:
    sentence = of_kind(record['sentence'], str, "'sentence': ")
    example = Example(sentence, id=identity, where=where)
    (target,) = spans_of([record['target_span']], "'target_span'")
    annotation = _annotate(target, spans_of(record['link_spans'], "'link_spans'"))
    check_spans(example, annotation)
    return example, annotation


def _annotate(target: Span, elements: Sequence[Span]) -> Annotation:
    links = tuple(Link(source=(element,), target=(target,)) for element in elements)
    return Annotation(features={}, relations={RELATION: links})


def filters(
    reading: Literal['paper', 'notebook'] = 'paper',
) -> dict[str, Callable[[Exemplar], bool]]:
    """Return the filters of section 4.2 by name, in the order of the authors' notebook.

    Each relies on those before it. The paper's reading compares positions near the target, and
    takes core elements. The notebook took the first token spelled like the target, asked whether
    one of a frame element is spelled like one of the two before it or after it, and took core sets.
    """
    check_name('reading', reading, ('paper', 'notebook'))
    near = _is_near if reading == 'paper' else _is_near_by_spelling
    return {
        'at most 12 tokens': lambda sentence: len(sentence.tokens) <= 12,
        'with a target': lambda sentence: len(sentence.targets) > 0,
        'one target span': lambda sentence: len(sentence.targets) == 1,
        'frame elements of at most 3 tokens': lambda sentence: all(
            len(sentence.tokens_of(span)) <= 3 for _, span in sentence.elements
        ),
        'none within 2 tokens of the target': lambda sentence: not near(sentence),
        'with a core frame element': lambda sentence: len(linked(sentence, reading)) > 0,
    }


def linked(sentence: Exemplar, reading: Literal['paper', 'notebook'] = 'paper') -> tuple[Span, ...]:
    """Return the places of a sentence's core frame elements in a reading (see `filters`)."""
    core = sentence.core if reading == 'paper' else sentence.core_sets
    return tuple(span for name, span in sentence.elements if name in core)


def _is_near(sentence: Exemplar) -> bool:
    target = sentence.tokens_of(sentence.targets[0])
    near = {position + offset for position in target for offset in range(-2, 3)}
    return any(not near.isdisjoint(sentence.tokens_of(span)) for _, span in sentence.elements)


def _is_near_by_spelling(sentence: Exemplar) -> bool:
    words = [sentence.text[token.start : token.end] for token in sentence.tokens]

    def spelled(span):
        return [words[position] for position in sentence.tokens_of(span)]

    first = words.index(spelled(sentence.targets[0])[0])
    window = words[max(first - 2, 0) : first + 3]
    return any(word in window for _, span in sentence.elements for word in spelled(span))


def read_framenet(
    folder: AnyPath | None = None,
    *,
    reading: Literal['paper', 'notebook'] = 'paper',
    per_unit: int | None = None,
    max_units: int | None = None,
    seed: int = 0,
) -> FrameSample:
    """Sample FrameNet as section 4.2 of the paper does. It takes minutes and shows its progress.

    The paper had FrameNet 1.7. FrameNet 1.5 has 441 of its 473 sentences. There the notebook's
    reading finds 438 of them and 3 others, and the paper's reading finds 838 sentences.

    Args:
      folder: The folder of FrameNet 1.5 or 1.7, such as 'fndata-1.7', which NLTK may then read.
        None takes what NLTK has downloaded.
      reading: 'paper', or 'notebook' for what the authors' code did (see `filters`).
      per_unit: The greatest number of sentences of one lexical unit, drawn at random. The paper
        says "one example set per lexical unit"; its code keeps all, as None does.
      max_units: The greatest number of lexical units to read, drawn at random; None reads all.

    Raises:
      FileNotFoundError: FrameNet is not there.
      ModuleNotFoundError: NLTK is not installed.
      PermissionError: NLTK refuses to read the files, because others may write to them.
      ValueError: There is no such reading, or a limit is below 1.
    """
    steps = filters(reading)
    reader = _open_framenet(folder)
    rng = np.random.default_rng(seed)

    def drawn(items: list, most: int | None) -> list:
        if most is None or len(items) <= most:
            return items
        return [items[i] for i in np.sort(rng.choice(len(items), most, replace=False))]

    units = drawn(list(reader.lu_ids_and_names()), max_units)
    counts = dict.fromkeys(['exemplar sentences', *steps], 0)
    kept = []
    for unit in progress(units, 'FrameNet', size=lambda _: 1, unit='lexical units', compiles=False):
        sentences = _exemplars(reader, unit)
        counts['exemplar sentences'] += len(sentences)
        for name, keep in steps.items():
            sentences = [sentence for sentence in sentences if keep(sentence)]
            counts[name] += len(sentences)
        kept += drawn(sentences, per_unit)
    if per_unit is not None:
        counts[f'at most {per_unit} of a lexical unit'] = len(kept)
    logging.info('FrameNet: %s', ', '.join(f'{name} {count}' for name, count in counts.items()))
    return FrameSample(
        [Example(sentence.text, id=sentence.id) for sentence in kept],
        [_annotate(sentence.targets[0], linked(sentence, reading)) for sentence in kept],
        counts,
    )


def _open_framenet(folder: AnyPath | None):
    require('nltk')
    import nltk
    from nltk.corpus.reader.framenet import FramenetCorpusReader

    for name in _DOWNLOADS if folder is None else ():
        with contextlib.suppress(LookupError):
            folder = folder or str(nltk.data.find(f'corpora/{name}'))
    if folder is None:
        raise FileNotFoundError(
            f'NLTK has not downloaded FrameNet: python -m nltk.downloader {_DOWNLOADS[0]}. Or name '
            'the folder that it lies in.'
        )
    folder = pathlib.Path(folder).resolve()
    if not (folder / 'luIndex.xml').is_file():
        raise FileNotFoundError(
            f'{folder} has no luIndex.xml: it should be the folder of FrameNet 1.5 or 1.7 that has '
            'the files luIndex.xml and frameIndex.xml and the folders lu and frame.'
        )
    if str(folder) not in nltk.data.path:
        nltk.data.path.append(str(folder))
    # A reader of our own: what is read is forgotten again (see _exemplars).
    reader = FramenetCorpusReader(str(folder), [])
    try:
        reader.lu_ids_and_names()
    except UnboundLocalError as error:  # NLTK 3.10 stumbles over its own refusal
        raise PermissionError(
            f'NLTK reads only files that nobody else may write to. Make those of {folder} your '
            f'own (chown -R) and private (chmod -R go-w). NLTK says: {error.__context__}'
        ) from error
    return reader


def _exemplars(reader, unit_id: int) -> list[Exemplar]:
    unit = reader.lu(unit_id)
    try:
        parts = unit.subCorpus
    except AssertionError as error:
        # NLTK accepts no label that is in a sentence twice: 4 units of FrameNet 1.5 have one.
        logging.warning('FrameNet: NLTK cannot read %s (%d): %s.', unit.name, unit.ID, error)
        return []
    frame = unit.frame
    core = frozenset(name for name, element in frame.FE.items() if element.coreType == 'Core')
    core_sets = frozenset(element.name for names in frame.FEcoreSets for element in names)
    exemplars = [
        Exemplar(
            text=sentence.text.rstrip(),
            id=f'{unit.name}/{sentence.ID}',
            targets=tuple(Span(*span) for span in sentence.get('Target', ())),
            elements=tuple((name, Span(*ends)) for *ends, name in sentence.get('FE', ((),))[0]),
            core=core,
            core_sets=core_sets,
        )
        for part in parts
        for sentence in part.sentence
    ]
    # The reader would hold the sentences of all units: gigabytes.
    del unit['subCorpus'], unit['exemplars']
    return exemplars
