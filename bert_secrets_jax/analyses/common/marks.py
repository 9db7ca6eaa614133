"""Marks of each head from results (`runs.result.HeadMarks`), for the atlas of a report.

Shapes: L layers, N heads, M masks of one head each.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.analyses.common.effects import notes_of, title_of
from bert_secrets_jax.analyses.common.tables import greatest, worded
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.runs.result import HeadMarks
from bert_secrets_jax.stats.effects import Effects

# Which colour a head has of those that several results give it: what is most particular.
LINK, SHARE, PATTERN = range(3)
# Which results draw rings, if several do: the one for the widest population.
OVER_SEEDS, ONE_MODEL, MASKED_LM, SIMILARITY = range(4)
# A head attends mostly to what gets at least half of its attention.
MOSTLY = 0.5


def strongest(
    shape: tuple[int, ...], found: Iterable[tuple[tuple[int, ...], str, str, float]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return a mark and all sentences of each head [L, N].

    What was found is a head, a sentence about it, and a mark with its score. A head has the mark
    with its greatest score, if that is above 0.
    """
    marks, sentences, best = np.full(shape, '', object), np.full(shape, '', object), np.zeros(shape)
    for head, sentence, mark, score in found:
        sentences[head] += f'{sentence} '
        if score > best[head]:
            marks[head], best[head] = mark, score
    return marks.astype(str), np.char.strip(sentences.astype(str))


def mark_shares(tables: Mapping[str, HeadTable], names: Sequence[str]) -> list[HeadMarks]:
    """Mark heads that give half of their attention or more to tokens of one kind."""
    names = [name for name in names if name in tables and tables[name].count]
    if not names:
        return []
    most, share = greatest(names, np.nan_to_num([tables[name].mean for name in names]))
    sentences = worded('Gives {:.2f} of its attention to {}.', share, most)
    marks = np.where(share >= MOSTLY, most, '')
    about = {'rank': SHARE, 'bound': f'{MOSTLY:.0%} of attention to one token'}
    return [
        HeadMarks(
            title='attends mostly to', drawn='colour', marks=marks, sentences=sentences, **about
        )
    ]


def mark_effects(
    effects: Effects, shape: tuple[int, ...], *, rank: int, what: str = ''
) -> list[HeadMarks]:
    """Mark heads without which a model is shown to be worse or better."""
    what = what or title_of(effects)
    marks = np.reshape(np.where(effects.matters, effects.verdict, ''), shape)
    sentences = worded('Without it, {}: {}.', what, notes_of(effects, shape))
    return [
        HeadMarks(
            title=f'{what} without it', drawn='ring', marks=marks, sentences=sentences, rank=rank
        )
    ]


def mark_classes(
    shares: Mapping[str, Float[np.ndarray, 'L N C']], titles: Sequence[str]
) -> list[HeadMarks]:
    """Mark the most frequent class of each head, and where a second model, fine-tuned, differs."""
    found = []
    for model, grid in shares.items():
        names, share = greatest(titles, np.moveaxis(grid, -1, 0))
        sentences = worded('Its maps are most often {} ({:.0f} %).', names, 100 * share)
        whose = model if found else ''
        found.append(
            HeadMarks(
                title='pattern',
                drawn='colour',
                marks=names,
                sentences=sentences,
                rank=PATTERN,
                model=whose,
            )
        )
    if len(found) > 1:
        changed = np.not_equal(*(each.marks for each in found))
        said = np.char.replace(found[1].sentences, 'Its maps', 'After fine-tuning they')
        corner = HeadMarks(
            title='pattern changed by fine-tuning',
            drawn='corner',
            marks=np.where(changed, 'pattern changed', ''),
            sentences=np.where(changed, said, ''),
        )
        found.insert(1, corner)
    return found
