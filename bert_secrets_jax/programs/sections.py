"""The sections of a report: which a run can answer, which were asked for, and what they lack."""

from collections.abc import Sequence

from bert_secrets_jax.analyses.declaration import ANALYSES as SECTIONS
from bert_secrets_jax.configs.declared import refuse_unknown
from bert_secrets_jax.extras import require
from bert_secrets_jax.programs.sources import Given
from bert_secrets_jax.programs.study import Study

# In the place of names of sections: all but those that take hours.
ALL = 'all'


def missing(study: Study, name: str) -> str:
    """Return what a run lacks for a section, as behind "needs"; empty if it has everything."""
    return SECTIONS[name].missing(Given(study))


def applicable(study: Study) -> list[str]:
    """Return the names of the sections whose inputs the run has."""
    return [name for name in SECTIONS if not missing(study, name)]


def chosen_of(study: Study, names: Sequence[str] | None) -> tuple[list[str], dict[str, str]]:
    """Return the names of the sections that somebody asked for, and what is left out.

    ['all'] takes all with inputs but those of hours, None those that answer the paper's questions.
    Of these, sections are left out because the texts are not English, with what they need.
    """
    if names is not None and list(names) != [ALL]:
        check(study, names)
        return list(names), {}
    asked = ('always', 'all') if names else ('always',)
    needed = {name: missing(study, name) for name, e in SECTIONS.items() if e.report in asked}
    foreign = Given(study).foreign
    left = {name: lacking for name, lacking in needed.items() if foreign and foreign in lacking}
    return [name for name, lacking in needed.items() if not lacking], left


def check(study: Study, names: Sequence[str]) -> None:
    """Refuse sections that do not exist, or for which packages or something of the run lack."""
    refuse_unknown(names, SECTIONS)
    for name in names:
        require(*SECTIONS[name].packages)
        if lacking := missing(study, name):
            raise ValueError(f'{name} needs {lacking}.')
