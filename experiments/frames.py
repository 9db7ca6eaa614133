"""Do heads connect frame elements with their target? (the paper, section 4.2, Figures 3 and 4)

    python -m experiments.frames --config=configs/quickstart.py --workdir=results/quickstart

measures the model as it is on the embedded sample, or on another one (`--config.frames.sample`): a
prepared .jsonl, FrameNet itself, or relations of your own (`data/annotation.py` has the format).
"""

import csv
import functools
import hashlib
import pathlib
from collections.abc import Mapping

import jax
import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax import paper
from bert_secrets_jax.data.encoding import Encoded, bucket, mark, tokenize
from bert_secrets_jax.data.framenet import RELATION
from bert_secrets_jax.files import read_arrays, write_arrays
from bert_secrets_jax.progress import progress
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from bert_secrets_jax.workdir import remember_input
from experiments import heads, links
from experiments.study import Study, launch

# Most sentences have at most 12 words.
_BUCKETS = (16, 32, 64, 128)
# The paper's direction.
OF_FRAMES = 'frame element to target'


def read(study: Study) -> tuple[list[bs.Example], list[bs.Annotation]]:
    """Return the configured sample; of FrameNet, writes how many sentences each filter left."""
    frames = study.config.frames
    match frames.sample:
        case '':
            return bs.read_frames()
        case 'framenet':
            sample = bs.read_framenet(
                frames.folder,
                reading=frames.reading,
                per_unit=frames.per_unit or None,
                seed=study.config.seed,
            )
            tables.write_csv(
                study.workdir / 'frames_filters.csv', ('filter', 'sentences'), sample.counts.items()
            )
            return sample.examples, sample.annotations
        case path:
            return bs.read_frame_sample(path)


def measure(study: Study) -> dict[str, bs.HeadTable]:
    """Measure attention along the links in both readings, or read what a former run measured."""
    file, links_file = _files(study)
    sample = pathlib.Path(study.config.frames.sample)
    if sample.is_file():
        remember_input(study.workdir, 'frames', hashlib.sha256(sample.read_bytes()).hexdigest())
    if not is_measured(study):
        examples, annotations = read(study)
        model, relations = study.pretrained, list(annotations[0].relations)
        statistics = {}
        for title, (relation, reverse) in links.directions(relations).items():
            along = functools.partial(bs.statistics.attention_of_links, reverse=reverse)
            statistics[title,] = along(relation)
            statistics[heads.notebook(title),] = along(f'{relation}@notebook', among='token')
        max_length = study.config.encoding.max_length
        encoded = mark(tokenize(model.tokenizer, examples, max_length=max_length), annotations)
        with_random, nulls = links.with_random(
            encoded,
            relations,
            (links.ELSEWHERE, links.MOVED),
            draws=study.config.links.draws,
            seed=study.config.seed,
        )
        batches = bucket(with_random, **(study.encoding | {'buckets': _BUCKETS}))
        measured = bs.collect(
            model.bert,
            model.params,
            progress(batches, 'Frames', size=lambda batch: batch.size),
            statistics | nulls,
            mesh=study.mesh,
        )
        links.write(links_file, encoded, relations, measured)
        _write_maps(study, encoded, relations[0], measured[next(iter(statistics))].mean)
        tables.write_heads(file, {name: measured[name,] for (name,) in statistics})
    return tables.read_heads(file, [])


def is_measured(study: Study) -> bool:
    """Whether `measure` only reads."""
    return all(file.exists() for file in _files(study))


def _files(study: Study) -> tuple[pathlib.Path, pathlib.Path]:
    return study.workdir / 'frames.csv', study.workdir / 'frames.npz'


def tests(study: Study, measured: Mapping[str, bs.HeadTable]) -> dict[str, links.LinkTest]:
    """Return the tests of what `measure` returned, by direction."""
    return links.read(_files(study)[1], measured)


def _write_maps(study: Study, encoded: Encoded, relation: str, score: np.ndarray) -> None:
    """Keep maps of the two best heads on sentences with a link, drawn at random (Figure 4)."""
    model = study.pretrained
    linked = np.flatnonzero((encoded.marks[relation][..., 2] >= 0).any(axis=1))
    drawn = np.random.default_rng(study.config.seed).permutation(linked)
    forward = jax.jit(model.bert.apply)
    best = np.array(np.unravel_index(np.argsort(-score, axis=None)[:2], score.shape)).T
    arrays = {'heads': best}
    for number, example in enumerate(drawn[: study.config.maps.examples]):
        batch = encoded.batch(np.array([example]), int(encoded.lengths[example]))
        maps = np.asarray(forward({'params': model.params}, **batch.inputs).attentions[0])
        arrays[f'maps{number}'] = np.stack([maps[tuple(head)] for head in best])
        tokens = model.tokenizer.convert_ids_to_tokens(batch.input_ids[0].tolist())
        arrays[f'tokens{number}'] = np.array(tokens)
        arrays[f'links{number}'] = batch.marks[relation][0]
    write_arrays(study.workdir / 'frames_maps.npz', arrays)


