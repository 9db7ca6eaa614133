"""What [CLS] attends to in the last layer (the paper, section 4.5, Figure 7).

    python -m experiments.cls_tokens --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax import paper
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import finetune, heads
from experiments.study import Study, launch

FEATURES = ('[CLS]', '[SEP]', *heads.FEATURES)


def section(study: Study) -> Section:
    """Measure what is not measured yet, and return the section of the report."""
    title = '[CLS] in the last layer'
    before = heads.measure(study)
    names = [name for name in FEATURES if heads.from_cls(name) in before]
    if not names:
        return Section(title, ['Not measured: no spaCy pipeline.'], [])
    after = heads.measure_change(study, finetune.seeds(study)[0])
    last = lambda of: np.stack([of[heads.from_cls(name)].mean[-1] for name in names], axis=1)
    matrices = {'pre-trained': last(before), 'fine-tuned': last(after)}
    figure = figures.feature_matrices(matrices, names, label='attention of [CLS]', highest=0.5)
    rows = [
        (name, *(f'{matrix[:, column].mean():.3f}' for matrix in matrices.values()),
         f'{matrices["fine-tuned"][:, column].max():.3f}', _published(study).get(name, '–'))
        for column, name in enumerate(names)
    ]  # fmt: skip
    columns = ('[CLS] to', 'pre-trained', 'fine-tuned', 'fine-tuned, top head', 'paper: BERT-base')
    tables.write_csv(study.workdir / 'cls_tokens.csv', columns, rows)
    means = np.nan_to_num(matrices['fine-tuned'].mean(axis=0))
    order = np.argsort(-means)
    most, second = (names[index] for index in order[:2])
    text = (
        f'In the last layer of the fine-tuned model [CLS] attends most to {most} '
        f'({means[order[0]]:.2f}, mean over heads), then to {second} ({means[order[1]]:.2f}). In '
        'the paper it is [SEP], but for STS-B, RTE and QNLI, where it is punctuation.'
    )
    return Section(
        title,
        [text],
        [
            Picture(
                figures.save(figure, study.workdir / 'figures', 'cls_tokens'),
                'Attention of [CLS] in the last layer: the greatest of the tokens of a type, mean '
                'over examples that have any (Figure 7; its colours end at 0.5, too).',
            ),
            Table('Mean over the heads of the last layer.', columns, rows),
        ],
    )


def _published(study: Study) -> dict[str, str]:
    """Return the means of Figure 7."""
    if study.config.data.source != 'glue':
        return {}
    figure = paper.published()['fig7_cls_last_layer']
    means = figure[bs.get_task(study.config.data.task).title]
    return {name: f'{mean:.2f}' for name, mean in zip(figure['columns'], means, strict=True)}


if __name__ == '__main__':
    launch(section)
