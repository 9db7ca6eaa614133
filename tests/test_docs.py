"""Documents are short, lead somewhere, and show code and commands that run."""

import gzip
import itertools
import json
import re
import runpy
import shlex

import jax
import numpy as np
import pandas
import pytest
import yaml
from flax.traverse_util import flatten_dict
from PIL import Image

import bert_secrets_jax as bs
from bert_secrets_jax.configs import base
from bert_secrets_jax.model.families import FAMILIES
from bert_secrets_jax.programs import cli, conversation
from tests.conftest import PAIRS, ROOT
from tests.words import count_words, longest_sentence

DOCS = ROOT / 'docs'
PAGES = [ROOT / 'README.md', *sorted(DOCS.rglob('*.md'))]
DOCUMENTS = [*PAGES, ROOT / 'CONTRIBUTING.md', ROOT / 'tools' / 'patterns' / 'guideline.md']
HOW_TOS = sorted((DOCS / 'how_to').glob('*.md'))
# The most words of prose: of README, and of each document in a folder.
CEILINGS = {'README.md': 500, 'how_to': 260, 'explanation': 900}
CELLS = json.loads((DOCS / 'tutorials' / 'first_notebook.ipynb').read_text('utf-8'))['cells']
# The tasks of the notebook that draw.
PICTURES = (2, 4, 5, 7, 8, 9, 10)
name_of = lambda path: path.stem if path.parent.name in CEILINGS else path.name


def blocks_of(path, language='python'):
    """Return the blocks of code of a document."""
    return re.findall(rf'^ *```{language}\n(.*?)^ *```$', path.read_text('utf-8'), re.M | re.S)


def prose_of(text):
    """Return the paragraphs, items and headings of a document, without code and tables."""
    text = re.sub(r'^ *```.*?^ *```$|<!--.*?-->', '', text, flags=re.M | re.S)
    text = re.sub(r'^\|.*$|^    +[^\s\d*-].*$', '', text, flags=re.M)
    text = re.sub(r'!?\[([^]]*)\]\([^)]*\)', r'\1', re.sub(r'`[^`]*`', 'Code', text))
    pieces = re.split(r'\n\s*\n|\n(?=\s*(?:[-#]|\d+\.) )', text.replace('*', ''))
    return [' '.join(each.split()) for each in pieces if each.strip()]


@pytest.mark.parametrize('path', PAGES, ids=name_of)
def test_sentences_and_documents_are_short(path):
    paragraphs = prose_of(path.read_text('utf-8'))
    for paragraph in paragraphs:
        assert longest_sentence(paragraph) <= 25, paragraph
    ceiling = CEILINGS.get(path.name) or CEILINGS.get(path.parent.name, 3000)
    assert sum(map(count_words, paragraphs)) <= ceiling
    if path.name == 'README.md':
        lines = path.read_text('utf-8').splitlines()
        assert len(lines) <= 80 and any(line.startswith('    pip') for line in lines[:15])


def test_prose_is_told_from_code():
    text = 'One `a`. Two\nthree.\n\n- Four [five](six)\n- Six\n\n    x\n\n```sh\nx\n```\n|x|\n\nTen'
    assert prose_of(text) == ['One Code. Two three.', '- Four five', '- Six', 'Ten']


def test_the_version_is_the_same_everywhere():
    (version,) = re.findall(r"^    version='(.+)',$", (ROOT / 'setup.py').read_text('utf-8'), re.M)
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text('utf-8'))
    assert citation['version'] == version
    assert f'bert_secrets_jax-{version}-py3-none-any.whl' in (ROOT / 'README.md').read_text('utf-8')
    # What is to be released next has no version yet.
    releases = re.findall(r'^## (\d.*)$', (ROOT / 'CHANGELOG.md').read_text('utf-8'), re.M)
    assert releases[0] == f'{version} - {citation["date-released"]}'


def test_generated_tables_are_of_today():
    glossary = runpy.run_path(str(DOCS / 'glossary.py'))
    text = glossary['PAGE'].read_text('utf-8')
    assert glossary['page'](text) == text, 'Run: python docs/glossary.py'
    for name, make in runpy.run_path(str(DOCS / 'reference.py'))['PAGES'].items():
        page = (DOCS / 'reference' / name).read_text('utf-8')
        assert page == make(), 'Run: python docs/reference.py'


def headings_of(path):
    headings = re.findall(r'^#+ (.*)$', path.read_text('utf-8'), re.M)
    plain = [re.sub(r'[^\w\- ]', '', heading).strip().lower() for heading in headings]
    return {heading.replace(' ', '-') for heading in plain}


@pytest.mark.parametrize('path', DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path):
    for target in re.findall(r'\]\(([^)\s]+)\)', path.read_text('utf-8')):
        file, _, heading = target.partition('#')
        if file.startswith('https:'):
            continue
        linked = path.parent / file if file else path
        assert linked.exists(), target
        assert not heading or heading in headings_of(linked), target


def test_every_family_is_named():
    assert all(f'`{name}`' in (DOCS / 'families.md').read_text('utf-8') for name in FAMILIES)


