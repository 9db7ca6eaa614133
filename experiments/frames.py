"""Do heads connect frame elements with their target? (the paper, section 4.2, Figures 3 and 4)

    python -m experiments.frames --config=configs/quickstart.py --workdir=results/quickstart

measures the model as it is on the embedded sample, or on another one (`--config.frames.sample`): a
prepared .jsonl, FrameNet itself, or relations of your own (`data/annotation.py` has the format).
"""

import dataclasses
import functools

import jax
import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax import paper
from bert_secrets_jax.data.encoding import Encoded, bucket, mark, tokenize
from bert_secrets_jax.data.framenet import RELATION
from bert_secrets_jax.files import read_arrays, write_arrays
from bert_secrets_jax.measure.links import null_summary, random_links
from bert_secrets_jax.progress import progress
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import heads
from experiments.study import Study, launch

# Most sentences have at most 12 words.
_BUCKETS = (16, 32, 64, 128)


def read(study: Study) -> tuple[list[bs.Example], list[bs.Annotation]]:
    """Return the configured sample."""
    frames = study.config.frames
    match frames.sample:
        case '':
            return bs.read_frames()
        case 'framenet':
            sample = bs.read_framenet(frames.folder, seed=study.config.seed)
            return sample.examples, sample.annotations
        case path:
            return bs.read_frame_sample(path)


def measure(study: Study) -> tuple[dict[str, bs.HeadTable], dict[str, np.ndarray]]:
    """Measure attention along the links, or read what a former run measured.

    Returns:
      Tables of both directions and readings by title, and arrays: the links of each relation
      [E, P, 3] and, by title, the scores on random links [L, N, K].
    """
    file, arrays_file = study.workdir / 'frames.csv', study.workdir / 'frames.npz'
    if not file.exists():
        model, (examples, annotations) = study.pretrained, read(study)
        encoded = mark(tokenize(model.tokenizer, examples), annotations)
        titles = heads.directions(annotations[0].relations)
        statistics, nulls, marks = {}, {}, dict(encoded.marks)
        for title, (relation, reverse) in titles.items():
            elsewhere = f'{relation}, elsewhere'
            marks[elsewhere] = random_links(
                encoded.marks[relation],
                encoded.text,
                draws=study.config.linguistics.draws,
                seed=study.config.seed,
            )
            along = functools.partial(bs.statistics.attention_of_links, reverse=reverse)
            statistics[title] = along(relation)
            statistics[f'{title} (notebook)'] = along(f'{relation}@notebook', among='token')
            nulls[f'{title}, elsewhere'] = bs.statistics.attention_of_random_links(
                elsewhere, reverse=reverse
            )
        batches = bucket(
            dataclasses.replace(encoded, marks=marks), **(study.encoding | {'buckets': _BUCKETS})
        )
        measured = bs.collect(
            model.bert,
            model.params,
            progress(batches, 'Frames', size=lambda batch: batch.size),
            statistics | nulls,
            mesh=study.mesh,
        )
        null = {title: measured.pop(f'{title}, elsewhere').mean for title in titles}
        links = {relation: marks[relation] for relation in annotations[0].relations}
        links['relations'] = np.array(list(links))
        top = measured[next(iter(titles))].mean
        write_arrays(arrays_file, **links, **null, **_maps(study, encoded, top))
        tables.write_heads(file, measured)
    return tables.read_heads(file, []), read_arrays(arrays_file)


def _maps(study: Study, encoded: Encoded, score: np.ndarray) -> dict[str, np.ndarray]:
    """Return maps of the two best heads on sentences drawn at random (Figure 4)."""
    model, arrays = study.pretrained, {}
    wanted = min(study.config.maps.examples, len(encoded.lengths))
    drawn = np.random.default_rng(study.config.seed).permutation(len(encoded.lengths))[:wanted]
    forward = jax.jit(model.bert.apply)
    best = [np.unravel_index(index, score.shape) for index in np.argsort(-score, axis=None)[:2]]
    for number, example in enumerate(sorted(drawn)):
        length = int(encoded.lengths[example])
        batch = encoded.batch(np.array([example]), length)
        maps = np.asarray(forward({'params': model.params}, **batch.inputs).attentions[0])
        arrays[f'maps{number}'] = np.stack([maps[head] for head in best])
        tokens = model.tokenizer.convert_ids_to_tokens(batch.input_ids[0].tolist())
        arrays[f'tokens{number}'] = np.array(tokens)
        arrays[f'example{number}'] = example
    return arrays


