"""Disabling heads and layers, and what of it is real (the paper, section 4.6, Figures 8 and 9).

    python -m experiments.ablate --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

ablates what this run fine-tunes (or has fine-tuned). A checkpoint that is fine-tuned already:

    ... --config.model.name=CHECKPOINT --config.ablation.checkpoint=model
"""

import hashlib
import json
import pathlib
from collections.abc import Callable

import numpy as np
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax import paper
from bert_secrets_jax.ablation import significance
from bert_secrets_jax.ablation.results import Swept, read_swept, sweep_to_file
from bert_secrets_jax.files import read_arrays, write_arrays
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.model.attention import check_baseline
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import finetune
from experiments.study import Study, draw, launch

# Sets of masks of a model, by their names in `ablation.sets`.
SETS = {
    'heads': bs.masks.single_heads,
    'layers': bs.masks.single_layers,
    'one_head_left': bs.masks.one_head_left,
}


def model(study: Study) -> bs.Pretrained:
    """Return the model that is ablated."""
    match study.config.ablation.checkpoint:
        case 'finetuned':
            finetune.run(study, 'pretrained')
            return finetune.load(study, 'pretrained', finetune.seeds(study)[0])
        case 'model':
            loaded = study.load()
            _check_classes(study, loaded.config)
            return loaded
        case other:
            raise ValueError(f"ablation.checkpoint is 'finetuned' or 'model', not {other!r}.")


def _check_classes(study: Study, config: bs.BertConfig) -> None:
    """Refuse a checkpoint whose classes are not those of the labels."""
    texts = study.text_name(study.config.data.split)
    if study.config.data.source == 'file':
        # The names of its classes are the model's own; only their number can be compared.
        labels = [example.label for example in study.dev]
        if labels[0] is None:
            raise ValueError('Ablation needs labels: --config.data.label=COLUMN.')
        needed = 1 if isinstance(labels[0], float) else max(max(labels) + 1, 2)
        fits = config.num_labels == 1 if needed == 1 else config.num_labels >= needed
    else:
        needed = len(study.label_names)
        fits = config.num_labels == needed
    if not fits:
        raise ValueError(
            f'{study.model_name} has {config.num_labels} classes and {texts} {needed}: give a '
            'checkpoint that was fine-tuned on it, or let this run fine-tune one '
            '(--config.ablation.checkpoint=finetuned).'
        )
    if study.config.data.source == 'file':
        return
    theirs, ours = (
        [name.lower() for name in names] for names in (config.label_names, study.label_names)
    )
    if theirs != ours and sorted(theirs) == sorted(ours):
        raise ValueError(
            f'{study.model_name} numbers its classes {", ".join(theirs)}, and the labels are '
            f'numbered {", ".join(ours)}: reorder its classifier and id2label.'
        )


def sweep(
    study: Study,
    name: str,
    make_masks: Callable[[bs.BertConfig], np.ndarray],
    **settings: str,
) -> Swept:
    """Sweep a set of masks, go on where a former run was killed, or read what it finished.

    Args:
      study: the run.
      name: of the set and of its file; other settings of the ablation have another file.
      make_masks: returns the masks [K, L, N].
      **settings: what the masks depend on besides the model.
    """
    config = study.config.ablation
    check_baseline(config.baseline)
    file = swept_file(study, name, **settings)
    if not file.exists():
        # A head that does not exist shows before anything is trained.
        make_masks(study.pretrained.config)
        pretrained = model(study)
        sweep_to_file(
            file,
            pretrained,
            draw(study.dev, config.max_examples, study.config.seed),
            make_masks(pretrained.config),
            encoding=study.encoding,
            baseline=config.baseline,
            chunk_tokens=config.chunk_tokens or None,
            mesh=study.mesh,
        )
    return read_swept(file)


def swept_file(study: Study, name: str, **settings: str) -> pathlib.Path:
    """Return the file of what `sweep` finds, for the same arguments and configured settings."""
    for setting in ('checkpoint', 'baseline', 'max_examples'):
        settings[setting] = study.config.ablation[setting]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    return study.workdir / 'ablation' / f'{name}_{digest}.npz'


