"""The embedded corpus: 460 sentence pairs written for this project, labelled as paraphrases or not.

It lets every experiment run offline on something real: everyday and news-like English with
negation, questions, reported speech and passives; half of the pairs are paraphrases, and most of
the others share their words (swapped roles, other numbers, negation), so that word overlap alone
does not give the label away. Apache-2.0, like the rest of the project.
"""

from importlib import resources

from bert_secrets_jax.data.tables import read_table
from bert_secrets_jax.data.tasks import Example

LABELS = ('not_paraphrase', 'paraphrase')


def read_corpus(split: str = 'dev') -> list[Example]:
    """Read a split, 'train' (320 pairs) or 'dev' (140 pairs).

    Raises:
      ValueError: for another split.
    """
    if split not in ('train', 'dev'):
        raise ValueError(f"The embedded corpus has the splits 'train' and 'dev', not {split!r}.")
    with resources.as_file(resources.files(__package__) / 'paraphrases' / f'{split}.tsv') as path:
        return read_table(
            path,
            text_a='sentence1',
            text_b='sentence2',
            label='label',
            name=f'paraphrases/{split}',
        )
