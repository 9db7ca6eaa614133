"""All classes of input by name."""

import dataclasses

from tests.fuzz import checkpoints, mutate, pickles, results, settings, texts
from tests.fuzz.target import Target, require

_OF_FILES = (
    checkpoints.WEIGHTS, pickles.BIN, pickles.LEGACY, checkpoints.CONFIG, checkpoints.VOCAB,
    checkpoints.TOKENIZER, *texts.TABLES, texts.ANNOTATIONS, texts.FRAMES, results.KEPT,
    results.RESULT, results.OUTCOME, results.INPUTS, results.CLASSIFIER, results.LABELLED,
    results.RUN,
)  # fmt: skip


def _kinds(target: Target) -> Target:
    """Return the class of the same files, of which one is a pipe, a folder, a device and so on."""

    def oracle(folder):
        odd = [path for path in folder.rglob('*') if not path.is_dir() and not path.is_file()]
        require(not odd and not any(path.is_symlink() for path in folder.rglob('*')), odd)
        return target.oracle(folder)

    return dataclasses.replace(
        target,
        name=f'kinds/{target.name}',
        mutate=mutate.replace_kind,
        oracle=oracle if target.oracle else None,
        weight=1,
    )


TARGETS = {
    target.name: target for target in (*_OF_FILES, settings.SETTINGS, *map(_kinds, _OF_FILES))
}


def chosen(names: str) -> list[str]:
    """Return the names of the classes whose names, or folders of names, are given with commas.

    Raises:
      ValueError: There is no such class.
    """
    found = []
    for name in filter(None, names.split(',')):
        alike = [each for each in TARGETS if each == name or each.startswith(f'{name}/')]
        if not alike:
            raise ValueError(f'There is no class {name!r}; there are: {", ".join(TARGETS)}.')
        found += alike
    return found or list(TARGETS)


def schedule(names: list[str], count: int, seed: int) -> list[tuple[str, int]]:
    """Return the class and the seed of each mutant; classes take turns according to weight."""
    turns = sorted(
        ((turn + 0.5) / TARGETS[name].weight, name)
        for name in names
        for turn in range(TARGETS[name].weight)
    )
    return [(turns[place % len(turns)][1], seed + place) for place in range(count)]
