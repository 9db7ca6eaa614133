"""Do the last layers change most because of the task, or because of how layers learn?

Shapes: S seeds, L layers, D random draws, M the measures of `finetune.optimizers`.
"""

import dataclasses
import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import scipy.stats
from absl import logging
from jaxtyping import Float

from bert_secrets_jax import plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import inputs
from bert_secrets_jax.analyses.common.changes import SOURCE, last_layers
from bert_secrets_jax.analyses.common.inputs import TextSettings, batches_of, with_progress
from bert_secrets_jax.analyses.common.tables import OF_SHARES, Tables, grids_frame, table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.config import FinetuneConfig
from bert_secrets_jax.finetune.metrics import BELOW_ZERO, TITLES
from bert_secrets_jax.finetune.optimizers import MEASURES, norms, with_fresh_top
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.measure.catalogue import measure_change, named
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.bert import init_params
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.ranges import Count
from bert_secrets_jax.runs.result import Result, framed, measured
from bert_secrets_jax.stats.student import mean_interval

EVERY_SCHEDULE = dataclasses.replace(
    verdicts.LAST_LAYERS,
    text=f'Under every schedule: {verdicts.LAST_LAYERS.text}',
    limits='Schedules that were not tried.',
    short='Under every schedule, the last two layers change most',
    section='where_it_changes',
)
_EXPLAINS = *MEASURES, 'random_step', 'random_steps_below'
_COLUMNS = 'change', 'change_per_distance', *_EXPLAINS
# Maps that are equal differ by less, from rounding.
_NO_CHANGE = 1e-5
# Distances are sums over millions of weights, which machines round in different ways.
_ROUNDING = 0.02


class WhereItChanges(Result):
    """The change of attention by layer, and how gradients and weights moved, under each schedule.

    Attributes:
      changes: By schedule, and by seed, the table of the similarity of maps before and after.
      tuned: By schedule, the fine-tunings without their models.
      random: [D, L, L] the change of the maps of each layer (last axis) by a random step of one
        layer alone.
      length: The length of random steps: as far as layers moved on average in what was learnt.
    """

    title = 'Where fine-tuning changes attention, and why'

    changes: Mapping[str, Mapping[str, Tables]]
    tuned: Mapping[str, Finetuned]
    random: Float[np.ndarray, 'D L L']
    length: float

    @property
    def compared(self) -> list[str]:
        """The schedules that taught at least half of the models the task, and changed maps."""
        changed = {k: change_by_layer(runs).max() for k, runs in self.changes.items()}
        return [k for k, most in changed.items() if _taught(self.tuned[k]) and most > _NO_CHANGE]

    def verdicts(self):
        if not self.compared:
            why = 'No schedule has taught the task and changed maps: the rest is noise.'
            return [verdict.nothing_to_test(EVERY_SCHEDULE, why, 0)]
        runs = [[*self.changes[name].values()] for name in self.compared]
        tables = [verdicts.each_of(each, 'cosine') for each in runs]
        under = [f' under {schedule}' for schedule in self.compared]
        return [verdicts.last_layers_change_most(*tables, claim=EVERY_SCHEDULE, under=under)]

    def _draw_where_it_changes(self):
        layers, panels = self.labelled['layers'].columns, {}
        for column in _COLUMNS:
            panel = panels.setdefault(column.replace('_', ' '), {})
            means = layers[column].reshape(len(self.changes), -1)
            for schedule, mean in zip(self.changes, means, strict=True):
                # Random steps are the same for all.
                name = 'no learning' if column.startswith('random') else schedule
                # Schedules differ more in size than in shape.
                panel[name] = mean / max(np.nanmax(mean, initial=0.0), 1e-30)
        return plots.depth_profiles(panels).captioned(
            'By schedule, mean over seeds: each line as a share of its greatest layer.'
        )

    def _say_warnings(self):
        warnings, so = [], 'this schedule is left out'
        for name in self.changes:
            tuned = self.tuned[name]
            if not _taught(tuned):
                at, which = _middle(tuned), f'the model in the middle under {name}'
                reached = tuned.scores[at][tuned.tested], tuned.larger_class, tuned.p_learnt[at]
                warned = inputs.not_learnt(
                    which, (tuned.tested, *reached), tuned.dev_examples, so=so
                )
                warnings.append(dataclasses.replace(warned, name=f'{warned.name}: {name}'))
            elif name not in self.compared:
                said = 'Under {schedule}, no map changed, as if only the head learnt: {so}.'
                about = {'unit': 'change', 'source': SOURCE, 'warning': True, 'template': said}
                named = f'no map changed: {name}'
                warnings.append(measured(named, 0, **about, schedule=name, so=so))
        return warnings

    def _say_general(self):
        alone = [each for name in self.compared for each in last_layers(self.changes[name])]
        known = [each.verdict for each in alone if each.population == verdicts.MOST_FINETUNINGS]
        held, refuted = map(known.count, (verdicts.HOLDS, verdicts.DOES_NOT_HOLD))
        decides = 'decides it' if held and refuted else 'may decide it'
        if len(alone) in (held, refuted) and len(alone) > 1:
            decides = 'does not decide it'
        general = measured(
            'schedules under which the last two layers change most',
            held,
            unit='schedules',
            sample=len(alone),
            sample_of='schedules',
            source=SOURCE,
            template='The last two layers change most under {estimate:.0f} of {sample:schedule|'
            'schedules} and not under {refuted}: the schedule {decides}.',
            **{'refuted': refuted, 'decides': decides},
        )
        return general if alone else None


