"""The sections of a report: which a run can answer, which were asked for, and what they lack."""

from collections.abc import Collection, Sequence

from bert_secrets_jax.analyses.declaration import ANALYSES as SECTIONS
from bert_secrets_jax.programs.sources import Given
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.programs.titles import refuse_unknown

# In the place of names of sections: all but those that take hours.
ALL = 'all'


def missing(study: Study, name: str) -> str:
    """Return what a run lacks for a section, as behind "needs"; empty if it has everything."""
    return SECTIONS[name].missing(Given(study))


def applicable(study: Study, asked: Collection[str] = ('always', 'all')) -> list[str]:
    """Return the names of the sections of a report whose inputs the run has."""
    return [
        name
        for name, section in SECTIONS.items()
        if section.report in asked and not missing(study, name)
    ]


def left_out(study: Study, names: Sequence[str] | None) -> dict[str, str]:
    """Return what sections need that a report lacks because its texts are not English."""
    asked = {(): ('always',), (ALL,): ('always', 'all')}.get(tuple(names or ()), ())
    chosen = [name for name, each in SECTIONS.items() if each.report in asked]
    needed, foreign = {name: missing(study, name) for name in chosen}, Given(study).foreign
    return {name: each for name, each in needed.items() if foreign and foreign in each}


def chosen_of(study: Study, names: Sequence[str] | None) -> list[str]:
    """Return the names of the sections that somebody asked for.

    ['all'] takes all with inputs but those of hours, None those that answer the paper's questions.
    """
    if names is None:
        return applicable(study, ('always',))
    if list(names) == [ALL]:
        return applicable(study)
    check(study, names)
    return list(names)


def check(study: Study, names: Sequence[str]) -> None:
    """Refuse sections that do not exist, or for which the run lacks something."""
    refuse_unknown(names, SECTIONS)
    for name in names:
        if lacking := missing(study, name):
            raise ValueError(f'{name} needs {lacking}.')
