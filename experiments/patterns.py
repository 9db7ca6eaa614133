"""The five patterns of attention and their shares (the paper, section 4.1, Figures 1 and 2).

    python -m experiments.patterns --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax import paper
from bert_secrets_jax.patterns.cnn import CLASSES, TITLES
from bert_secrets_jax.patterns.sample import Maps
from bert_secrets_jax.patterns.train import f1_of, predict
from bert_secrets_jax.report import figures
from bert_secrets_jax.report.html import Picture, Section, Table
from experiments import finetune, heads, maps
from experiments.study import Study, launch

# Tokens of an example that is shown.
_LEGIBLE = 10


def section(study: Study) -> Section:
    """Measure what is not measured yet, and return the section of the report."""
    before = heads.measure(study)
    runs = [heads.measure_change(study, seed) for seed in finetune.seeds(study)]
    after = heads.over_seeds(runs, heads.PATTERNS)
    changed = np.mean([run[heads.PATTERN_CHANGED].mean for run in runs], axis=0)
    shares = {'pre-trained': _shares(before), 'fine-tuned': _shares(after)}
    published = _published(study)
    draw = lambda figure, name: figures.save(figure, study.workdir / 'figures', name)
    overall = {model: grid.mean(axis=(0, 1)) for model, grid in shares.items()}
    bars = {'paper: BERT-base, fine-tuned': published} if published is not None else {}
    blocks = [
        Picture(
            draw(figures.class_shares(bars | overall, TITLES), 'patterns'),
            'Share of maps of each class, over all heads and examples (Figure 2).',
        ),
        _table(before, after, published),
        Picture(
            draw(figures.class_grids(shares, TITLES), 'patterns_heads'),
            'The most frequent class of every head, the paler the smaller its share.',
        ),
        Picture(
            draw(
                figures.head_grids(
                    {'class changed': changed}, label='share of examples', limits=(0, 1)
                ),
                'patterns_changed',
            ),
            'On how many examples fine-tuning puts the map of a head into another class.',
        ),
        *_examples(study),
    ]
    words = [_words(before, shares, changed), _trust(study)]
    return Section('Patterns of attention', words, blocks)


def _shares(tables_: dict[str, bs.HeadTable]) -> np.ndarray:
    """Return [L, N, C] shares of each head's maps."""
    return np.stack([tables_[name].mean for name in heads.PATTERNS], axis=-1)


def _table(before, after, published) -> Table:
    rows = []
    for index, (name, title) in enumerate(zip(heads.PATTERNS, TITLES, strict=True)):
        # Heads go together, in an unknown way: at worst their errors add up.
        shown = [
            f'{100 * of[name].mean.mean():.1f} ± {196 * of[name].standard_error.mean():.1f}'
            for of in (before, after)
        ]
        theirs = [] if published is None else [f'{100 * published[index]:.1f}']
        rows.append((title, *shown, *theirs))
    return Table(
        'Share of all maps, in percent, and its 95 % interval over examples at its widest. What '
        'the classifier mistakes is not in it.',
        ('class', 'pre-trained', 'fine-tuned', *['paper: BERT-base, fine-tuned'] * bool(theirs)),
        rows,
    )


