"""Ten hypotheses about heads that a new model can refute, and three about its fine-tunings.

They were chosen on MiniLM and gte-small and then tested on other models (docs/hypotheses.md). The
thresholds are half of what the weaker of the two shows, or no difference at all.

Shapes: E examples, L layers, N heads.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.analyses import tuned_hypotheses
from bert_secrets_jax.analyses.claims import Claims
from bert_secrets_jax.analyses.special_tokens import ENTROPY
from bert_secrets_jax.analyses.texts import TextSettings, with_progress
from bert_secrets_jax.analyses.verdicts import Verdict, verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim
from bert_secrets_jax.contributions.norms import shares_of_norms
from bert_secrets_jax.data.encoding import bucket, tokenize
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.measure.catalogue import measure, named
from bert_secrets_jax.model.weights import Pretrained, check_whole, without_head
from bert_secrets_jax.runs.result import Subject

_BEFORE, _AFTER, _SPECIAL = 'previous token', 'next token', '[CLS] and all [SEP]'
_STOPS, _OF_CLS, _MOVED = 'period or comma', 'entropy of [CLS] (nats)', 'moved from special tokens'
_MEASURED = _BEFORE, _AFTER, _SPECIAL, ENTROPY, _STOPS, _OF_CLS
_FEWEST_LAYERS = 3

# The mean of each statistic by layer and head, by its name.
Means = Mapping[str, Float[np.ndarray, 'L N']]
# A number made of the means over half of the texts; heads are chosen on the other half.
Number = Callable[[Means, Means], float]


@dataclasses.dataclass(frozen=True)
class _Hypothesis:
    """A claim, the words for the number that decides, and this number."""

    claim: Claim
    what: str
    number: Number


def _thirds(grid: Float[np.ndarray, 'L N']) -> list[Float[np.ndarray, '_ N']]:
    first = round(len(grid) / 3)
    return [grid[:first], grid[first : len(grid) - first], grid[len(grid) - first :]]


def _greatest(grid: Float[np.ndarray, '_ N'], chosen_on: Float[np.ndarray, '_ N']) -> float:
    """Return the value of the head that is the greatest on other texts: chance does not choose."""
    return float(grid.flat[np.argmax(chosen_on)])


def _lead(name: str, layers: int | None = None) -> Number:
    """Return the lead of the first layers, or of their first third, over all others."""

    def number(means: Means, other: Means) -> float:
        grid, chosen_on = means[name], other[name]
        end = len(_thirds(grid)[0]) if layers is None else layers
        first = _greatest(grid[:end], chosen_on[:end])
        return first - _greatest(grid[end:], chosen_on[end:])

    return number


def _claim(text: str, short: str, unit: str, threshold: float, bound: str, side: str) -> Claim:
    source = 'Hypotheses of bert_secrets_jax 2026, chosen on MiniLM and gte-small'
    about = {'section': 'hypotheses', 'unit': unit, 'threshold': threshold, 'side': side}
    return Claim(text, source, bound=bound, short=short, **about)


def _stated(
    text: str,
    short: str,
    what: str,
    number: Number,
    *,
    unit: str = 'share of attention',
    threshold: float = 0.0,
    bound: str = 'Any difference counts.',
    side: str = 'more',
) -> _Hypothesis:
    return _Hypothesis(_claim(text, short, unit, threshold, bound, side), what, number)


HYPOTHESES = (
    _stated(
        'Some head of the first layer gives the previous token at least half of its attention.',
        'Layer 1 has a head for the previous token',
        'most attention to the previous token in the first layer',
        lambda m, other: _greatest(m[_BEFORE][:1], other[_BEFORE][:1]),
        threshold=0.5,
        bound='MiniLM and gte-small have 0.98 and 0.97.',
    ),
    _stated(
        'The head that attends most to the previous token is in the first third of the layers.',
        'The first third has the head for the previous token',
        'lead of the first third in attention to the previous token',
        _lead(_BEFORE),
    ),
    _stated(
        'The head that attends most to the next token is in the first third of the layers.',
        'The first third has the head for the next token',
        'lead of the first third in attention to the next token',
        _lead(_AFTER),
    ),
    _stated(
        'Neighbours get more attention in the first third of the layers than in the last.',
        'Early layers look at neighbours',
        'attention to both neighbours, first third less last',
        lambda m, _: float(
            np.subtract(*(_thirds(m[_BEFORE] + m[_AFTER])[i].mean() for i in (0, 2)))
        ),
        threshold=0.05,
        bound='MiniLM and gte-small have 0.10.',
    ),
    _stated(
        'Special tokens get more attention in the middle third than in the first layer.',
        'Middle layers look at special tokens',
        'attention to special tokens, middle third less first layer',
        lambda m, _: float(_thirds(m[_SPECIAL])[1].mean() - m[_SPECIAL][0].mean()),
        threshold=0.15,
        bound='MiniLM and gte-small have 0.29 and 0.38.',
    ),
    _stated(
        'Heads take less from special tokens than half of the attention that they give them.',
        'Special tokens get attention and give little',
        'share of what is moved by the share of attention',
        lambda m, _: float(m[_MOVED].mean() / m[_SPECIAL].mean()),
        unit='ratio',
        threshold=0.5,
        bound='MiniLM and gte-small have 0.23 and 0.29.',
        side='less',
    ),
    _stated(
        'The first layer spreads its attention more widely than the second.',
        'Layer 1 is broader than layer 2',
        'entropy, first layer less second',
        lambda m, _: float(m[ENTROPY][0].mean() - m[ENTROPY][1].mean()),
        unit='nats',
        threshold=0.5,
        bound='MiniLM and gte-small have 1.15 and 1.06.',
    ),
    _stated(
        'The head with the most even attention is in the first layer.',
        'The broadest head is in layer 1',
        'lead of the first layer in entropy',
        _lead(ENTROPY, 1),
        unit='nats',
    ),
    _stated(
        '[CLS] spreads its attention more widely in the last layer than in the second.',
        '[CLS] gathers widely in the last layer',
        'entropy of [CLS], last layer less second',
        lambda m, _: float(m[_OF_CLS][-1].mean() - m[_OF_CLS][1].mean()),
        unit='nats',
        threshold=1.0,
        bound='MiniLM and gte-small have 2.5 and 2.3.',
    ),
    _stated(
        'The head that attends most to full stops and commas is not in the first third.',
        'Heads for full stops come after the first third',
        'lead of the first third in attention to full stops and commas',
        _lead(_STOPS),
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


def hypotheses(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Mapping[int, Finetuned] | None = None,
    settings: TextSettings = TextSettings(),
    subject: Subject | None = None,
) -> Hypotheses:
    """Test ten hypotheses about what heads look at, and three about fine-tunings.

    Each is a number made from means over texts. Its error is that of the jackknife over texts. The
    greatest of several heads is chosen on one half of the texts and measured on the other half.

    Args:
      pretrained, settings, subject: As in `special_tokens`.
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
    return Hypotheses(subject or Subject(), verdicts)