def test_every_page_and_picture_is_used():
    site = (ROOT / 'mkdocs.yml').read_text('utf-8')
    for page in DOCS.rglob('*.md'):
        assert str(page.relative_to(DOCS)) in site, page
    shown = ''.join(path.read_text('utf-8') for path in DOCUMENTS)
    for picture in DOCS.rglob('*.png'):
        assert picture.name in shown, picture


def test_the_picture_of_the_first_screen_has_todays_look():
    """What it says is compared with a quickstart in `tests/experiments/test_commands.py`."""
    made = runpy.run_path(str(DOCS / 'pictures.py'))
    with Image.open(made['PICTURE']) as picture:
        assert picture.text['look'] == made['look'](), made['__doc__']


@pytest.mark.parametrize('path', DOCUMENTS, ids=name_of)
def test_settings_programs_and_names_exist(path):
    text = path.read_text('utf-8')
    settings = flatten_dict(base.get_config().to_dict(), sep='.')
    for name in re.findall(r'--config\.([\w.]*\w)', text) + re.findall(r'--set "?([\w.]+)=', text):
        # `--config.train.*` stands for all settings of a group.
        assert name in settings or any(each.startswith(f'{name}.') for each in settings), name
    for folder, name in re.findall(r'python -m (experiments|benchmarks)\.([a-z]\w*)', text):
        assert (ROOT / folder / f'{name}.py').exists(), name
    for name in re.findall(r'\bbs((?:\.[A-Za-z_]\w*)+)', text):
        value = bs
        for part in name[1:].split('.'):
            value = getattr(value, part)