def metrics(study: Study, swept: Swept) -> tuple[str, ...]:
    """Return the metrics of what was swept; the first is the task's own."""
    return study.metrics(swept.logits.shape[-1])


def assess(study: Study, swept: Swept, name: str) -> dict[str, significance.Assessment]:
    """Compare each mask of a set with the intact model, by metric; writes the CSV."""
    found = {
        metric: _assessed(study, swept, metric)
        # Its test re-ranks all examples in every round; Pearson's correlation stands beside it.
        for metric in metrics(study, swept)
        if metric != 'spearman'
    }
    columns = ('score', 'difference', 'low', 'high', 'p_value', 'holm', 'benjamini_hochberg')
    names = [bs.masks.describe(mask) for mask in swept.masks[1:]]
    tables.write_csv(
        study.workdir / f'ablation_{name}.csv',
        ('metric', 'test', 'disabled', *columns),
        (
            (metric, each.test, disabled, *(getattr(each, column)[row] for column in columns))
            for metric, each in found.items()
            for row, disabled in enumerate(names)
        ),
    )
    return found


def _assessed(study: Study, swept: Swept, metric: str) -> significance.Assessment:
    """Assess, or read what was assessed of the same predictions: correlations take minutes."""
    content = hashlib.sha256(swept.logits.tobytes() + swept.labels.tobytes()).hexdigest()[:16]
    file = study.workdir / 'ablation' / f'assessed_{metric}_{content}.npz'
    if not file.exists():
        found = significance.assess(
            metric,
            swept.predictions[1:],
            swept.predictions[0],
            swept.labels,
            seed=study.config.seed,
        )
        write_arrays(file, vars(found))
    stored = read_arrays(file)
    return significance.Assessment(
        **{name: value if value.ndim else value.item() for name, value in stored.items()}
    )


def effects_of_heads(study: Study) -> tuple[str, np.ndarray] | None:
    """Return what disabling each head does, if it is measured with the configured settings.

    Returns:
      What it is, with the metric, and a text for each head [L, N].
    """
    if not swept_file(study, 'heads').exists():
        return None
    swept = sweep(study, 'heads', SETS['heads'])
    first = metrics(study, swept)[0]
    found = _assessed(study, swept, first)
    texts = [_effect(found, index) for index in range(len(found.difference))]
    which = ' (fine-tuned)' if study.config.ablation.checkpoint == 'finetuned' else ''
    return f'{TITLES[first]} without it{which}', np.reshape(texts, swept.masks.shape[1:])


def section(study: Study) -> Section:
    """Sweep what is not swept yet, and return the section of the report."""
    config = study.config.ablation
    unknown = set(config.sets) - set(SETS)
    if unknown:
        raise ValueError(f'ablation.sets are {", ".join(SETS)}, not {", ".join(sorted(unknown))}.')
    makers = {name: SETS[name] for name in config.sets}
    heads = bs.masks.parse_heads(config.together)
    if heads:
        # A head that does not exist shows before anything else is done.
        bs.masks.disable(study.pretrained.config, [heads])
        makers['together'] = lambda of_model: bs.masks.disable(of_model, [heads])
    if not makers:
        raise ValueError('Nothing to ablate: give ablation.sets, or heads in ablation.together.')
    shown = {
        'heads': _heads, 'layers': _layers, 'one_head_left': _one_head_left, 'together': _together,
    }  # fmt: skip
    paragraphs, blocks = [], []
    for name, make_masks in makers.items():
        chosen = {'heads': config.together} if name == 'together' else {}
        swept = sweep(study, name, make_masks, **chosen)
        words, more = shown[name](study, swept, assess(study, swept, name))
        paragraphs += words
        blocks += more
    what = {'uniform': 'to all tokens alike (1/length)', 'zero': 'to nothing'}[config.baseline]
    lead = (
        f'A disabled head attends {what} instead of as it learned. Scores are of '
        f'{len(swept.labels):,} examples of {study.text_name(study.config.data.split)}; '
        f'differences are in points (x 100) of {TITLES[metrics(study, swept)[0]]}, with 95 % '
        'intervals (paired bootstrap).'
    )
    return Section('Disabling heads and layers', [lead, *paragraphs], blocks)


