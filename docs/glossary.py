"""Writes the table of statistics in docs/glossary.md from the catalogue, where the facts stand.

python docs/glossary.py
"""

import math
import pathlib

from bert_secrets_jax.measure.catalogue import CATALOGUE, Described

PAGE = pathlib.Path(__file__).with_suffix('.md')
BEGIN = '<!-- The table is made by docs/glossary.py: change the catalogue, not the table. -->\n'
END = '<!-- The end of the table. -->\n'


def table() -> str:
    """Return the table of all statistics in Markdown."""
    head = '| name | what it measures | unit | range | stands out | source |\n' + 6 * '|---' + '|\n'
    return head + ''.join(map(_row, CATALOGUE.values()))


def page(former: str) -> str:
    """Return the page with the table of today.

    Args:
      former: The text of the page, with a table between `BEGIN` and `END`.
    """
    before, _, rest = former.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f'{before}{BEGIN}\n{table()}\n{END}{after}'


def _row(statistic: Described) -> str:
    stands_out = 'small' if statistic.least_first else 'large'
    cells = (
        f'`{statistic.name}`',
        statistic.title,
        statistic.unit,
        _range(*statistic.limits),
        stands_out,
        statistic.source,
    )
    return f'| {" | ".join(cells)} |\n'


def _range(least: float, greatest: float) -> str:
    if math.isinf(greatest):
        return f'{least:g} and more' if math.isfinite(least) else 'any number'
    return f'{least:g} to {greatest:g}'


if __name__ == '__main__':
    PAGE.write_text(page(PAGE.read_text('utf-8')), 'utf-8')
