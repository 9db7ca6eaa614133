"""Ten hypotheses about heads that a new model can refute, and three about its fine-tunings.

They were chosen on MiniLM and gte-small and then tested on other models (docs/hypotheses.md). The
thresholds are about half of what the weaker of the two shows, half of the attention, or no
difference at all.

Shapes: E examples, L layers, N heads, A and B heads of two sides in a row.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.stats
from jaxtyping import Float

from bert_secrets_jax.analyses import tuned_hypotheses
from bert_secrets_jax.analyses.claims import Claims
from bert_secrets_jax.analyses.common.texts import TextSettings, with_progress
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.analyses.verdicts import Verdict, verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim
from bert_secrets_jax.contributions.norms import shares_of_norms
from bert_secrets_jax.data.encoding import bucket, tokenize
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.measure.catalogue import ENTROPY, measure, named
from bert_secrets_jax.model.weights import Pretrained, check_whole, without_head
from bert_secrets_jax.runs.verdict import THIS_MODEL
from bert_secrets_jax.stats import over_runs
from bert_secrets_jax.stats.student import LEVEL

_BEFORE, _AFTER, _SPECIAL = 'previous token', 'next token', '[CLS] and all [SEP]'
_STOPS, _OF_CLS, _MOVED = 'period or comma', 'entropy of [CLS] (nats)', 'moved from special tokens'
_MEASURED = _BEFORE, _AFTER, _SPECIAL, ENTROPY, _STOPS, _OF_CLS
_FEWEST_LAYERS = 3
# A head that is below another of its side at this level, for all of the side, is not its greatest.
_CLEAR = LEVEL / 100

# The values of each statistic in each example, or their means, by its name.
Values = Mapping[str, Float[np.ndarray, 'E L N']]
Means = Mapping[str, Float[np.ndarray, 'L N']]
# Differences of heads of two sides, their errors, and how many heads of each may be its greatest.
Compared = tuple[Float[np.ndarray, 'A B'], Float[np.ndarray, 'A B'], Sequence[int]]


@dataclasses.dataclass(frozen=True)
class _Hypothesis:
    """A claim, the words for the number that decides, its statistics, and how they decide."""

    claim: Claim
    what: str
    names: tuple[str, ...]
    compared: Callable[[Values], Compared]


def _thirds(grid: Float[np.ndarray, 'L N']) -> list[Float[np.ndarray, '_ N']]:
    first = round(len(grid) / 3)
    return [grid[:first], grid[first : len(grid) - first], grid[len(grid) - first :]]


def _number(of: Callable[[Means], float]) -> Callable[[Values], Compared]:
    """Return how a number made from means decides: as one head would against 0."""

    def compared(values: Values) -> Compared:
        totals = {name: each.sum(axis=0, dtype=np.float64) for name, each in values.items()}
        count = len(next(iter(values.values())))
        without = [
            of({name: (totals[name] - each[out]) / (count - 1) for name, each in values.items()})
            for out in range(count)
        ]
        error = np.sqrt((count - 1) * np.var(without)) + over_runs.ROUNDING
        whole = of({name: total / count for name, total in totals.items()})
        return np.array([[whole]]), np.array([[error]]), (1, 1)

    return compared


def _lead(layers: int | None = None, *, others: bool = True) -> Callable[[Values], Compared]:
    """Return how the first layers, or their first third, are compared with all others, or with 0.

    A head that is clearly lower than another one of its side cannot be the greatest of it.
    """

    def compared(values: Values) -> Compared:
        (each,) = values.values()
        end = len(_thirds(each[0])[0]) if layers is None else layers
        sides = [part.reshape(len(each), -1) for part in (each[:, :end], each[:, end:])]
        sides = [sides[0], sides[1] if others else np.zeros((len(each), 1))]
        heads = np.hstack(sides).astype(np.float64)
        means, covariance = heads.mean(axis=0), np.cov(heads, rowvar=False)
        variance = covariance.diagonal()
        differences = means[:, None] - means
        squared = np.maximum(variance[:, None] + variance - 2 * covariance, 0) / len(each)
        errors = np.sqrt(squared) + over_runs.ROUNDING
        first, best = sides[0].shape[1], []
        for side in (slice(first), slice(first, None)):
            above = (differences / errors)[side, side].max(axis=0)
            clear = scipy.stats.t.isf(_CLEAR / len(above), len(each) - 1)
            best.append(int((above < clear).sum()))
        return differences[:first, first:], errors[:first, first:], best

    return compared


def _claim(text: str, short: str, unit: str, threshold: float, bound: str, side: str) -> Claim:
    source = 'Hypotheses of bert_secrets_jax 2026, chosen on MiniLM and gte-small'
    about = {'section': 'hypotheses', 'unit': unit, 'threshold': threshold, 'side': side}
    return Claim(text, source, bound=bound, short=short, **about)


def _stated(
    text: str,
    short: str,
    what: str,
    names: tuple[str, ...],
    compared: Callable[[Values], Compared],
    *,
    unit: str = 'share of attention',
    threshold: float = 0.0,
    bound: str = 'Any difference counts.',
    side: str = 'more',
) -> _Hypothesis:
    return _Hypothesis(_claim(text, short, unit, threshold, bound, side), what, names, compared)


HYPOTHESES = (
    _stated(
        'Some head of the first layer gives the previous token at least half of its attention.',
        'Layer 1 has a head for the previous token',
        'most attention to the previous token in the first layer',
        (_BEFORE,),
        _lead(1, others=False),
        threshold=0.5,
        bound='MiniLM and gte-small have 0.98 and 0.97.',
    ),
    _stated(
        'The head that attends most to the previous token is in the first third of the layers.',
        'The first third has the head for the previous token',
        'lead of the first third in attention to the previous token',
        (_BEFORE,),
        _lead(),
    ),
    _stated(
        'The head that attends most to the next token is in the first third of the layers.',
        'The first third has the head for the next token',
        'lead of the first third in attention to the next token',
        (_AFTER,),
        _lead(),
    ),
    _stated(
        'Neighbours get more attention in the first third of the layers than in the last.',
        'Early layers look at neighbours',
        'attention to both neighbours, first third less last',
        (_BEFORE, _AFTER),
        _number(
            lambda m: np.subtract(*(_thirds(m[_BEFORE] + m[_AFTER])[i].mean() for i in (0, 2)))
        ),
        threshold=0.05,
        bound='MiniLM and gte-small have 0.10.',
    ),
    _stated(
        'Special tokens get more attention in the middle third than in the first layer.',
        'Middle layers look at special tokens',
        'attention to special tokens, middle third less first layer',
        (_SPECIAL,),
        _number(lambda m: _thirds(m[_SPECIAL])[1].mean() - m[_SPECIAL][0].mean()),
        threshold=0.15,
        bound='MiniLM and gte-small have 0.29 and 0.38.',
    ),
    _stated(
        'Heads take less from special tokens than half of the attention that they give them.',
        'Special tokens get attention and give little',
        'share of what is moved by the share of attention',
        (_MOVED, _SPECIAL),
        _number(lambda m: m[_MOVED].mean() / m[_SPECIAL].mean()),
        unit='ratio',
        threshold=0.5,
        bound='MiniLM and gte-small have 0.23 and 0.29.',
        side='less',
    ),
    _stated(
        'The first layer spreads its attention more widely than the second.',
        'Layer 1 is broader than layer 2',
        'entropy, first layer less second',
        (ENTROPY,),
        _number(lambda m: m[ENTROPY][0].mean() - m[ENTROPY][1].mean()),
        unit='nats',
        threshold=0.5,
        bound='MiniLM and gte-small have 1.15 and 1.06.',
    ),
    _stated(
        'The head with the most even attention is in the first layer.',
        'The broadest head is in layer 1',
        'lead of the first layer in entropy',
        (ENTROPY,),
        _lead(1),
        unit='nats',
    ),
    _stated(
        '[CLS] spreads its attention more widely in the last layer than in the second.',
        '[CLS] gathers widely in the last layer',
        'entropy of [CLS], last layer less second',
        (_OF_CLS,),
        _number(lambda m: m[_OF_CLS][-1].mean() - m[_OF_CLS][1].mean()),
        unit='nats',
        threshold=1.0,
        bound='MiniLM and gte-small have 2.5 and 2.3.',
    ),
    _stated(
        'The head that attends most to full stops and commas is not in the first third.',
        'Heads for full stops come after the first third',
        'lead of the first third in attention to full stops and commas',
        (_STOPS,),
        _lead(),
        side='less',
    ),
)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Hypotheses(Claims):
    """The verdicts on hypotheses that were chosen on other models."""

    title: ClassVar[str] = 'Hypotheses that this model could refute'
    FORMAT: ClassVar[int] = 1

    def verdicts(self):
        # Those on claims of papers: `decided` has those on the hypotheses.
        return []

    def findings(self):
        (first,) = super().findings()
        said = {'name': 'hypotheses that hold', 'template': '{sample} hypotheses: {counts}.'}
        of = {'unit': 'hypotheses', 'sample_of': 'hypotheses', 'numbers': first.numbers}
        return [dataclasses.replace(first, **said, **of)]

    def notes(self):
        return [
            'The hypotheses were chosen on MiniLM and gte-small: on these, they are no test.',
            'Tests are one-sided at 5 % each. Another sample of texts like these is allowed for.',
        ]


@analysis(
    question='which of ten hypotheses, chosen on other models, this model refutes',
    time='5 s',
    inputs={'tuned': ...},
    cost=lambda given: given.one_pass('hypotheses', 4, 12, 3),
)
def hypotheses(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Mapping[int, Finetuned] | None = None,
    settings: TextSettings = TextSettings(),
) -> Hypotheses:
    """Test ten hypotheses about what heads look at, and three about fine-tunings.

    Each is a number made from means over texts. Its error is that of the jackknife over texts. That
    the greatest head is on one side needs one that is above each head of the other side. It is
    corrected for the heads of its side that may be the greatest.

    Args:
      pretrained, settings: As in `special_tokens`.
      texts: The texts, at least 20 for any verdict.
      tuned: Fine-tunings of the model, of three seeds or more, by the number of labelled examples
        that they learnt from. Each of their heads is then disabled on all texts. None asks nothing
        about them; with one number, nothing is said about more labels.

    Raises:
      ValueError: The model has fewer than three layers, has lost heads, or reads no special tokens;
        fine-tunings have too few seeds, other layers or other heads, or have learnt nothing.
    """
    check_whole(pretrained)
    if pretrained.config.num_hidden_layers < _FEWEST_LAYERS:
        raise ValueError(
            f'The hypotheses are about thirds of at least {_FEWEST_LAYERS} layers, and the model '
            f'({pretrained.config.summary}) has {pretrained.config.num_hidden_layers}.'
        )
    model = without_head(pretrained)
    encoded = tokenize(model.tokenizer, texts, max_length=settings.max_length)

    def measured(
        model: Pretrained, *names: str, **how: Any
    ) -> dict[str, Float[np.ndarray, 'E L N']]:
        batches = with_progress(bucket(encoded, **settings.bucketing), 'Hypotheses')
        wanted = [named(name) for name in names]
        tables = measure(model, batches, wanted, keep_values=True, mesh=settings.mesh, **how)
        return {name: tables[name].values for name in names}

    values = measured(model, *_MEASURED)
    values[_MOVED] = measured(model, _SPECIAL, maps_of=shares_of_norms)[_SPECIAL]
    verdicts = decided(values)
    if tuned:
        models = tuned_hypotheses.checked(pretrained, tuned)
        after = [measured(without_head(each), ENTROPY)[ENTROPY][:, 0] for each in models]
        found = tuned_hypotheses.Measured(
            {n: tuned_hypotheses.answers_moved(each, texts, settings) for n, each in tuned.items()},
            given=values[_MOVED].reshape(len(texts), -1),
            before=values[ENTROPY][:, 0],
            after=np.stack(after),
        )
        verdicts += tuned_hypotheses.decided(found)
    return Hypotheses(verdicts)


def decided(values: Values) -> tuple[Verdict, ...]:
    """Return the verdict on each hypothesis, from the values of statistics of each example.

    An example without the tokens of a statistic has NaN, and does not count for its hypotheses.
    """
    return tuple(_decided(each, {name: values[name] for name in each.names}) for each in HYPOTHESES)


def _decided(hypothesis: _Hypothesis, values: Values) -> Verdict:
    claim, what = hypothesis.claim, hypothesis.what
    known = np.all([np.isfinite(each).all(axis=(1, 2)) for each in values.values()], axis=0)
    about = {'sample': int(known.sum()), 'what': what, 'population': THIS_MODEL}
    if about['sample'] < over_runs.FEWEST:
        why = 'The {what} is known in {sample} of {texts} texts; a test needs {least}.'
        numbers = {'texts': len(known), 'least': over_runs.FEWEST}
        return Verdict(claim=claim, verdict=verdict.TOO_FEW, template=why, numbers=numbers, **about)
    found = hypothesis.compared({name: each[known] for name, each in values.items()})
    differences, errors, (first, second) = found
    student = scipy.stats.t(about['sample'] - 1)
    # One head of a side has to be beyond each of the other side (intersection-union test).
    beyond = (differences - claim.threshold) / errors
    above = over_runs.capped(first * student.sf(beyond).min(axis=0).max())
    below = over_runs.capped(second * student.cdf(beyond).min(axis=1).max())
    reach = [student.isf(LEVEL / 2 / heads) * errors for heads in (first, second)]
    interval = (
        differences.min(axis=1).max(),
        (differences - reach[0]).max(axis=0).min(),
        (differences + reach[1]).min(axis=1).max(),
    )
    p_values = (above, below) if claim.side == 'more' else (below, above)
    return verdict.verdict_of(claim, p_values, interval, **about)
