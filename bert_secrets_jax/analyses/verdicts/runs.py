"""Verdicts on one model or on several that were fine-tuned by one recipe."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from bert_secrets_jax.analyses.verdicts.verdict import Verdict, in_all_runs
from bert_secrets_jax.measure.collect import HeadTable

Run = TypeVar('Run')
Tables = Mapping[str, HeadTable]


def named_runs(runs: Mapping[str, Run], before: Run | None = None) -> dict[str, Run]:
    """Return what was measured of each model by its name, such as 'Fine-tuned, seed 0'.

    Without fine-tuned models it is that of the model before, if there is any.
    """
    if before is not None and not runs:
        return {'The model as it is': before}
    return {f'Fine-tuned, seed {seed}': run for seed, run in runs.items()}


def on_runs(runs: Mapping[str, Run], test: Callable[[Sequence[Run]], Verdict]) -> list[Verdict]:
    """Return the verdict, if any, on all runs together, with what each of them says alone."""
    if not runs:
        return []
    alone = {name: test([run]) for name, run in runs.items()}
    together = test(list(runs.values())) if len(runs) > 1 else next(iter(alone.values()))
    return [in_all_runs(together, alone)]


def each_of(runs: Sequence[Tables], name: str) -> list[HeadTable]:
    """Return the table of a statistic in each run."""
    return [run[name] for run in runs]


def known(tables: Tables, titles: Mapping[str, str]) -> dict[str, HeadTable]:
    """Return tables, of what at least two examples have, by their titles."""
    return {
        title: tables[name]
        for name, title in titles.items()
        if name in tables and tables[name].count > 1
    }


def known_in_all(runs: Sequence[Tables], titles: Mapping[str, str]) -> dict[str, list[HeadTable]]:
    """Return the same for several models of the same texts."""
    found = [known(run, titles) for run in runs]
    return {title: [each[title] for each in found] for title in found[0]}
