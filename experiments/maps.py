"""Attention maps of example sentences (the paper, Figures 1 and 4), as figures and to explore.

    python -m experiments.maps --config=configs/quickstart.py --workdir=results/quickstart

shows the model as it is. What this run has also done, it shows too: the fine-tuned model beside it,
and what disabling a head does; nothing is fine-tuned or ablated for it.
"""

from collections.abc import Callable

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.files import read_arrays, write_arrays
from bert_secrets_jax.patterns.cnn import TITLES
from bert_secrets_jax.report import figures
from bert_secrets_jax.report.explorer import Explorer
from bert_secrets_jax.report.html import Picture, Section
from experiments import ablate, finetune, frames, heads, links, relations
from experiments.study import Study, launch


def compute(study: Study) -> list[bs.TokenMaps]:
    """Return the maps of the examples, computed or read back."""
    return _kept(study, 'maps.npz', lambda: study.pretrained)


def compute_finetuned(study: Study, seed: int) -> list[bs.TokenMaps] | None:
    """Return the maps of the same examples after fine-tuning; None if that is not done."""
    if not finetune.outcome_file(study, 'pretrained').exists():
        return None
    load = lambda: finetune.load(study, 'pretrained', seed)
    return _kept(study, f'maps_seed{seed}.npz', load)