def decided(values: Mapping[str, Float[np.ndarray, 'E L N']]) -> tuple[Verdict, ...]:
    """Return the verdict on each hypothesis, from the values of statistics of each example.

    An example without the tokens of a statistic has NaN.
    """
    halves = [{name: each[half::2] for name, each in values.items()} for half in (0, 1)]
    sums = [
        {
            name: (np.nansum(each, axis=0, dtype=np.float64), np.isfinite(each).sum(axis=0))
            for name, each in half.items()
        }
        for half in halves
    ]

    def means(half: int, without: int | None = None) -> Means:
        found = {}
        for name, (total, known) in sums[half].items():
            gone = np.nan if without is None else halves[half][name][without]
            with np.errstate(invalid='ignore', divide='ignore'):
                found[name] = (total - np.nan_to_num(gone)) / (known - np.isfinite(gone))
        return found

    whole, count = [means(0), means(1)], len(next(iter(values.values())))
    numbers = _numbers(*whole)
    others = [
        _numbers(*(means(half, out // 2) if half == out % 2 else whole[half] for half in (0, 1)))
        for out in range(count)
    ]
    errors = np.sqrt((count - 1) * np.var(others, axis=0)) + verdict.ROUNDING
    found = []
    for each, number, error in zip(HYPOTHESES, numbers, errors, strict=True):
        sign = 1 if each.claim.side == 'more' else -1
        above = sign * each.claim.threshold
        contrasts = verdict.contrasts([(sign * number, error)], count, above=above)
        found.append(verdict.verdict_on(each.claim, contrasts, each.what))
    return tuple(found)


def _numbers(one: Means, other: Means) -> list[float]:
    """Return the number of each hypothesis, the mean of both ways to choose heads."""
    return [(each.number(one, other) + each.number(other, one)) / 2 for each in HYPOTHESES]
