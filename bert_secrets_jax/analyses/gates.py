"""How many heads a fine-tuned model needs, by gates that learn to close (Voita et al. 2019).

Shapes: K runs (each coefficient with each seed), L layers, N heads, P points of a curve.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Real

from bert_secrets_jax import plots
from bert_secrets_jax.analyses.common import inputs
from bert_secrets_jax.analyses.common.disabling import checked_metrics
from bert_secrets_jax.analyses.common.effects import effect_of
from bert_secrets_jax.analyses.common.tables import Grid, grids_frame, table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.metrics import TITLES, predictions
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.pruning.gates import GateConfig, Gated, GateRuns, rounded_gates, train_gates
from bert_secrets_jax.runs.result import Result, how_many, told
from bert_secrets_jax.stats.effects import Effects
from bert_secrets_jax.stats.significance import assess as compare

SOURCE = 'Voita et al. 2019, section 6'
# The prices of a head that are tried by default, in nats per example.
COEFFICIENTS = (0.001, 0.003, 0.01, 0.03)
# A loss of the score that counts as small: one point.
SMALL = 0.01
# The attribute of the effects in each column of a frame, for gates as they are and rounded ones,
# and its scale.
_COMPARED = {
    'score_{}_points': ('value', 100),
    'difference_{}_points': ('difference', 100),
    'low_{}_points': ('low', 100),
    'high_{}_points': ('high', 100),
    'p_value_{}': ('p_value', 1),
    'p_holm_{}': ('corrected', 1),
}
# The most heads that a sentence names.
_NAMED = 8
SPARSEST = 'the sparsest model near the full one, chosen on these examples'
_SPARSEST = (
    'With {kept} of {heads} heads, {title} changes by {estimate:+.2f} points; no sparser model is '
    'within {margin:point|points} of the full one.'
)
_NO_SCORE = 'No model with gates has a score: all its predictions are the same.'


class Gates(GateRuns, Result):
    """The gates of every head for several prices of a head, and the scores of the gated models.

    Attributes:
      frozen, coefficients, seeds, log_alpha, steps, expected_open, losses: As in
        `pruning.gates.GateRuns`.
      gated: The comparison of every run's gated model with the intact one, by the name of the
        metric; the task's own comes first.
      rounded: The same with each gate rounded to 0 or 1.
      learnt: The test of what the intact model has learnt (see `analyses.common.inputs`).
    """

    title = 'Gates of heads'

    gated: Mapping[str, Effects]
    rounded: Mapping[str, Effects]
    learnt: inputs.Learnt

    @property
    def metric(self) -> str:
        """The name of the task's own metric."""
        return next(iter(self.rounded))

    @property
    def kept(self) -> Real[np.ndarray, ' K']:
        """The number of heads that each run keeps when its gates are rounded."""
        return rounded_gates(self.gates).sum(axis=(1, 2)).astype(int)

    @property
    def open(self) -> Real[np.ndarray, ' K']:
        """The number of heads whose gate is not exactly 0."""
        return (self.gates > 0).sum(axis=(1, 2))

    @property
    def open_share(self) -> Grid:
        """The share of runs in which each head's gate is not exactly 0."""
        return (self.gates > 0).mean(axis=0)

    @property
    def sparsest(self) -> int:
        """The run with the fewest heads within a point of the full model, or else the nearest."""
        found, kept = self.rounded[self.metric], self.kept
        loss = -np.where(np.isnan(found.difference), -np.inf, found.difference)
        near = loss <= SMALL + 1e-9
        return int(np.lexsort((loss, kept, ~near) if near.any() else (kept, loss))[0])

    def _draw_scores(self):
        metric, points = self.metric, {}
        for name, heads, found in (
            ('gates as learnt', self.open, self.gated[metric]),
            ('gates rounded', self.kept, self.rounded[metric]),
        ):
            ends = found.difference, found.low, found.high
            points[name] = (heads, *(100 * (found.intact + each) for each in ends))
        return plots.scores_by_heads(
            points,
            level=100 * self.rounded[metric].intact,
            level_name='all heads',
            most=self.open_share.size,
            label=f'{TITLES[metric]}, x 100',
        ).captioned(
            f'{TITLES[metric]} by the number of open heads ({SOURCE}): a point for each price '
            'and seed. Lines: 95 % intervals.'
        )

    def _say_warning(self):
        return inputs.if_not_learnt(
            'the intact model', self.learnt, self.rounded[self.metric].sample
        )

    def _say_no_order(self):
        if not self._last.all():
            return None
        return told(
            'all heads close as often',
            warning=True,
            unit='runs with each head open',
            template='Each of {heads} heads is open in {estimate} of {sample} runs (lambda '
            'from {least:g} to {most:g}): raise lambda or epochs if none closes, and lower it '
            'if all do.',
            heads=self.open_share.size,
            least=float(self.coefficients.min()),
            most=float(self.coefficients.max()),
            **self._runs,
        )

    def _say_sparsest(self):
        scores, best = self.rounded[self.metric], self.sparsest
        return effect_of(
            scores,
            best,
            name=SPARSEST,
            where=f'lambda = {self.coefficients[best]:g}',
            # It was not tested: it was chosen for being near.
            **{'p': np.nan, 'tests': 1},
            template=_SPARSEST if np.isfinite(scores.difference[best]) else _NO_SCORE,
            kept=int(self.kept[best]),
            heads=self.open_share.size,
            title=TITLES[self.metric],
            margin=100 * SMALL,
            source=SOURCE,
        )

    def _say_order(self):
        if self._last.all():
            return None
        names, about = [head_name(*head) for head in np.argwhere(self._last)], self._runs
        more = f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''
        open_in = about.pop('estimate')
        return how_many(
            'heads that close last',
            self._last,
            where=', '.join(names[:_NAMED]) + more,
            template='{where} {estimate:|closes|close} last: open in {open} of {sample:run|runs}.',
            open=open_in,
            **about,
        )

    @property
    def _last(self) -> np.ndarray:
        """Which heads [L, N] are open in most runs."""
        return self.open_share == self.open_share.max()

    @property
    def _runs(self) -> dict[str, Any]:
        """In how many runs these are open, as fields of a finding."""
        runs = len(self.gates)
        most = round(float(self.open_share.max()) * runs)
        return {'estimate': most, 'source': SOURCE, 'sample': runs, 'sample_of': 'runs'}

    def gives(self):
        return {'stays': {'gates': self.open_share}}

    def notes(self):
        learnt = 'the weights stay' if self.frozen else 'the weights are trained together with them'
        return [
            'Each head has a gate, a factor of its output that is 0 if it is removed. Gates are '
            f'learnt from the training texts, {learnt}.',
            'An open head costs lambda, in the unit of the loss (nats for classes).',
        ]


