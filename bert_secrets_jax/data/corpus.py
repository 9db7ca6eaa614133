"""The embedded corpora, written for this project: comments on news, and pairs of sentences.

There are 540 pairs of a piece of news and a comment.

The first sentence reports something ('The council has decided to close the old market square to
cars.'), and the second one is what somebody says or does about it. The label says whether that
person welcomes the news. Every piece of news has two rows, one after the other, in different words,
once with a glad comment and once with an unhappy one, and negation is about as frequent in both. A
small BERT learns the task from a few hundred examples.

Of 180 other pairs, 60 each are paraphrases, a sentence and its negation, and two sentences about
the same thing that say something else. Negations share most of their words, and the others few.
Apache-2.0, like the rest of the project.
"""

import pathlib

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.data.tables import read_table
from bert_secrets_jax.data.tasks import Example

LABELS = ('unwelcome', 'welcome')
KINDS = ('paraphrase', 'negation', 'same topic')


def read_corpus(split: str = 'dev') -> list[Example]:
    """Read a split of the corpus, 'train' (380 pairs) or 'dev' (160 pairs).

    Raises:
      ValueError: There is no such split.
    """
    check_name('split', split, ('train', 'dev'))
    return _read(f'comments/{split}', 'label', LABELS)


def similarity_sample() -> list[Example]:
    """Return 60 pairs of each kind: paraphrases, negations, and others on the same topic."""
    return _read('pairs/pairs', 'kind', KINDS)


def search_sample() -> tuple[dict[int, str], dict[int, str], None]:
    """Return 60 queries and 180 documents of `similarity_sample`, with that at its place relevant.

    A query is the first of two paraphrases, and documents begin with the second ones.
    """
    pairs = similarity_sample()
    queries = [each.text_a for each in pairs if not each.label]
    return dict(enumerate(queries)), dict(enumerate(each.text_b or '' for each in pairs)), None


def _read(name: str, label: str, labels: tuple[str, ...]) -> list[Example]:
    path = pathlib.Path(__file__).parent / f'{name}.tsv'
    columns = {'text_a': 'sentence1', 'text_b': 'sentence2', 'label': label}
    return read_table(path, **columns, labels=labels, name=name)
