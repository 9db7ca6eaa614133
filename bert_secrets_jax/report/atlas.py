"""The atlas: all heads at a glance, and what results say of each in a sentence.

It is made from what all results have (`runs.result.HeadMarks`), and knows no analysis.
"""

import collections
import dataclasses
import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from bert_secrets_jax.names import head_name, visible
from bert_secrets_jax.plots.kinds import TABLE, Look, looks
from bert_secrets_jax.report.templates import render
from bert_secrets_jax.runs.result import HeadMarks, Result

ALL = 'what it mostly does'
_AS_IT_IS = 'as it is'
_RANK = operator.attrgetter('rank')
# So many kinds of heads are named in the sentence about all.
_NAMED = 3


@dataclasses.dataclass(frozen=True)
class View:
    """One way to colour the heads: what colours mean, and the mark [L, N] of each, or ''."""

    title: str
    marks: np.ndarray


@dataclasses.dataclass(frozen=True)
class Drawn:
    """How marks are drawn, which is the same in all atlases that are read beside each other.

    `looks` has the fill, pattern and letter of each mark; `rings` are the marks that are drawn as
    rings, in the order of their kinds.
    """

    looks: Mapping[str, Look]
    rings: tuple[str, ...]


def drawn_alike(models: Iterable[Sequence[Result]]) -> Drawn:
    """Return how to draw the marks of several models, so that a mark is the same on all of them."""
    marks = [each for results in models for result in results for each in result.head_marks()]
    names = {
        drawn: [mark for each in marks if each.drawn == drawn for mark in kinds(each)]
        for drawn in ('colour', 'ring')
    }
    # The first ring is red: known ones have their places, whichever there are.
    rings = dict.fromkeys([*TABLE['rings'], *names['ring']])
    return Drawn(looks(names['colour']), tuple(rings))


