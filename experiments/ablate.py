"""Disabling heads and layers, and what of it is real (the paper, section 4.6, Figures 8 and 9).

    python -m experiments.ablate --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

ablates what this run fine-tunes (or has fine-tuned). A checkpoint that is fine-tuned already:

    ... --config.model.name=CHECKPOINT --config.ablation.checkpoint=model
"""

import dataclasses
import io
import zipfile
from collections.abc import Callable

import jax
import numpy as np
import scipy.stats
from absl import logging

import bert_secrets_jax as bs
from bert_secrets_jax import paper
from bert_secrets_jax.ablation import significance
from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.model.attention import check_baseline
from bert_secrets_jax.progress import progress
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import finetune
from experiments.study import Study, draw, launch

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
            seed = finetune.seeds(study)[0]
            return bs.from_pretrained(
                finetune.checkpoint(study, 'pretrained', seed), dtype=study.config.model.dtype
            )
        case 'model':
            loaded = study.load()
            if loaded.config.num_labels != len(study.label_names):
                raise ValueError(
                    f'{study.model_name} has {loaded.config.num_labels} classes and '
                    f'{study.text_name(study.config.data.split)} {len(study.label_names)}: give a '
                    'checkpoint that was fine-tuned on it, or let this run fine-tune one '
                    '(--config.ablation.checkpoint=finetuned).'
                )
            theirs, ours = (
                [name.lower() for name in names]
                for names in (loaded.config.label_names, study.label_names)
            )
            if theirs != ours and sorted(theirs) == sorted(ours):
                raise ValueError(
                    f'{study.model_name} numbers its classes {", ".join(theirs)}, and the labels '
                    f'are numbered {", ".join(ours)}: reorder its classifier and id2label.'
                )
            return loaded
        case other:
            raise ValueError(f"ablation.checkpoint is 'finetuned' or 'model', not {other!r}.")


@dataclasses.dataclass(frozen=True)
class Swept:
    """What a sweep leaves in its file.

    Attributes:
      masks: [K, L, N], the first of which keeps all heads.
      sets: [K] name of the set that a mask belongs to.
      logits: [K, E, C].
      labels: [E].
    """

    masks: np.ndarray
    sets: np.ndarray
    logits: np.ndarray
    labels: np.ndarray

    @property
    def predictions(self) -> np.ndarray:
        """[K, E] class ids, or values of a regression."""
        if self.logits.shape[-1] == 1:
            return self.logits[..., 0]
        return self.logits.argmax(axis=-1)

    def of(self, name: str) -> 'Swept':
        """Return the intact model and one set."""
        chosen = (self.sets == name) | (self.sets == 'intact')
        return dataclasses.replace(
            self, masks=self.masks[chosen], sets=self.sets[chosen], logits=self.logits[chosen]
        )


def sweep(
    study: Study, name: str, make_masks: Callable[[bs.BertConfig], dict[str, np.ndarray]]
) -> Swept:
    """Sweep sets of masks in one go, or go on where a former run was killed.

    Args:
      study: the run.
      name: of the file.
      make_masks: returns the sets by name.
    """
    file = study.workdir / 'ablation' / f'{name}.npz'
    if not file.exists():
        # A mistake in the settings shows before anything is trained.
        check_baseline(study.config.ablation.baseline)
        make_masks(study.pretrained.config)
        pretrained = model(study)
        masks = {'intact': bs.masks.none(pretrained.config)} | make_masks(pretrained.config)
        examples = draw(study.dev, study.config.ablation.max_examples, study.config.seed)
        together = np.concatenate(list(masks.values()))
        _write_arrays(
            file,
            masks=together,
            sets=np.repeat(list(masks), [len(of_set) for of_set in masks.values()]),
            logits=_sweep(study, file.with_suffix(''), pretrained, examples, together),
            labels=np.array([example.label for example in examples]),
        )
    return Swept(**_read_arrays(file))


def _sweep(study: Study, directory, pretrained, examples, masks: np.ndarray) -> np.ndarray:
    """Return the logits; each batch is a file as soon as it is done."""
    config = study.config.ablation
    settings = study.config.encoding.to_dict() | {'batch_multiple': jax.device_count()}
    batches = bs.encode(pretrained.tokenizer, examples, **settings)
    files = [directory / f'{index:04}.npz' for index in range(len(batches))]
    waiting = [
        (file, batch) for file, batch in zip(files, batches, strict=True) if not _done(file, batch)
    ]
    if len(waiting) < len(batches):
        logging.info('%d of %d batches are done.', len(batches) - len(waiting), len(batches))
    found = bs.sweep_batches(
        pretrained.bert,
        pretrained.params,
        progress(
            [batch for _, batch in waiting],
            f'Ablation ({len(masks)} masks)',
            size=lambda batch: batch.size * len(masks),
            unit='masks x examples',
        ),
        masks,
        baseline=config.baseline,
        chunk_tokens=config.chunk_tokens or None,
        mesh=study.mesh,
    )
    for logits, (file, batch) in zip(found, waiting, strict=True):
        real = batch.example >= 0
        _write_arrays(file, example=batch.example[real], logits=logits[:, real])
    whole = np.empty((len(masks), len(examples), pretrained.config.num_labels), np.float32)
    for part in map(_read_arrays, files):
        whole[:, part['example']] = part['logits']
    return whole


