"""How much fine-tuning changes each head's attention (the paper, section 4.3, Figure 5).

    python -m experiments.attention_change --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax import paper
from bert_secrets_jax.progress import progress
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import finetune, heads
from experiments.study import Study, launch

READINGS = ('paper', 'notebook')


def measure(study: Study, reading: str) -> list[bs.HeadTable]:
    """Return the similarity of each seed's fine-tuned model to the pre-trained one."""
    if reading not in READINGS:
        raise ValueError(f'change.readings are {", ".join(READINGS)}, not {reading!r}.')
    found = []
    for seed in finetune.seeds(study):
        measured = heads.measure_change if reading == 'paper' else _measure_padded
        found.append(measured(study, seed)['cosine'])
    return found


def _measure_padded(study: Study, seed: int) -> dict[str, bs.HeadTable]:
    """The notebook pads every example to 200 wordpieces and compares the padding too."""
    file = study.workdir / f'heads_seed{seed}_padded.csv'
    if not file.exists():
        finetune.run(study, 'pretrained')
        before, after = study.pretrained, finetune.load(study, 'pretrained', seed)
        batches = study.encode(study.examples, max_length=200, buckets=())
        measured = bs.compare(
            (before.bert, before.params),
            (after.bert, after.params),
            progress(batches, f'Change (padded, seed {seed})', size=lambda batch: batch.size),
            {'cosine': bs.statistics.cosine_padded},
            mesh=study.mesh,
        )
        tables.write_heads(file, measured)
    return tables.read_heads(file, ['cosine'])


def section(study: Study) -> Section:
    """Measure what is not measured yet, and return the section of the report."""
    grids = {
        reading: np.mean([table.mean for table in measure(study, reading)], axis=0)
        for reading in study.config.change.readings
    }
    published = None
    if study.glue_task:
        published = np.array(paper.published()['fig5_cosine'][study.glue_task.title])
    profiles = {f'reading: {name}': grid for name, grid in grids.items()}
    save = lambda figure, name: figures.save(figure, study.workdir / 'figures', name)
    # Most heads change little: from 0, all of these would be of one colour.
    lowest = np.floor(10 * min(grid.min() for grid in grids.values())) / 10
    blocks = [
        Picture(
            save(
                figures.head_grids(profiles, label='cosine similarity', limits=(lowest, 1)),
                'attention_change',
            ),
            'Cosine similarity of the maps before and after fine-tuning (Figure 5): low is much '
            'changed. Mean over examples and seeds.',
        ),
        Picture(
            save(
                figures.layer_profiles(
                    profiles,
                    label='cosine similarity',
                    published={} if published is None else dict.fromkeys(profiles, published),
                    published_name='paper: BERT-base',
                ),
                'attention_change_by_layer',
            ),
            'The same by layer: mean over heads, and the range of the heads.',
        ),
        _layer_table(grids, published),
    ]
    return Section('What fine-tuning changes in attention', _words(grids, published), blocks)


def _words(grids, published) -> list[str]:
    sentences = []
    for reading, grid in grids.items():
        layers = grid.mean(axis=1)
        order = np.argsort(layers)
        text = f'Reading "{reading}": layer {order[0] + 1} changes most'
        if len(layers) > 1:
            last_two = set(order[:2]) == {len(layers) - 2, len(layers) - 1}
            text = (
                f'Reading "{reading}": layers {order[0] + 1} and {order[1] + 1} change most '
                f'(similarity {layers[order[0]]:.2f} and {layers[order[1]]:.2f}). In the paper the '
                f'last two do, for all tasks but QQP; {"here too" if last_two else "not so here"}'
            )
        text += '.'
        sentences.append(f'{text} {paper.rank_correlation(grid, published)}'.strip())
    if published is not None:
        sentences.append('The published figure was made by the reading "notebook".')
    return sentences


def _layer_table(grids, published) -> Table:
    columns = {f'reading: {name}': grid for name, grid in grids.items()}
    if published is not None and len(published) == len(next(iter(grids.values()))):
        columns['paper (notebook)'] = published
    rows = [
        (layer + 1, *(f'{grid[layer].mean():.3f}' for grid in columns.values()))
        for layer in range(len(next(iter(grids.values()))))
    ]
    return Table('Mean over the heads of a layer.', ('layer', *columns), rows)


if __name__ == '__main__':
    launch(section)
