"""Writes the table of statistics in docs/reference/glossary.md from the catalogue.

python docs/glossary.py
"""

import pathlib

from bert_secrets_jax.measure.catalogue import CATALOGUE, Described

PAGE = pathlib.Path(__file__).parent / 'reference' / 'glossary.md'
BEGIN = '<!-- The table is made by docs/glossary.py: change the catalogue, not the table. -->\n'
_FROM_CLS = 'from [CLS] to '
END = '<!-- The end of the table. -->\n'


def table() -> str:
    """Return the table of all statistics in the paper's reading, in Markdown.

    Those of [CLS] alone repeat the others, and the page says so.
    """
    head = '| name | what it measures | source |\n|---|---|---|\n'
    shown = [each for each in CATALOGUE.values() if each.reading == 'paper']
    return head + ''.join(_row(each) for each in shown if not each.name.startswith(_FROM_CLS))


def page(former: str) -> str:
    """Return the page with the table of today.

    Args:
      former: The text of the page, with a table between `BEGIN` and `END`.
    """
    before, _, rest = former.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f'{before}{BEGIN}\n{table()}\n{END}{after}'


def _row(statistic: Described) -> str:
    source = statistic.source.replace(' et al. 2019, section', '')
    return f'| `{statistic.name}` | {statistic.title} | {source} |\n'


if __name__ == '__main__':
    PAGE.write_text(page(PAGE.read_text('utf-8')), 'utf-8')
