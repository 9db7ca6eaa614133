"""How many heads a fine-tuned model needs, by gates that learn to close (Voita et al. 2019).

Shapes: K runs (each coefficient with each seed), L layers, N heads, P points of a curve.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Real

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.significance import Assessment
from bert_secrets_jax.ablation.significance import assess as compare
from bert_secrets_jax.analyses.ablation import assessed_metrics, what_is_tested
from bert_secrets_jax.analyses.learnt import learnt_nothing, not_learnt
from bert_secrets_jax.analyses.models import labels_of, one_model
from bert_secrets_jax.analyses.tables import column_of
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.metrics import TITLES, check_metrics, predictions
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import counted, head_name
from bert_secrets_jax.pruning.gates import Gated, rounded_gates, settled_gates, train_gates
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

SOURCE = 'Voita et al. 2019, section 6'
# The prices of a head that are tried by default, in nats per example.
COEFFICIENTS = (0.001, 0.003, 0.01, 0.03)
# A loss of the score that counts as small: one point.
SMALL = 0.01
_POINTS = ('score', 'difference', 'low', 'high')
_COMPARED = (*_POINTS, 'p_value', 'holm')
# The most heads that a sentence names.
_NAMED = 8


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Gates(Result):
    """The gates of every head for several prices of a head, and the scores of the gated models.

    Attributes:
      subject: The names of the model, the texts and the task.
      frozen: Whether the weights of the model stayed as they were.
      coefficients: [K] The price of a head in each run, in nats of the loss of an example.
      seeds: [K] The seed of each run.
      log_alpha: [K, L, N] How far each gate is open (see `pruning.gates`).
      steps: [P] The steps at which there is a point of the curves.
      expected_open: [K, P] The expected number of open heads after these steps.
      losses: [K, P] The loss of the task before them.
      gated: The comparison of every run's gated model with the intact one, by the name of the
        metric. The task's own metric comes first.
      rounded: The same with each gate rounded to 0 or 1.
      examples: The number of examples that were scored.
      tested: The metric by which it is tested whether the intact model has learnt anything.
      reached: Its value.
      larger_class: The share of the more frequent class; NaN where a correlation is tested.
      p_learnt: The p-value under the hypothesis that the intact model has learnt nothing.
    """

    FORMAT: ClassVar[int] = 1

    subject: Subject
    frozen: bool
    coefficients: Float[np.ndarray, ' K']
    seeds: Real[np.ndarray, ' K']
    log_alpha: Float[np.ndarray, 'K L N']
    steps: Real[np.ndarray, ' P']
    expected_open: Float[np.ndarray, 'K P']
    losses: Float[np.ndarray, 'K P']
    gated: Mapping[str, Assessment]
    rounded: Mapping[str, Assessment]
    examples: int
    tested: str
    reached: float
    larger_class: float
    p_learnt: float

    @property
    def title(self) -> str:
        return 'Gates of heads'

    @property
    def metric(self) -> str:
        """The name of the task's own metric."""
        return next(iter(self.rounded))

    @property
    def gates(self) -> Float[np.ndarray, 'K L N']:
        """The gates of the models that were scored: 0 removes a head, 1 keeps it as it is."""
        return np.asarray(settled_gates(self.log_alpha))

    @property
    def kept(self) -> Real[np.ndarray, ' K']:
        """The number of heads that each run keeps when its gates are rounded."""
        return rounded_gates(self.gates).sum(axis=(1, 2)).astype(int)

    @property
    def open(self) -> Real[np.ndarray, ' K']:
        """The number of heads whose gate is not exactly 0."""
        return (self.gates > 0).sum(axis=(1, 2))

    @property
    def converged(self) -> Float[np.ndarray, ' K']:
        """The share of gates that are exactly 0 or exactly 1."""
        gates = self.gates
        return ((gates == 0) | (gates == 1)).mean(axis=(1, 2))

    @property
    def open_share(self) -> Float[np.ndarray, 'L N']:
        """The share of runs in which each head's gate is not exactly 0."""
        return (self.gates > 0).mean(axis=0)

    @property
    def _heads(self) -> int:
        return int(np.prod(self.log_alpha.shape[1:]))

    @property
    def _prices(self) -> list[float]:
        return sorted(set(self.coefficients.tolist()))

    def frames(self):
        return {
            'runs': self._runs(),
            'heads': self._of_heads(),
            'values': self._values(),
            'course': self._course(),
        }

    def figures(self):
        return Figures(
            {
                'scores': functools.partial(_draw_scores, self),
                'open': functools.partial(_draw_open, self),
                'course': functools.partial(_draw_course, self),
            }
        )

    def findings(self):
        findings = [self._sparsest(), self._range(), self._convergence()]
        nothing = self._nothing_to_tell()
        if nothing is None:
            findings.append(self._order())
        else:
            findings.insert(0, nothing)
        if learnt_nothing(self.p_learnt):
            tested = self.tested, self.reached, self.larger_class, self.p_learnt, self.examples
            findings.insert(0, not_learnt('the intact model', *tested))
        return findings

    def notes(self):
        weights = (
            'The weights of the model stay as they are, and only its gates are learnt.'
            if self.frozen
            else 'The weights of the model are trained together with its gates.'
        )
        return [
            'Each head has a gate, whose value multiplies its output: with zero the head is '
            f'removed. {weights} What is minimised is the mean loss of an example plus lambda '
            'times the expected number of open heads: lambda is what an open head costs, in the '
            'unit of the loss (nats for classes). Gates are learnt from the training texts and '
            'scored on others, on which no head is chosen. Intervals are paired by example, as '
            'for disabled heads; they are about these examples and this fine-tuned model.'
        ]

    def head_notes(self):
        count = len(self.gates)
        texts = [
            f'open in {round(share * count)} of {count} runs'
            for share in self.open_share.ravel().tolist()
        ]
        return {'gate': np.reshape(texts, self.open_share.shape)}

    def _runs(self):
        rows = [
            (
                metric, self.coefficients[run], self.seeds[run], self.open[run], self.kept[run],
                self.expected_open[run, -1], self.converged[run], 100 * rounded.baseline_score,
                *(
                    (100 if name in _POINTS else 1) * getattr(found, name)[run]
                    for found in (self.gated[metric], rounded)
                    for name in _COMPARED
                ),
            )
            for metric, rounded in self.rounded.items()
            for run in range(len(self.gates))
        ]  # fmt: skip
        columns = (
            'metric', 'lambda', 'seed', 'heads_open', 'heads_kept', 'expected_open',
            'share_converged', 'score_intact_points',
            *(
                f'{column_of(name)}_{which}' + ('_points' if name in _POINTS else '')
                for which in ('gated', 'rounded')
                for name in _COMPARED
            ),
        )  # fmt: skip
        return framed(
            columns,
            rows,
            f'Each run, of {self._heads} heads: those whose gate is not 0 (open), those whose gate '
            'is at least one half (kept when gates are rounded), the expected number of open heads '
            'at the end, and the share of gates that are exactly 0 or 1; scores in points with all '
            'heads, with the gates as they are and rounded, and 95 % intervals of the differences, '
            "paired by example; p_holm is corrected for all runs by Holm's method.",
        )

    def _of_heads(self):
        prices, gates = self._prices, self.gates
        of_price = [gates[self.coefficients == price] for price in prices]
        means = np.stack([each.mean(axis=0) for each in of_price])
        order, closes = _order(self.open_share), self._closes()
        columns = (
            'order', 'closes_at_lambda', 'share_of_runs_open',
            *(f'gate_at_lambda_{price:.12g}' for price in prices),
        )  # fmt: skip
        rows = [
            (
                head[0] + 1, head[1] + 1, order[head], closes[head], self.open_share[head],
                *means[(slice(None), *head)],
            )
            for head in np.ndindex(*order.shape)
        ]  # fmt: skip
        return framed(
            ('layer', 'head', *columns),
            rows,
            'Each head: its place in the order of closing (1 closes in most runs; heads that close '
            'equally often share a place, and those that never close have none), the least lambda '
            'at which its gate is 0 in half of the seeds or more, and its gate at each lambda, '
            'mean over seeds.',
            colours=Colours('heads', dict.fromkeys(columns, ())),
        )  # fmt: skip

    def _closes(self) -> Float[np.ndarray, 'L N']:
        """Return the least price at which each head is closed in half of the seeds or more."""
        closed = np.stack(
            [
                (self.gates[self.coefficients == price] == 0).mean(axis=0) >= 0.5
                for price in self._prices
            ]
        )
        least = np.array(self._prices)[closed.argmax(axis=0)]
        return np.where(closed.any(axis=0), least, np.nan)

    def _values(self):
        gates = self.gates
        rows = [
            (self.coefficients[run], self.seeds[run], layer + 1, head + 1,
             self.log_alpha[run, layer, head], gates[run, layer, head])
            for run, layer, head in np.ndindex(*gates.shape)
        ]  # fmt: skip
        return framed(
            ('lambda', 'seed', 'layer', 'head', 'log_alpha', 'gate'),
            rows,
            'The gate of every head in every run.',
            colours=Colours('heads', {'log_alpha': (), 'gate': ()}, by=('lambda', 'seed')),
        )

    def _course(self):
        rows = [
            (self.coefficients[run], self.seeds[run], step, self.expected_open[run, point],
             self.losses[run, point])
            for run in range(len(self.gates))
            for point, step in enumerate(self.steps)
        ]  # fmt: skip
        return framed(
            ('lambda', 'seed', 'step', 'expected_open', 'loss'),
            rows,
            'The expected number of open heads after a step, and the mean loss of the task since '
            'the row before, in the course of training.',
        )

    def _finding(self, **fields: Any) -> Finding:
        return Finding(**{'source': SOURCE, 'sample': self.examples} | fields)

    def _nothing_to_tell(self) -> Finding | None:
        """Return the warning that all heads close in as many runs, such as none or all of them."""
        closed, share = int((self.gates == 0).sum()), self.open_share
        if share.min() < share.max():
            return None
        if 0 < closed < self.gates.size:
            return self._finding(
                name='all heads close as often',
                warning=True,
                estimate=round(float(share.max()) * len(self.gates)),
                unit='runs',
                sample=len(self.gates),
                sample_of='runs',
                template=(
                    'Each of {heads} heads is open in {estimate} of {sample} runs (lambda from '
                    '{least:g} to {most:g}), so that the order of heads is not told: give prices '
                    'between those at which none and all of them close.'
                ),
                numbers={
                    'heads': self._heads,
                    'least': self._prices[0],
                    'most': self._prices[-1],
                },
            )
        none = 'No gate is exactly zero in any of {runs} runs (lambda from {least:g} to {most:g})'
        every = 'All gates are closed in all of {runs} runs (lambda from {least:g} to {most:g})'
        mend = (
            ': training is too short, or a head costs too little. Raise the number of epochs or '
            'the learning rate of the gates, or lambda; the order of heads is not told.'
        )
        if closed:
            mend = ': a head costs too much. Lower lambda; the order of heads is not told.'
        return self._finding(
            name='no gate is closed' if not closed else 'all gates are closed',
            warning=True,
            estimate=closed,
            unit='closed gates',
            sample=self.gates.size,
            sample_of='gates',
            template=(every if closed else none) + mend,
            numbers={
                'runs': len(self.gates),
                'least': self._prices[0],
                'most': self._prices[-1],
            },
        )

    def _sparsest(self) -> Finding:
        found = self.rounded[self.metric]
        loss = -np.where(np.isnan(found.difference), -np.inf, found.difference)
        near = loss <= SMALL + 1e-9
        # The fewest heads of those that are near, and otherwise the nearest of all.
        ranked = np.lexsort((loss, self.kept)) if near.any() else np.lexsort((self.kept, loss))
        best = next(run for run in ranked if near[run] or not near.any())
        known = np.isfinite(loss[best])
        within = (
            'The sparsest model within {margin:point|points} of the full one keeps {kept} of '
            '{heads} heads'
        )
        beyond = (
            'No model is within {margin:point|points} of the full one; the nearest keeps {kept} of '
            '{heads} heads'
        )
        scores = (
            ': {metric} {score:.1f} instead of {intact:.1f}, {estimate:+.2f} points ({low:+.2f} to '
            '{high:+.2f}), with lambda = {price:g} and gates rounded to open or closed. It is one '
            'of {runs}, chosen on these very examples, which flatters it.'
        )
        undefined = ', and its score is undefined: its predictions are constant.'
        return self._finding(
            name='the sparsest model near the full one',
            estimate=100 * float(found.difference[best]) if known else 0.0,
            low=100 * float(found.low[best]) if known else np.nan,
            high=100 * float(found.high[best]) if known else np.nan,
            unit=f'points of {TITLES[self.metric]}',
            template=(within if near.any() else beyond) + (scores if known else undefined),
            numbers={
                'margin': 100 * SMALL,
                'kept': int(self.kept[best]),
                'heads': self._heads,
                'metric': TITLES[self.metric],
                'score': 100 * float(found.score[best]),
                'intact': 100 * found.baseline_score,
                'price': float(self.coefficients[best]),
                'runs': len(self.kept),
            },
        )

    def _range(self) -> Finding:
        prices = self._prices
        kept = [float(self.kept[self.coefficients == each].mean()) for each in prices]
        down, up = self.rounded[self.metric].significant()
        ends = ' with lambda = {least:g}'
        if len(prices) > 1:
            ends += ' and {estimate:.4g} with lambda = {most:g}'
        return self._finding(
            name='heads kept',
            estimate=kept[-1],
            unit='heads',
            sample=len(self.kept),
            sample_of='runs',
            template=(
                f'Of {{heads}} heads, {{first:.4g}} are kept{ends} (gates rounded, mean over '
                '{seeds:seed|seeds}). The score ({metric}) is significantly lower than with all '
                'heads in {down} of {sample} runs and higher in {up}, after correction for all of '
                'them (Holm; {test} test, {examples:example|examples}).'
            ),
            numbers={
                'heads': self._heads,
                'first': kept[0],
                'least': prices[0],
                'most': prices[-1],
                'seeds': len(set(self.seeds.tolist())),
                'metric': TITLES[self.metric],
                'down': down,
                'up': up,
                'test': self.rounded[self.metric].test,
                'examples': self.examples,
            },
        )

    def _convergence(self) -> Finding:
        rounded, gated = (each[self.metric].score for each in (self.rounded, self.gated))
        change = np.abs(rounded - gated)
        change = float(np.nanmax(change)) if np.isfinite(change).any() else np.inf
        rounding = ' Rounding them changes {metric} by {change:.2f} points at most.'
        return self._finding(
            name='gates that converged',
            estimate=100 * float(self.converged.mean()),
            unit='% of gates',
            sample=self.gates.size,
            sample_of='gates',
            template='{estimate:.0f} % of {sample:,} gates are exactly closed or exactly open at '
            'the end.' + (rounding if np.isfinite(change) else ''),
            numbers={'metric': TITLES[self.metric], 'change': 100 * change},
        )

    def _order(self) -> Finding:
        share = self.open_share
        runs = len(self.gates)
        last, first = (_named(share == each) for each in (share.max(), share.min()))
        return self._finding(
            name='heads that stay open longest',
            estimate=int((share == share.max()).sum()),
            unit='heads',
            sample=runs,
            sample_of='runs',
            template=(
                'Open longest: {estimate} of {heads} heads, in {most} of {sample} runs ({last}). '
                'First to close: {closing}, open in {least} ({first}).'
            ),
            numbers={
                'heads': self._heads,
                'most': round(float(share.max()) * runs),
                'least': round(float(share.min()) * runs),
                'closing': int((share == share.min()).sum()),
                'last': last,
                'first': first,
            },
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
    subject: Subject | None = None,
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
      metrics: The names of the metrics, the most important first. By default they are those of
        `ablation`.
      seed: The seed of the bootstrap and of the randomization test.
      subject: The names of the model, the texts and the task, for sentences and captions.
      **training: Further settings of `bs.train_gates`, such as `epochs`, `gate_learning_rate`,
        `max_length`, `folder` or `mesh`.

    Raises:
      TypeError: The model or the examples are something else.
      ValueError: A metric is unknown, an example has no label, the model has no classifier, or
        `bs.train_gates` refuses a setting.
    """
    subject = subject or Subject()
    model = one_model(tuned)
    labels_of(dev, model.config)
    metrics = metrics or assessed_metrics(model.config.num_labels, subject.task)
    check_metrics(metrics, model.config.num_labels)
    found = train_gates(
        model, train, dev, coefficients=coefficients, seeds=seeds, frozen=frozen, **training
    )
    return assess_gates(found, metrics, seed=seed, subject=subject)


def assess_gates(gated: Gated, metrics: Sequence[str], *, seed: int, subject: Subject) -> Gates:
    """Compare each gated model with the intact one.

    Args:
      gated: The gates, and what the models answer.
      metrics: The names of the metrics, the most important first.
      seed: The seed of the bootstrap and of the randomization test.
      subject: The names of the model, the texts and the task.
    """
    intact = predictions(gated.intact)

    def compared(logits: np.ndarray) -> dict[str, Assessment]:
        answers = np.stack([predictions(of_run) for of_run in logits])
        return {
            metric: compare(metric, answers, intact, gated.labels, seed=seed) for metric in metrics
        }

    return Gates(
        subject=subject,
        frozen=gated.frozen,
        coefficients=gated.coefficients,
        seeds=gated.seeds,
        log_alpha=gated.log_alpha,
        steps=gated.steps,
        expected_open=gated.expected_open,
        losses=gated.losses,
        gated=compared(gated.gated),
        rounded=compared(gated.rounded),
        examples=len(gated.labels),
        **what_is_tested(metrics, gated.intact.shape[-1], intact, gated.labels),
    )


def _order(open_share: Float[np.ndarray, 'L N']) -> Float[np.ndarray, 'L N']:
    """Return the place of each head in the order of closing, from 1; NaN if it never closes."""
    flat = open_share.ravel()
    places = 1.0 + (flat[None] < flat[:, None]).sum(axis=1)
    return np.where(flat < 1, places, np.nan).reshape(open_share.shape)


def _named(chosen: np.ndarray) -> str:
    names = [head_name(*head) for head in np.argwhere(chosen).tolist()]
    more = f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''
    return ', '.join(names[:_NAMED]) + more


def _draw_scores(result: Gates):
    metric = result.metric
    points = {
        name: (heads, 100 * found.score, *(100 * (found.baseline_score + each)
                                           for each in (found.low, found.high)))
        for name, heads, found in (
            ('gates as learnt', result.open, result.gated[metric]),
            ('gates rounded', result.kept, result.rounded[metric]),
        )
    }  # fmt: skip
    figure = plots.scores_by_heads(
        points,
        level=100 * result.rounded[metric].baseline_score,
        level_name='all heads',
        most=result._heads,
        label=f'{TITLES[metric]}, x 100',
    )
    figure.caption = (
        f'{TITLES[metric]} against the number of open heads, one point for each lambda and seed, '
        f'on {counted(result.examples, "example")} ({SOURCE}). Lines are 95 % intervals of the '
        f'difference '
        'to the model with all heads, paired by example.'
    )
    return figure


def _draw_open(result: Gates):
    figure = plots.head_grids({'gate open': result.open_share}, label='share of runs')
    figure.source = plots.Source('heads', 'share_of_runs_open')
    figure.caption = (
        'How long each head stays open: the share of runs, of all lambdas and seeds, in which its '
        'gate is not exactly zero.'
    )
    return figure


def _draw_course(result: Gates):
    figure = plots.training_curves(
        {
            f'λ = {price:g}': result.expected_open[result.coefficients == price]
            for price in result._prices
        },
        result.steps,
        xlabel='step',
        label='expected open heads',
    )
    figure.caption = (
        'The expected number of open heads while the gates are learnt, one line for each seed.'
    )
    return figure
