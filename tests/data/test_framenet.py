"""FrameNet: every filter of the paper on its own, a tiny FrameNet, the embedded sample."""

import dataclasses
import itertools
import json
import logging
import pathlib
import re
import sys
import tarfile

import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.data import framenet
from bert_secrets_jax.data.annotation import Span
from bert_secrets_jax.data.framenet import RELATION, Exemplar
from tests.conftest import REAL_DATA


def links(annotation) -> list[tuple[Span, Span]]:
    """Element and target of each link; each is one span here."""
    return [(*link.source, *link.target) for link in annotation.relations[RELATION]]


def cut(text: str, span: Span) -> str:
    return text[span.start : span.end]


def exemplar(marked: str, core=('Agent',), core_sets=()) -> Exemplar:
    """Read 'A [Agent cat] that <miaowed> .'."""
    text, targets, elements = '', [], []
    for part in re.split(r'(\[\w+ [^]]+\]|<[^>]+>)', marked):
        words = part.strip('<>')
        if part.startswith('['):
            name, words = part[1:-1].split(' ', 1)
            elements.append((name, Span(len(text), len(text) + len(words))))
        elif part.startswith('<'):
            targets.append(Span(len(text), len(text) + len(words)))
        text += words
    return Exemplar(
        text, 'a/1', tuple(targets), tuple(elements), frozenset(core), frozenset(core_sets)
    )


GOOD = '[Agent The cat] sat there and <miaowed> .'
LONG, NEAR = 'frame elements of at most 3 tokens', 'none within 2 tokens of the target'


def dropped_by(sentence: Exemplar, reading='paper') -> str | None:
    pytest.importorskip('nltk')
    steps = framenet.filters(reading)
    return next((name for name, keep in steps.items() if not keep(sentence)), None)


def test_every_sentence_passes_the_filters_of_the_paper():
    """Elements and targets are whole words; the target is one."""
    for example, annotation in zip(*framenet.framenet_sample(), strict=True):
        linked = links(annotation)
        elements = tuple(('Agent', element) for element, _ in linked)
        targets = tuple({target for _, target in linked})
        core = frozenset(['Agent'])
        sentence = Exemplar(example.text_a, example.id, targets, elements, core, core)
        assert dropped_by(sentence) is None, example
        assert len(sentence.tokens_of(*targets)) == 1, example
        for span in itertools.chain(*linked):
            first, *_, last = [sentence.tokens[at] for at in sentence.tokens_of(span)] * 2
            assert (span.start, span.end) == (first.start, last.end), example


def test_tokens_are_those_of_the_penn_treebank():
    pytest.importorskip('nltk')
    sentence = exemplar("She didn't <sing> .")
    assert [cut(sentence.text, token) for token in sentence.tokens] == "She did n't sing .".split()


@pytest.mark.parametrize('reading', ['paper', 'notebook'])
@pytest.mark.parametrize(
    ('marked', 'step'),
    [
        (GOOD, None),
        ('[Agent She] got up late and <sang> a b c d e .', None),
        ('[Agent She] got up late and <sang> a b c d e f .', 'at most 12 tokens'),
        ('[Agent The cat] miaowed .', 'with a target'),
        ('[Agent She] did then <give> it <up> .', 'one target span'),
        ('[Agent She] sat there and <sang> as if [Agent all of the night] .', LONG),
        # Of elements that are not core, too.
        ('[Agent She] sat there and <sang> as if [Time all of the night] .', LONG),
        ('[Agent She] just <sang> .', NEAR),
        ('[Agent She] sat down and <sang> so [Time today] .', NEAR),
        # The notebook takes the first token that is spelled as the target, or as an element.
        ('He grinned , and [Agent the porter] <grinned> .', {'paper': NEAR, 'notebook': None}),
        ('[Agent the cat] and I <saw> the dog .', {'paper': None, 'notebook': NEAR}),
    ],
)
def test_what_drops_a_sentence(marked, step, reading):
    expected = step[reading] if isinstance(step, dict) else step
    assert dropped_by(exemplar(marked, core_sets=['Agent']), reading) == expected


@pytest.mark.parametrize('reading', ['paper', 'notebook'])
def test_a_frame_element_that_is_the_target_drops_the_sentence(reading):
    sentence = exemplar('She sat down and <sang> .')
    sentence = dataclasses.replace(sentence, elements=(('Agent', sentence.targets[0]),))
    assert dropped_by(sentence, reading) == NEAR


def test_core_is_the_core_type_for_the_paper_and_core_sets_for_the_notebook():
    sentence = exemplar(f'{GOOD[:-1]}at noon [Time today] .', core=['Agent'], core_sets=['Theme'])
    assert [dropped_by(sentence, reading) for reading in ('paper', 'notebook')] == [
        None,
        'with a core frame element',
    ]
    assert framenet.linked(sentence, 'paper') == (Span(0, 7),)


UNITS = {
    7: [GOOD, GOOD.replace('cat', 'fox'), '[Agent She] <miaowed> .'],
    8: ['[Agent The owl] sat there and <hooted> at me [Time that night] .', 'Owls hoot .'],
}


