"""The embedded corpus: 540 pairs of a piece of news and a comment, written for this project.

The first sentence reports something ('The council has decided to close the old market square to
cars.'), and the second one is what somebody says or does about it. The label says whether that
person welcomes the news. Every piece of news has two rows, one after the other, in different words,
once with a glad comment and once with an unhappy one, and negation is about as frequent in both. A
small BERT learns the task from a few hundred examples. Apache-2.0, like the rest of the project.
"""

import pathlib

from bert_secrets_jax.brief import check_name
from bert_secrets_jax.data.tables import read_table
from bert_secrets_jax.data.tasks import Example

LABELS = ('unwelcome', 'welcome')


def read_corpus(split: str = 'dev') -> list[Example]:
    """Read a split of the corpus, 'train' (380 pairs) or 'dev' (160 pairs).

    Raises:
      ValueError: There is no such split.
    """
    check_name('split', split, ('train', 'dev'))
    return read_table(
        pathlib.Path(__file__).parent / 'comments' / f'{split}.tsv',
        text_a='sentence1',
        text_b='sentence2',
        label='label',
        labels=LABELS,
        name=f'comments/{split}',
    )
