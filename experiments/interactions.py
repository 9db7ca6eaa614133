"""What two heads do together beyond what each does alone.

    python -m experiments.interactions --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

sweeps all pairs of heads, or those of `--config.ablation.pairs_of=L1-H2,L7-H6,...`, of the model
that `experiments.ablate` ablates. The interaction of heads a and b is effect(a, b) - effect(a) -
effect(b), and 0 where they are independent. In the score it is negative where one head can stand in
for the other (each alone does little, both together do much) and positive where their damages
overlap; in the loss the signs are the other way round. There is no significance test of it yet: the
strongest of thousands of pairs is partly the luckiest.
"""

import itertools

import jax.numpy as jnp
import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.significance import weighted_scores
from bert_secrets_jax.finetune.train import loss_per_example
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section
from experiments import ablate
from experiments.study import Study, launch


def _heads(study: Study, config: bs.BertConfig) -> list[tuple[int, int]]:
    """Return the heads whose pairs are measured, 0-based."""
    wanted = study.config.ablation.pairs_of
    if wanted == 'all':
        return list(np.ndindex(config.num_hidden_layers, config.num_attention_heads))
    heads = sorted(set(bs.masks.parse_heads(wanted)))
    return heads


def _masks(study: Study, config: bs.BertConfig) -> dict[str, np.ndarray]:
    heads = _heads(study, config)
    alone = bs.masks.disable(config, [[head] for head in heads])
    return {'alone': alone, 'pairs': bs.masks.pairs(config, heads)}


def interactions(effects: np.ndarray, count: int) -> np.ndarray:
    """Return the symmetric matrix [heads, heads] of interactions; NaN on its diagonal.

    Args:
      effects: [heads + pairs] of each head alone and of each pair, in the order of
        `itertools.combinations`, all relative to the intact model.
      count: number of heads.
    """
    first, second = np.array(list(itertools.combinations(range(count), 2))).T
    matrix = np.full((count, count), np.nan)
    beyond = effects[count:] - effects[first] - effects[second]
    matrix[first, second] = matrix[second, first] = beyond
    return matrix


def section(study: Study) -> Section:
    """Sweep the pairs that are not swept yet; write figure and CSV."""
    swept = ablate.sweep(study, 'pairs', lambda config: _masks(study, config))
    labels, metric = swept.labels, study.metrics[0]
    everything = np.ones((1, len(labels)))
    scores = weighted_scores(metric, swept.predictions, labels, everything)[0]
    losses = np.array([loss_per_example(jnp.asarray(of), labels).mean() for of in swept.logits])
    alone = [tuple(np.argwhere(mask == 0)[0]) for mask in swept.of('alone').masks[1:]]
    count = len(alone)
    names = [figures.head_name(*head) for head in alone]
    points, nats = (
        interactions(values[1:] - values[0], count) for values in (100 * scores, losses)
    )
    effect = {
        name: 100 * (score - scores[0]) for name, score in zip(names, scores[1:], strict=False)
    }
    tables.write_csv(
        study.workdir / 'interactions.csv',
        ('head_a', 'head_b', f'effect_a_{metric}', f'effect_b_{metric}',
         f'interaction_{metric}', 'interaction_loss'),
        (
            (names[a], names[b], effect[names[a]], effect[names[b]], points[a, b], nats[a, b])
            for a, b in itertools.combinations(range(count), 2)
        ),
    )  # fmt: skip
    strongest = np.unravel_index(np.nanargmax(np.abs(nats)), nats.shape)
    text = (
        f'{count * (count - 1) // 2:,} pairs of {count} heads, {len(labels):,} examples. The '
        f'strongest interaction in the loss is between {names[strongest[0]]} and '
        f'{names[strongest[1]]}: {nats[strongest]:+.4f} (in the score {points[strongest]:+.2f} '
        f'points of {metric}).'
    )
    figure = figures.interaction_matrix(
        {f'{metric} (points)': points, 'loss (nats)': nats},
        names,
        label='effect beyond the sum of two',
    )
    path = figures.save(figure, study.workdir / 'figures', 'interactions')
    caption = 'effect(a, b) - effect(a) - effect(b) of disabling heads a and b.'
    return Section('Interactions of heads', [text], [Picture(path, caption)])


if __name__ == '__main__':
    launch(section)
