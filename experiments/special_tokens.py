"""Attention to special tokens, neighbours, and its entropy (the paper, section 4.4, Figure 6).

python -m experiments.special_tokens --config=configs/quickstart.py --workdir=results/quickstart
"""

import numpy as np

from bert_secrets_jax import paper
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import heads
from experiments.study import Study, launch


def section(study: Study) -> Section:
    """Write the figures and return the section of the report."""
    every = heads.measure(study)
    measured = {name: every[name] for name in heads.SPECIAL}
    means = {name: table.mean for name, table in measured.items()}
    special = {name: means[name] for name in ('[CLS]', '[SEP]')}
    neighbours = {name: means[name] for name in ('self', 'previous token', 'next token')}
    published = paper.special_token_attention(study.glue_task.title) if study.glue_task else {}
    draw = lambda figure, name: figures.save(figure, study.workdir / 'figures', name)
    share = 'attention received (share)'
    blocks = [
        Picture(
            draw(figures.head_grids(special, label=share), 'special_tokens'),
            'Attention to [CLS] and to [SEP] by layer and head: mean over query tokens; with two '
            '[SEP] the greater one; mean over examples (Figure 6 of the paper).',
        ),
        Picture(
            draw(
                figures.layer_profiles(
                    special, label=share, published=published,
                    published_name='paper: BERT-base,\nfine-tuned',
                ),
                'special_tokens_by_layer',
            ),
            'The same by layer: mean over heads, and the range of the heads.'
            + (' Dotted: the paper, digitised to about 0.005.' if published else ''),
        ),
        _layer_table(study, means, published),
        Picture(
            draw(figures.head_grids(neighbours, label=share), 'neighbours'),
            'Attention to the token itself, the previous and the next one (Clark et al. 2019).',
        ),
        Picture(
            draw(
                figures.head_grids({'entropy': means['entropy (nats)']}, label='entropy (nats)'),
                'entropy',
            ),
            'Entropy of attention, mean over query tokens: low is focused, high is broad.',
        ),
        _top_table(measured),
    ]  # fmt: skip
    return Section(
        'Attention to special tokens and neighbours', [_words(study, measured, published)], blocks
    )


def _words(study: Study, measured, published) -> str:
    count = int(measured['[SEP]'].count)
    sentences = [
        f'{study.model_name} on {count} examples of {study.text_name(study.config.data.split)}.'
    ]
    for name in ('[CLS]', '[SEP]'):
        mean = measured[name].mean
        by_layer = mean.mean(axis=1)
        top = np.unravel_index(mean.argmax(), mean.shape)
        sentences.append(
            f'{name} gets most in layer {by_layer.argmax() + 1} ({by_layer.max():.2f} of all '
            f'attention, mean over heads), and most of all from head {figures.head_name(*top)} '
            f'({mean[top]:.2f}). {paper.rank_correlation(mean, published.get(name))}'.strip()
        )
    return ' '.join(sentences)


def _layer_table(study: Study, means, published) -> Table:
    columns = dict(means)
    if published and all(len(grid) == len(means['[CLS]']) for grid in published.values()):
        columns |= {f'paper {name}': grid for name, grid in published.items()}
    by_layer = {name: grid.mean(axis=1) for name, grid in columns.items()}
    rows = [
        (layer + 1, *values) for layer, values in enumerate(zip(*by_layer.values(), strict=True))
    ]
    tables.write_csv(study.workdir / 'layers.csv', ('layer', *columns), rows)
    shown = [(layer, *(f'{value:.3f}' for value in values)) for layer, *values in rows]
    return Table('Mean over the heads of a layer.', ('layer', *columns), shown)


def _top_table(measured) -> Table:
    rows = []
    for name, table in measured.items():
        least = name.startswith('entropy')
        rows.append((('least ' if least else '') + name, *tables.top_heads(table, least=least)))
    return Table(
        'The three heads that attend most to each (mean ± standard error over examples).',
        ('attention to', 'first', 'second', 'third'),
        rows,
    )


if __name__ == '__main__':
    launch(section)