def atlas(
    results: Sequence[Result],
    *,
    prefix: str = '',
    drawn: Drawn | None = None,
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the fragment of a page with all heads of a model; empty if no result marks any.

    Args:
      results: The results of one model. Where several draw rings, or corners, the one with the
        lowest rank is drawn.
      prefix: The text before the name of a head in its address, such as 'mrpc-', on a page with
        several models.
      drawn: How to draw the marks, from `drawn_alike`; None draws this model alone.
      elsewhere: The texts of marks that are not from the texts of the page, such as
        'example frames'.

    Raises:
      ValueError: The results are of models with different layers or heads.
    """
    marks = [each for result in results for each in result.head_marks()]
    if not marks:
        return ''
    shapes = {each.marks.shape for each in marks}
    if len(shapes) > 1:
        raise ValueError(
            f'The heads of one model are marked as {" and ".join(map(str, sorted(shapes)))} layers '
            'and heads: give results of one model.'
        )
    views, ring, corner = _views(marks), _first(marks, 'ring'), _first(marks, 'corner')
    drawn, said = drawn or drawn_alike([results]), _sentences(marks)
    shown = [
        {
            'title': visible(view.title),
            'legend': _legend(view, drawn),
            'marks': [visible(mark) for mark in view.marks.ravel()],
            'grey': _grey(view, marks),
        }
        for view in views
    ]
    return render(
        'atlas.html',
        heads=(prefix, *shapes.pop()),
        pairs=_pairs(marks, drawn),
        grid=_grid(views[0], drawn, ring, corner, said=said),
        rings=drawn.rings,
        ring=ring,
        corner=corner,
        grey=shown[0]['grey'],
        glosses={mark: each.gloss for mark, each in drawn.looks.items() if each.gloss},
        elsewhere=elsewhere,
        data={'views': shown, 'elsewhere': [*elsewhere]},
    )


def what_heads_do(marks: Sequence[HeadMarks], own: Sequence[HeadMarks]) -> str:
    """Return what most heads do, counted as the atlas colours them by all `marks`.

    Only kinds of `own` are named, such as those of the user's texts; empty if there are none.
    """
    mine = {mark for each in _colours(own) for mark in kinds(each)}
    every = [*_together(_colours(marks)).flat] if mine else []
    named = collections.Counter(mark for mark in every if mark in mine).most_common(_NAMED)
    if not named:
        return ''
    grey, counted = every.count(''), sum(count for _, count in named)
    rest = ('others', len(every) - grey - counted), ('without a name', grey)
    told = ', '.join(f'{count} {mark}' for mark, count in [*named, *rest] if count)
    size = len(every)
    return f'Each of the {size} heads counts once, by the most specific thing that it does: {told}.'


def _first(marks: Sequence[HeadMarks], drawn: str) -> HeadMarks | None:
    """Return the marks of the lowest rank that are drawn in a way."""
    return min((each for each in marks if each.drawn == drawn), key=_RANK, default=None)


def _colours(marks: Sequence[HeadMarks], model: str = '') -> list[HeadMarks]:
    mine = (each for each in marks if each.drawn == 'colour' and each.model == model)
    return sorted(mine, key=_RANK)


def _together(colours: Sequence[HeadMarks]) -> np.ndarray:
    """Return the mark [L, N] of each head, that of the lowest rank."""
    found = np.full(colours[0].marks.shape, '', object)
    for each in reversed(colours):
        found = np.where(each.marks != '', each.marks, found)
    return found


def _views(marks: Sequence[HeadMarks]) -> list[View]:
    """Return the views: of all results together, and of each that has colours by itself."""
    colours = _colours(marks)
    if not colours:
        return [View(ALL, np.full(marks[0].marks.shape, '', object))]
    # Several results may have marks of one title, such as the links of relations and of frames.
    single: dict[str, list[HeadMarks]] = {}
    for each in colours:
        single.setdefault(each.title, []).append(each)
    views = {ALL: colours} | (single if len(single) > 1 else {})
    return [View(title, _together(each)) for title, each in views.items()]


def _grey(view: View, marks: Sequence[HeadMarks]) -> str:
    """Return why heads have no colour in a view; empty if each has one."""
    shown = [each for each in _colours(marks) if view.title in (ALL, each.title)]
    bounds = list(dict.fromkeys(each.bound for each in shown if each.bound))
    if not bounds or (view.marks != '').all():
        return ''
    are = 'the bounds are' if len(bounds) > 1 else 'the bound is'
    return f'Grey heads: none of these; {are} {" and ".join(bounds)}.'


def _pairs(marks: Sequence[HeadMarks], drawn: Drawn) -> list[dict[str, Any]]:
    """Return what the page shows of marks that several models have: grids with one legend."""
    shown = []
    for title in dict.fromkeys(each.title for each in _colours(marks)):
        mine = [each for each in marks if each.title == title and each.drawn == 'colour']
        _, *others = models = sorted(dict.fromkeys(each.model for each in mine), key=bool)
        if not others:
            continue
        views = {model: View(title, _together(_colours(mine, model))) for model in models}
        both = View(title, np.concatenate([view.marks for view in views.values()]))
        heading = f'How fine-tuning changed the {title} of each head'
        if others != ['fine-tuned']:
            heading = f'The {title} of each head {_AS_IT_IS} and {" and ".join(others)}'
        grids = {
            model or _AS_IT_IS: _grid(view, drawn, said=_sentences(mine, model))
            for model, view in views.items()
        }
        legend = _legend(both, drawn)
        shown.append({'title': title, 'heading': heading, 'grids': grids, 'legend': legend})
    return shown


def _legend(view: View, drawn: Drawn) -> list[tuple[str, int, *tuple[str, ...]]]:
    """Return each mark of a view, most frequent first, with how many heads have it and its look."""
    counts = {mark: int((view.marks == mark).sum()) for mark in drawn.looks}
    most = sorted(filter(counts.get, counts), key=lambda mark: (-counts[mark], mark))
    return [(visible(mark), counts[mark], *drawn.looks[mark]) for mark in most]


def _sentences(marks: Sequence[HeadMarks], model: str = '') -> np.ndarray:
    """Return all that is said of each head [L, N], what is most particular first."""
    said = np.full(marks[0].marks.shape, '', object)
    others = [each for each in marks if each.drawn != 'colour']
    for each in (*_colours(marks, model), *sorted(others, key=_RANK)):
        for head in np.ndindex(said.shape):
            said[head] = f'{said[head]} {visible(str(each.sentences[head]))}'.strip()
    return said


def _grid(
    view: View,
    drawn: Drawn,
    ring: HeadMarks | None = None,
    corner: HeadMarks | None = None,
    *,
    said: np.ndarray,
) -> list[list[dict[str, str]]]:
    """Return the rows of the grid, which can be read without the script of the page."""

    def cell(layer: int, head: int) -> dict[str, str]:
        place, name = (layer, head), head_name(layer, head)
        mark = view.marks[place]
        ringed, cornered = ('' if each is None else each.marks[place] for each in (ring, corner))
        fill, pattern, letter, *_ = drawn.looks[mark] if mark else ('',) * 3
        which = f'ring{drawn.rings.index(ringed) % 2}' if ringed else ''
        return {
            'name': name,
            'kinds': ' '.join(filter(None, ['head', which, 'corner' * bool(cornered), pattern])),
            'label': ', '.join(filter(None, [name, mark, ringed, cornered])),
            'said': f'{name}: {said[place]}',
            'mark': mark,
            'fill': fill,
            'letter': letter,
        }

    layers, heads = view.marks.shape
    return [[cell(layer, head) for head in range(heads)] for layer in range(layers)]


def kinds(marks: HeadMarks) -> list[str]:
    """Return the marks that there are, so that the same one is drawn alike."""
    return sorted({mark for mark in marks.marks.ravel().tolist() if mark}, reverse=True)
