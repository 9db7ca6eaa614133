"""Token to token: do heads follow relations, or only distances? (the paper, section 4.5)

python -m experiments.relations --config=configs/quickstart.py --workdir=results/quickstart
"""

from collections.abc import Mapping

import bert_secrets_jax as bs
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import heads, links
from experiments.study import Study, launch


def tests(study: Study, measured: Mapping[str, bs.HeadTable]) -> dict[str, links.LinkTest]:
    """Return the tests of what `heads.measure` returned, by direction."""
    return links.read(study.workdir / 'relations.npz', measured)


def section(study: Study) -> Section:
    """Measure what is not measured yet, and return the section of the report."""
    title = 'Token to token'
    if not study.config.linguistics.pipeline:
        return Section(title, ['Not measured: no spaCy pipeline.'], [])
    measured = heads.measure(study)
    found = tests(study, measured)
    if not found:
        return Section(title, ['Not measured: no text has such a relation.'], [])
    links.write_heads(study.workdir / 'relations_heads.csv', found)
    save = lambda figure, name: figures.save(figure, study.workdir / 'figures', name)
    blocks = [
        Picture(
            save(
                figures.head_grids(
                    {name: test.table.mean for name, test in found.items()},
                    label='attention along the link',
                    marked={name: test.real for name, test in found.items()},
                ),
                'relations',
            ),
            'The greatest attention between the wordpieces of a link, mean over links and '
            'examples. Circles: more than the same head gives at the same distances elsewhere in '
            'the same inputs (5 % after correction for the heads of a panel).',
        ),
        Table(
            'What position alone explains. An ideal head puts all its attention at one offset; '
            'moved links keep every distance, at random places of the same texts.',
            ('from … to', 'examples', 'top head', 'ideal head at one offset', 'links moved', 'p',
             'p (corrected)', 'heads beyond position', 'places of a link (median)',
             'notebook, top head'),
            [_row(name, test, measured) for name, test in found.items()],
        ),
        Picture(
            save(
                figures.distance_histograms(
                    {name: bs.links.offset_histogram(test.links) for name, test in found.items()}
                ),
                'relations_distances',
            ),
            'How far apart linked tokens are: key less query position, closest wordpieces.',
        ),
    ]  # fmt: skip
    return Section(title, _words(found), blocks)


def _row(name: str, test: links.LinkTest, measured):
    null, theirs = test.nulls[links.MOVED], measured.get(heads.notebook(name))
    return (
        name,
        f'{test.table.count:.0f}',
        *tables.top_heads(test.table, 1),
        test.ideal,
        f'{null.mean[test.top]:.3f}',
        f'{null.p[test.top]:.3f}',
        f'{null.familywise[test.top]:.3f}',
        int(test.real.sum()),
        f'{test.places:.0f}',
        *(('–',) if theirs is None else tables.top_heads(theirs, 1)),
    )


def _words(found) -> list[str]:
    sentences = [
        f'From {name}: {links.top_name(test)} attends most along the link '
        f'({test.table.mean[test.top]:.3f}), {links.compared(test, links.MOVED)}; '
        f'{test.real.sum()} of {test.real.size} heads are above it.'
        for name, test in found.items()
    ]
    return [
        *sentences,
        'A head above it does more than look a fixed number of tokens away. It need not know the '
        'relation: one that likes nouns passes for pronoun to noun, as moved links end at other '
        'words. Links that can be moved to few places make a weak test.',
        'A noun-pronoun link joins a pronoun with all nouns before it: spaCy resolves no '
        'coreference, and the paper does not say how it paired them.',
    ]


if __name__ == '__main__':
    launch(section)
