"""The programs by groups: what analyses declare, and the commands that are no section."""

import functools
from collections.abc import Collection, Mapping, Sequence

from bert_secrets_jax.brief import meant
from bert_secrets_jax.configs import declared
from bert_secrets_jax.configs.declared import Declared

# The groups, and the chapters of the page, in their order.
GROUPS = ('What heads do', 'Syntax and meaning', 'What training changed', 'What matters')
COMMANDS: Mapping[str, str] = {
    'report': 'all sections, on one HTML page',
    'compare': 'finished runs side by side: models or tasks (compare RUN RUN... --out=FOLDER)',
    'serve': 'type sentences on a local page: see the maps of all heads, or compare two',
    'settings': 'list all settings with their defaults',
}


@functools.cache
def sections() -> Mapping[str, Declared]:
    """Return the sections by names, in the order in which they run, without loading them."""
    return {each.section: each for each in declared.read()}


def groups() -> dict[str, dict[str, str]]:
    """Return the question of each section, by its group and its name."""
    found: dict[str, dict[str, str]] = {group: {} for group in GROUPS}
    for name, each in sections().items():
        found.setdefault(each.group, {})[name] = each.question
    return found


def programs() -> dict[str, str]:
    """Return the purpose of each program."""
    return {name: each.question for name, each in sections().items()} | COMMANDS


def refuse_unknown(names: Sequence[str], known: Collection[str]) -> None:
    """Refuse names that are no sections, and an empty list of them."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = f'There is no section {unknown[0]!r}.' if unknown else 'No section is named.'
        near = meant(unknown[0], known) if unknown else ''
        listed = f'Sections are {", ".join(known)}, or all.'
        raise ValueError(f'{wrong} {near or listed}')
