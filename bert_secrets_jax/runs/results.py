"""The CSV files of a run as pandas frames."""

import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas


def read_results(workdir: str | pathlib.Path) -> 'dict[str, pandas.DataFrame]':
    """Read all tables of a run as pandas frames.

        results = bs.read_results('results/quickstart')
        sep = results['special_tokens_heads'].query('statistic == "[SEP]"')
        sep.pivot(index='layer', columns='head', values='mean')

    Args:
      workdir: The folder of a run, or a folder of several runs, such as one for each of several
        tasks. The frames of several runs begin with a column `run`, the name of the folder of the
        run.

    Returns:
      A dictionary from names of CSV files, such as 'ablation_heads' or 'findings/ablation', to
      frames.

    Raises:
      FileNotFoundError: There is no run.
    """
    import pandas

    workdir = pathlib.Path(workdir)

    def read(files):
        return {
            file.relative_to(workdir).with_suffix('').as_posix(): pandas.read_csv(file)
            for file in sorted(files)
        }

    if (workdir / 'config.json').exists():
        return read(workdir.rglob('*.csv'))
    runs = sorted(path.parent for path in workdir.glob('*/config.json'))
    if not runs:
        raise FileNotFoundError(
            f'{workdir} is not the folder of a run, nor a folder of some: no config.json there.'
        )
    parts = {}
    for run in runs:
        for name, frame in read_results(run).items():
            frame.insert(0, 'run', run.name)
            parts.setdefault(name, []).append(frame)
    joined = {name: pandas.concat(frames, ignore_index=True) for name, frames in parts.items()}
    return joined | read(workdir.glob('*.csv'))
