"""Write the generated pages of the reference: `python docs/reference.py`."""

import itertools
import pathlib
import tomllib
from typing import Any

from bert_secrets_jax.configs import declared
from bert_secrets_jax.configs.schema import SETTINGS

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
    prices = {name: each.price for name, each in declared.sections().items()}
    for group, members in {**declared.groups(), 'Everything else': declared.COMMANDS}.items():
        lines.append(f'\n## {group}\n\n| program | purpose | time |\n|---|---|---|\n')
        lines += [
            f'| `{name}` | {_cell(purpose)} | {prices.get(name, "")} |\n'
            for name, purpose in members.items()
        ]
    return ''.join(lines)


def statistics() -> str:
    """Return how often each method errs, in one table, and each of its worlds."""
    found = tomllib.loads((FOLDER / 'statistics.toml').read_text('utf-8'))
    command = found.pop('command')
    worlds = [each['worlds'] for question in found.values() for each in question['cells']]
    measured = f'from {min(worlds):,} to {max(worlds):,} worlds a cell'
    lines = [ERROR_RATES.format(measured=measured, command=command)]
    head = ('question', 'method', 'correction', 'population', *KINDS, 'others')
    lines += _table(
        (*head, 'coverage', 'power'), [_summary(question) for question in found.values()]
    )
    lines.append('\n## Exceptions\n\n')
    for question in found.values():
        reasons: dict[str, list[str]] = {}
        for cell in question['cells']:
            if 'exception' in cell:
                reasons.setdefault(cell['exception'], []).append(_world(cell, question))
        lines += [
            f'- *{question["question"]}* World: {"; ".join(where)}. {reason}\n'
            for reason, where in reasons.items()
        ]
    lines.append('\n## Every world\n')
    for question in found.values():
        rows = [
            (
                *_world(cell, question).split(', of '),
                f'{cell["worlds"]:,}',
                *(_percent(cell.get(name)) for name in RATES),
            )
            for cell in question['cells']
        ]
        lines.append(f'\n**{question["question"]}** {question["source"]}.\n\n')
        lines += _table(('world', 'sample', 'worlds', *RATES.values()), rows)
    return ''.join(lines)


ERROR_RATES = """\
# Error rates

How often each method errs, in simulated worlds in which the truth is known. It stands at the
border: no effect, or one that just matters.
A false finding is one among all tests: ten heads, if the question names no number. At the other
border, an effect of the size of the margin is called small, or beyond it. Or more heads are counted
than have an effect.
Intervals promise 95 %, and what is called detectable is to be found in 80 %.

- **normal** and **skewed**: changes of texts, or of fine-tunings, are normal or exponential.
- **sparse**: so many texts carry all of a change, and the others hardly change. Of answers, so
  many change.
- **heavy**: changes have Student's t of three degrees. **lognormal**: more skewed.
- **masks are alike**: most of a change is that of all masks, and skewed.
- Of scores over fine-tunings, fine-tunings or texts **differ** more or less.

Nothing should err in more than 7.5 % of worlds, or hold in less than 92 %. [What
does](#exceptions) says why, and is marked with "\\*".
Rates are percentages. A column has the worst world of its kind, and coverage is the least of all
worlds.
Power is the least and the greatest: where few texts carry a change, a detectable one is found
less often.
Numbers are {measured}; [each](#every-world) has its own. A rate of 5 % in 1,000 worlds is known
to 1.4 points, in 100 to 4.3.

```sh
{command}
python docs/reference.py
```

"""
KINDS = ('normal', 'skewed', 'sparse, 3 %', 'sparse, 1 %')
RATES = {
    'error': 'false finding',
    'border': 'wrong at the other border',
    'beyond': 'wrongly beyond it',
    'covered': 'interval holds',
    'found': 'detectable is found',
}


def _summary(question: dict[str, Any]) -> list[str]:
    """Return a row: the greatest error in each kind of world, least coverage, range of power."""
    cells = question['cells']
    kinds = [[each for each in cells if each['world'] == kind] for kind in KINDS]
    kinds.append([each for each in cells if each['world'] not in KINDS])
    found = [each['found'] for each in cells if 'found' in each]
    power = '' if not found else f'{_percent(min(found))} to {_percent(max(found))}'
    about = (question[name] for name in ('question', 'method', 'correction', 'population'))
    return [
        *about,
        *(_worst(each, ('error', 'border', 'beyond'), max) for each in kinds),
        _worst(cells, ('covered',), min),
        power,
    ]


def _worst(cells: list[dict[str, Any]], names: tuple[str, ...], worst: Any) -> str:
    rates = [(each[name], each) for each in cells for name in names if name in each]
    if not rates:
        return ''
    rate, cell = worst(rates, key=lambda each: each[0])
    mark = ' \\*' if 'exception' in cell else ''
    return _percent(rate) + mark


def _world(cell: dict[str, Any], question: dict[str, Any]) -> str:
    return f'{cell["world"]}, of {cell["size"]:,} {question["sample_of"]}'


def _percent(rate: float | None) -> str:
    return '' if rate is None else f'{100 * rate:.1f}'


def _table(head: tuple[str, ...], rows: list[Any]) -> list[str]:
    lines = [head, ['---'] * len(head), *rows]
    return [f'| {" | ".join(map(_cell, each))} |\n' for each in lines]


def _cell(text: str) -> str:
    return text.replace('|', r'\|').replace('[', r'\[')


PAGES = {'settings.md': settings, 'programs.md': programs, 'statistics.md': statistics}

if __name__ == '__main__':
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), 'utf-8')