def commands_of(path):
    """Return the arguments of each `bert-secrets` of a document's blocks."""
    indented = re.findall(r'^    bert-secrets [^\\\n]*$', path.read_text('utf-8'), re.M)
    code = '\n'.join([*blocks_of(path, 'bash'), *indented]).replace('\\\n', ' ')
    lines = re.findall(r'bert-secrets ((?:"[^"\n]*"|[^"\n&])*)', code.replace('$id', '0'))
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize('path', PAGES, ids=name_of)
def test_commands_are_understood(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    ran = []
    monkeypatch.setattr(cli, 'run', lambda *given, **processes: ran.append(given))
    monkeypatch.setattr(conversation, 'compare', lambda *given: ran.append(given))
    monkeypatch.setattr(cli, 'run_folders', list)
    commands = commands_of(path)
    for arguments in commands:
        cli.main(arguments)
    assert len(ran) == len(commands)
    assert commands or path.name != 'README.md'


def write_files(folder):
    """Write the files that documents name, of words that the tiny model knows."""
    texts = [a for a, _ in PAIRS] * 4
    rows = ''.join(f'"{text}",{("no", "yes")[n % 2]}\n' for n, text in enumerate(texts))
    for name in ('train', 'dev', 'mine'):
        (folder / f'{name}.csv').write_text(f'sentence,verdict\n{rows}')
    with gzip.open(folder / 'corpus.txt.gz', 'wt') as file:
        file.write('\n'.join(texts))
    words = [('the', 'DET', 2, 'det'), ('cat', 'NOUN', 3, 'nsubj'), ('saw', 'VERB', 0, 'root')]
    words += [('a', 'DET', 5, 'det'), ('dog', 'NOUN', 3, 'obj')]
    rows = [
        f'{n}\t{w}\t{w}\t{t}\t_\t_\t{to}\t{r}\t_\t_\n' for n, (w, t, to, r) in enumerate(words, 1)
    ]
    for name in ('train', 'dev'):
        (folder / f'{name}.conllu').write_text((''.join(rows) + '\n') * 12)


@pytest.mark.parametrize('path', [each for each in HOW_TOS if blocks_of(each)], ids=name_of)
def test_how_tos_run(path, model, masked_lm, tmp_path, monkeypatch, untyped):
    """As they stand, with a tiny model and short texts."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)

    def from_pretrained(name, label_names=()):
        plain = masked_lm if name == 'bert-base-uncased' else model
        return bs.with_classifier(plain, label_names) if label_names else plain

    monkeypatch.setattr(bs, 'from_pretrained', from_pretrained)
    texts = [(a, b) for a, b in itertools.product(*zip(*PAIRS, strict=True))] * 6
    corpus = [bs.Example(a, b, n % 2) for n, (a, b) in enumerate(texts)]
    monkeypatch.setattr(bs, 'read_corpus', lambda split: corpus)
    pairs = [bs.MinimalPair(*PAIRS[n], f'{n % 2}') for n in range(len(PAIRS))] * 2
    monkeypatch.setattr(bs, 'pairs_sample', lambda: pairs)
    names = {}
    # As readers compute, who have not set it to raise.
    with jax.numpy_rank_promotion('allow'):
        for block in blocks_of(path):
            exec(compile(block, path.name, 'exec'), names)


def tasks_of(cells):
    """Return the kinds of outputs of the cells of code, by the number of their task."""
    tasks, number = {}, 0
    for cell in cells:
        if heading := re.match(r'## (\d+)\. ', ''.join(cell['source'])):
            tasks[number := int(heading[1])] = set()
        for output in cell.get('outputs', []):
            assert output['output_type'] != 'error'
            tasks[number] |= output.get('data', {}).keys()
    return tasks


def test_the_notebook_is_short_and_shows_pictures():
    shown = tasks_of(CELLS)
    assert list(shown) == list(range(1, 13))
    assert all('image/png' in shown[task] for task in PICTURES)
    for cell in CELLS:
        lines = [line for line in ''.join(cell['source']).splitlines() if line.strip()]
        if cell['cell_type'] == 'code':
            assert len(lines) <= 5 and max(map(len, lines)) <= 120, lines
            assert not any(
                re.match(r'from |import (?!bert_secrets_jax as bs)', each) for each in lines
            )
        for output in cell.get('outputs', []):
            data = output.get('data', {})
            # In Base64, 60 kB.
            assert len(''.join(data.get('image/png', ''))) <= 80_000
            assert '<script' not in ''.join(data.get('text/html', ''))


def test_shuffled_labels_and_who_agrees():
    names = runpy.run_path(str(DOCS / 'shuffled_labels.py'))
    examples = [bs.Example(f'text {index}', label=index % 2) for index in range(40)]
    found = [names['shuffled'](examples, seed) for seed in (3, 4)]
    own, *others = ([each.label for each in some] for some in (examples, *found))
    assert others[0] != others[1] and all(each != own and sum(each) == 20 for each in others)
    assert [each.text_a for each in found[0]] == [each.text_a for each in examples]
    changes = [(1, 2, -1), (4, 8, -4), (9, 18, -9)]
    rows = [
        ('answers', f'L1-H{head}', seed, change)
        for head, of_head in enumerate(changes)
        for seed, change in enumerate(of_head)
    ]
    by_seed = pandas.DataFrame(rows, columns=['outcome', 'disabled', 'seed', 'change'])
    correlations = names['correlations'](by_seed, 'answers').to_numpy()
    np.testing.assert_allclose(correlations, [[1, 1, -1], [1, 1, -1], [-1, -1, 1]])


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    pytest.importorskip('nbclient')
    notebook = runpy.run_path(str(DOCS / 'notebook.py'))['executed'](str(tmp_path))
    shown = tasks_of(notebook.cells)
    assert all('image/png' in shown[task] for task in PICTURES)
    # The explorer, and frames.
    assert all('text/html' in shown[task] for task in (2, 3, 8))
    assert {path.name for path in tmp_path.iterdir()} >= {'ablated.npz', 'my_model'}


@pytest.mark.slow
def test_the_example_runs(optimized, capsys):
    (block,), names = blocks_of(ROOT / 'README.md'), {}
    exec(compile(block, 'README.md', 'exec'), names)
    assert names['tables']['[SEP]'].mean.shape == (6, 12)
    batch, layers, heads, *_ = names['output'].attentions.shape
    assert (layers, heads) == (6, 12)
    said = capsys.readouterr().out
    assert f'({batch}, 6, 12, ' in said and 'entropy (nats)' in said
    assert bs.analyses.SpecialTokens.title in said


MISTAKES = [
    (lambda model, maps: bs.masks.single_heads(model), 'config=.* must be a bs.BertConfig: give'),
    (lambda model, maps: bs.masks.disable(model.config, [(0, 1)]),
     r'sets=.*: Each set is a list of \(layer, head\): \[\[\(0, 1\)\]\]'),
    (lambda model, maps: bs.analyses.ablation(model.bert, [bs.Example('The cat', label=0)]),
     r'tuned=Bert\(.* must be a bs.Pretrained or a bs.Finetuned.'),
    (lambda model, maps: bs.analyses.claims(maps),
     'TokenMaps is not a result: give what functions of `bs.analyses` return.'),
    (lambda model, maps: bs.Explorer([maps]), 'An explorer takes maps by the name of their mod'),
    (lambda model, maps: bs.Explorer({'it': maps}), 'An explorer takes a list of maps for each'),
    (lambda model, maps: bs.to_bertviz([maps]), r'maps=.* must be a bs\.TokenMaps: bertviz shows'),
    (lambda model, maps: bs.annotate(['a'], pipeline='a' * 5000),
     r"The spaCy pipeline 'a{79}\.\.\.a{19}' is not installed"),
    (lambda model, maps: bs.plots.head_maps({'L1-H1': maps.attentions}, maps.tokens),
     r"The map 'L1-H1' must be .* = \[2, 2\], got \[1, 1, 2, 2\]"),
]  # fmt: skip


@pytest.mark.parametrize(('wrong', 'message'), MISTAKES)
def test_mistakes_in_python_are_named(pretrained, untyped, wrong, message):
    maps = bs.TokenMaps(['a', 'b'], np.full((1, 1, 2, 2), 0.5))
    with pytest.raises((TypeError, ValueError), match=f'^{message}'):
        wrong(pretrained, maps)