# The settings `train` that a training of gates has, too.
_OF_TRAINING = ('batch_size', 'micro_batch', 'warmup', 'weight_decay', 'clip', 'optimizer')


def _coefficients(given) -> tuple[float, ...]:
    return tuple(map(float, given.numbers('gates.coefficients')))


def _cost(given) -> float:
    runs = len(_coefficients(given)) * given['gates.num_seeds'] * given['gates.epochs']
    return given.TRAINED * runs * given.tokens('train')


@analysis(
    question='gates that learn to close: how many heads are needed at which price',
    group='What matters',
    report='name',
    settings={
        'coefficients': {
            'help': 'The price of an open head, in nats of the loss of an example. The program '
            '`gates` tries several prices at the same time; put commas between them.',
            'default': '0.001,0.003,0.01,0.03',
            'numbers': [0.0, 1e6],
            'needed': True,
        },
        'num_seeds': {'help': 'Seeds are seed, seed + 1, ...', 'default': 1, 'range': [1, 1000]},
        'frozen': {
            'help': 'Whether only the gates are learnt, and the weights of the model stay.',
            'default': True,
        },
        'epochs': {'default': 10, 'range': [1, 10_000], 'smoke': 1},
        'learning_rate': {
            'help': 'The learning rate of the gates; their log alpha changes by about this much'
            ' in a step.',
            'default': 0.1,
            'range': [0.0, 100.0],
            'without': 0.0,
        },
        'model_learning_rate': {
            'help': 'The learning rate of the weights, unless they are frozen. Their other '
            'settings are those of `train`.',
            'default': 2e-05,
            'range': [0.0, 10.0],
            'without': 0.0,
        },
        'price': {
            'help': 'The price of an open head, and then its reward, in the program '
            '`head_gating`; in nats of the loss of an example.',
            'default': 0.01,
            'range': [0.0, 1e6],
            'without': 0.0,
        },
    },
    inputs={
        'tuned': 'model',
        'dev': 'ablated',
        'coefficients': _coefficients,
        'seeds': lambda given: given.seeds('gates.num_seeds'),
        'epochs': 'gates.epochs',
        'gate_learning_rate': 'gates.learning_rate',
        'learning_rate': 'gates.model_learning_rate',
        'max_length': 'max_length',
        **{name: f'train.{name}' for name in _OF_TRAINING},
    },
    aside=('folder', 'mesh', 'train.checkpoint_every'),
    like=GateConfig,
    cost=_cost,
)
def gates(
    tuned: Pretrained | Finetuned,
    train: Sequence[Example],
    dev: Sequence[Example],
    *,
    coefficients: Sequence[float] = COEFFICIENTS,
    seeds: int | Sequence[int] = 1,
    frozen: bool = True,
    metrics: Sequence[str] | None = None,
    seed: int = 0,
    **training: Any,
) -> Gates:
    """Learn which heads of a fine-tuned model can go, and score the models that are left.

    Args:
      tuned: A model with a classifier, fine-tuned on the task. Of several, the first is used.
      train: The labelled texts that the gates are learnt from.
      dev: Labelled texts on which the gated models are compared with the intact one.
      coefficients: The prices lambda of an open head, in nats of the loss of an example; all of
        them are tried at the same time.
      seeds: The seeds of the training of gates, or their number.
      frozen: Whether only the gates are learnt; False trains the weights, too.
      metrics: The names of the metrics, the most important first; None takes those of `ablation`.
      seed: The seed of the randomization test.
      **training: Further settings of `bs.train_gates`, such as `epochs`, `gate_learning_rate`,
        `max_length`, `folder` or `mesh`.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is unknown, an example has no label, the model has no classifier, or
        `bs.train_gates` refuses a setting.
    """
    model = inputs.one_model(tuned)
    inputs.labels_of(dev, model.config)
    metrics = checked_metrics(metrics, model.config, dev)
    found = train_gates(
        model, train, dev, coefficients=coefficients, seeds=seeds, frozen=frozen, **training
    )
    return assess_gates(found, metrics, seed=seed)