def section(study: Study) -> Section:
    """Measure what is not measured yet, and return the section of the report."""
    measured = measure(study)
    found = tests(study, measured)
    links.write_heads(study.workdir / 'frames_heads.csv', found)
    of_frames = OF_FRAMES in found
    figure = figures.head_grids(
        {name: test.table.mean for name, test in found.items()},
        label='attention along the link',
        marked={name: test.real for name, test in found.items()},
    )
    blocks = [
        Picture(
            figures.save(figure, study.workdir / 'figures', 'frames'),
            'The greatest attention between the wordpieces of a link, mean over examples'
            f'{" (Figure 3)" if of_frames else ""}. Circles: more than the same head gives both at '
            'random places and at the same distances elsewhere (5 % after correction for the heads '
            'of a panel).',
        ),
        Table(
            'Random places: as many neighbouring wordpieces of the same text, not adjacent. Moved: '
            'the link as a whole, its distances kept.',
            ('from … to', 'examples', 'top head', 'random places: mean', '99th percentile',
             'p (corrected)', 'heads above', 'moved: mean', 'p (corrected)', 'heads above both',
             'places of a link (median)', 'ideal head at one offset', 'notebook, top heads'),
            [_row(name, test, measured) for name, test in found.items()],
        ),
        *_filters(study),
        *_pictures(study, next(iter(found.values())).table.mean),
    ]  # fmt: skip
    return Section('Frames' if of_frames else 'Links', _words(study, found), blocks)


def _row(name: str, test: links.LinkTest, measured):
    free, moved, top = test.nulls[links.ELSEWHERE], test.nulls[links.MOVED], test.top
    return (
        name,
        f'{test.table.count:.0f}',
        *tables.top_heads(test.table, 1),
        f'{free.mean[top]:.3f}',
        f'{free.percentile_99[top]:.3f}',
        f'{free.familywise[top]:.3f}',
        int((free.familywise <= 0.05).sum()),
        f'{moved.mean[top]:.3f}',
        f'{moved.familywise[top]:.3f}',
        int(test.real.sum()),
        f'{test.places:.0f}',
        test.ideal,
        '; '.join(tables.top_heads(measured[heads.notebook(name)], 2)),
    )


def _filters(study: Study) -> list[Table]:
    file = study.workdir / 'frames_filters.csv'
    if not file.exists():
        return []
    with file.open(newline='') as lines:
        _, *rows = csv.reader(lines)
    return [Table('How FrameNet was sampled (section 4.2).', ('filter', 'sentences left'), rows)]


def _pictures(study: Study, score: np.ndarray) -> list[Picture]:
    stored, pictures = read_arrays(study.workdir / 'frames_maps.npz'), []
    best = [tuple(head) for head in stored['heads']]
    for number in range(sum(name.startswith('tokens') for name in stored)):
        tokens = stored[f'tokens{number}'].tolist()
        pairs = stored[f'links{number}']
        pairs = pairs[pairs[:, 2] >= 0]
        figure = figures.head_maps(
            {
                f'{figures.head_name(*head)} ({score[head]:.2f} on average)': maps
                for head, maps in zip(best, stored[f'maps{number}'], strict=True)
            },
            tokens,
            sources=set(pairs[:, 0].tolist()),
            targets=set(pairs[:, 1].tolist()),
        )
        path = figures.save(figure, study.workdir / 'figures', f'frames{number + 1}')
        caption = (
            f'The two heads with the most attention, on a text drawn at random: '
            f'{" ".join(tokens[1:-1])}. Blue is where a link starts (row), red where it ends '
            '(column) (Figure 4).'
        )
        pictures.append(Picture(path, caption))
    return pictures


def _words(study: Study, found) -> list[str]:
    sample = study.config.frames.sample
    name = {'': 'the embedded sample', 'framenet': 'FrameNet'}.get(
        sample, pathlib.PurePath(sample).name
    )
    sentences = [f'{study.model_name}, as it is, on {name}.']
    sentences += [
        f'From {title}: {links.top_name(test)} attends most along the link '
        f'({test.table.mean[test.top]:.3f} in {test.table.count:.0f} examples), '
        f'{links.compared(test, links.ELSEWHERE)}, and {links.compared(test, links.MOVED)}. '
        f'{test.real.sum()} of {test.real.size} heads are above both.'
        for title, test in found.items()
    ]
    if OF_FRAMES in found:
        two = ' and '.join(
            f'{head.replace("H", "-H")} {score:.3f}'
            for head, score in paper.published()['fig3_heads'].items()
        )
        sentences.append(
            f'The paper found two heads of BERT-base above the 99th percentile of all heads, '
            f'{two}, from {RELATION.replace("-", " to ")} in the reading of its notebook, on 473 '
            'sentences, without random links to hold them against.'
        )
    return sentences


if __name__ == '__main__':
    launch(section)
