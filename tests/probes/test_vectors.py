"""Files of word vectors: their formats, what is kept of them, and faults by name."""

import gzip
import lzma

import numpy as np
import pytest

from bert_secrets_jax.probes.vectors import Vectors, read_vectors

TEXT = 'the 0.5 -1 2e-1\n. . 1 2 3\ncat 1 1 1\nthe 9 9 9\nCat 4 4 4\n'


@pytest.fixture
def written(tmp_path):
    def write(text=TEXT, name='some.txt'):
        path = tmp_path / name
        data = text if isinstance(text, bytes) else text.encode()
        path.write_bytes({'.gz': gzip.compress, '.xz': lzma.compress}.get(path.suffix, bytes)(data))
        return path

    return write


@pytest.mark.parametrize('name', ['some.txt', 'some.txt.gz', 'some.txt.xz'])
@pytest.mark.parametrize('first', ['', '5 3\n'])
def test_all_formats(written, name, first):
    vectors = read_vectors(written(first + TEXT, name))
    assert vectors.words == ('the', '. .', 'cat', 'Cat') and vectors.width == 3
    # The first of two vectors of one word counts, and row 0 is that of unknown words.
    np.testing.assert_array_equal(vectors.table[:2], np.float32([[0, 0, 0], [0.5, -1, 0.2]]))
    assert vectors.table.dtype == np.float32 and len(vectors.table) == 5


def test_the_words_that_are_asked_for(written, caplog):
    asked = ['The', 'dog', 'CAT', 'cat']
    with caplog.at_level('INFO'):
        vectors = read_vectors(written(), asked)
    assert vectors.words == ('the', 'cat')
    assert vectors.rows(asked).tolist() == [1, 0, 2, 2]
    assert vectors.unknown(asked) == 0.25 and vectors.unknown([]) == 0
    assert '25.0 % of 4 words have no vector' in caplog.text


@pytest.mark.parametrize(
    'text, what',
    [
        ('the 1 2\ncat 1\n', "line 2: 'cat' has 1 numbers, not 2"),
        ('the 1 2\ncat 1 nan\n', "line 2: the vector of 'cat' is not finite"),
        (b'the 1 2\n\xff 1 2\n', "line 2: 'utf-8' codec"),
        (
            'the 1\ncat 1 2\ndog 3 4\n',
            "2 of 3 .*line 2: 'cat 1' has something else behind it than 1",
        ),
        ('the 1 2\ncat 1 1_0\n', "line 2: 'cat' has something else behind it than 2 numbers"),
        ('the 1 2\ncat 1 \uff11\n', "line 2: 'cat' has something else behind it than 2 numbers"),
        ('', 'has nothing to read'),
        ('the\n', "line 1: 'the' has no numbers behind spaces"),
    ],
)
def test_bad_lines_are_named(written, text, what):
    with pytest.raises(ValueError, match=what):
        read_vectors(written(text))


def test_bad_lines_can_be_left_out(written):
    vectors = read_vectors(written('the 1 2\ncat 1\ndog 3 4\n'), bad_rows='skip')
    assert vectors.words == ('the', 'dog')


@pytest.mark.parametrize(
    ('call', 'what'),
    [
        (lambda text, _: read_vectors(text(), ['zzz']), 'none|no vector of any of the 1 words'),
        (lambda text, _: read_vectors(text('400 2\n')), 'has nothing to read'),
        (lambda text, _: read_vectors(damaged(text(name='a.xz'))), 'is damaged, or no .xz file'),
        (lambda text, _: read_vectors(damaged(text(name='a.gz'))), 'is damaged, or no .gz file'),
        (lambda _, folder: read_vectors(folder), 'a folder'),
        (
            lambda *_: Vectors(('a', 'b'), np.zeros((2, 3), np.float32)),
            r'= \[3, any\], got \[2, 3\]: before the rows of words',
        ),
        (lambda *_: Vectors(('a',), np.ones((2, 3), np.float32)), 'must be zeros'),
    ],
)
def test_other_faults(written, tmp_path, call, what):
    with pytest.raises(ValueError, match=what):
        call(written, tmp_path)
    with pytest.raises(FileNotFoundError):
        read_vectors(tmp_path / 'none.txt')


def damaged(path):
    path.write_bytes(path.read_bytes()[:-8])
    return path
