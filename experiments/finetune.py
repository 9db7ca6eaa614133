"""Fine-tuning, several seeds at once (the paper, Table 1).

    python -m experiments.finetune --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

Each start and seed leaves its last and its best checkpoint in Hugging Face's layout, in
`finetune/pretrained/seed0/last` and so on.
"""

import json
import pathlib

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax import paper
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.finetune.train import Data, FinetuneConfig, best_rows, finetune
from bert_secrets_jax.model.bert import init_params
from bert_secrets_jax.report import figures
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments.study import Study, fails_once, launch


def seeds(study: Study) -> tuple[int, ...]:
    """Return the seeds of the runs."""
    return tuple(study.config.seed + run for run in range(study.config.train.num_seeds))


def checkpoint(study: Study, start: str, seed: int, which: str = 'last') -> pathlib.Path:
    """Return the folder of the 'last' or the 'best' checkpoint of a run.

    The paper's is the last; the best was chosen on the dev set.
    """
    return study.workdir / 'finetune' / start / f'seed{seed}' / which


def load(study: Study, start: str, seed: int) -> bs.Pretrained:
    """Return the fine-tuned model."""
    return bs.from_pretrained(checkpoint(study, start, seed), dtype=study.config.model.dtype)


@fails_once
def run(study: Study, start: str) -> dict:
    """Fine-tune from a start, or read the outcome of a run that is finished.

    Returns:
      'history' (of `finetune`), 'metrics' and 'train_examples'.
    """
    finished = outcome_file(study, start)
    if not finished.exists():
        outcome = {
            'train_examples': len(study.train),
            'metrics': study.metrics(len(study.label_names)),
            'history': _finetune(study, start, finished.parent),
        }
        write_atomically(finished, json.dumps(outcome).encode())
    return json.loads(finished.read_text())


def outcome_file(study: Study, start: str) -> pathlib.Path:
    """Return the file of what `run` has finished."""
    return study.workdir / 'finetune' / start / 'outcome.json'


def _finetune(study: Study, start: str, directory: pathlib.Path) -> list[dict]:
    settings = study.config.train.to_dict()
    for name in ('starts', 'num_seeds', 'max_examples'):
        del settings[name]
    config = FinetuneConfig(
        seeds=seeds(study), max_length=study.config.encoding.max_length, **settings
    )
    labels = study.label_names
    loaded = [study.load(label_names=labels, seed=seed) for seed in config.seeds]
    bert, tokenizer = loaded[0].bert, loaded[0].tokenizer
    match start:
        case 'pretrained':
            params = [of_seed.params for of_seed in loaded]
        case 'random':
            params = [init_params(bert, seed) for seed in config.seeds]
        case _:
            raise ValueError(f"train.starts are 'pretrained' and 'random', not {start!r}.")
    data = Data(
        train=tokenize(tokenizer, study.train, max_length=config.max_length),
        train_labels=np.array([example.label for example in study.train]),
        train_ids=[example.id for example in study.train],
        dev=bs.encode(tokenizer, study.dev, max_length=config.max_length),
        dev_labels=np.array([example.label for example in study.dev]),
        metrics=study.metrics(len(labels)),
    )
    save = lambda seed, which, params: bs.save_pretrained(
        bs.Pretrained(bert, params, tokenizer), checkpoint(study, start, seed, which)
    )
    return finetune(bert, params, data, config, directory, save=save, mesh=study.mesh)


def section(study: Study) -> Section:
    """Fine-tune, and return the section of the report."""
    outcomes = {start: run(study, start) for start in study.config.train.starts}
    histories = {start: outcome['history'] for start, outcome in outcomes.items()}
    any_outcome = next(iter(outcomes.values()))
    names = any_outcome['metrics']
    titles = [TITLES[name] for name in names]
    columns = {
        'pre-trained, not fine-tuned': dev_rows(histories.get('pretrained', []), first=True),
        'fine-tuned from random weights': dev_rows(histories.get('random', [])),
        'fine-tuned': dev_rows(histories.get('pretrained', [])),
    }
    rows = [('ours', *(spread(of_runs, names) for of_runs in columns.values()))]
    theirs = published(study)
    if theirs:
        order = ('pretrained_no_finetuning', 'finetuned_from_normal_init')
        rows.append(('paper: BERT-base', *(theirs[key] for key in order), theirs['last']))
    curves = {
        start: [row for row in history if row['split'] == 'dev']
        for start, history in histories.items()
    }
    best = best_rows(histories.get('pretrained', []))
    text = (
        f'{study.model_name} fine-tuned on {any_outcome["train_examples"]:,} examples of '
        f'{study.text_name("train")} (seeds: {", ".join(map(str, seeds(study)))}), evaluated on '
        f'all of {study.text_name(study.config.data.split)} after the last epoch.'
    )
    if best:
        text += (
            f' The best epochs reach {spread(list(best.values()), names)}, chosen on the examples '
            'that this is measured on.'
        )
    return Section(
        'Fine-tuning',
        [text],
        [
            Table(
                f'Table 1: {"/".join(titles)} x 100 (mean ± standard deviation over seeds).',
                ('', *columns),
                rows,
            ),
            Picture(
                figures.save(
                    figures.learning_curves(
                        curves,
                        label=f'{" and ".join(titles)}, mean' if len(titles) > 1 else titles[0],
                    ),
                    study.workdir / 'figures',
                    'learning_curves',
                ),
                'Dev score by epoch, a line per seed; epoch 0 is before training.',
            ),
        ],
    )


def dev_rows(history: list[dict], *, first: bool = False) -> list[dict]:
    """Return the dev rows of all seeds before training, or after the last epoch."""
    rows = [row for row in history if row['split'] == 'dev']
    epoch = 0 if first else max((row['epoch'] for row in rows), default=0)
    return [row for row in rows if row['epoch'] == epoch]


def spread(rows: list[dict], names: list[str]) -> str:
    """Return '88.1 ± 0.5 / 82.0 ± 0.7', or a dash without rows."""
    if not rows:
        return '–'
    cells = []
    for name in names:
        values = 100 * np.array([row[name] for row in rows])
        spread = f' ± {values.std(ddof=1):.1f}' if len(values) > 1 else ''
        cells.append(f'{values.mean():.1f}{spread}')
    return ' / '.join(cells)


def published(study: Study) -> dict[str, str] | None:
    if not study.glue_task:
        return None
    table, title = paper.published()['table1'], study.glue_task.title
    row = table['MNLI-m' if title == 'MNLI' else title]['values']
    show = lambda value: ' / '.join(map(str, value)) if isinstance(value, list) else str(value)
    return dict(zip((*table['columns'][:2], 'last'), map(show, row), strict=True))


if __name__ == '__main__':
    launch(section)