def change_by_layer(runs: Mapping[str, Tables]) -> Float[np.ndarray, 'S L']:
    """Return the mean change of maps of each layer, by seed."""
    return np.stack([1 - each['cosine'].mean.mean(axis=1) for each in runs.values()])


def _taught(tuned: Finetuned) -> bool:
    """Return whether at least half of the models have learnt the task."""
    return not inputs.learnt_nothing(tuned.p_learnt[_middle(tuned)])


def _middle(tuned: Finetuned) -> int:
    """Return the place of the model in the middle, ordered by how surely it has learnt."""
    return int(np.argsort(tuned.p_learnt)[(len(tuned.seeds) - 1) // 2])


def moved_in(tuned: Finetuned) -> Float[np.ndarray, 'S L M']:
    """Return the mean norms of gradients and updates, and the distances of weights at the end."""
    movement = np.asarray(tuned.movement)[:, :, 1:-1]
    return np.concatenate([movement[..., :2].mean(axis=1), movement[:, -1, :, 2:]], axis=-1)


def agreement(
    one: Float[np.ndarray, '*P L'], other: Float[np.ndarray, '*Q L']
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rank correlation and R squared of profiles; NaN where all layers are equal."""
    ranks = (scipy.stats.rankdata(each, axis=-1) for each in (one, other))
    rank, straight = (
        np.sum(_scaled(first) * _scaled(second), axis=-1) for first, second in (ranks, (one, other))
    )
    return rank, straight**2


def _scaled(profiles: np.ndarray) -> np.ndarray:
    """Return profiles less their mean, of length 1."""
    apart = profiles - profiles.mean(axis=-1, keepdims=True)
    varied = np.ptp(profiles, axis=-1, keepdims=True) > 0
    return apart / np.where(varied, np.linalg.norm(apart, axis=-1, keepdims=True), np.nan)


def _schedules(given) -> dict[str, dict[str, Any]]:
    """Return the settings of fine-tuning that each schedule changes, by its name."""
    kinds = map(str.strip, given['where_it_changes.schedules'].split(','))
    decays = map(float, given.numbers('where_it_changes.layer_decays'))
    each = itertools.product(kinds, decays)
    return {f'decay {d:.15g} ({k})': {'layer_decay': d, 'schedule': k} for k, d in each}


def _check(given) -> None:
    """Warn of settings that do not count."""
    usual = {field.name: field.default for field in dataclasses.fields(FinetuneConfig)}
    for name in ('layer_decay', 'schedule'):
        if given[f'train.{name}'] != usual[name]:
            logging.warning(
                'train.%s=%s does not count under the schedules of where_it_changes: give '
                'where_it_changes.%ss.', name, given[f'train.{name}'], name,
            )  # fmt: skip


def _cost(given) -> float:
    runs = len(_schedules(given)) * len(given.study.seeds)
    return runs * given.tokens_of_training() + 6 * given.layers * given.tokens('texts')


@analysis(
    question='which layers change under other learning rates, and why',
    group='What training changed',
    report='name',
    settings={
        'layer_decays': {
            'help': 'Each layer decay with each schedule is a fine-tuning of all seeds.',
            'default': '0.65,1,1.5',
            'numbers': [0.01, 10.0],
            'needed': True,
        },
        'schedules': {
            'default': 'linear,constant',
            'listed': ['linear', 'constant'],
            'smoke': 'linear',
        },
    },
    reads=('where_it_changes.', 'train.'),
    inputs={
        'tuned': lambda given: {
            name: given.variant('tuned', **own) for name, own in _schedules(given).items()
        }
    },
    needs=('tuned_here', inputs.needs_own_layers),
    check=_check,
    cost=_cost,
)
def where_it_changes(
    pretrained: Pretrained,
    tuned: Mapping[str, Finetuned],
    texts: Sequence[Text],
    *,
    draws: Count = 3,
    seed: int = 0,
    compute: Compute = Compute(),
) -> WhereItChanges:
    """Compare where attention changes with where gradients and weights move, under each schedule.

    Random steps of one layer alone show how sensitive maps are where nothing is learnt. Where top
    layers were drawn anew (`reinit`), changes are those since then.

    Args:
      pretrained: The model that was fine-tuned.
      tuned: Its fine-tunings by `bs.finetune`, by the name of the schedule, such as 'decay 0.65'.
      texts: As in `attention_change`.
      draws: The number of random steps of each layer, which follow from `seed`.
      compute: As in `ablation`.

    Raises:
      TypeError: A model or the texts are something else.
      ValueError: There is no schedule, heads were removed, layers have no movement of their own, or
        training began from another model.
    """
    check_whole(pretrained)
    depth = pretrained.config.num_hidden_layers
    for name, each in tuned.items():
        if each.movement is None or each.movement.shape[2] != depth + 2:
            raise ValueError(
                f'tuned[{name!r}] has no movement of {depth} layers: fine-tune again, with this '
                'version and in a new folder, a model whose layers are all different.'
            )
    check_enough('schedules', tuned)
    first, *others = tuned.values()
    alike = operator.attrgetter('seeds', 'tested', 'dev_examples', 'label_names')
    if any(alike(each) != alike(first) for each in others):
        raise ValueError('Schedules have other seeds or dev examples: give the same to each.')
    starts = {name: _starts(pretrained, each, name) for name, each in tuned.items()}
    taught = list(filter(_taught, tuned.values())) or [first, *others]
    reach = [moved_in(each)[..., MEASURES.index('distance')] for each in taught]
    length = float(np.mean(reach))
    settings, cosine = TextSettings(**vars(compute)), [named('cosine')]
    batches = batches_of(pretrained, texts, settings, annotated=False)

    def similarity(start, model, title) -> dict[str, HeadTable]:
        read = with_progress(batches, title)
        return measure_change(start, model, read, cosine, mesh=settings.mesh)

    steps = np.zeros((draws, depth, depth))
    for draw, layer in np.ndindex(draws, depth):
        moves = _random_step(pretrained, layer, length, np.random.default_rng([seed, draw, layer]))
        table = similarity(pretrained, moves, f'Random step of layer {layer + 1}')['cosine']
        steps[draw, layer] = 1 - table.mean.mean(axis=1)
    changes = {
        name: {
            str(number): similarity(start, model, f'Change ({name}, seed {number})')
            for number, start, model in zip(each.seeds, starts[name], each.models, strict=True)
        }
        for name, each in tuned.items()
    }
    found = WhereItChanges(
        changes=changes,
        # The models stay where they are.
        tuned={
            k: dataclasses.replace(each, folder=None, in_memory=()) for k, each in tuned.items()
        },
        random=steps,
        length=length,
    )
    return labelled(found)


def labelled(found: WhereItChanges) -> WhereItChanges:
    """Return the result with its tables: schedules, layers, what explains these, and steps."""
    profiles = [_profiles(found, schedule) for schedule in found.changes]
    grids = {name: [each[name].mean(axis=0) for each in profiles] for name in _COLUMNS}
    ends = np.stack([mean_interval(each['change'].T, OF_SHARES) for each in profiles], axis=1)
    grids |= dict(zip(('change_low', 'change_high'), ends[1:], strict=True))
    by, sure = {'schedule': [*found.changes]}, {'change': ('change_low', 'change_high')}
    caption = f'Means over seeds. Every random step has length {found.length:.3g}.'
    rank, straight = agreement(
        np.array([[each[name] for name in _EXPLAINS] for each in profiles]),
        np.array([[each['change']] for each in profiles]),
    )
    straight, low, high = mean_interval(straight, OF_SHARES)
    frames = {
        'schedules': _schedules_table(found.tuned),
        'layers': grids_frame(grids, caption, by=by, sure=sure),
        'explained': table(
            'How the profile of a measure over layers agrees with the change of maps, mean '
            'over seeds. Profiles of two layers always agree.',
            {**by, 'measure': _EXPLAINS},
            rank_correlation=rank.mean(axis=-1),
            r_squared=straight,
            r_squared_low=low,
            r_squared_high=high,
        ),
    }
    steps = [
        (schedule, step, layer, *each)
        for schedule, tuned in found.tuned.items()
        for step, similarity in tuned.similarity.items()
        for ends in [mean_interval(1 - similarity.T, OF_SHARES)]
        for layer, each in enumerate(zip(*ends, strict=True), 1)
    ]
    if steps:
        columns = 'schedule', 'step', 'layer', 'change', 'change_low', 'change_high'
        caption = '1 less similarity, over dev examples: mean over seeds.'
        frames['steps'] = framed(columns, steps, caption)
    return found.with_frames(frames)


def _schedules_table(tuned: Mapping[str, Finetuned]):
    """Return the table of the score that is reached under each schedule."""
    tested = next(iter(tuned.values())).tested
    limits = -100.0 if tested in BELOW_ZERO else 0.0, 100.0
    reached = [[100 * row[tested] for row in each.scores] for each in tuned.values()]
    score, least, most = np.transpose([mean_interval(np.array(k), limits) for k in reached])
    return table(
        'Scores x 100 and their 95 % intervals over seeds.',
        schedule=[*tuned],
        metric=TITLES[tested],
        score=score,
        low=least,
        high=most,
        seeds_that_learnt=[
            sum(not inputs.learnt_nothing(p) for p in each.p_learnt) for each in tuned.values()
        ],
    )


def _profiles(found: WhereItChanges, schedule: str) -> dict[str, Float[np.ndarray, 'S L']]:
    """Return each column of the table of layers under a schedule, by seed."""
    change, steps = change_by_layer(found.changes[schedule]), found.random.mean(axis=0)
    moved = dict(zip(MEASURES, np.moveaxis(moved_in(found.tuned[schedule]), -1, 0), strict=True))
    # A frozen layer has no distance.
    reach = np.where(moved['distance'] > 0, moved['distance'], np.nan)
    values = change, change / reach, *moved.values(), steps.diagonal(), steps.sum(axis=0)
    return {k: np.broadcast_to(v, change.shape) for k, v in zip(_COLUMNS, values, strict=True)}


def _starts(pretrained: Pretrained, tuned: Finetuned, name: str) -> list[Pretrained]:
    """Return the model that training began from, for each seed: top layers may be drawn anew."""
    assert tuned.movement is not None
    given, found = _encoder(pretrained.params), []
    moved = tuned.movement[:, -1, :-1, MEASURES.index('distance')]
    for model, seed, own in zip(tuned.models, tuned.seeds, moved, strict=True):
        after, start = _encoder(model.params), given
        others = np.flatnonzero(_differs(after, start, own))
        if len(others) and others[0] > 0:
            drawn_anew = _encoder(init_params(model.bert, seed))
            start = with_fresh_top(len(own) - int(others[0]), start, drawn_anew)
        if _differs(after, start, own).any():
            raise ValueError(
                f'tuned[{name!r}] began from other weights than those of this model: give the '
                'model that was fine-tuned.'
            )
        found.append(dataclasses.replace(pretrained, params=pretrained.params | start))
    return found


def _encoder(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: params[name] for name in ('embeddings', 'layers')}


def _differs(after: Any, start: Any, moved: Float[np.ndarray, ' P']) -> np.ndarray:
    """Return which parts, embeddings first, are at another distance than they have moved."""
    if jax.tree.map(np.shape, after) != jax.tree.map(np.shape, start):
        return np.ones(len(moved), bool)
    way = norms(jax.tree.map(lambda one, other: one - other, after, start))[:-1]
    return ~np.isclose(way, moved, rtol=_ROUNDING, atol=1e-6)


def _random_step(
    model: Pretrained, layer: int, size: float, rng: np.random.Generator
) -> Pretrained:
    """Return a model of which one layer has moved by a random step of this length."""
    layers = model.params['layers']
    noise = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape[1:]), layers)
    length = np.sqrt(sum((each**2).sum() for each in jax.tree.leaves(noise)))
    moved = jax.tree.map(lambda leaf, own: leaf.at[layer].add(size / length * own), layers, noise)
    return dataclasses.replace(model, params=model.params | {'layers': moved})