XMLNS = 'xmlns="http://framenet.icsi.berkeley.edu"'
# A FrameNet of one frame and two lexical units, but for their sentences.
FILES = {
    'frameIndex.xml': f'<frameIndex {XMLNS}><frame ID="1" name="Cry"/></frameIndex>',
    'frRelation.xml': f'<frameRelations {XMLNS}/>',
    'semTypes.xml': f'<semTypes {XMLNS}/>',
    'luIndex.xml': f"""<luIndex {XMLNS}>
  <lu status="Created" name="unit7.v" ID="7" hasAnnotation="true" frameID="1" frameName="Cry"/>
  <lu status="Created" name="unit8.v" ID="8" hasAnnotation="true" frameID="1" frameName="Cry"/>
</luIndex>""",
    'frame/Cry.xml': f"""<frame name="Cry" ID="1" {XMLNS}>
  <definition>cries</definition>
  <FE name="Agent" ID="0" abbrev="" coreType="Core"><definition/></FE>
  <FE name="Time" ID="1" abbrev="" coreType="Peripheral"><definition/></FE>
  <FEcoreSet><memberFE name="Agent" ID="0"/></FEcoreSet>
  <lexUnit status="Created" name="unit7.v" ID="7" POS="V"><definition>a cry</definition></lexUnit>
  <lexUnit status="Created" name="unit8.v" ID="8" POS="V"><definition>a cry</definition></lexUnit>
</frame>""",
}
UNIT = """<lexUnit status="Created" name="unit{unit}.v" ID="{unit}" POS="V" frame="Cry" frameID="1"
 totalAnnotated="1" {xmlns}><subCorpus name="all">{sentences}</subCorpus></lexUnit>"""
SENTENCE = """<sentence ID="{number}"><text>{text} </text>
  <annotationSet status="UNANN" ID="{number}0"/>{annotated}</sentence>"""
ANNOTATED = """<annotationSet status="MANUAL" ID="{number}1">
  <layer rank="1" name="Target">{targets}</layer><layer rank="1" name="FE">{elements}</layer>
</annotationSet>"""


def labels(named) -> str:
    return ''.join(
        f'<label name="{name}" start="{span.start}" end="{span.end - 1}"></label>'
        for name, span in named
    )


def sentence_xml(number: int, marked: str) -> str:
    sentence = exemplar(marked)
    annotated = ANNOTATED.format(
        number=number,
        targets=labels(('Target', span) for span in sentence.targets),
        elements=labels(sentence.elements),
    )
    annotated = annotated if sentence.targets else ''
    return SENTENCE.format(number=number, text=sentence.text, annotated=annotated)


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip('nltk')
    files = dict(FILES)
    for unit, marked in UNITS.items():
        sentences = ''.join(sentence_xml(unit * 10 + at, text) for at, text in enumerate(marked))
        files[f'lu/lu{unit}.xml'] = UNIT.format(unit=unit, xmlns=XMLNS, sentences=sentences)
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n{text}')
        path.chmod(0o600)
    return tmp_path


def test_framenet_is_sampled_and_counted_after_each_filter(folder):
    sample = framenet.read_framenet(folder)
    assert [example.id for example in sample.examples] == ['unit7.v/70', 'unit7.v/71', 'unit8.v/80']
    example, annotation = sample.examples[2], sample.annotations[2]
    assert example.text_a == 'The owl sat there and hooted at me that night .'
    ((element, target),) = links(annotation)
    assert cut(example.text_a, element) == 'The owl'
    assert cut(example.text_a, target) == 'hooted'
    assert list(framenet.read_framenet(folder).counts.items()) == [
        ('exemplar sentences', 5),
        ('at most 12 tokens', 5),
        ('with a target', 4),
        ('one target span', 4),
        ('frame elements of at most 3 tokens', 4),
        ('none within 2 tokens of the target', 3),
        ('with a core frame element', 3),
    ]


def test_limits_draw_with_the_seed(folder):
    def drawn(seed, **limits):
        return framenet.read_framenet(folder, seed=seed, **limits)

    first = [drawn(seed, per_unit=1).examples for seed in range(8)]
    assert {len(examples) for examples in first} == {2}
    assert {examples[0].id for examples in first} == {'unit7.v/70', 'unit7.v/71'}
    again = drawn(3, per_unit=1)
    assert again.examples == first[3]
    assert list(again.counts.items())[-1] == ('at most 1 of a lexical unit', 2)
    assert {len(drawn(seed, max_units=1).examples) for seed in range(8)} == {1, 2}


def test_a_unit_that_nltk_cannot_read_is_left_out_and_named(folder, caplog):
    """FrameNet 1.5 has such a one: a label that occurs twice."""
    path = folder / 'lu' / 'lu8.xml'
    label = '<label name="Time" start="35" end="44"></label>'
    assert label in path.read_text()
    path.write_text(path.read_text().replace(label, label * 2))
    with caplog.at_level(logging.WARNING):
        sample = framenet.read_framenet(folder)
    assert [example.id for example in sample.examples] == ['unit7.v/70', 'unit7.v/71']
    assert 'cannot read unit8.v' in caplog.text


