"""Write the generated pages of the reference: `python docs/reference.py`."""

import itertools
import pathlib

from bert_secrets_jax.configs.schema import SETTINGS
from bert_secrets_jax.programs import titles

FOLDER = pathlib.Path(__file__).parent / 'reference'


def settings() -> str:
    """Return a table of settings for each group."""
    lines = [
        '# Settings\n\nGive one as `--set train.epochs=2`. In Python that is '
        "`settings={'train.epochs': 2}`, and in a clone `--config.train.epochs=2`. "
        'A row without a purpose says it by its name, or shares the row above.\n'
    ]
    groups = itertools.groupby(SETTINGS.values(), lambda each: each.name.rpartition('.')[0])
    for group, members in groups:
        lines.append(
            f'\n## {group or "other"}\n\n| setting and its default | purpose |\n|---|---|\n'
        )
        for each in members:
            default = '' if each.default is None else f'={each.default!r}'
            lines.append(f'| `{each.name}{default}` | {_cell(each.help)} |\n')
    return ''.join(lines)


def programs() -> str:
    """Return a table of programs for each group."""
    lines = [
        '# Programs\n\nRun one as `bert-secrets NAME`. In a clone, '
        '`python -m experiments.section NAME` runs a section of the report. '
        'The time is that of the quickstart on two cores. '
        'Programs with a time or "+" (not measured) are left out of reports unless you name them, '
        'or all: `--sections=all`. Those with "\\*" take hours, and have to be named. '
        'A clone also has these as `python -m experiments.NAME`: `reproduce` (a report), '
        '`compare`, `serve`, and `annotate` and `train_patterns` for the classifier of patterns.\n'
    ]
    prices = {name: each.price for name, each in titles.sections().items()}
    for group, members in {**titles.groups(), 'Everything else': titles.COMMANDS}.items():
        lines.append(f'\n## {group}\n\n| program | purpose | time |\n|---|---|---|\n')
        lines += [
            f'| `{name}` | {_cell(purpose)} | {prices.get(name, "")} |\n'
            for name, purpose in members.items()
        ]
    return ''.join(lines)


def _cell(text: str) -> str:
    return text.replace('|', r'\|').replace('[', r'\[')


PAGES = {'settings.md': settings, 'programs.md': programs}

if __name__ == '__main__':
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), 'utf-8')