def _kept(study: Study, name: str, load: Callable[[], bs.Pretrained]) -> list[bs.TokenMaps]:
    file = study.workdir / name
    if not file.exists():
        examples = _choose(study)
        found = bs.attention_maps(load(), examples, max_length=study.config.encoding.max_length)
        arrays = {}
        for index, each in enumerate(found):
            arrays[f'maps{index}'] = each.attentions
            arrays[f'tokens{index}'] = np.array(each.tokens)
            arrays[f'second{index}'] = np.array(each.second or 0)
        write_arrays(file, arrays)
    stored = read_arrays(file)
    if len(stored) % 3 or 'second0' not in stored:
        raise ValueError(f'{file} is from another version: delete it to measure anew.')
    return [
        bs.TokenMaps(
            stored[f'tokens{index}'].tolist(),
            stored[f'maps{index}'],
            int(stored[f'second{index}']) or None,
        )
        for index in range(len(stored) // 3)
    ]


def _choose(study: Study) -> list[bs.Example]:
    """Return examples that can be read in a figure: evenly over the shortest fifth."""
    if study.config.maps.examples < 1:
        raise ValueError('--config.maps.examples must be at least 1; --sections does without maps.')
    by_length = [index for batch in study.batches for index in _by_length(batch)]
    wanted = study.config.maps.examples
    readable = by_length[: max(wanted, len(by_length) // 5)]
    places = np.linspace(0, len(readable) - 1, min(wanted, len(readable))).astype(int)
    return [study.examples[readable[place]] for place in places]


def _by_length(batch: bs.Batch) -> np.ndarray:
    order = np.argsort(batch.lengths, kind='stable')
    return batch.example[order][batch.example[order] >= 0]


def section(study: Study) -> Section:
    """Write the figures and return the section of the report."""
    measured = heads.measure(study)
    telling = _telling_heads(measured)
    seed = finetune.seeds(study)[0]
    examples, finetuned = compute(study), compute_finetuned(study, seed)
    shown = {study.model_name: examples}
    if finetuned is not None:
        shown['fine-tuned'] = finetuned
    blocks = [Explorer(shown, _notes(study, measured, seed))]
    for index, example in enumerate(examples):
        directory = study.workdir / 'figures'
        # For papers; on the page the explorer shows it.
        figures.save(figures.map_grid(example.attentions), directory, f'maps{index + 1}_all')
        figure = figures.head_maps(
            {title: example.attentions[head] for title, head in telling.items()}, example.tokens
        )
        blocks.append(
            Picture(
                figures.save(figure, directory, f'maps{index + 1}_heads'),
                'Heads that stand out over the whole corpus, on: ' + ' '.join(example.tokens),
            )
        )
    paragraphs = [
        'Each map shows how much every token (row) attends to every token (column). Choose a '
        'sentence and a head: a click, or the arrow keys and Enter, opens its map with what is '
        f'known about it from {study.text_name(study.config.data.split)}; Escape goes back.',
        'The figures below are of the heads that attend most to [CLS], to [SEP] and to the '
        'neighbouring tokens, and of the most focused and the broadest one; all heads together, '
        'for a paper, are in figures/maps1_all.pdf and so on.',
    ]
    if finetuned is not None:
        paragraphs[0] += f' The fine-tuned model is that of seed {seed}.'
    return Section('Maps of example sentences', paragraphs, blocks)


def _notes(study: Study, measured: dict[str, bs.HeadTable], seed: int) -> dict[str, np.ndarray]:
    """Return what this run has found out about the heads: its name, and a text for each head."""
    is_changed = heads.changed_file(study, seed).exists()
    changed = heads.measure_change(study, seed) if is_changed else {}
    titles = {
        name: name if name.startswith('entropy') else f'attention to {name}'
        for name in (*heads.SPECIAL, *heads.FEATURES)
    }
    titles['cosine'] = 'cosine similarity, before and after'
    notes = {}
    for name, title in titles.items():
        # A feature that no text has was measured on none.
        tables = [of[name] for of in (measured, changed) if name in of and of[name].count]
        if tables:
            notes[title] = _texts(tables)
    along = {}
    if study.config.linguistics.pipeline:
        along['relations'] = relations.tests(study, measured)
    if frames.is_measured(study):
        along['frames'] = frames.tests(study, frames.measure(study))
    for part, tests in along.items():
        for name, test in tests.items():
            notes[f'{part}, model as it is: attention from {name}'] = _of_links(test)
    notes['pattern'] = _patterns([of for of in (measured, changed) if of])
    effects = ablate.effects_of_heads(study)
    return notes if effects is None else notes | dict([effects])


def _texts(tables: list[bs.HeadTable]) -> np.ndarray:
    """Return means and standard errors, of one model or of it and its fine-tuned self: [L, N]."""
    shape = tables[0].mean.shape
    texts = [
        ', fine-tuned '.join(
            f'{table.mean[head]:.4f} ± {table.standard_error[head]:.4f}' for table in tables
        )
        for head in np.ndindex(shape)
    ]
    return np.reshape(texts, shape)


def _of_links(test: links.LinkTest) -> np.ndarray:
    """Return attention along links beside that along random ones: [L, N]."""
    texts = _texts([test.table])
    for kind, null in test.nulls.items():
        random = np.char.mod(f', {links.PLACES[kind]} %.4f', null.mean)
        texts = np.char.add(texts, random)
    return texts


def _patterns(of_models: list[dict[str, bs.HeadTable]]) -> np.ndarray:
    """Return the most frequent class of each head's maps, and its share: [L, N]."""
    texts = []
    for measured in of_models:
        shares = np.stack([measured[name].mean for name in heads.PATTERNS], axis=-1)
        names = np.array(TITLES)[shares.argmax(axis=-1)]
        percent = np.char.mod(' (%.0f %%)', 100 * shares.max(axis=-1))
        texts.append(np.char.add(names, percent))
    return (
        texts[0]
        if len(texts) == 1
        else np.char.add(np.char.add(texts[0], ', fine-tuned '), texts[1])
    )


def _telling_heads(measured) -> dict[str, tuple[int, int]]:
    """Return title to head for the heads that are extreme in a statistic."""
    extremes = {
        f'most to {name}': measured[name].mean
        for name in ('[CLS]', '[SEP]', 'previous token', 'next token')
    }
    entropy = measured['entropy (nats)'].mean
    extremes |= {'most focused': -entropy, 'broadest': entropy}
    reasons = {}
    for reason, values in extremes.items():
        head = np.unravel_index(values.argmax(), values.shape)
        reasons.setdefault(head, []).append(reason)
    return {
        f'{figures.head_name(*head)}: {", ".join(found)}': head for head, found in reasons.items()
    }


if __name__ == '__main__':
    launch(section)
