"""Token to token: do heads follow relations, or only distances? (the paper, section 4.5)

python -m experiments.relations --config=configs/quickstart.py --workdir=results/quickstart
"""

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.files import read_arrays
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import heads
from experiments.study import Study, launch


def section(study: Study) -> Section:
    """Measure what is not measured yet, and return the section of the report."""
    title = 'Token to token'
    measured = heads.measure(study)
    found = {name: measured[name] for name in heads.RELATIONS if name in measured}
    found = {name: table for name, table in found.items() if table.count}
    if not found:
        return Section(title, ['Not measured: no spaCy pipeline, or no such relation.'], [])
    arrays = read_arrays(study.workdir / 'relations.npz')
    nulls = {name: bs.links.null_summary(found[name].mean, arrays[name]) for name in found}
    beyond = {name: null.familywise <= 0.05 for name, null in nulls.items()}
    links = {
        name: bs.links.turned(arrays[relation]) if reverse else arrays[relation]
        for name, (relation, reverse) in heads.RELATIONS.items()
        if name in found
    }
    rows = [_row(name, found[name], nulls[name], links[name], measured) for name in found]
    columns = (
        'from … to', 'examples', 'top head', 'ideal head at one offset', 'top head, links moved',
        'p', 'p (corrected)', 'heads beyond position', 'notebook, top head',
    )  # fmt: skip
    tables.write_csv(study.workdir / 'relations.csv', columns, rows)
    _write_heads(study, found, nulls)
    save = lambda figure, name: figures.save(figure, study.workdir / 'figures', name)
    blocks = [
        Picture(
            save(
                figures.head_grids(
                    {name: table.mean for name, table in found.items()},
                    label='attention along the link',
                    marked=beyond,
                ),
                'relations',
            ),
            'The greatest attention between the wordpieces of a link, mean over links and '
            'examples. Circles: more than the same head gives at the same distances elsewhere in '
            'the same inputs (5 % after correction for all heads).',
        ),
        Table(
            'What position alone explains. An ideal head puts all its attention at one offset; '
            'moved links keep every distance, at random places of the same input.',
            columns,
            rows,
        ),
        Picture(
            save(
                figures.distance_histograms(
                    {name: bs.links.offset_histogram(links[name]) for name in found}
                ),
                'relations_distances',
            ),
            'How far apart linked tokens are: key less query position, closest wordpieces.',
        ),
    ]
    return Section(title, _words(found, nulls, beyond), blocks)


def _row(name, table: bs.HeadTable, null: bs.links.NullTest, links, measured):
    top = np.unravel_index(table.mean.argmax(), table.mean.shape)
    offset, ideal = next(iter(bs.links.offset_baseline(links).items()))
    return (
        name,
        f'{table.count:.0f}',
        *tables.top_heads(table, 1),
        f'{ideal:.3f} (offset {offset:+d})',
        f'{null.mean[top]:.3f}',
        f'{null.p[top]:.3f}',
        f'{null.familywise[top]:.3f}',
        int((null.familywise <= 0.05).sum()),
        *tables.top_heads(measured[heads.notebook(name)], 1),
    )


def _write_heads(study: Study, found, nulls) -> None:
    tables.write_csv(
        study.workdir / 'relations_heads.csv',
        ('relation', 'layer', 'head', 'score', 'score_moved', 'z', 'p', 'familywise'),
        (
            (name, head[0] + 1, head[1] + 1, table.mean[head], nulls[name].mean[head],
             nulls[name].z[head], nulls[name].p[head], nulls[name].familywise[head])
            for name, table in found.items()
            for head in np.ndindex(table.mean.shape)
        ),
    )  # fmt: skip


def _words(found, nulls, beyond) -> list[str]:
    sentences = []
    for name, table in found.items():
        top = np.unravel_index(table.mean.argmax(), table.mean.shape)
        verdict = 'more than' if beyond[name][top] else 'no more than'
        sentences.append(
            f'From {name}: {figures.head_name(*top)} attends most along the link '
            f'({table.mean[top]:.2f}), {verdict} it attends at the same distances elsewhere '
            f'({nulls[name].mean[top]:.2f}); {beyond[name].sum()} of {beyond[name].size} heads '
            'are above chance in this sense.'
        )
    return [
        *sentences,
        'A noun-pronoun link joins a pronoun with all nouns before it: spaCy resolves no '
        'coreference, and the paper does not say how it paired them.',
    ]


if __name__ == '__main__':
    launch(section)
