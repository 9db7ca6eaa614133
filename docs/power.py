"""The power of the tests of a finished run: a row for each test, as a table in Markdown.

    make report REPORT='--sections=all'
    python docs/power.py --workdir=results/quickstart

A difference has an interval of 95 %, and so a standard error. The test finds a true difference of
(z of the corrected level + z of the power) standard errors with that power. A test by ranks among
random draws cannot have a p-value below 1 / (1 + draws).
"""

from collections.abc import Iterator

import numpy as np
import pandas
import scipy.stats
from absl import app, flags

import bert_secrets_jax as bs
from bert_secrets_jax.stats.student import LEVEL, POWER

_WORKDIR = flags.DEFINE_string('workdir', 'results/quickstart', 'The folder of the run.')
_HALF = scipy.stats.norm.ppf(1 - LEVEL / 2)

Frames = dict[str, pandas.DataFrame]


def found_with_power(half_width: float, tests: int) -> float:
    """Return the difference found with POWER, at Bonferroni's level, from a 95 % half-width."""
    needed = scipy.stats.norm.ppf(1 - LEVEL / 2 / tests) + scipy.stats.norm.ppf(POWER)
    return half_width / _HALF * needed


def typical(frame: pandas.DataFrame, low: str, high: str, scale: float = 1.0) -> float:
    """Return what is found of the median row, corrected for all rows with an interval."""
    half_widths = ((frame[high] - frame[low]) / 2).dropna()
    half_widths = half_widths[half_widths > 0]
    return scale * found_with_power(float(half_widths.median()), len(half_widths))


def rows_of(frames: Frames) -> Iterator[tuple[str, str, str]]:
    """Yield each test of which the run has the frames, its tests, and what it would find."""
    for name, title in (('heads', 'losing a head'), ('layers', 'losing a layer')):
        outcomes = frames.get(f'ablation_{name}_outcomes')
        if outcomes is not None:
            told = outcomes[outcomes['outcome'] == 'discrimination']
            nats = typical(told, 'low', 'high')
            yield f'{title}: telling texts apart', f'{len(told)}', f'{nats:.3f} nats'
        scores = frames.get(f'ablation_{name}')
        if scores is not None:
            first = scores[scores['metric'] == scores['metric'].iloc[0]]
            points = 100 * first['detectable'].median()
            yield f'{title}: the score', f'{len(first)}', f'{points:.1f} points'
    for name in ('relations_heads', 'frames_heads'):
        links = frames.get(name)
        if links is not None and 'detectable_excess_classes' in links:
            of_links = links.groupby('link')['detectable_excess_classes']
            size = of_links.median().dropna()
            heads = len(links) // links['link'].nunique()
            title = f'a head follows a link ({name.split("_")[0]})'
            yield (
                title,
                f'{heads}',
                f'{100 * size.min():.1f} to {100 * size.max():.1f} % of attention',
            )
    change = frames.get('attention_change_changes')
    if change is not None:
        first = change[change['unit'] == 'share of attention'].iloc[:1]
        size = 100 * typical(first, 'mean_change_low', 'mean_change_high')
        yield f'fine-tuning changes {first["statistic"].iloc[0]}', '1', f'{size:.1f} % of attention'
    patterns = frames.get('patterns')
    if patterns is not None:
        low = patterns['pretrained_corrected_low_percent']
        half = (patterns['pretrained_corrected_high_percent'] - low).median() / 2
        size = found_with_power(float(half) * np.sqrt(2), len(patterns))
        yield 'two models differ in the share of a pattern', f'{len(patterns)}', f'{size:.0f} %'
    relations = frames.get('syntax_heads_relations')
    if relations is not None:
        points = typical(relations, 'gain_low', 'gain_high', 100)
        yield 'a head beats the best offset', f'{len(relations)}', f'{points:.0f} points'
    probes = frames.get('probes_differences')
    if probes is not None:
        yield 'two probes differ', '1', f'{typical(probes.iloc[:1], "low", "high"):.1f} points'
    agreement = frames.get('importance_agreement')
    if agreement is not None:
        wide = np.ptp(np.arctanh(agreement[['low', 'high']].to_numpy()), axis=1)
        size = np.tanh(found_with_power(float(np.median(wide)) / 2, 1))
        yield 'a cheap score agrees with losing the head', '1', f'a correlation of {size:.2f}'
    methods = frames.get('attribution_methods')
    if methods is not None:
        for measure, of_measure in methods.groupby('measure', sort=False):
            tests = of_measure['low_beyond_random'].notna().sum()
            if not tests:
                continue
            size = typical(of_measure, 'low_beyond_random', 'high_beyond_random')
            yield f'an attribution method beats random: {measure}', f'{tests}', f'{size:.2f}'
    draws = frames.get('outliers_random')
    if draws is not None:
        yield 'outlier dimensions cost more than random ones', '1', least(len(draws))


def least(draws: int) -> str:
    return f'p of at least {1 / (1 + draws):.2f}'


def main(argv):
    del argv
    print('| test | tests | found with 80 % |\n|---|---|---|')
    for row in rows_of(bs.read_results(_WORKDIR.value)):
        print(f'| {" | ".join(row)} |')


if __name__ == '__main__':
    app.run(main)