def _done(file, batch: bs.Batch) -> bool:
    """Whether a former run wrote this batch; another number of devices makes other batches."""
    real = batch.example >= 0
    return file.exists() and np.array_equal(_read_arrays(file)['example'], batch.example[real])


def _read_arrays(file) -> dict[str, np.ndarray]:
    try:
        with np.load(file) as arrays:
            return dict(arrays)
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        raise ValueError(f'{file} is damaged: delete it to measure anew.') from error


def _write_arrays(file, **arrays) -> None:
    data = io.BytesIO()
    np.savez(data, **arrays)
    write_atomically(file, data.getvalue())


def assess(study: Study, swept: Swept, name: str) -> dict[str, significance.Assessment]:
    """Compare each mask of a set with the intact model, by metric; writes the CSV."""
    chosen = swept.of(name)
    intact, disabled = chosen.predictions[0], chosen.predictions[1:]
    found = {
        metric: significance.assess(metric, disabled, intact, chosen.labels, seed=study.config.seed)
        # Its test re-ranks all examples in every round; Pearson's correlation stands beside it.
        for metric in study.metrics
        if metric != 'spearman'
    }
    columns = ('score', 'difference', 'low', 'high', 'p_value', 'holm', 'benjamini_hochberg')
    tables.write_csv(
        study.workdir / f'ablation_{name}.csv',
        ('metric', 'test', 'disabled', *columns),
        (
            (metric, each.test, _name(mask), *(getattr(each, column)[row] for column in columns))
            for metric, each in found.items()
            for row, mask in enumerate(chosen.masks[1:])
        ),
    )
    return found


def _name(mask: np.ndarray) -> str:
    """Return 'L1-H2', 'L3' for a whole layer, 'L3 but L3-H1', or several joined by '+'."""
    names = []
    for layer, row in enumerate(mask):
        off = [figures.head_name(layer, head) for head in np.flatnonzero(row == 0)]
        on = [figures.head_name(layer, head) for head in np.flatnonzero(row != 0)]
        if not on:
            names.append(f'L{layer + 1}')
        elif len(on) == 1 and len(off) > 1:
            names.append(f'L{layer + 1} but {on[0]}')
        else:
            names += off
    return '+'.join(names)


def _all_sets(study: Study, config: bs.BertConfig) -> dict[str, np.ndarray]:
    wanted = study.config.ablation
    unknown = set(wanted.sets) - set(SETS)
    if unknown:
        raise ValueError(f'ablation.sets are {", ".join(SETS)}, not {", ".join(sorted(unknown))}.')
    heads = bs.masks.parse_heads(wanted.together)
    if not wanted.sets and not heads:
        raise ValueError('Nothing to ablate: give ablation.sets, or heads in ablation.together.')
    sets = {name: SETS[name](config) for name in wanted.sets}
    if heads:
        sets['together'] = bs.masks.disable(config, [heads])
    return sets


def section(study: Study) -> Section:
    """Sweep what is not swept yet, and return the section of the report."""
    config = study.config.ablation
    swept = sweep(study, 'sets', lambda of_model: _all_sets(study, of_model))
    what = {'uniform': 'to all tokens alike (1/length)', 'zero': 'to nothing'}[config.baseline]
    paragraphs = [
        f'A disabled head attends {what} instead of as it learned. Scores are of '
        f'{len(swept.labels):,} examples of {study.text_name(study.config.data.split)}; '
        f'differences are in points (x 100) of {study.metrics[0]}, with 95 % intervals (paired '
        'bootstrap).'
    ]
    blocks = []
    shown = {
        'heads': _heads, 'layers': _layers, 'one_head_left': _one_head_left, 'together': _together,
    }  # fmt: skip
    for name, show in shown.items():
        if name in swept.sets:
            words, more = show(study, swept.of(name), assess(study, swept, name))
            paragraphs += words
            blocks += more
    return Section('Disabling heads and layers', paragraphs, blocks)


def _heads(study: Study, swept: Swept, assessed):
    """Figure 8: one head at a time."""
    metric, found = _headline(assessed)
    shape = swept.masks.shape[1:]
    grid = lambda values: np.reshape(values, shape)
    best, worst = _best(found), _worst(found)
    name = lambda index: figures.head_name(*np.unravel_index(index, shape))
    gain = significance.selected_gain(
        metric,
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
    """Return the first metric, which is the task's own, and its assessment."""
    return next(iter(found.items()))


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
    if study.config.data.source != 'glue':
        return None
    title = bs.get_task(study.config.data.task).title
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