def assess_gates(gated: Gated, metrics: Sequence[str], *, seed: int) -> Gates:
    """Compare each gated model with the intact one, by metrics of which the first is the task's."""
    intact, labels = predictions(gated.intact), gated.labels
    runs = zip(gated.coefficients, gated.seeds, strict=True)
    names = [f'lambda {price:g}, seed {run}' for price, run in runs]

    def compared(logits: np.ndarray) -> dict[str, Effects]:
        answers = np.stack([predictions(of_run) for of_run in logits])
        return {
            metric: compare(metric, answers, intact, labels, names=names, seed=seed)
            for metric in metrics
        }

    found = Gates(
        gated=compared(gated.gated),
        rounded=compared(gated.rounded),
        learnt=inputs.learning_test(metrics, gated.intact.shape[-1], intact, labels),
        **{field.name: getattr(gated, field.name) for field in dataclasses.fields(GateRuns)},
    )
    return _labelled(found)


def _labelled(found: Gates) -> Gates:
    """Return the result with its tables: runs, heads, gates, and the course of training."""
    gates, share = found.gates, found.open_share
    prices = {each: found.coefficients == each for each in np.unique(found.coefficients).tolist()}
    # From 1; a head that never closes has no place.
    places = 1.0 + (share < share[..., None, None]).sum(axis=(2, 3))
    closed = np.stack([(gates[runs] == 0).mean(axis=0) >= 0.5 for runs in prices.values()])
    least = np.array([*prices])[closed.argmax(axis=0)]
    heads = {
        'order': np.where(share < 1, places, np.nan),
        'closes_at_lambda': np.where(closed.any(axis=0), least, np.nan),
        'share_of_runs_open': share,
    }
    for price, runs in prices.items():
        heads[f'gate_at_lambda_{price:.12g}'] = gates[runs].mean(axis=0)
    scores = {
        column.format(which): [scale * getattr(each, name) for each in compared.values()]
        for which, compared in (('gated', found.gated), ('rounded', found.rounded))
        for column, (name, scale) in _COMPARED.items()
    }
    return found.with_frames(
        {
            'runs': table(
                f'Each run, of {share.size} heads: open are those whose gate is not 0, and kept '
                'those whose gate is at least one half.',
                metric=np.array([*found.rounded])[:, None],
                **{'lambda': found.coefficients},
                seed=found.seeds,
                heads_open=found.open,
                heads_kept=found.kept,
                expected_open=found.expected_open[:, -1],
                share_converged=np.isin(gates, (0, 1)).mean(axis=(1, 2)),
                score_intact_points=[[100 * each.intact] for each in found.rounded.values()],
                **scores,
            ),
            'heads': grids_frame(
                heads,
                'Each head: its place in the order of closing, the least price (lambda) that '
                'closes it in half of the seeds, and its mean gates.',
            ),
            'values': grids_frame(
                {'log_alpha': found.log_alpha, 'gate': gates},
                'The gate of every head in every run.',
                by={'lambda': found.coefficients, 'seed': found.seeds},
            ),
            'course': table(
                'The expected number of open heads after a step, and the mean loss since the row '
                'before.',
                **{'lambda': found.coefficients[:, None]},
                seed=found.seeds[:, None],
                step=found.steps,
                expected_open=found.expected_open,
                loss=found.losses,
            ),
        }
    )