def _heads(study: Study, swept: Swept, assessed):
    """Figure 8: one head at a time."""
    metric, found = _headline(assessed)
    shape = swept.masks.shape[1:]
    grid = lambda values: np.reshape(values, shape)
    best, worst = _best(found), _worst(found)
    name = lambda index: figures.head_name(*np.unravel_index(index, shape))
    gain = significance.selected_gain(
        next(iter(assessed)),
        swept.predictions[1:],
        swept.predictions[0],
        swept.labels,
        seed=study.config.seed,
    )
    words = [
        f'One head at a time ({metric} with all heads {100 * found.baseline_score:.1f}): '
        f'{_counts(found, metric, "heads")} Best to lose is {name(best)}: '
        f'{_effect(found, best)}; worst is {name(worst)}: {_effect(found, worst)}. A random head: '
        f'{100 * np.nanmean(found.difference):+.2f} points on average.',
        f'The best of {len(found.difference)} heads is partly the luckiest. Chosen on one half of '
        f'the examples, it changes {metric} by {100 * gain.honest:+.2f} points on the other half '
        f'(95 % of random halves: {100 * gain.honest_low:+.1f} to {100 * gain.honest_high:+.1f}), '
        f'not the {100 * gain.naive:+.2f} where it was chosen, as the paper reports it.',
    ]
    published = _published(study, 'fig8')
    if published is not None:
        words.append(_compared(published, found.difference, shape, metric))
    figure = figures.effect_grid(
        100 * grid(found.difference),
        label=f'change of {metric} (points)',
        real=grid(found.holm <= 0.05),
        likely=grid(found.benjamini_hochberg <= 0.05),
    )
    picture = Picture(
        _save(study, figure, 'ablation_heads'),
        'Score without each head less score with all (Figure 8). Filled circles: significant at '
        '5 % after correction for all heads (Holm); of the filled and the open ones together, at '
        'most 5 % are expected to be chance (Benjamini-Hochberg).',
    )
    order = np.argsort(found.difference)[: np.isfinite(found.difference).sum()]
    shown = dict.fromkeys((*order[:5], *order[-5:]))
    rows = [_row(found, index, name(index)) for index in shown]
    caption = f'The five lowest and the five highest differences, {metric}.'
    return words, [picture, Table(caption, _COLUMNS, rows)]


def _layers(study: Study, swept: Swept, assessed):
    """Figure 9: one layer at a time."""
    metric, found = _headline(assessed)
    best, worst = _best(found), _worst(found)
    words = [
        f'One layer at a time: {_counts(found, metric, "layers")} Best to lose is layer '
        f'{best + 1}: {_effect(found, best)}; worst is layer {worst + 1}: '
        f'{_effect(found, worst)}.'
    ]
    published = _published(study, 'fig9')
    if published is not None:
        words.append(_compared(published, found.difference, found.difference.shape, metric))
    figure = figures.layer_effects(
        100 * found.difference,
        100 * found.low,
        100 * found.high,
        label=f'change of {metric} (points)',
        published=None if published is None else 100 * published,
        published_name='paper: BERT-base',
    )
    picture = Picture(
        _save(study, figure, 'ablation_layers'),
        'Score without all heads of a layer less score with all (Figure 9); lines are 95 % '
        'intervals.',
    )
    rows = [_row(found, layer, f'layer {layer + 1}') for layer in range(len(found.difference))]
    return words, [picture, Table(f'Layers, {metric}.', _COLUMNS, rows)]


