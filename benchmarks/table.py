"""Results as tables: as text while they come, and as the tables of docs/reference/speed.md.

    python -m benchmarks.table

writes the tables between their two marker lines, from the files in `benchmarks/results/`.
"""

import collections
import dataclasses
import pathlib
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.timing import PEAK
from bert_secrets_jax.files import read_json, read_text, write_json, write_text

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / 'benchmarks' / 'results'
DOCUMENT = ROOT / 'docs' / 'reference' / 'speed.md'
BEGIN, END = '<!-- python -m benchmarks.table -->', '<!-- end of the table -->'


@dataclasses.dataclass(frozen=True)
class Ratio:
    """How many times as long one way takes as another: the median over rounds, and their range."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f'{self.median:.2f} ({self.low:.2f} to {self.high:.2f})'


def ways(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the ways of a result by name, ours first."""
    return {way['name']: way for way in result['ways']}


def ratio(result: Mapping[str, Any], way: str, other: str) -> Ratio:
    """Return how many times as long a way takes as another one, in the same rounds.

    Args:
      result: The result of `timing.measured`.
      way: The name of the way that is above the line.
      other: The name of the one below it.
    """
    rounds = np.divide(*(ways(result)[name]['seconds'] for name in (way, other)))
    return Ratio(float(np.median(rounds)), float(rounds.min()), float(rounds.max()))


def median_seconds(result: Mapping[str, Any], way: str) -> float:
    """Return the seconds of a way at its median round."""
    return statistics.median(ways(result)[way]['seconds'])


def tflops(result: Mapping[str, Any], way: str) -> float | None:
    """Return the operations per second, None where they are not counted."""
    operations = ways(result)[way]['operations']
    return operations and 2e-12 * operations / median_seconds(result, way)


def share_of_peak(result: Mapping[str, Any], way: str) -> float | None:
    """Return the operations per second, divided by those of a large product in the same run."""
    mine = tflops(result, way)
    return mine and mine / tflops(result, PEAK)


def fastest_peer(result: Mapping[str, Any]) -> str | None:
    """Return the name of the fastest way that a user would take instead of ours."""
    peers = [name for name, way in ways(result).items() if way['peer']]
    return min(peers, key=lambda name: median_seconds(result, name), default=None)


def slopes(result: Mapping[str, Any]) -> tuple[float, float]:
    """Return the slopes of time and of operations over sizes, on logarithmic scales."""
    sizes = result['told']['sizes']
    seconds = [median_seconds(result, str(size)) for size in sizes]
    operations = [ways(result)[str(size)]['operations'] for size in sizes]
    by = [np.polyfit(np.log(sizes), np.log(each), 1)[0] for each in (seconds, operations)]
    return float(by[0]), float(by[1])


def as_text(result: Mapping[str, Any]) -> str:
    """Return a result as a table for a terminal."""
    lines = [
        f'\n{result["question"]}: {result["model"]}, {result["about"]}; {result["device"]}, '
        f'load {result["load"]:.1f}'
    ]
    width = max(map(len, ways(result))) + 2
    lines.append(
        f'{"":{width}}{"seconds":>9}{result["unit"] + "/s":>20}{"ours is ... times as fast":>28}'
        f'{"Tflop/s":>9}{"of peak":>9}{"MiB":>7}{"first":>8}'
    )
    lines += [f'{name:{width}}{_cells(result, name)}' for name in ways(result)]
    lines += [f'{name}: {value}' for name, value in result['told'].items()]
    if 'sizes' in result['told']:
        time, operations = slopes(result)
        lines.append(f'slope {time:.2f}, of the operations {operations:.2f}')
    return '\n'.join(lines)


def _cells(result: Mapping[str, Any], name: str) -> str:
    """Return the numbers of one way, as columns of a terminal."""
    ours, way = next(iter(ways(result))), ways(result)[name]
    seconds = median_seconds(result, name)
    compared = name not in (ours, PEAK) and 'sizes' not in result['told']
    done, share = tflops(result, name), share_of_peak(result, name)
    speed = '' if name == PEAK else f'{result["amount"] / seconds:.1f}'
    times = str(ratio(result, name, ours)) if compared else ''
    rate, of_peak = (f'{done:.3f}', f'{share:.0%}') if done else ('', '')
    memory, first = (f'{way["MiB"]:.0f}', f'{way["first"]:.1f} s') if 'MiB' in way else ('', '')
    return f'{seconds:9.3f}{speed:>20}{times:>28}{rate:>9}{of_peak:>9}{memory:>7}{first:>8}'


def keep(result: Mapping[str, Any], folder: pathlib.Path) -> None:
    """Write a result into the file of its device and date, in place of an earlier one."""
    device = re.sub(r'\W+', '-', result['device']).strip('-').lower()
    path = folder / f'{device}-{result["date"]}.json'
    others = read_json(path) if path.exists() else []
    name = lambda each: (each['model'], each['question'])
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, [*(each for each in others if name(each) != name(result)), result])


def newest(files: Iterable[pathlib.Path]) -> list[dict[str, Any]]:
    """Return the newest result of each question, model and device, by device and model."""
    found = {}
    for result in sorted(
        (result for file in files for result in read_json(file)), key=lambda each: each['date']
    ):
        found[result['device'], result['model'], result['question']] = result
    return [found[key] for key in sorted(found, key=lambda key: key[:2])]


def as_markdown(results: Iterable[Mapping[str, Any]]) -> str:
    """Return a table for each device and date, without growth."""
    head = ('work', 'model', 'ours', 'the fastest other way takes ... times as long')
    rows = collections.defaultdict(list)
    for each in results:
        if 'sizes' not in each['told']:
            rows[f'{each["device"]}, {each["date"]}'].append(_speed(each))
    return '\n'.join(f'{place}:\n\n{markdown(head, rows[place])}' for place in rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [f'| {" | ".join(cells)} |\n' for cells in (head, *rows)]
    return ''.join([lines[0], f'|{"---|" * len(head)}\n', *lines[1:]])


def _speed(result: Mapping[str, Any]) -> list[str]:
    ours, peer = next(iter(ways(result))), fastest_peer(result)
    speed = _short(result['amount'] / median_seconds(result, ours))
    return [
        result['question'],
        result['model'],
        f'{speed} {result["unit"]}/s',
        str(ratio(result, peer, ours)) if peer else '',
    ]


def _short(number: float) -> str:
    return f'{number:,.0f}' if number >= 100 else f'{number:.3g}'


def inserted(document: str, results: Iterable[Mapping[str, Any]]) -> str:
    """Return a document with the tables between its marker lines.

    Raises:
      ValueError: It has no such lines.
    """
    return between(document, BEGIN, END, as_markdown(results))


def between(document: str, begin: str, end: str, text: str) -> str:
    """Return a document with a text between two marker lines, in the place of what is there.

    Raises:
      ValueError: It has no such lines.
    """
    before, found, rest = document.partition(begin)
    _, also, after = rest.partition(end)
    if not (found and also):
        raise ValueError(f'The document needs the lines {begin} and {end}, in this order.')
    return f'{before}{begin}\n{text}{end}{after}'


def main() -> None:
    """Write the tables into the document."""
    results = newest(sorted(RESULTS.glob('*.json')))
    write_text(DOCUMENT, inserted(read_text(DOCUMENT), results))


if __name__ == '__main__':
    main()
