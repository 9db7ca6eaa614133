"""The tables of a few runs, before and after a change that must not change a number.

    python -m tools.frozen make /tmp/before --glue_dir=../shared/data/glue
    python -m tools.frozen compare /tmp/before /tmp/after

`make` runs what is not there yet: the quickstart with all sections, three short fine-tunings on
MRPC, and the analyses that stand by name alone, as small as they can be. `compare` names each table
that is missing or new, each column that is, and each number that differs by more than 1e-6.
"""

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pandas

TOLERANCE = 1e-6
_NAMED = (
    'interactions', 'across', 'where_it_changes', 'subnetworks', 'gates',
    'direct_effects', 'patching', 'head_gating', 'minimal_pairs', 'token_pairs',
)  # fmt: skip
_TREES = 'bert_secrets_jax/data/trees'


def runs(glue_dir: str, pairs: str) -> dict[str, list[str]]:
    """Return the flags of each run, by the name of its folder."""
    mrpc = {
        'model.name': 'all-MiniLM-L6-v2', 'data.glue_dir': glue_dir, 'data.max_examples': 100,
        'train.starts': "('pretrained',)", 'train.num_seeds': 3, 'train.max_examples': 300,
        'train.epochs': 2, 'train.learning_rate': 1e-4, 'ablation.max_examples': 100,
    }  # fmt: skip
    named = {
        'train.max_examples': 64, 'train.epochs': 2, 'train.num_seeds': 2,
        'data.max_examples': 60, 'ablation.max_examples': 60, 'ablation.pairs_of': 'L1-H2,L2-H3',
        'across.files': f"('{_TREES}/train.conllu', '{_TREES}/dev.conllu')",
        'minimal_pairs.file': pairs, 'minimal_pairs.anchor': 'anchor', 'patching.max_examples': 8,
        'gates.coefficients': '0.01,0.1', 'gates.num_seeds': 2, 'subnetworks.share': 0.8,
    }  # fmt: skip
    found = {
        'quickstart': ['--config=configs/quickstart.py', '--sections=all'],
        'mrpc': ['--config=configs/paper.py:mrpc', '--sections=all', *_flags(mrpc)],
    }
    small = '--config=configs/quickstart.py:smoke'
    return found | {name: [small, f'--sections={name}', *_flags(named)] for name in _NAMED}


def _flags(settings: dict[str, object]) -> list[str]:
    return [f'--config.{name}={value}' for name, value in settings.items()]


def make(folder: pathlib.Path, glue_dir: str) -> list[str]:
    """Make each run that is not there yet, and return the names of those that failed."""
    failed = []
    folder.mkdir(parents=True, exist_ok=True)
    pairs = folder / 'pairs.csv'
    rows = [
        (f'The {a} sees a {b}.', f'The {a} sees the {b} now.', f'A {b} is in no {a}.', kind)
        for kind, a, b in zip('xxyy' * 3, 'cat dog bird cow sheep fox'.split() * 2,
                              'house tree road field'.split() * 3, strict=True)
    ]  # fmt: skip
    columns = ('anchor', 'good', 'bad', 'phenomenon')
    pandas.DataFrame(rows, columns=columns).to_csv(pairs, index=False)
    for name, flags in runs(glue_dir, str(pairs)).items():
        print(name, flush=True)
        program = [sys.executable, '-m', 'experiments.reproduce', *flags]
        done = subprocess.run(
            [*program, f'--workdir={folder / name}'], stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            failed.append(name)
            print(f'{name} failed:\n{done.stderr[-2000:]}', flush=True)
    return failed


def differences(before: pathlib.Path, after: pathlib.Path) -> Iterator[str]:
    """Yield a line for each table, column or number that differs."""
    tables = [
        {path.relative_to(each): path for path in each.rglob('*.csv')} for each in (before, after)
    ]
    for name in sorted({*tables[0], *tables[1]}):
        if 'finetune' in name.parts:
            continue
        if name not in tables[0] or name not in tables[1]:
            yield f'{name}: {"new" if name in tables[1] else "missing"}'
            continue
        old, new = (pandas.read_csv(each[name]) for each in tables)
        if [*old] != [*new]:
            gone, more = (
                [*old.columns.difference(new.columns)],
                [*new.columns.difference(old.columns)],
            )
            yield f'{name}: columns gone {gone}, new {more}'
        if len(old) != len(new):
            yield f'{name}: {len(old)} rows, now {len(new)}'
            continue
        for column in old.columns.intersection(new.columns, sort=False):
            yield from _in_column(f'{name}, {column}', old[column], new[column])


def _in_column(name: str, old: pandas.Series, new: pandas.Series) -> Iterator[str]:
    if all(pandas.api.types.is_numeric_dtype(each) for each in (old, new)):
        a, b = np.asarray(old, float), np.asarray(new, float)
        same = np.isclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        if not same.all():
            most = np.nanmax(np.abs(a - b))
            yield f'{name}: {(~same).sum()} of {len(same)} differ, by up to {most:.2g}'
    else:
        old, new = (each.fillna('').astype(str) for each in (old, new))
        other = old != new
        if other.any():
            was, now = (each[other].iloc[0] for each in (old, new))
            yield f'{name}: {other.sum()} differ, such as {was!r}, now {now!r}'


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest='command', required=True)
    making = commands.add_parser('make')
    making.add_argument('folder', type=pathlib.Path)
    making.add_argument('--glue_dir', default='../shared/data/glue')
    comparing = commands.add_parser('compare')
    comparing.add_argument('before', type=pathlib.Path)
    comparing.add_argument('after', type=pathlib.Path)
    given = parser.parse_args()
    if given.command == 'make':
        sys.exit(bool(make(given.folder, given.glue_dir)))
    found = list(differences(given.before, given.after))
    print('\n'.join(found) or 'No table differs.')
    sys.exit(bool(found))


if __name__ == '__main__':
    main()
