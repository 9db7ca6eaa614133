"""Features of a map for the classifier: shapes, which contrast and length hardly change.

A network that sees pixels learns with the classes how sharp a model's attention is, and fails on a
model that was not labelled. These features ask how much of a map's variance its columns, its
diagonals and its texts explain, on three scales from the logarithm to the brightness that a person
sees, and whether a line runs through all thirds of the map (`tools/patterns/guideline.md`).

Shapes: T positions, R = T + 1 rows, K offsets of a key from its query, G groups of rows, F
features.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_secrets_jax.measure.exact import product

_Map = Float[Array, 'R T']
_Features = Float[Array, ' F']
_ByToken = Float[Array, ' T']
NEAR = 3  # diagonals up to this offset are looked at one by one
_LEAST = 8  # the room of a map, so that each has three columns and the near diagonals
_DARK = 0.05  # the share of a uniform cell below which one is dark on the logarithmic scale
# Bands as shares of the length, and levels of brightness as shares of the brightest cell.
_BANDS = (0.05, 0.12, 0.25)
_LEVELS = (0.05, 0.1, 0.2, 0.4, 0.7)
NUMBER = 163  # how many features a map has (F)


def features(
    attention: Float[Array, 'T T'], length: Int[Array, ''], first_text: Int[Array, '']
) -> _Features:
    """Return the features of the map of one head; rows and columns from `length` on are padding.

    The first text is [CLS] A [SEP], and as long as the whole where there is a single one.
    """
    more = max(0, _LEAST - len(attention))
    tokens = _Tokens(len(attention) + more, length, first_text)
    attention = jnp.pad(attention.astype(jnp.float32), ((0, more + 1), (0, more)))
    n = tokens.n
    # A where, since padding may hold anything.
    rows = jnp.where(tokens.cells > 0, attention, 0)
    rows = rows / jnp.maximum(_by_row(rows, tokens), 1e-9)[:, None]
    peak = jnp.maximum(rows.max(), 1e-9)
    lines = _near(rows)
    roots = jnp.sqrt(rows)
    log = _log(rows, n) * tokens.cells
    # Beside those of even attention, so that sums of an all but even map are as exact as others.
    sums = _Sums(rows, 1 / n, tokens)
    sums_of_roots = _Sums(roots, 1 / jnp.sqrt(n), tokens)
    sums_of_log = _Sums(log, 0.0, tokens)
    return jnp.concatenate(
        [
            _scale_features(sums_of_roots, jnp.sqrt(n), jnp.sqrt(lines * n), tokens),
            _scale_features(sums_of_log, 1.0, _log(lines, n), tokens),
            _scale_features(sums, 1 / peak, lines / peak, tokens),
            _row_features(rows, roots, sums, sums_of_roots, tokens),
            _brightness_features(rows / peak, lines / peak, tokens),
            _text_features(rows, log, tokens),
        ]
    )


class _Tokens:
    """The values that all maps, which have a row more (`_along_diagonals`), of an example share."""

    def __init__(self, room: int, length: Int[Array, ''], first_text: Int[Array, '']):
        places = jnp.arange(room)
        self.real = real = (places < length).astype(jnp.float32)  # [T] 1 for tokens
        self.n = n = length.astype(jnp.float32)
        self.first_text = first_text  # the number of tokens in the first text
        self.text = text = places < first_text  # [T] whether a place is in the first text
        special = (places == 0) | (places == first_text - 1) | (places == length - 1)
        self.special = special * real  # [T] 1 for the special tokens
        third = jnp.floor((places + 0.5) / n * 3)
        self.thirds = (third[None] == jnp.arange(3)[:, None]) * real[None]  # [3, T] by row
        # [2, T] 1 for the tokens of each text that are not special.
        self.words = (real * (1 - self.special))[None] * jnp.stack([text, 1 - text])
        rows = jnp.concatenate([self.thirds, text[None] * real[None], self.words])
        # [6, R] 1 for the rows of each third of the map, of the first text, and of all words.
        self.groups = jnp.pad(rows, ((0, 0), (0, 1)))
        self.cells = jnp.pad(real, (0, 1))[:, None] * real[None]  # [R, T] 1 where both are tokens
        self.offsets = jnp.arange(2 * room) - (room - 1)  # [K] of diagonals, from the lower left
        self.sizes = jnp.maximum(n - jnp.abs(self.offsets), 0)  # [K] the numbers of their cells
        # [7, T] 1 where a near diagonal has a cell, by the row of the cell.
        self.near = _shifted(real) * real[None]
        first = rows[3].sum()
        self.same = jnp.square(first) + jnp.square(n - first)  # cells with both ends in one text
        self.two = jnp.any(real * (1 - text) > 0)  # whether there are two texts


class _Sums:
    """Sums over the cells of a map, less a constant each; all that is linear comes from them."""

    def __init__(self, values: _Map, constant: Array | float, tokens: _Tokens):
        values = (values - constant) * tokens.cells
        self.constant = constant
        self.groups = product('GT,TS->GS', tokens.groups, values)  # [6, T] of columns, by group
        self.columns = self.groups[:3].sum(axis=0)  # [T] of each column
        self.rows = _by_row(values, tokens)[:-1]  # [T] of each row
        self.diagonals = _along_diagonals(values)  # [K] along each diagonal
        self.mean = self.rows.sum() / tokens.n**2  # of the cells
        squares = product('TS,TS->', values, values) / tokens.n**2
        # The standard deviation of the cells.
        self.deviation = jnp.sqrt(jnp.maximum(squares - self.mean**2, 0))


def _by_row(values: _Map, tokens: _Tokens) -> Float[Array, ' R']:
    # As a matrix product, which a CPU does faster than a sum.
    return product('TS,S->T', values, tokens.real)


def _scale_features(sums: _Sums, factor, lines, tokens: _Tokens) -> _Features:
    """Return how much of the variance of a multiplied map columns and diagonals explain."""
    n, real, offsets, sizes_of = tokens.n, tokens.real, tokens.offsets, tokens.sizes
    mean = (sums.mean + sums.constant) * factor
    deviation = sums.deviation * factor + 1e-6
    # From sums of the map to sums of it in standard deviations.
    scale = factor / deviation
    sizes = jnp.maximum(tokens.thirds.sum(axis=1, keepdims=True), 1)

    columns = (sums.columns - n * sums.mean) * real * scale / n
    thirds = (sums.groups[:3] / sizes - sums.mean) * real[None] * scale
    # The three have as many rows as there are, unless tokens are fewer than three.
    through = jnp.where(tokens.thirds.any(axis=1)[:, None], thirds, 0).min(axis=0)
    rest = jnp.maximum(1 - jnp.square(columns).sum() / n, 1e-6)

    # Sums along the diagonals of the map, and of what its columns do not explain.
    along = (sums.diagonals - sums.mean * sizes_of) * scale
    upto, last = jnp.pad(jnp.cumsum(columns), (1, 0)), n.astype(int)
    begin, end = jnp.clip(offsets, 0, last), jnp.clip(last + offsets, 0, last)
    left = along - (upto[end] - upto[begin])
    means, left_means = (each / jnp.maximum(sizes_of, 1) for each in (along, left))
    near = jnp.abs(offsets) <= NEAR
    left_lines = ((lines - mean) / deviation - _shifted(columns)) * tokens.near
    line_sums = product('RT,KT->RK', tokens.thirds, left_lines)
    line_sizes = product('RT,KT->RK', tokens.thirds, tokens.near)
    line_means = left_lines.sum(axis=1) / jnp.maximum(tokens.near.sum(axis=1), 1)
    line_through = (line_sums / jnp.maximum(line_sizes, 1)).min(axis=0)
    beside = (jnp.abs(offsets) > NEAR) & (jnp.abs(offsets) <= 8)

    first, text, same = tokens.groups[3].sum(), tokens.text, tokens.same
    share = same / n**2
    own = jnp.where(text, sums.groups[3], sums.columns - sums.groups[3]).sum()
    # The rest of a map has the mean 0, so what is not within texts is across them.
    excess = (own - sums.mean * same) * scale - (columns * jnp.where(text, first, n - first)).sum()
    within = excess / jnp.maximum(same, 1)
    across = -excess / jnp.maximum(n**2 - same, 1)
    two = share < 1 - 1e-6
    parts = [
        mean,
        jnp.log(deviation),
        1 - rest,
        jnp.square((sums.rows / n - sums.mean) * real * scale).sum() / n,
        _top(jnp.where(real > 0, columns, -9.0), 3),
        _top(jnp.where(real > 0, through, -9.0), 2),
        columns[0],
        jnp.where(tokens.special > 0, columns, -9.0).max(),
        (jnp.square(means) * sizes_of).sum() / n**2,
        (jnp.square(left_means) * sizes_of).sum() / n**2 / rest,
        (jnp.square(left_means) * sizes_of * (jnp.abs(offsets) <= 2)).sum() / n**2 / rest,
        rest,
        line_means,
        jnp.where(near, means, -9.0).max(),
        line_means.max(),
        line_through.max(),
        *(
            (each * inside).sum() / (sizes_of * inside).sum()
            for inside in (jnp.abs(offsets) <= jnp.maximum(band * n, 1) for band in _BANDS)
            for each in (along, left)
        ),
        line_means.max() - (left * beside).sum() / jnp.maximum((sizes_of * beside).sum(), 1),
        jnp.where(two, within - across, 0),
        jnp.where(
            two, (jnp.square(within) * share + jnp.square(across) * (1 - share)) / rest, 0
        ),
    ]  # fmt: skip
    return _joined(parts)


def _row_features(rows, roots, sums: _Sums, sums_of_roots: _Sums, tokens: _Tokens) -> _Features:
    """Return where the greatest cells of the rows are, how sharp rows are, and how alike."""
    real, n, special = tokens.real, tokens.n, tokens.special
    places = jnp.arange(len(real))
    greatest = _first_greatest(rows)[:-1]
    elsewhere = _first_greatest(rows * (1 - special)[None])[:-1]
    hit = jnp.maximum(1 - jnp.abs(greatest[:, None] - places[None]), 0.0)
    hit = (hit * real[:, None]).sum(axis=0) / n

    def mean(each):
        return (each * real).sum() / n

    step, other_step = greatest - places, elsewhere - places
    steps = jnp.stack([mean(step == k) for k in range(-NEAR, NEAR + 1)])
    top = _top(hit, 3)
    entropy = -(rows * jnp.log(jnp.maximum(rows, 1e-9))).sum(axis=1)[:-1]
    entropy = entropy / jnp.log(jnp.maximum(n, 2))
    # How well one row, or one row that moves with its query, stands for all.
    typical = jnp.square(sums_of_roots.columns / n + sums_of_roots.constant * real)
    typical = typical.sum()
    moved = sums_of_roots.diagonals / jnp.maximum(tokens.sizes, 1)
    moved = moved + sums_of_roots.constant * (tokens.sizes > 0)
    columns = sums.columns / n + sums.constant * real
    # Row i has the offsets from -i to n - 1 - i.
    upto = jnp.pad(jnp.cumsum(moved**2), (1, 0))
    begin = len(real) - 1 - places
    size = upto[begin + n.astype(int)] - upto[begin]
    weights = jnp.pad(real / jnp.sqrt(jnp.maximum(size, 1e-18)), (0, 1))
    return _joined(
        [
            top,
            top.sum(),
            (hit * special).sum(),
            steps,
            steps.max(),
            *(
                mean(jnp.abs(each) <= width)
                for each in (step, other_step)
                for width in (1, jnp.maximum(0.05 * n, 2), 0.15 * n)
            ),
            mean((elsewhere < tokens.first_text) == tokens.text) - tokens.same / n**2,
            mean(entropy),
            jnp.sqrt(jnp.maximum(mean(entropy**2) - mean(entropy) ** 2, 0)),
            (columns * special).sum(),
            columns[0],
            typical / jnp.maximum(jnp.sqrt(typical), 1e-9),
            (_along_diagonals(roots * weights[:, None]) * moved).sum() / n,
        ]
    )


def _brightness_features(bright, lines, tokens: _Tokens) -> _Features:
    """Return, by level of brightness, how full the map, its columns and its diagonals are."""
    parts = []
    for level in _LEVELS:
        lit = _is_above(bright, level).sum(axis=0)
        on_lines = _is_above(lines, level).sum(axis=1)
        parts += [
            lit.sum() / tokens.n**2,
            _top(lit / tokens.n, 2),
            (on_lines / jnp.maximum(tokens.near.sum(axis=1), 1)).max(),
        ]
    return _joined(parts)


def _text_features(rows, log, tokens: _Tokens) -> _Features:
    """Return how much rather a token attends to its own text: log odds, 0 for a single text.

    Without special tokens and cells near the diagonal, neither of which passes for a block.
    """
    n, two, words = tokens.n, tokens.two, tokens.words
    rooms = jnp.arange(len(tokens.real) + 1)
    distance = jnp.abs(rooms[:, None] - rooms[None, :-1])

    def odds(found, count):
        found = jnp.where(count > 0, found, 0)
        enough = two & (count.min() > 0)
        both = found[0, 0] + found[1, 1] - found[0, 1] - found[1, 0]
        best = jnp.maximum(found[0, 0] - found[0, 1], found[1, 1] - found[1, 0])
        return [jnp.where(enough, both, 0), jnp.where(enough, best, 0)]

    parts = [jnp.log(n), two, jnp.where(two, tokens.groups[3].sum() / n, 1.0)]
    texts = tokens.groups[4:]
    for width in (-1, NEAR, jnp.maximum(0.15 * n, 2)):
        far = (distance > width) * 1.0
        count = product('AT,TS,BS->AB', texts, far, words)
        for each in (rows, log):
            of_text = product('TS,BS->TB', each * far, words)
            found = product('AT,TB->AB', texts, of_text) / jnp.maximum(count, 1)
            if each is rows:
                found = jnp.log(jnp.maximum(found * n, 1e-3))
            parts += odds(found, count)
    return _joined(parts)


def _joined(parts) -> _Features:
    return jnp.concatenate([jnp.atleast_1d(jnp.asarray(part, jnp.float32)) for part in parts])


def _log(values, n):
    return jnp.log(jnp.maximum(values * n, _DARK))


# Comparisons by arithmetic: on a CPU, XLA sums these at a third of the time of booleans.
def _is_above(values, level):
    """Return 1.0 where values are above a level, 0.0 elsewhere; none is 1 or more away from it."""
    return jnp.ceil(values - level)


def _first_greatest(values: _Map) -> Float[Array, ' R']:
    """Return the place of the greatest value of each row, the first of several, for shares."""
    room = values.shape[1]
    is_greatest = 1 + jnp.floor(values - values.max(axis=1, keepdims=True))
    return room - (is_greatest * (room - jnp.arange(room))[None]).max(axis=1)


def _top(values: _ByToken, count: int) -> Float[Array, ' {count}']:
    """Return the greatest values, the greatest first: for a few, faster than to sort."""
    greatest = []
    for _ in range(count):
        greatest.append(values.max())
        values = jnp.where(jnp.arange(len(values)) == values.argmax(), -jnp.inf, values)
    return jnp.stack(greatest)


def _along_diagonals(values: _Map) -> Float[Array, ' K']:
    """Return the sum along each diagonal, from the lower left; the last one has no cell.

    In rows that are one cell longer, each column holds one upper and one lower diagonal.
    """
    room = values.shape[1]
    both = values.reshape(room, room + 1)
    upper = both * (np.arange(room + 1)[None] < room - np.arange(room)[:, None]).astype(np.float32)
    of_both, of_upper = both.sum(axis=0), upper.sum(axis=0)
    return jnp.concatenate([(of_both - of_upper)[2:], of_upper])


def _shifted(values: _ByToken) -> Float[Array, 'K T']:
    """Return what stands NEAR places before to NEAR places behind each place; 0 beyond the ends."""
    padded = jnp.pad(values, NEAR)
    return jnp.stack([padded[k : k + len(values)] for k in range(2 * NEAR + 1)])


def _near(values: _Map) -> Float[Array, 'K T']:
    """Return the near diagonals, by the row of each cell; 0 beyond the ends."""
    room = values.shape[1]
    rows = np.arange(room)[None]
    columns = rows + np.arange(-NEAR, NEAR + 1)[:, None]
    inside = (columns >= 0) & (columns < room)
    return jnp.where(inside, values[rows, np.clip(columns, 0, room - 1)], 0)