def test_what_is_missing_is_named_with_a_mend(folder, untyped, monkeypatch):
    for limit in ('per_unit', 'max_units'):
        with pytest.raises(ValueError, match=f'{limit}=0 must be .* from 1'):
            bs.read_framenet(folder, **{limit: 0})
    with pytest.raises(FileNotFoundError, match='has no luIndex.xml: it should be the folder'):
        framenet.read_framenet(folder / 'lu')
    (folder / 'luIndex.xml').chmod(0o666)
    with pytest.raises(PermissionError, match=r'chmod -R go-w.*NLTK says: .*luIndex'):
        framenet.read_framenet(folder)
    monkeypatch.setitem(sys.modules, 'nltk', None)
    with pytest.raises(ModuleNotFoundError, match=r'bert_secrets_jax.framenet'):
        framenet.read_framenet(folder)


def test_a_download_is_found(folder, monkeypatch, tmp_path_factory):
    nltk = pytest.importorskip('nltk')
    root = tmp_path_factory.mktemp('nltk_data')
    (root / 'corpora').mkdir()
    monkeypatch.setattr(nltk.data, 'path', [str(root)])
    with pytest.raises(FileNotFoundError, match='python -m nltk.downloader framenet_v17'):
        framenet.read_framenet()
    folder.rename(root / 'corpora' / 'framenet_v17')
    assert len(framenet.read_framenet().examples) == 3


PREPARED = {'sentence': 'He was agitated .', 'target_span': [7, 15], 'link_spans': [[0, 2]]}


def write_lines(path: pathlib.Path, *records: dict) -> pathlib.Path:
    path.write_text(''.join(json.dumps(record) + '\n' for record in records))
    return path


def test_prepared_sentences_or_any_relation(tmp_path):
    path = write_lines(tmp_path / 'tiny.jsonl', PREPARED, PREPARED | {'id': 5})
    examples, annotations = framenet.read_framenet_sample(path)
    assert [example.id for example in examples] == ['tiny/0', 'tiny/1']
    assert examples[0].text_a == PREPARED['sentence']
    assert links(annotations[0]) == [(Span(0, 2), Span(7, 15))]
    line = {'text_a': 'He sat.', 'relations': {'subject': []}}
    link = {'source': [[0, 2]], 'target': [[3, 6]]}
    write_lines(path, line | {'relations': {'subject': [link]}})
    _, (annotation,) = framenet.read_framenet_sample(path)
    assert list(annotation.relations) == ['subject']
    with pytest.raises(ValueError, match='has no links'):
        framenet.read_framenet_sample(write_lines(path, line))


def test_the_papers_473_sentences():
    path = REAL_DATA / 'framenet' / 'framenet_473.jsonl'
    if not path.is_file():
        pytest.skip(f'needs {path}')
    examples, annotations = framenet.read_framenet_sample(path)
    assert len(examples) == 473
    assert sum(len(links(annotation)) for annotation in annotations) == 481


@pytest.mark.slow
def test_the_notebooks_reading_finds_the_papers_sentences(tmp_path):
    """In FrameNet 1.5 where the paper had 1.7, and in the lexical units of those sentences."""
    pytest.importorskip('nltk')
    archive = REAL_DATA / 'framenet' / 'framenet_v15.tar.xz'
    prepared = REAL_DATA / 'framenet' / 'framenet_473.jsonl'
    if not (archive.is_file() and prepared.is_file()):
        pytest.skip(f'needs {archive} and {prepared}')
    records = [json.loads(line) for line in prepared.read_text().splitlines()]
    records = [record for record in records if record['span_source'] == 'fn1.5']
    units = {int(record['lu_id']) for record in records}
    found = framenet.read_framenet(unpack(archive, units, tmp_path), reading='notebook')

    def keys(text, spans):
        return ' '.join(text.split()), frozenset(text[start:end] for start, end in spans)

    published = {
        keys(record['sentence'], [record['target_span'], *record['link_spans']])
        for record in records
    }
    ours = {
        keys(example.text_a, [(s.start, s.end) for s in itertools.chain(*links(annotation))])
        for example, annotation in zip(found.examples, found.annotations, strict=True)
    }
    assert len(published) == 440  # one of the 441 is there twice
    assert len(published - ours) == 3  # FrameNet 1.7 annotates them otherwise
    assert not ours - published


def unpack(archive: pathlib.Path, units: set[int], folder: pathlib.Path) -> pathlib.Path:
    """Unpack the frames and some lexical units, and list only these in the index."""

    def wanted(member, path):
        unit = re.fullmatch(r'.*/lu/lu(\d+)\.xml', member.name)
        is_other = unit and int(unit[1]) not in units
        return None if is_other else tarfile.data_filter(member, path)

    with tarfile.open(archive) as members:
        members.extractall(folder, filter=wanted)
    (index,) = folder.rglob('luIndex.xml')
    lines = index.read_text('utf-8').splitlines()
    listed = [re.search(r'<lu .* ID="(\d+)"', line) for line in lines]
    kept = [not unit or int(unit[1]) in units for unit in listed]
    index.write_text('\n'.join(itertools.compress(lines, kept)), 'utf-8')
    return index.parent
