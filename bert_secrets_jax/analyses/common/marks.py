"""Marks of each head from results (`runs.result.HeadMarks`), for the atlas of a report.

Shapes: L layers, N heads, M masks of one head each.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.analyses.common.effects import notes_of, title_of
from bert_secrets_jax.analyses.common.links import Tests, beyond, kinds_of
from bert_secrets_jax.analyses.verdicts.claims import PRACTICAL_SHARE
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.runs.result import HeadMarks
from bert_secrets_jax.stats.effects import Effects
from bert_secrets_jax.stats.student import LEVEL

# Which colour a head has of those that several results give it: what is most particular.
LINK, SHARE, PATTERN = range(3)
# Which results draw rings, if several do: the one for the widest population.
OVER_SEEDS, ONE_MODEL, MASKED_LM, SIMILARITY = range(4)
NEEDED, BETTER_WITHOUT = 'needed', 'better without'
# A head attends mostly to what gets at least half of its attention.
MOSTLY = 0.5


def mark_links(tests: Tests) -> list[HeadMarks]:
    """Mark heads that attend along links clearly more than at places of all kinds.

    Significantly is not enough: the difference must be one that the claims on links ask for.
    """
    if not tests:
        return []
    marks, sentences, best = empty(next(iter(tests.values())).table.mean.shape)
    for title, test in tests.items():
        for head in map(tuple, np.argwhere(test.real)):
            score = float(test.table.mean[head])
            sentences[head] += (
                f'Attends {score:.2f} from {title}, more than {beyond(kinds_of(test))} explains '
                f'(corrected p = {test.familywise[head]:.2g}). '
            )
            excess = min(float(null.excess.mean[head]) for null in test.nulls.values())
            if excess >= PRACTICAL_SHARE and score > best[head]:
                marks[head], best[head] = title, score
    bound = f'at least {PRACTICAL_SHARE:.2f} more of its attention to a link than elsewhere'
    about = {'rank': LINK, 'bound': bound}
    return [made('follows a link', 'colour', marks, sentences, **about)]


def mark_shares(tables: Mapping[str, HeadTable], names: Sequence[str]) -> list[HeadMarks]:
    """Mark heads that give half of their attention or more to tokens of one kind."""
    names = [name for name in names if name in tables and tables[name].count]
    if not names:
        return []
    grids = np.stack([tables[name].mean for name in names])
    index = np.nan_to_num(grids).argmax(axis=0)
    most, share = np.array(names)[index], np.take_along_axis(grids, index[None], axis=0)[0]
    said = np.char.add(np.char.mod('Gives %.2f of its attention to ', share), most)
    sentences = np.char.add(said, '.')
    marks = np.where(share >= MOSTLY, most, '')
    about = {'rank': SHARE, 'bound': f'{MOSTLY:.0%} of attention to one token'}
    return [made('attends mostly to', 'colour', marks, sentences, **about)]


def mark_effects(
    effects: Effects, shape: tuple[int, ...], *, rank: int, what: str = ''
) -> list[HeadMarks]:
    """Mark heads without which a model is significantly worse or better."""
    what = what or title_of(effects)
    gain, real = np.reshape(effects.gain, shape), np.reshape(effects.corrected <= LEVEL, shape)
    marks = np.where(real, np.where(gain < 0, NEEDED, BETTER_WITHOUT), '')
    texts = notes_of(effects, shape).astype(str)
    sentences = np.char.add(np.char.add(f'Without it, {what}: ', texts), '.')
    return [made(f'{what} without it', 'ring', marks, sentences, rank=rank)]


def mark_classes(
    shares: Mapping[str, Float[np.ndarray, 'L N C']], titles: Sequence[str]
) -> list[HeadMarks]:
    """Mark the most frequent class of each head, and where a second model, fine-tuned, differs."""
    patterns = []
    for grid in shares.values():
        names, most = np.array(titles)[grid.argmax(axis=-1)], grid.max(axis=-1)
        sentences = np.char.add('Its maps are most often ', names)
        sentences = np.char.add(sentences, np.char.mod(' (%.0f %%).', 100 * most))
        patterns.append((names, sentences))
    found = [made('pattern', 'colour', *patterns[0], rank=PATTERN)]
    if len(patterns) > 1:
        (names, _), (after, sentences) = patterns
        _, model = shares
        said = np.char.replace(sentences, 'Its maps are', 'After fine-tuning they are')
        mark, said = (np.where(names != after, text, '') for text in ('pattern changed', said))
        corner = made('pattern changed by fine-tuning', 'corner', mark, said)
        found += [corner, made('pattern', 'colour', *patterns[1], rank=PATTERN, model=model)]
    return found


def empty(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return marks and sentences [L, N] without anything, and zeros."""
    return np.full(shape, '', object), np.full(shape, '', object), np.zeros(shape)


def made(title: str, drawn: str, marks, sentences, **about: Any) -> HeadMarks:
    """Return marks from arrays of any kind of texts; the arguments are those of `HeadMarks`."""
    return HeadMarks(
        title=title,
        drawn=drawn,
        marks=np.char.strip(marks.astype(str)),
        sentences=np.char.strip(sentences.astype(str)),
        **about,
    )
