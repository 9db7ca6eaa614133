"""What two heads do together beyond what each does alone.

    python -m experiments.interactions --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

sweeps all pairs of heads, or those of `--config.ablation.pairs_of=L1-H2,L7-H6,...`, of the model
that `experiments.ablate` ablates. The interaction of heads a and b is effect(a, b) - effect(a) -
effect(b), and 0 where they are independent. In the score it is negative where one head can stand in
for the other (each alone does little, both together do much) and positive where their damages
overlap; in the loss the signs are the other way round. The loss has a value per example, so that
its interactions are tested: each alone, and corrected for all pairs.
"""

import itertools

import jax.numpy as jnp
import numpy as np
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.significance import (
    benjamini_hochberg,
    sign_flip_test,
    weighted_scores,
)
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.finetune.train import loss_per_example
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import ablate
from experiments.study import Study, launch


def interactions(effects: np.ndarray, count: int) -> np.ndarray:
    """Return effect(a, b) - effect(a) - effect(b) of each pair, [pairs, ...].

    Args:
      effects: [heads + pairs, ...] of each head alone and of each pair, in the order of
        `itertools.combinations`, all relative to the intact model.
      count: number of heads.
    """
    first, second = np.array(list(itertools.combinations(range(count), 2))).T
    return effects[count:] - effects[first] - effects[second]


def _masks(config: bs.BertConfig, wanted: str) -> np.ndarray:
    """Return the masks of each head alone, then of each pair."""
    heads = bs.masks.all_heads(config)
    if wanted != 'all':
        heads = sorted(set(bs.masks.parse_heads(wanted)))
    alone = bs.masks.disable(config, [[head] for head in heads])
    return np.concatenate([alone, bs.masks.pairs(config, heads)])


def section(study: Study) -> Section:
    """Sweep the pairs that are not swept yet; write figure and CSV."""
    wanted = study.config.ablation.pairs_of
    swept = ablate.sweep(study, 'pairs', lambda config: _masks(config, wanted), heads=wanted)
    names = [bs.masks.describe(mask) for mask in swept.masks[1:] if (mask == 0).sum() == 1]
    pairs = list(itertools.combinations(range(len(names)), 2))
    metric = ablate.metrics(study, swept)[0]
    everything = np.ones((1, len(swept.labels)))
    scores = 100 * weighted_scores(metric, swept.predictions, swept.labels, everything)[0]
    losses = [loss_per_example(jnp.asarray(of_mask), swept.labels) for of_mask in swept.logits]
    losses = np.array(losses, np.float64)  # [K, E]
    effects = scores[1:] - scores[0]
    points = interactions(effects, len(names))
    nats = interactions(losses[1:] - losses[0], len(names))  # [pairs, E]
    p_values, corrected = sign_flip_test(nats, seed=study.config.seed)
    count = nats.shape[1]
    half = nats.std(axis=1, ddof=1) / np.sqrt(count) * scipy.stats.t.ppf(0.975, count - 1)
    nats = nats.mean(axis=1)
    rows = [
        (names[a], names[b], effects[a], effects[b], *of_pair)
        for (a, b), *of_pair in zip(
            pairs, points, nats, nats - half, nats + half, p_values, corrected,
            benjamini_hochberg(p_values), strict=True,
        )
    ]  # fmt: skip
    tables.write_csv(
        study.workdir / 'interactions.csv',
        ('head_a', 'head_b', f'effect_a_{metric}', f'effect_b_{metric}', f'interaction_{metric}',
         'interaction_loss', 'low', 'high', 'p_value', 'familywise', 'benjamini_hochberg'),
        rows,
    )  # fmt: skip
    real = corrected <= 0.05
    likely = benjamini_hochberg(p_values) <= 0.05
    text = (
        f'{len(pairs):,} pairs of {len(names)} heads, {count:,} examples. In the loss, '
        f'{real.sum()} pairs interact significantly after correction for all pairs '
        f'({(nats[real] > 0).sum()} lose more together than the sum of both, '
        f'{(nats[real] < 0).sum()} less); {likely.sum()} by Benjamini-Hochberg.'
    )
    unit = 'squared error' if swept.logits.shape[-1] == 1 else 'nats'
    figure = figures.interaction_matrix(
        {
            f'{TITLES[metric]} (points)': _matrix(points, pairs),
            f'loss ({unit})': _matrix(nats, pairs),
        },
        names,
        label='effect beyond the sum of two',
    )
    shown = [
        (f'{a} and {b}', f'{points:+.2f}', f'{loss:+.4f}', f'{low:+.4f} to {high:+.4f}',
         f'{p:.2g}', f'{familywise:.2g}')
        for a, b, _, _, points, loss, low, high, p, familywise, _ in (
            rows[index] for index in np.argsort(p_values, kind='stable')[:10]
        )
    ]  # fmt: skip
    return Section(
        'Interactions of heads',
        [text],
        [
            Picture(
                figures.save(figure, study.workdir / 'figures', 'interactions'),
                'effect(a, b) - effect(a) - effect(b) of disabling heads a and b.',
            ),
            Table(
                'The ten pairs with the smallest p-values.',
                ('pair', TITLES[metric], f'loss ({unit})', '95 % interval', 'p', 'p (corrected)'),
                shown,
            ),
        ],
    )


def _matrix(values: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return the symmetric matrix [heads, heads]; NaN on its diagonal."""
    first, second = np.array(pairs).T
    matrix = np.full((second.max() + 1,) * 2, np.nan)
    matrix[first, second] = matrix[second, first] = values
    return matrix


if __name__ == '__main__':
    launch(section)
