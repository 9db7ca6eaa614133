"""What [CLS] attends to in the last layer (the paper, section 4.5, Figure 7).

    python -m experiments.cls_tokens --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

import numpy as np

from bert_secrets_jax import paper
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import finetune, heads
from experiments.study import Study, launch


def section(study: Study) -> Section:
    """Measure what is not measured yet, and return the section of the report."""
    title, before = '[CLS] in the last layer', heads.measure(study)
    if not study.config.linguistics.pipeline:
        return Section(title, ['Not measured: no spaCy pipeline.'], [])
    names = [
        name for name in ('[CLS]', '[SEP]', *heads.FEATURES) if before[heads.from_cls(name)].count
    ]
    runs = [heads.measure_change(study, seed) for seed in finetune.seeds(study)]
    theirs = {name: heads.notebook(heads.from_cls(name)) for name in heads.OF_NOTEBOOK}
    after = heads.over_seeds(runs, (*map(heads.from_cls, names), *theirs.values()))
    last = lambda of: np.stack([of[heads.from_cls(name)].mean[-1] for name in names], axis=1)
    matrices = {'pre-trained': last(before), 'fine-tuned': last(after)}
    figure = figures.feature_matrices(matrices, names, label='attention of [CLS]', highest=0.5)
    means = {model: matrix.mean(axis=0) for model, matrix in matrices.items()}
    tables.write_csv(
        study.workdir / 'cls_tokens.csv',
        ('feature', 'examples', 'pretrained', 'finetuned'),
        (
            (name, before[heads.from_cls(name)].count, *(of[column] for of in means.values()))
            for column, name in enumerate(names)
        ),
    )
    published = _published(study)
    rows = [
        (name, f'{before[heads.from_cls(name)].count:.0f}',
         *(f'{of[column]:.3f}' for of in means.values()),
         f'{matrices["fine-tuned"][:, column].max():.3f}',
         f'{after[theirs[name]].mean[-1].mean():.3f}' if name in theirs else '–',
         published.get(name, '–'))
        for column, name in enumerate(names)
    ]  # fmt: skip
    most, second, *_ = np.argsort(-means['fine-tuned'])
    text = (
        f'In the last layer of the fine-tuned model [CLS] attends most to {names[most]} '
        f'({means["fine-tuned"][most]:.2f}, mean over heads), then to {names[second]} '
        f'({means["fine-tuned"][second]:.2f}). In the paper it is [SEP], but for STS-B, RTE and '
        'QNLI, where it is punctuation.'
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
            Table(
                'Mean over the heads of the last layer.',
                ('[CLS] to', 'examples', 'pre-trained', 'fine-tuned', 'fine-tuned, top head',
                 'fine-tuned (notebook)', 'paper: BERT-base'),
                rows,
            ),
        ],
    )  # fmt: skip


def _published(study: Study) -> dict[str, str]:
    """Return the means of Figure 7."""
    if not study.glue_task:
        return {}
    figure = paper.published()['fig7_cls_last_layer']
    means = figure[study.glue_task.title]
    return {name: f'{mean:.2f}' for name, mean in zip(figure['columns'], means, strict=True)}


if __name__ == '__main__':
    launch(section)
