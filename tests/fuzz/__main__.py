"""Fuzzes everything that the package reads: `python -m tests.fuzz --help`."""

import argparse
import contextlib
import csv
import pathlib
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.fuzz import catalogue, pool
from tests.fuzz.worker import BAD, OUTCOMES, Verdict


def table(verdicts: Sequence[Verdict]) -> list[list]:
    """Return the rows of a table: class, number of mutants, and how many had each outcome."""
    counts = Counter((verdict.target, verdict.outcome) for verdict in verdicts)
    names = [name for name in catalogue.TARGETS if any(name == each for each, _ in counts)]
    rows = [[name, *(counts[name, outcome] for outcome in OUTCOMES)] for name in names]
    rows.append(['all', *(sum(column) for column in list(zip(*rows, strict=True))[1:])])
    return [['class', 'mutants', *OUTCOMES], *([row[0], sum(row[1:]), *row[1:]] for row in rows)]


def listing(verdicts: Sequence[Verdict]) -> str:
    """Return a paragraph for each distinct failure, the worst ones first, with what repeats it."""
    groups: dict[tuple, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.outcome in BAD:
            groups.setdefault(verdict.signature, []).append(verdict)
    ordered = sorted(groups.values(), key=lambda group: (BAD.index(group[0].outcome), -len(group)))
    parts = []
    for group in ordered:
        first = min(group, key=lambda verdict: verdict.seed)
        times = f' ({len(group)} times)' if len(group) > 1 else ''
        parts.append(
            f'{first.outcome}: --repeat={first.target}:{first.seed}{times}\n'
            f'    {first.damage}\n    {first.detail}'
            + (f'\n    at {first.place}' if first.place else '')
        )
    # Hostile texts stand in messages; a terminal should not see half of a surrogate pair.
    return '\n'.join(parts).encode('utf-8', 'backslashreplace').decode()


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz, print what came of it, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog='python -m tests.fuzz', description=__doc__)
    parser.add_argument('--count', type=int, default=20_000, help='mutants (default: 20000)')
    parser.add_argument('--seed', type=int, default=0, help='seed of the first mutant')
    parser.add_argument('--only', default='', help='classes, with commas between them; kinds: '
                        'all that put a pipe, a device and so on in place of a file')  # fmt: skip
    parser.add_argument('--jobs', type=int, default=2, help='processes (default: 2)')
    parser.add_argument('--limit', type=float, default=10, help='seconds for one mutant')
    parser.add_argument('--out', help='a CSV for the table')
    parser.add_argument('--keep', help='a folder for the files of mutants that fail')
    parser.add_argument('--repeat', help='one mutant again, such as config:1234')
    arguments = parser.parse_args(argv)
    if arguments.repeat:
        name, _, seed = arguments.repeat.rpartition(':')
        jobs = [(name, int(seed))]
    else:
        names = catalogue.chosen(arguments.only)
        jobs = catalogue.schedule(names, arguments.count, arguments.seed)
    keep = str(pathlib.Path(arguments.keep).resolve()) if arguments.keep else None
    verdicts, start, said = [], time.monotonic(), time.monotonic()
    # Ctrl-C shows what was found until then.
    with contextlib.suppress(KeyboardInterrupt):
        for verdict in pool.run(
            jobs,
            workers=arguments.jobs,
            limit=arguments.limit,
            keep=keep,
            keep_good=bool(arguments.repeat),
        ):
            verdicts.append(verdict)
            if time.monotonic() - said > 10:
                said = time.monotonic()
                failed = sum(each.outcome in BAD for each in verdicts)
                speed = len(verdicts) / (said - start)
                print(f'{len(verdicts)} of {len(jobs)}, {failed} failed, {speed:.0f}/s', flush=True)
    import bert_secrets_jax

    print(f'\nof {bert_secrets_jax.__file__}\n')
    if arguments.repeat:
        print('\n'.join(f'{name}: {value}' for name, value in vars(verdicts[0]).items()))
        return int(verdicts[0].outcome in BAD)
    rows = table(verdicts)
    for row in rows:
        print(f'{row[0]:<18}' + ''.join(f'{cell or ".":>11}' for cell in row[1:]))
    if arguments.out:
        with open(arguments.out, 'w', newline='') as file:
            csv.writer(file).writerows(rows)
    failures = listing(verdicts)
    print(f'\n{failures}' if failures else '\nNothing failed.')
    return int(bool(failures))


if __name__ == '__main__':
    sys.exit(main())
