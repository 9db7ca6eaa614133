"""Ways to do the same, timed in turns: on a noisy machine only what ran side by side compares."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def interleaved(
    ways: Mapping[str, Callable[[], object]], *, rounds: int, warm_up: int = 0
) -> dict[str, list[float]]:
    """Return the seconds of each way in rounds in which all of them run once.

    Args:
      ways: name to function that returns when it is done.
      rounds: that count.
      warm_up: rounds before these.
    """
    seconds = {name: [] for name in ways}
    for count in range(-warm_up, rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if count >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def print_table(seconds: Mapping[str, Sequence[float]], amount: float, unit: str) -> None:
    """Print median seconds, speed and how many times as fast the first way is as each other.

    Args:
      seconds: of `interleaved`.
      amount: how many units a run of a way does.
      unit: such as 'examples'.
    """
    medians = {name: statistics.median(rounds) for name, rounds in seconds.items()}
    width = max(map(len, medians)) + 2
    ours = next(iter(medians))
    print(f'{"":{width}}{"seconds":>9}{f"{unit}/s":>12}{f"{ours} is":>10}')
    for name, median in medians.items():
        ratio = '' if name == ours else f'{median / medians[ours]:.2f}x'
        print(f'{name:{width}}{median:9.2f}{amount / median:12.1f}{ratio:>10}')
