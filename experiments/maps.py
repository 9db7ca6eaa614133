"""Attention maps of example sentences (the paper, Figures 1 and 4).

python -m experiments.maps --config=configs/quickstart.py --workdir=results/quickstart
"""

import jax
import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.files import read_arrays, write_arrays
from bert_secrets_jax.report import figures
from bert_secrets_jax.report.html import Picture, Section
from experiments import heads
from experiments.study import Study, launch


def compute(study: Study) -> list[dict[str, np.ndarray]]:
    """Return maps [L, N, T, T] and tokens of each example, computed or read back."""
    file = study.workdir / 'maps.npz'
    if not file.exists():
        model, arrays = study.pretrained, {}
        forward = jax.jit(model.bert.apply)
        for index, example in enumerate(_choose(study)):
            (batch,) = study.encode([example])
            output = forward({'params': model.params}, **batch.inputs)
            length = int(batch.lengths[0])
            tokens = model.tokenizer.convert_ids_to_tokens(batch.input_ids[0, :length].tolist())
            arrays[f'maps{index}'] = np.asarray(output.attentions[0, :, :, :length, :length])
            arrays[f'tokens{index}'] = np.array(tokens)
        write_arrays(file, arrays)
    stored = read_arrays(file)
    return [
        {name: stored[f'{name}{index}'] for name in ('maps', 'tokens')}
        for index in range(len(stored) // 2)
    ]


def _choose(study: Study) -> list[bs.Example]:
    """Return examples that can be read in a figure: evenly over the shortest fifth."""
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
    telling = _telling_heads(heads.measure(study))
    blocks = []
    for index, stored in enumerate(compute(study)):
        maps, tokens = stored['maps'], stored['tokens'].tolist()
        sentence = ' '.join(tokens)
        directory = study.workdir / 'figures'
        blocks += [
            Picture(
                figures.save(figures.map_grid(maps), directory, f'maps{index + 1}_all'),
                f'All heads on: {sentence}. Rows attend to columns; dark is 1.',
            ),
            Picture(
                figures.save(
                    figures.head_maps(
                        {title: maps[head] for title, head in telling.items()}, tokens
                    ),
                    directory,
                    f'maps{index + 1}_heads',
                ),
                f'Heads that stand out over the whole corpus, on: {sentence}.',
            ),
        ]
    text = (
        'Each map shows how much every token (row) attends to every token (column). The large maps '
        'are of the heads that attend most to [CLS], to [SEP] and to the neighbouring tokens, and '
        'of the most focused and the broadest one.'
    )
    return Section('Maps of example sentences', [text], blocks)


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
