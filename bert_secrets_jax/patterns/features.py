"""What the classifier sees of a map: shapes, measured so that contrast and length hardly matter.

Models differ in how sharp their attention is, and inputs in length. A network that sees pixels
learns both with the classes, and fails on a model that was not labelled. These features ask instead
how much of a map's variance its columns, its diagonals and its texts explain, on three scales from
the logarithm to the brightness that a person sees, and whether a line runs through all thirds of
the map, as the guideline demands (`docs/pattern_guideline.md`).

Shapes: T positions, K offsets of a key from its query, R thirds, F features.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# Diagonals up to this offset are looked at one by one.
NEAR = 3
# The least room of a map, so that each has three columns and the near diagonals.
_LEAST = 8
# A cell is at least this share of a uniform one on the logarithmic scale: what is fainter is dark.
_DARK = 0.05
# Bands as shares of the length, and levels of brightness as shares of the brightest cell.
_BANDS = (0.05, 0.12, 0.25)
_LEVELS = (0.05, 0.1, 0.2, 0.4, 0.7)
_EXACT = jax.lax.Precision.HIGHEST


def features(
    attention: Float[Array, 'T T'], length: Int[Array, ''], first_text: Int[Array, '']
) -> Float[Array, ' F']:
    """Return the features of one map.

    Args:
      attention: The map of one head. Rows and columns from `length` on are padding.
      length: The number of tokens.
      first_text: The number of tokens in [CLS] A [SEP]; `length` for a single text.
    """
    attention = jnp.pad(attention, (0, max(0, _LEAST - len(attention))))
    places = jnp.arange(len(attention))
    real = (places < length).astype(jnp.float32)
    cells = real[:, None] * real[None]
    # A where, since padding may hold anything.
    rows = jnp.where(cells > 0, attention.astype(jnp.float32), 0)
    rows = rows / jnp.maximum(rows.sum(axis=1, keepdims=True), 1e-9)
    n = length.astype(jnp.float32)
    text = places < first_text
    special = ((places == 0) | (places == first_text - 1) | (places == length - 1)) * real
    bright = rows / jnp.maximum(rows.max(), 1e-9)
    scales = (
        jnp.sqrt(rows * n),
        jnp.log(jnp.maximum(rows * n, _DARK)),
        bright,
    )
    return jnp.concatenate(
        [
            *(_of_scale(each, real, n, text, special) for each in scales),
            _of_rows(rows, real, n, text, special),
            _of_brightness(bright, real, n),
            _of_texts(rows, real, n, text, special),
        ]
    )


@functools.cache
def number_of_features() -> int:
    """Return how many features a map has (F)."""
    number = jax.ShapeDtypeStruct((), jnp.int32)
    return jax.eval_shape(features, jax.ShapeDtypeStruct((8, 8), jnp.float32), number, number).size


def _of_scale(values, real, n, text, special) -> Float[Array, ' F']:
    """Return how much of the variance columns and diagonals explain, and these themselves."""
    cells = real[:, None] * real[None]
    mean = (values * cells).sum() / n**2
    deviation = jnp.sqrt((jnp.square(values - mean) * cells).sum() / n**2) + 1e-6
    z = (values - mean) / deviation * cells
    third = _thirds(real, n)
    sizes = jnp.maximum(third.sum(axis=1, keepdims=True), 1)

    columns = z.sum(axis=0) / n
    through = (jnp.einsum('RT,TS->RS', third, z, precision=_EXACT) / sizes).min(axis=0)
    rest = jnp.maximum(1 - jnp.square(columns).sum() / n, 1e-6)

    # Sums along the diagonals of the map, and of what its columns do not explain.
    offsets, sizes_of = _offsets(n, len(real))
    sums = _along_diagonals(z)
    left = sums - _windows(columns, offsets, n)
    means, left_means = (each / jnp.maximum(sizes_of, 1) for each in (sums, left))
    near = jnp.abs(offsets) <= NEAR
    lines, line_cells = _near(z, real)
    left_lines = lines - line_cells * _shifted(columns)
    line_sums = jnp.einsum('RT,KT->RK', third, left_lines, precision=_EXACT)
    line_sizes = jnp.einsum('RT,KT->RK', third, line_cells, precision=_EXACT)
    line_means = left_lines.sum(axis=1) / jnp.maximum(line_cells.sum(axis=1), 1)
    line_through = (line_sums / jnp.maximum(line_sizes, 1)).min(axis=0)
    beside = (jnp.abs(offsets) > NEAR) & (jnp.abs(offsets) <= 8)

    same = cells * (text[:, None] == text[None])
    share = same.sum() / n**2
    within = ((z - columns[None]) * same).sum() / jnp.maximum(same.sum(), 1)
    across = ((z - columns[None]) * (cells - same)).sum() / jnp.maximum((cells - same).sum(), 1)
    two = share < 1 - 1e-6
    parts = [
        mean,
        jnp.log(deviation),
        1 - rest,
        jnp.square(z.sum(axis=1) / n).sum() / n,
        _top(jnp.where(real > 0, columns, -9.0), 3),
        _top(jnp.where(real > 0, through, -9.0), 2),
        columns[0],
        jnp.where(special > 0, columns, -9.0).max(),
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
            for each in (sums, left)
        ),
        line_means.max() - (left * beside).sum() / jnp.maximum((sizes_of * beside).sum(), 1),
        jnp.where(two, within - across, 0),
        jnp.where(
            two, (jnp.square(within) * share + jnp.square(across) * (1 - share)) / rest, 0
        ),
    ]  # fmt: skip
    return _joined(parts)


def _of_rows(rows, real, n, text, special) -> Float[Array, ' F']:
    """Return where the greatest cells of the rows are, how sharp rows are, and how alike."""
    places = jnp.arange(len(real))
    greatest = rows.argmax(axis=1)
    hit = ((greatest[:, None] == places[None]) * real[:, None]).sum(axis=0) / n
    elsewhere = (rows * (1 - special)[None]).argmax(axis=1)

    def mean(each):
        return (each * real).sum() / n

    step, other_step = greatest - places, elsewhere - places
    steps = jnp.stack([mean(step == k) for k in range(-NEAR, NEAR + 1)])
    top = _top(hit, 3)
    same = (text[:, None] == text[None]) * real[:, None] * real[None]
    entropy = -(rows * jnp.log(jnp.maximum(rows, 1e-9))).sum(axis=1)
    entropy = entropy / jnp.log(jnp.maximum(n, 2))
    # How well one row, or one row that moves with its query, stands for all.
    roots = jnp.sqrt(rows)
    typical = roots.sum(axis=0) / n
    alike = (roots * typical[None]).sum(axis=1) / jnp.maximum(jnp.sqrt((typical**2).sum()), 1e-9)
    sizes = _offsets(n, len(real))[1]
    moving = _by_diagonal(roots)
    moved = moving.sum(axis=0) / jnp.maximum(sizes, 1)
    # Row i has the offsets from -i to n - 1 - i.
    upto = jnp.pad(jnp.cumsum(moved**2), (1, 0))
    begin = len(real) - 1 - places
    size = upto[begin + n.astype(int)] - upto[begin]
    fits = (moving * moved[None]).sum(axis=1) / jnp.sqrt(jnp.maximum(size, 1e-18))
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
            mean(text[elsewhere] == text) - same.sum() / n**2,
            mean(entropy),
            jnp.sqrt(jnp.maximum(mean(entropy**2) - mean(entropy) ** 2, 0)),
            (rows * special[None]).sum() / n,
            rows[:, 0].sum() / n,
            mean(alike),
            mean(fits),
        ]
    )


def _of_brightness(bright, real, n) -> Float[Array, ' F']:
    """Return, by level of brightness, how full the map, its columns and its diagonals are."""
    lines, cells = _near(bright, real)
    parts = []
    for level in _LEVELS:
        lit = bright > level
        parts += [
            lit.sum() / n**2,
            _top(lit.sum(axis=0) / n, 2),
            ((lines > level).sum(axis=1) / jnp.maximum(cells.sum(axis=1), 1)).max(),
        ]
    return _joined(parts)


def _of_texts(rows, real, n, text, special) -> Float[Array, ' F']:
    """Return how much rather a token attends to its own text: log odds, 0 for a single text.

    Columns cancel in them, and special tokens are left out, so that neither passes for a block. So
    are, on the second and third measure, cells near the diagonal.
    """
    places = jnp.arange(len(real))
    two = jnp.any(real * (1 - text) > 0)
    words = real * (1 - special)
    distance = jnp.abs(places[:, None] - places[None])
    texts = jnp.stack([words * text, words * (1 - text)])
    log = jnp.log(jnp.maximum(rows * n, _DARK))
    parts = [jnp.log(n), two, jnp.where(two, (text * real).sum() / n, 1.0)]
    for width in (-1.0, float(NEAR), jnp.maximum(0.15 * n, 2)):
        far = distance > width
        count = jnp.einsum('AT,TS,BS->AB', texts, far * 1.0, texts, precision=_EXACT)
        for each in (rows * n, log):
            found = jnp.einsum('AT,TS,BS->AB', texts, each * far, texts, precision=_EXACT)
            found = found / jnp.maximum(count, 1)
            if each is not log:
                found = jnp.log(jnp.maximum(found, 1e-3))
            found = jnp.where(count > 0, found, 0)
            enough = two & (count.min() > 0)
            odds = found[0, 0] + found[1, 1] - found[0, 1] - found[1, 0]
            best = jnp.maximum(found[0, 0] - found[0, 1], found[1, 1] - found[1, 0])
            parts += [jnp.where(enough, odds, 0), jnp.where(enough, best, 0)]
    return _joined(parts)


def _joined(parts) -> Float[Array, ' F']:
    return jnp.concatenate([jnp.atleast_1d(jnp.asarray(part, jnp.float32)) for part in parts])


def _thirds(real, n) -> Float[Array, 'R T']:
    """Return 1 for the rows of each third of the map, 0 elsewhere."""
    third = jnp.floor((jnp.arange(len(real)) + 0.5) / n * 3)
    return (third[None] == jnp.arange(3)[:, None]) * real[None]


def _offsets(n, room: int):
    """Return the offset of each diagonal [K], from the lower left, and its number of cells [K]."""
    offsets = jnp.arange(2 * room) - (room - 1)
    return offsets, jnp.maximum(n - jnp.abs(offsets), 0)


def _by_diagonal(values: Float[Array, 'T T']) -> Float[Array, 'T K']:
    """Move each row so that a diagonal becomes a column."""
    room = len(values)
    wide = jnp.pad(values, ((0, 0), (room - 1, 0)))
    return jnp.pad(wide.reshape(-1), (0, room)).reshape(room, 2 * room)


def _windows(columns, offsets, n) -> Float[Array, ' K']:
    """Return the sum along each diagonal of a map whose rows all are these columns."""
    upto = jnp.pad(jnp.cumsum(columns), (1, 0))
    last = n.astype(int)
    begin, end = jnp.clip(offsets, 0, last), jnp.clip(last + offsets, 0, last)
    return upto[end] - upto[begin]


def _top(values: Float[Array, ' T'], count: int) -> Float[Array, ' {count}']:
    """Return the greatest values, the greatest first: for a few, faster than to sort."""
    found = []
    for _ in range(count):
        found.append(values.max())
        values = jnp.where(jnp.arange(len(values)) == values.argmax(), -jnp.inf, values)
    return jnp.stack(found)


def _along_diagonals(values: Float[Array, 'T T']) -> Float[Array, ' K']:
    return _by_diagonal(values).sum(axis=0)


def _shifted(values: Float[Array, ' T']) -> Float[Array, 'K T']:
    """Return what stands NEAR places before to NEAR places behind each place; 0 beyond the ends."""
    padded = jnp.pad(values, NEAR)
    return jnp.stack([padded[k : k + len(values)] for k in range(2 * NEAR + 1)])


def _near(values, real):
    """Return the near diagonals [K, T], by the row of each cell, and 1 where there is a cell."""
    padded = jnp.pad(values, ((0, 0), (NEAR, NEAR)))
    lines = jnp.stack([jnp.diagonal(padded, k) for k in range(2 * NEAR + 1)])
    return lines, _shifted(real) * real[None]
