"""Which heads carry the difference between two texts: activation patching of every head.

Shapes: E pairs of texts, L layers, N heads, M heads of all layers.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.ablation.embeddings import as_embedder
from bert_secrets_jax.ablation.masked_lm import assess_losses
from bert_secrets_jax.ablation.patched_metrics import AnyMetric, intact_answers
from bert_secrets_jax.ablation.patching import Patched, as_read, estimate_patches, patch
from bert_secrets_jax.analyses.common import effects
from bert_secrets_jax.analyses.common.inputs import Models, check_several, one_model
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import TooFewTextsError
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.contributions.integrated import Steps
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.data.tasks import Text, first_texts
from bert_secrets_jax.model.config import EMBEDDING, SEQUENCES
from bert_secrets_jax.model.weights import Pretrained, with_pooling
from bert_secrets_jax.names import head_name
from bert_secrets_jax.ranges import Range
from bert_secrets_jax.runs.call import INPUTS, Call, an_input, call
from bert_secrets_jax.runs.result import Figures, Result, how_many
from bert_secrets_jax.stats.correlations import RankAgreement, rank_agreement
from bert_secrets_jax.stats.effects import Effects, Outcome
from bert_secrets_jax.stats.student import LEVEL, ratio_interval

SOURCE = 'Heimersheim and Nanda 2024, section 3'
SOURCES = {'gradient': 'Nanda 2023', 'integrated gradients': 'Hanna et al. 2024'}
BOTH = 'both directions'
_UNITS = {'logit': 'logits', 'margin': 'logits', 'closeness': 'cosine'}
# The columns of errors of estimates, with their method in front.
_OF_ERRORS = {
    'error': 'difference',
    'error_low': 'low',
    'error_high': 'high',
    'error_p_max_t': 'corrected',
}
_SHARES = ['share', 'share_low', 'share_high']
_MOVED = 'Mean change of the metric towards that of the clean texts, in both directions.'


class Patching(Result):
    """The effect of each head of one text that is put into the run on another one.

    Attributes:
      shape: The numbers of layers and heads.
      total: The metric of clean texts compared with that of corrupted ones.
      effects: By direction, the mean changes over pairs. That of `BOTH` is half of denoising less
        noising: only there does a head have no effect where nothing tells the two kinds of texts
        apart, since a mixture of texts may have another metric than either.
      shares: [M, 3] By direction, the share of the total difference that a head restores or
        destroys, with the ends of its interval (Fieller 1954). NaN where the clean texts do not
        have a significantly greater metric.
      errors: By method, estimates (`estimate_patches`) less exact effects, in both directions.
    """

    shape: tuple[int, int]
    total: Effects
    effects: Mapping[str, Effects]
    shares: Mapping[str, np.ndarray]
    errors: Mapping[str, Effects]

    title = 'Heads that tell two texts apart'

    def estimate(self, method: str) -> Float[np.ndarray, ' M']:
        """Return the effects of heads, in both directions, as a method estimates them."""
        return self.effects[BOTH].difference + self.errors[method].difference

    def figures(self):
        heads = 'heads', self.effects[BOTH], self.shape, _MOVED, BOTH
        return Figures({'patching': functools.partial(effects.draw_effects, *heads)})

    def findings(self):
        each, metric = self.effects[BOTH], effects.title_of(self.total)
        count = how_many(
            'heads with a significant effect',
            each.corrected <= LEVEL,
            template='{estimate} {unit} {estimate:|moves|move} the {metric} significantly when '
            'put into the other text.',
            metric=metric,
            **effects.sample_of(self.total, SOURCE),
        )
        greatest = effects.effect_of(
            each,
            int(np.abs(each.difference).argmax()),
            name='head with the greatest effect',
            source=SOURCE,
            template='{where} moves the {metric} most, by {estimate:.2g} {unit}.',
            metric=metric,
        )
        return [count, greatest]

    def notes(self):
        said = [
            'A head of one text in the run on another one may do what it does on neither.',
            'Effects of heads do not add up to the difference: later heads react to earlier ones.',
        ]
        if effects.title_of(self.total) == 'closeness':
            said.append('Closeness: the cosine with the clean text less that with the other one.')
        if np.isnan(self.shares[BOTH]).all():
            said.append('Clean texts do not have a significantly greater metric: no share is told.')
        return said


def _is_classifier(given) -> bool:
    return not INPUTS['model'].missing(given)


def _needs(given) -> str:
    missing, embeds = INPUTS['model'].missing(given), not INPUTS['embedder'].missing(given)
    if not missing or (embeds and not given.study.as_it_is):
        return ''
    return f'{missing}, or a model that says how it pools'


@an_input(
    missing=_needs,
    label=lambda given: INPUTS['ablated'].label(given) if _is_classifier(given) else '',
)
def clean(given) -> Call:
    """Return the texts of which pairs are made: an embedding is of one text."""
    if _is_classifier(given):
        return given.input('ablated')
    return call(first_texts, given.input('texts'))


def _model(given) -> Call:
    if _is_classifier(given):
        return given.input('model')
    return call(with_pooling, given.input('pretrained'))


def _cost(given) -> float:
    # A pair has two texts, and not every text is in one.
    share = min(given.share('clean', 2 * given['patching.max_examples']), 0.7) / 2
    # Two directions of a head, and the gradients of an estimate and of the steps of another.
    passes = 1 + share * (1.2 * given.heads + 2 * (5 + 3 * 5))
    return passes * given.tokens('clean')


@analysis(
    question='which heads carry the difference between two texts',
    group='What matters',
    report='name',
    settings={
        'max_examples': {
            'help': 'How many pairs are made of the ablated texts: of as many tokens, and of '
            'different predictions; 0 is all.',
            'default': 50,
            'range': [0, 10_000_000],
            'smoke': 4,
        },
        'of': {
            'help': "The part of a head that is put into the other text: 'output', 'map' or "
            "'value'.",
            'default': 'output',
            'words': ['output', 'map', 'value'],
        },
    },
    reads=('patching.', 'ablation.checkpoint', 'ablation.max_examples'),
    inputs={'tuned': _model, 'metric': ..., 'most': 'patching.max_examples'},
    cost=_cost,
)
def patching(
    tuned: Models,
    clean: Sequence[Text],
    corrupted: Sequence[Text] | None = None,
    *,
    of: str = 'output',
    metric: AnyMetric = None,
    answers: Sequence[Any] | None = None,
    steps: Steps = 5,
    most: Annotated[int, Range(0, 10_000_000, without=1)] = 100,
    seed: int = 0,
    compute: Compute = Compute(),
) -> Patching:
    """Put each head of a text into the run on another one, and measure what this changes.

    Effects are exact, and next to them stand two estimates from gradients. Each head costs a little
    over a pass over the pairs, and each step of integrated gradients about six.

    Args:
      tuned: The model. Of several, the first is used.
      clean, corrupted: The texts of each pair, of the same number of tokens. Without corrupted
        texts, pairs are made of clean ones (`pairs_of`), of which each is in one pair at most.
      of, metric, answers: As in `patch`.
      steps: The steps of integrated gradients, as in `estimate_patches`.
      most: The greatest number of pairs that are made; 0 makes all.
      seed: The seed of the pairs that are made, and of the bootstrap.
      compute: As in `ablation`.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is unknown or does not fit the model; a pair has texts of different
        numbers of tokens; or there are fewer than two pairs.
      FloatingPointError: The metric is NaN or infinite.
    """
    model = as_embedder(one_model(tuned))
    if corrupted is None:
        clean, corrupted = pairs_of(model, clean, most=most, seed=seed, compute=compute)
    check_several(clean)
    how = {'of': of, 'metric': metric, 'answers': answers, 'compute': compute}
    exact = patch(model, clean, corrupted, **how)
    assess = functools.partial(assess_changes, metric=exact.metric, seed=seed)
    changes, gap = directions_of(exact), exact.clean - exact.corrupted
    estimates = {
        method: directions_of(estimate_patches(model, clean, corrupted, steps=each, **how))[BOTH]
        for method, each in zip(SOURCES, (0, steps), strict=True)
    }
    result = Patching(
        shape=exact.denoising.shape[1:],
        total=assess(gap[:, None], names=['clean']),
        effects={name: assess(each) for name, each in changes.items()},
        shares={name: shares_of(each, gap, name) for name, each in changes.items()},
        errors={method: assess(each - changes[BOTH]) for method, each in estimates.items()},
    )
    agreed = [rank_agreement(changes[BOTH], each, paired=True) for each in estimates.values()]
    return _labelled(result, dict(zip(estimates, agreed, strict=True)), of)


def directions_of(patched: Patched) -> dict[str, Float[np.ndarray, 'E L N']]:
    """Return the changes of each pair in both directions together, and in each."""
    both = (patched.denoising - patched.noising) / 2
    return {BOTH: both, 'denoising': patched.denoising, 'noising': patched.noising}


def assess_changes(
    changes: Float[np.ndarray, 'E *H'], *, metric: str, names: Sequence[str] = (), seed: int = 0
) -> Effects:
    """Return the mean over pairs of changes, tested against 0; they are of heads [E, L, N]."""
    names = names or [head_name(*each) for each in np.ndindex(changes.shape[1:])]
    outcome = Outcome(metric, _UNITS.get(metric, metric), scale=1.0, digits=3)
    given = changes.reshape(len(changes), -1).T.astype(np.float64), np.zeros(len(changes))
    return assess_losses(*given, names=names, outcome=outcome, sample_of='pairs', seed=seed)


def shares_of(
    changes: Float[np.ndarray, 'E *H'], gap: Float[np.ndarray, ' E'], direction: str = BOTH
) -> Float[np.ndarray, 'M 3']:
    """Return what share of a gap each head closes, or opens when noising, with its interval.

    It is a ratio of means over pairs, with the ends of its 95 % interval (Fieller 1954). It is NaN
    where the mean gap is not significantly above 0.
    """
    count, below, shares = len(gap), float(gap.mean()), []
    for towards in (-changes if direction == 'noising' else changes).reshape(count, -1).T:
        (of_below, both), (_, of_above) = np.cov(gap, towards) / count
        above = float(towards.mean(dtype=np.float64))
        low, high = ratio_interval(above, below, (of_above, of_below), both, count - 1)
        known = below > 0 and np.isfinite(high)
        shares.append((above / below, low, high) if known else (np.nan,) * 3)
    return np.array(shares)


def pairs_of(
    pretrained: Pretrained, texts: Sequence[Text], *, most: int, seed: int, compute: Compute
) -> tuple[list[Text], list[Text]]:
    """Return pairs of texts with as many tokens and another predicted class, each text once.

    Which text of a pair comes first is drawn. Of a regression, the predicted values differ, and the
    text with the greater one comes first. Of embeddings, any two texts are such a pair.
    TooFewTextsError, a ValueError, if there are fewer than two pairs.
    """
    config, rng, pairs = pretrained.config, np.random.default_rng(seed), []
    read = as_read(pretrained, texts)
    encoded = tokenize(pretrained.tokenizer, read, max_length=compute.max_length)
    predicted = np.arange(len(texts))
    if config.head != EMBEDDING:
        predicted = intact_answers(pretrained, encoded, compute).predictions[0]
    for length in np.unique(encoded.lengths):
        same = rng.permutation(np.flatnonzero(encoded.lengths == length))
        # Half-way round a list by class stands another class, unless one has more than half.
        same = same[np.argsort(predicted[same], kind='stable')]
        half = len(same) // 2
        pairs += list(zip(same[:half], same[half : 2 * half], strict=True))
    pairs = [pair for pair in pairs if predicted[pair[0]] != predicted[pair[1]]]
    if len(pairs) < 2:
        raise TooFewTextsError(
            'Too few pairs: two texts need as many tokens and different predictions. Of the '
            f'{len(texts)} given, {2 * len(pairs)} make such pairs, and 4 are needed: give more.'
        )
    chosen = rng.permutation(len(pairs))[: most or None]
    drawn_pairs = [rng.permutation(pairs[each]) for each in chosen]
    if config.head == SEQUENCES and config.num_labels == 1:
        drawn_pairs = [pair[np.argsort(-predicted[pair])] for pair in drawn_pairs]
    clean, corrupted = np.array(drawn_pairs).T.tolist()
    return [texts[each] for each in clean], [texts[each] for each in corrupted]


def _labelled(found: Patching, agreement: Mapping[str, RankAgreement], of: str) -> Patching:
    """Return the result with its tables: of heads, and of estimates."""
    unit = effects.unit_of(found.total)
    caption = f'Changes by the {of} of each head of the other text ({unit}; from '
    caption += f'corrupted to clean texts: {found.total.difference[0]:.2g}).'
    heads = effects.frame_of(found.effects, effects.TESTED, caption, 'direction')
    heads[_SHARES] = np.concatenate([found.shares[each] for each in found.effects])
    caption = f'Estimates from gradients less exact changes, in both directions ({unit}).'
    errors = effects.frame_of(found.errors, _OF_ERRORS, caption, 'method')
    errors['estimate'] = np.concatenate([found.estimate(method) for method in found.errors])
    errors['exact'] = errors['estimate'] - errors['error']
    agreed = [dataclasses.astuple(agreement[method]) for method in errors['method']]
    errors[['agreement_rank', 'agreement_low', 'agreement_high']] = agreed
    frames = {'heads': heads, 'estimates': errors}
    return found.with_frames(
        {name: each.rename(columns={'disabled': 'name'}) for name, each in frames.items()}
    )
