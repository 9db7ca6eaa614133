"""Attention to linguistic features, before and after fine-tuning (the paper, 4.4, Figure 6).

    python -m experiments.features --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

import numpy as np
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax import paper
from bert_secrets_jax.ablation.significance import holm
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import finetune, heads
from experiments.study import Study, launch

SPECIAL = ('[CLS]', '[SEP]')


def section(study: Study) -> Section:
    """Measure what is not measured yet, and return the section of the report."""
    seed = finetune.seeds(study)[0]
    before, after = heads.measure(study), heads.measure_change(study, seed)
    names = [name for name in heads.FEATURES if name in before and before[name].count]
    save = lambda figure, name: figures.save(figure, study.workdir / 'figures', name)
    share = 'attention received (share)'
    published = {}
    if study.config.data.source == 'glue':
        theirs = paper.special_token_attention(bs.get_task(study.config.data.task).title)
        published = {} if theirs is None else {'[CLS]': theirs['cls'], '[SEP]': theirs['sep']}
    blocks = [
        Picture(
            save(
                figures.layer_profiles(
                    {name: after[name].mean for name in SPECIAL},
                    label=share,
                    published=published,
                    published_name='paper: BERT-base',
                ),
                'special_tokens_finetuned',
            ),
            'Attention to [CLS] and [SEP] in the fine-tuned model by layer: mean over heads, and '
            'the range of the heads (Figure 6).',
        )
    ]
    if names:
        blocks += [
            Picture(
                save(
                    figures.head_grids({name: before[name].mean for name in names}, label=share),
                    'features',
                ),
                'Attention to linguistic features in the model as it is: mean over query tokens, '
                'the greatest of several tokens of the type, mean over examples that have any.',
            ),
            Picture(
                save(
                    figures.head_grids(
                        {name: after[heads.change(name)].mean for name in names},
                        label='change (share)',
                        differences=True,
                    ),
                    'features_change',
                ),
                'What fine-tuning changes of it: blue heads attend more to the feature than '
                'before, red ones less.',
            ),
        ]
    rows = [_row(name, before, after) for name in (*SPECIAL, *names)]
    columns = (
        'attention to', 'examples', 'pre-trained, mean', 'fine-tuned, mean', 'pre-trained, top',
        'fine-tuned, top', 'heads that rise', 'heads that fall',
    )  # fmt: skip
    tables.write_csv(study.workdir / 'features.csv', columns, rows)
    blocks.append(
        Table(
            'Means are over all heads. Heads rise or fall significantly at 5 % after correction '
            f'for all heads (paired over examples, Holm), in the run of seed {seed}: another run '
            'of fine-tuning may differ by more.',
            columns,
            rows,
        )
    )
    if names:
        blocks.append(_readings(names, before))
    return Section('Attention to linguistic features', _words(names, before, after), blocks)


def _row(name: str, before, after):
    changed = after[heads.change(name)]
    up, down = _significant(changed)
    return (
        name,
        f'{before[name].count:.0f}',
        f'{before[name].mean.mean():.3f}',
        f'{after[name].mean.mean():.3f}',
        *tables.top_heads(before[name], 1),
        *tables.top_heads(after[name], 1),
        up,
        down,
    )


def _significant(changed: bs.HeadTable) -> tuple[int, int]:
    """Count the heads that rise and that fall, by a z-test of the paired differences."""
    if changed.count < 2:
        return 0, 0
    error = changed.standard_error.ravel()
    mean = changed.mean.ravel()
    z = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
    real = holm(2 * scipy.stats.norm.sf(np.abs(z.astype(np.float64)))) <= 0.05
    return int((real & (mean > 0)).sum()), int((real & (mean < 0)).sum())


def _readings(names, before) -> Table:
    rows = []
    for name in names:
        of_notebook = before[heads.notebook(name)]
        rows.append(
            (name, *tables.top_heads(before[name], 1), f'{of_notebook.count:.0f}',
             *tables.top_heads(of_notebook, 1))
        )  # fmt: skip
    return Table(
        "The authors' notebook looks words up by their spelling, anywhere in the input, and "
        'counts examples without the feature as 0 (but for negation).',
        ('attention to', 'paper, top', 'notebook, examples', 'notebook, top'),
        rows,
    )


def _words(names, before, after) -> list[str]:
    mean = lambda of, name: of[name].mean.mean()
    sentences = [
        f'The fine-tuned model gives {mean(after, "[CLS]"):.2f} of its attention to [CLS] and '
        f'{mean(after, "[SEP]"):.2f} to [SEP], mean over heads '
        f'(before: {mean(before, "[CLS]"):.2f} and {mean(before, "[SEP]"):.2f}).'
    ]
    if names:
        most = max(names, key=lambda name: mean(after, name))
        changed = max(names, key=lambda name: abs(mean(after, heads.change(name))))
        special = max(mean(after, name) for name in SPECIAL)
        sentences.append(
            f'Of the linguistic features {most} gets most ({mean(after, most):.3f}), '
            f'{mean(after, most) / special:.2f} of what the greater of [CLS] and [SEP] gets; the '
            f'paper found them negligible beside these. Fine-tuning changes attention to '
            f'{changed} most ({mean(after, heads.change(changed)):+.3f}).'
        )
    return sentences


if __name__ == '__main__':
    launch(section)
