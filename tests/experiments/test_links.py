"""Links and random links on their way through a file."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.data.annotation import Annotation, Link, Span
from bert_secrets_jax.data.encoding import bucket, mark, tokenize
from bert_secrets_jax.files import read_arrays, write_arrays
from experiments import features, links


def test_directions_have_their_own_titles():
    assert links.directions(['verb-subject', 'path']) == {
        'verb to subject': ('verb-subject', False),
        'subject to verb': ('verb-subject', True),
        'path to target': ('path', False),
        'target to path': ('path', True),
    }
    with pytest.raises(ValueError, match="'a-b' and 'b-a' both say 'b to a'"):
        links.directions(['a-b', 'b-a'])


def test_tests_come_back_from_the_file(bert, params, tokenizer, tmp_path):
    """One relation with links, whatever its name, and one without any."""
    text = 'the cat saw a big red house and it ran .'
    examples = [bs.Example(text, None, None, f'own/{row}') for row in range(3)]
    link = Link((Span(*_at(text, 'it')),), (Span(*_at(text, 'cat')),))
    annotations = [Annotation({}, {'file': (link,), 'nothing-here': ()})] * 3
    encoded = mark(tokenize(tokenizer, examples, max_length=32), annotations)
    relations = ['file', 'nothing-here']
    kinds = (links.MOVED, links.ELSEWHERE)
    random, nulls = links.with_random(encoded, relations, kinds, draws=99, seed=0)
    statistics = {
        (title,): bs.statistics.attention_of_links(relation, reverse=reverse)
        for title, (relation, reverse) in links.directions(relations).items()
    }
    measured = bs.collect(bert, params, bucket(random, max_length=32), statistics | nulls)
    links.write(tmp_path / 'links.npz', encoded, relations, measured)
    tables = {name: measured[name,] for (name,) in statistics}
    found = links.read(tmp_path / 'links.npz', tables)
    assert list(found) == ['file to target', 'target to file']
    forward, backward = found.values()
    # "it" is the ninth word, "cat" the second; [CLS] stands before them.
    assert forward.links[0].tolist() == [[9, 2, 0]] and backward.links[0].tolist() == [[2, 9, 0]]
    # Eleven wordpieces, of which the link spans eight: it fits at four places.
    assert forward.places == 4
    assert set(forward.nulls) == set(kinds) and forward.real.shape == (3, 4)
    links.write_heads(tmp_path / 'heads.csv', found)
    assert len((tmp_path / 'heads.csv').read_text().splitlines()) == 1 + 2 * 3 * 4
    former = read_arrays(tmp_path / 'links.npz')
    write_arrays(
        tmp_path / 'links.npz',
        {name: values for name, values in former.items() if not name.startswith('excess')},
    )
    with pytest.raises(ValueError, match='links.npz is from another version: delete it'):
        links.read(tmp_path / 'links.npz', tables)


def _at(text, word):
    start = text.index(word)
    return start, start + len(word)


def test_heads_that_seem_to_change_in_few_examples_are_chance():
    """Nothing changes, three examples: heads are called significant in about 5 % of corpora."""
    rng = np.random.default_rng(0)
    errors = 0
    for _ in range(300):
        values = rng.normal(size=(3, 6, 12))
        changed = bs.HeadTable(values.mean(axis=0), values.var(axis=0, ddof=1), 3.0)
        errors += np.any(features._significant(changed) != 0)
    assert errors <= 30
    assert features._significant(bs.HeadTable(values[0], values[0], 1.0)) is None