def _one_head_left(study: Study, swept: Swept, assessed):
    """Michel et al.: all heads of a layer but one."""
    metric, found = _headline(assessed)
    shape = swept.masks.shape[1:]
    defined = np.where(np.isnan(found.difference), -np.inf, found.difference)
    best = defined.reshape(shape).argmax(axis=1)
    rows = [
        _row(found, np.ravel_multi_index(head, shape), figures.head_name(*head))
        for head in enumerate(best)
    ]
    caption = (
        f'The head of each layer that suffices best alone, {metric} (Michel et al. 2019, table 2). '
        'It is the best of its layer on these very examples, so its difference is flattered.'
    )
    return [], [Table(caption, ('head left', *_COLUMNS[1:]), rows)]


def _together(study: Study, swept: Swept, assessed):
    """A list of heads that the user gave."""
    heads = study.config.ablation.together
    return [f'{heads} disabled together: {_effect(_headline(assessed)[1], 0)}.'], []


_COLUMNS = ('disabled', 'score', 'difference', '95 % interval', 'p', 'p (Holm)', 'p (B.-H.)')


def _headline(found: dict[str, significance.Assessment]):
    """Return the title of the first metric, which is the task's own, and its assessment."""
    metric, assessed = next(iter(found.items()))
    return TITLES[metric], assessed


def _best(found: significance.Assessment) -> int:
    """Return the mask with the highest score; where that is undefined, it is never the one."""
    return int(np.argmax(np.where(np.isnan(found.difference), -np.inf, found.difference)))


def _worst(found: significance.Assessment) -> int:
    return int(np.argmin(np.where(np.isnan(found.difference), np.inf, found.difference)))


def _row(found: significance.Assessment, index: int, name: str):
    p_values = (found.p_value, found.holm, found.benjamini_hochberg)
    return (
        name,
        f'{100 * found.score[index]:.1f}',
        f'{100 * found.difference[index]:+.2f}',
        f'{100 * found.low[index]:+.2f} to {100 * found.high[index]:+.2f}',
        *(f'{values[index]:.3g}' for values in p_values),
    )


def _effect(found: significance.Assessment, index: int) -> str:
    return (
        f'{100 * found.difference[index]:+.2f} points ({100 * found.low[index]:+.2f} to '
        f'{100 * found.high[index]:+.2f}, p = {found.p_value[index]:.2g}, corrected '
        f'{found.holm[index]:.2g})'
    )


def _counts(found: significance.Assessment, metric: str, what: str) -> str:
    undefined = np.isnan(found.difference).sum()
    down, up = found.significant()
    likely_down, likely_up = found.significant(correction='benjamini_hochberg')
    return (
        f'without it, {metric} is lower for {(found.difference < 0).sum()} and higher for '
        f'{(found.difference > 0).sum()} of {len(found.difference)} {what}; significantly so for '
        f'{down} and {up} (Holm), '
        f'{likely_down} and {likely_up} (Benjamini-Hochberg; {found.test} test).'
        + (f' For {undefined} it is undefined: constant predictions.' if undefined else '')
    )


def _published(study: Study, figure: str) -> np.ndarray | None:
    """Return the paper's differences to its baseline in Figure 8 or 9."""
    if not study.glue_task:
        return None
    title = study.glue_task.title
    key = {'fig8': 'fig8_disable_one_head', 'fig9': 'fig9_disable_one_layer'}[figure]
    return np.array(paper.published()[key][title]) - paper.published()[f'{figure}_baseline'][title]


def _compared(published: np.ndarray, ours: np.ndarray, shape, metric: str) -> str:
    place = lambda index: (
        figures.head_name(*np.unravel_index(index, published.shape))
        if published.ndim == 2
        else f'layer {index + 1}'
    )
    text = (
        f'In the paper (BERT-base, digitised) the best to lose is {place(published.argmax())} '
        f'({100 * published.max():+.1f} points of {metric}) and the worst '
        f'{place(published.argmin())} ({100 * published.min():+.1f}), without intervals.'
    )
    if published.shape == tuple(shape):
        rank = scipy.stats.spearmanr(published.ravel(), ours, nan_policy='omit').statistic
        text += f' Rank correlation with ours: {rank:.2f}.'
    return text


def _save(study: Study, figure, name: str):
    return figures.save(figure, study.workdir / 'figures', name)


if __name__ == '__main__':
    launch(section)
