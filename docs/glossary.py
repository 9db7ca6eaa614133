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

    Those of [CLS] alone repeat the others, and the page says so. Names that explain themselves
    share a row.
    """
    head = '| name | what it measures | source |\n|---|---|---|\n'
    kinds: dict[tuple[str, str], list[Described]] = {}
    for each in CATALOGUE.values():
        if each.reading == 'paper' and not each.name.startswith(_FROM_CLS):
            kinds.setdefault((_kind(each), each.source), []).append(each)
    return head + ''.join(_row(kind, members) for (kind, _), members in kinds.items())


def page(former: str) -> str:
    """Return the page with the table of today.

    Args:
      former: The text of the page, with a table between `BEGIN` and `END`.
    """
    before, _, rest = former.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f'{before}{BEGIN}\n{table()}\n{END}{after}'


def _kind(statistic: Described) -> str:
    if statistic.relations:
        return 'attention from the first to the second'
    named = statistic.title.replace('the ', '') == f'attention to {statistic.name}'
    return 'attention to such tokens' if statistic.features or named else statistic.title


def _row(kind: str, members: list[Described]) -> str:
    names = ', '.join(f'`{each.name}`' for each in members)
    source = members[0].source.replace(' et al. 2019, section', '')
    return f'| {names} | {kind} | {source} |\n'


if __name__ == '__main__':
    PAGE.write_text(page(PAGE.read_text('utf-8')), 'utf-8')
