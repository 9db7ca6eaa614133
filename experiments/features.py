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
    before = heads.measure(study)
    runs = [heads.measure_change(study, seed) for seed in finetune.seeds(study)]
    names = [name for name in heads.FEATURES if name in before and before[name].count]
    after = heads.over_seeds(runs, (*SPECIAL, *names))
    changed = heads.over_seeds(runs, map(heads.change, (*SPECIAL, *names)))
    save = lambda figure, name: figures.save(figure, study.workdir / 'figures', name)
    share = 'attention received (share)'
    published = paper.special_token_attention(study.glue_task.title) if study.glue_task else {}
    profiles = figures.layer_profiles(
        {name: after[name].mean for name in SPECIAL},
        label=share,
        published=published,
        published_name='paper: BERT-base',
    )
    blocks = [
        Picture(
            save(profiles, 'special_tokens_finetuned'),
            'Attention to [CLS] and [SEP] in the fine-tuned model by layer: mean over heads, and '
            'the range of the heads (Figure 6).'
            + ''.join(
                f' {name}: {words}'
                for name in published
                if (words := paper.rank_correlation(after[name].mean, published[name]))
            ),
        )
    ]
    if names:
        grids = {
            'features': (before, 'the model as it is'),
            'features_finetuned': (after, 'the fine-tuned model'),
        }
        for file, (tables_of, model) in grids.items():
            grid = figures.head_grids({name: tables_of[name].mean for name in names}, label=share)
            caption = (
                f'Attention to linguistic features in {model}: mean over query tokens, the '
                'greatest of several tokens of the type, mean over examples that have any.'
            )
            blocks.append(Picture(save(grid, file), caption))
        differences = figures.head_grids(
            {name: changed[heads.change(name)].mean for name in names},
            label='change (share)',
            differences=True,
        )
        blocks.append(
            Picture(
                save(differences, 'features_change'),
                'What fine-tuning changes of it: blue heads attend more to the feature than '
                'before, red ones less.',
            )
        )
    blocks.append(_table(study, (*SPECIAL, *names), before, after, runs))
    if names:
        blocks.append(_readings(names, before))
    return Section(
        'Attention to linguistic features', _words(names, before, after, changed), blocks
    )


def _table(study: Study, names, before, after, runs) -> Table:
    numbers, shown = [], []
    for name in names:
        moved = [_significant(run[heads.change(name)]) for run in runs]
        rise, fall = (
            None if moved[0] is None else int(np.all([m * sign > 0 for m in moved], axis=0).sum())
            for sign in (1, -1)
        )
        means = [of[name].mean.mean() for of in (before, after)]
        numbers.append((name, before[name].count, *means, rise, fall))
        shown.append(
            (name, f'{before[name].count:.0f}', *(f'{mean:.3f}' for mean in means),
             *tables.top_heads(before[name], 1), *tables.top_heads(after[name], 1),
             *('–' if count is None else count for count in (rise, fall)))
        )  # fmt: skip
    tables.write_csv(
        study.workdir / 'features.csv',
        ('feature', 'examples', 'pretrained', 'finetuned', 'heads_rise', 'heads_fall'),
        numbers,
    )
    return Table(
        'Means are over all heads. Heads rise or fall if the mean difference over examples does so '
        'significantly (t-test, 5 % after correction for all heads, Holm) '
        + ('in every run.' if len(runs) > 1 else 'in this run: another one may differ by more.'),
        ('attention to', 'examples', 'pre-trained, mean', 'fine-tuned, mean', 'pre-trained, top',
         'fine-tuned, top', 'heads that rise', 'heads that fall'),
        shown,
    )  # fmt: skip


def _significant(changed: bs.HeadTable) -> np.ndarray | None:
    """Return [heads] 1 or -1 for those that rise or fall, else 0; None below two examples."""
    if changed.count < 2:
        return None
    mean, error = (
        values.astype(np.float64).ravel() for values in (changed.mean, changed.standard_error)
    )
    t = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
    real = holm(2 * scipy.stats.t.sf(np.abs(t), changed.count - 1)) <= 0.05
    return np.sign(mean) * real


def _readings(names, before) -> Table:
    rows = []
    for name in names:
        if name in heads.OF_NOTEBOOK:
            theirs = before[heads.notebook(name)]
            rows.append(
                (name, *tables.top_heads(before[name], 1), f'{theirs.count:.0f}',
                 *tables.top_heads(theirs, 1))
            )  # fmt: skip
    return Table(
        "The authors' notebook looks words up by their spelling, anywhere in the input, and "
        'counts examples without the feature as 0 (but for negation).',
        ('attention to', 'paper, top', 'notebook, examples', 'notebook, top'),
        rows,
    )


def _words(names, before, after, changed) -> list[str]:
    mean = lambda of, name: of[name].mean.mean()
    sentences = [
        f'The fine-tuned model gives {mean(after, "[CLS]"):.2f} of its attention to [CLS] and '
        f'{mean(after, "[SEP]"):.2f} to [SEP], mean over heads '
        f'(before: {mean(before, "[CLS]"):.2f} and {mean(before, "[SEP]"):.2f}).'
    ]
    if names:
        most = max(names, key=lambda name: mean(after, name))
        size = lambda name: np.abs(changed[heads.change(name)].mean)
        moved = max(names, key=lambda name: size(name).mean())
        head = np.unravel_index(size(moved).argmax(), size(moved).shape)
        special = max(mean(after, name) for name in SPECIAL)
        sentences.append(
            f'Of the linguistic features {most} gets most ({mean(after, most):.3f}; the more '
            f'tokens of a type, the greater the greatest), {mean(after, most) / special:.2f} of '
            'what the greater of [CLS] and [SEP] gets; the paper found them negligible beside '
            f'these. Fine-tuning changes attention to {moved} most, by {size(moved).mean():.4f} '
            f'per head and by {changed[heads.change(moved)].mean[head]:+.3f} in '
            f'{figures.head_name(*head)}.'
        )
    return sentences


if __name__ == '__main__':
    launch(section)