def section(study: Study) -> Section:
    """Measure what is not measured yet, and return the section of the report."""
    measured, arrays = measure(study)
    titles = heads.directions(arrays['relations'].tolist())
    links = {
        title: bs.links.turned(arrays[relation]) if reverse else arrays[relation]
        for title, (relation, reverse) in titles.items()
    }
    nulls = {title: null_summary(measured[title].mean, arrays[title]) for title in titles}
    real = {title: null.familywise <= 0.05 for title, null in nulls.items()}
    save = lambda figure, name: figures.save(figure, study.workdir / 'figures', name)
    grids = {title: measured[title].mean for title in titles}
    columns = (
        'from … to', 'sentences', 'top head', 'at random places, mean', 'p',
        'at random places, 99th percentile', 'p (corrected)', 'heads above chance',
        'ideal head at one offset', 'notebook, top heads',
    )  # fmt: skip
    rows = [_row(title, measured, nulls[title], links[title]) for title in titles]
    tables.write_csv(study.workdir / 'frames_summary.csv', columns, rows)
    first = next(iter(titles))
    blocks = [
        Picture(
            save(
                figures.head_grids(grids, label='attention along the link', marked=real), 'frames'
            ),
            'The greatest attention between the wordpieces of a link, mean over sentences '
            '(Figure 3). Circles: more than the same head gives at random places (5 % after '
            'correction for all heads).',
        ),
        Table(
            'Random places: as many neighbouring wordpieces of the same sentence, not adjacent. '
            'Heads above chance are those with a corrected p of at most 0.05.',
            columns,
            rows,
        ),
        *_pictures(study, measured[first].mean, links[first], arrays),
    ]
    return Section('Frames', _words(study, measured, titles, nulls, real), blocks)


def _row(title: str, measured, null, links):
    table = measured[title]
    top = np.unravel_index(table.mean.argmax(), table.mean.shape)
    offset, ideal = next(iter(bs.links.offset_baseline(links).items()))
    return (
        title,
        f'{table.count:.0f}',
        *tables.top_heads(table, 1),
        f'{null.mean[top]:.3f}',
        f'{null.p[top]:.3f}',
        f'{null.percentile_99[top]:.3f}',
        f'{null.familywise[top]:.3f}',
        int((null.familywise <= 0.05).sum()),
        f'{ideal:.3f} (offset {offset:+d})',
        '; '.join(tables.top_heads(measured[f'{title} (notebook)'], 2)),
    )


def _pictures(study: Study, score: np.ndarray, links: np.ndarray, arrays) -> list[Picture]:
    best = [np.unravel_index(index, score.shape) for index in np.argsort(-score, axis=None)[:2]]
    pictures = []
    for number in range(sum(name.startswith('tokens') for name in arrays)):
        tokens = arrays[f'tokens{number}'].tolist()
        pairs = links[int(arrays[f'example{number}'])]
        pairs = pairs[pairs[:, 2] >= 0]
        figure = figures.head_maps(
            {
                f'{figures.head_name(*head)} ({score[head]:.2f} on average)': maps
                for head, maps in zip(best, arrays[f'maps{number}'], strict=True)
            },
            tokens,
            sources=set(pairs[:, 0].tolist()),
            targets=set(pairs[:, 1].tolist()),
        )
        path = figures.save(figure, study.workdir / 'figures', f'frames{number + 1}')
        caption = (
            f'The two best heads on a sentence drawn at random: {" ".join(tokens[1:-1])}. Blue '
            'is where a link starts (row), red where it ends (column) (Figure 4).'
        )
        pictures.append(Picture(path, caption))
    return pictures


def _words(study: Study, measured, titles, nulls, real) -> list[str]:
    sample = {'': 'the embedded sample', 'framenet': 'FrameNet'}.get(
        study.config.frames.sample, study.config.frames.sample
    )
    sentences = [f'{study.model_name}, as it is, on {sample}.']
    for title in titles:
        table, null = measured[title], nulls[title]
        top = np.unravel_index(table.mean.argmax(), table.mean.shape)
        sentences.append(
            f'From {title}: {real[title].sum()} of {real[title].size} heads are above chance; the '
            f'most is {figures.head_name(*top)} with {table.mean[top]:.3f} in {table.count:.0f} '
            f'sentences ({null.mean[top]:.3f} at random places).'
        )
    if any(relation == RELATION for relation, _ in titles.values()):
        two = ' and '.join(
            f'{name.replace("H", "-H")} {score:.3f}'
            for name, score in paper.published()['fig3_heads'].items()
        )
        sentences.append(
            f'The paper found two heads of BERT-base above the 99th percentile of all heads, '
            f'{two}, from frame element to target in the reading of its notebook, on 473 '
            'sentences, without a null to hold them against.'
        )
    return sentences


if __name__ == '__main__':
    launch(section)