def _words(before, shares, changed) -> str:
    sentences = []
    for model, grid in shares.items():
        overall = grid.mean(axis=(0, 1))
        most = overall.argmax()
        settled = (grid.max(axis=-1) >= 0.9).mean()
        sentences.append(
            f'Of all maps of the {model} model {100 * overall[most]:.0f} % are '
            f'{TITLES[most]}; '
            f'{100 * settled:.0f} % of the heads have one class on at least nine examples in ten.'
        )
    upper = shares['fine-tuned'][..., -2:].sum(axis=-1).mean()
    sentences.append(
        'Block and heterogeneous, the classes that may hold what is specific to a task, are '
        f'{100 * upper:.0f} % after fine-tuning (in the paper 32 % on MRPC to 61 % on QQP).'
    )
    top = np.unravel_index(changed.argmax(), changed.shape)
    sentences.append(
        f'Fine-tuning puts {100 * changed.mean():.0f} % of the maps into another class, most in '
        f'{figures.head_name(*top)} ({100 * changed[top]:.0f} % of its maps) and in layer '
        f'{changed.mean(axis=1).argmax() + 1}.'
    )
    vertical = before[heads.PATTERNS[0]].mean > 0.5
    if vertical.any():
        special = before[heads.ALL_SPECIAL].mean
        sentences.append(
            f'Heads that are mostly vertical give {special[vertical].mean():.2f} of their '
            'attention to [CLS] and all [SEP]'
            + ('' if vertical.all() else f', the others {special[~vertical].mean():.2f}')
            + ' (pre-trained).'
        )
    return ' '.join(sentences)


def _trust(study: Study) -> str:
    confusion = heads.classifier(study).confusion
    if not confusion.size:
        return 'Classes are those that a convolutional network finds; how well is not known.'
    each = ', '.join(
        f'{title} {f1:.2f}' for title, f1 in zip(TITLES, f1_of(confusion), strict=True)
    )
    return (
        'Classes are those that a convolutional network finds. On labelled maps that it was not '
        f'trained with (cross-validation, {confusion.sum()} maps), its F1 is '
        f'{np.nanmean(f1_of(confusion)):.2f}, mean over classes ({each}); the paper reports 0.86 '
        'for its own and does not say on which maps.'
    )


def _examples(study: Study) -> list[Picture]:
    """Return Figure 1: for each class the maps that are most clearly of it."""
    examples = maps.compute(study)
    # In a map of few tokens one pattern looks like the other.
    shown = [each for each in examples if len(each.tokens) >= _LEGIBLE] or examples
    every = _as_maps(shown)
    logits = predict(heads.classifier(study), every).astype(np.float64)
    odds = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    panels = {}
    for index, title in enumerate(TITLES):
        clearest = np.argsort(-odds[:, index], kind='stable')
        of_class = {}
        for number in clearest[logits[clearest].argmax(axis=1) == index]:
            # Of each head one.
            of_class.setdefault((every.layer[number], every.head[number]), number)
        of_class = list(of_class.values())[:4]
        panels[title] = [
            (figures.head_name(every.layer[number], every.head[number]), every.values[number])
            for number in of_class
        ]
    figure = figures.class_examples(panels)
    return [
        Picture(
            figures.save(figure, study.workdir / 'figures', 'patterns_examples'),
            f'For each class the maps that are most clearly of it, of all heads on {len(shown)} '
            'examples, pre-trained (Figure 1). Each on a scale of its own.',
        )
    ]


def _as_maps(shown: list[bs.TokenMaps]) -> Maps:
    """Return the maps [L, N, T, T] of all heads, apart."""
    values, first_text, example, layer, head = [], [], [], [], []
    for number, of in enumerate(shown):
        tokens = list(of.tokens)
        for place in np.ndindex(of.attentions.shape[:2]):
            values.append(of.attentions[place])
            # The last token separates, and the same one stands between two texts.
            first_text.append(tokens.index(tokens[-1]) + 1)
            example.append(str(number))
            layer.append(place[0])
            head.append(place[1])
    return Maps(
        values=values,
        first_text=np.array(first_text),
        source=np.array([''] * len(values)),
        example=np.array(example),
        layer=np.array(layer),
        head=np.array(head),
        text=np.array(example).astype(int),
    )


def _published(study: Study) -> np.ndarray | None:
    """Return the shares of Figure 2 in the order of CLASSES."""
    if not study.glue_task:
        return None
    figure = paper.published()['fig2_percent']
    by_class = dict(zip(figure['classes'], figure[study.glue_task.title], strict=True))
    return np.array([by_class[name] for name in CLASSES]) / 100


if __name__ == '__main__':
    launch(section)
