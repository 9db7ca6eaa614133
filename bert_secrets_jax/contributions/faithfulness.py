"""Whether scores of tokens say what the model does without these tokens: one test for all methods.

The texts lose tokens, and the model reads the rest from the start: the tokens after move up, and
[CLS] and [SEP] always stay. Does the method rank tokens as the deletion of each alone does? And how
much does the probability of the predicted class fall without the tokens with the highest scores
(comprehensiveness), or with them alone (sufficiency; DeYoung et al. 2020, "ERASER")?

Shapes: E texts, V variants of texts, M methods, P shares.
"""

import dataclasses
import numbers
from collections.abc import Iterable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Bool, Float, Int

from bert_secrets_jax.ablation.masked_lm import assess_losses
from bert_secrets_jax.ablation.masks import none
from bert_secrets_jax.ablation.resumable import encoding_for, sweep_all
from bert_secrets_jax.ablation.sweep import Descent
from bert_secrets_jax.checks import brief
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.contributions.scores import SIGNED, TokenScores, prediction_weights
from bert_secrets_jax.data.encoding import Encoded, bucket
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.stats.corrections import holm
from bert_secrets_jax.stats.correlations import spearman
from bert_secrets_jax.stats.effects import Effects
from bert_secrets_jax.stats.scores import ROUNDING
from bert_secrets_jax.stats.student import LEVEL, p_zero

SHARES = (0.1, 0.2, 0.3, 0.5)
# Fewer tokens have no ranking to speak of.
FEWEST_TOKENS = 3
# The measures, and whether more of each is better.
MEASURES: Mapping[str, bool] = {
    'rank correlation': True,
    'comprehensiveness': True,
    'sufficiency': False,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Faithfulness:
    """The findings of the test, text by text.

    Attributes:
      tokens: [E] The number of tokens that can be deleted.
      rank: [M, E] Rank correlation over tokens of the size of the score with that of the effect of
        deleting the token; 0 where the scores rank nothing, NaN where the effects do not.
      signed: [M, E] The same of both with their signs; NaN of methods without.
      comprehensiveness, sufficiency: [M, P, E] The fall of the predicted class's probability
        without the best tokens, and with them alone; in a regression, the size of the change.
      effects: [T] for each text, what deleting each token takes from the logit of the predicted
        class less the mean of the others.
    """

    methods: tuple[str, ...]
    shares: Float[np.ndarray, ' P']
    tokens: Int[np.ndarray, ' E']
    rank: Float[np.ndarray, 'M E']
    signed: Float[np.ndarray, 'M E']
    comprehensiveness: Float[np.ndarray, 'M P E']
    sufficiency: Float[np.ndarray, 'M P E']
    effects: tuple[np.ndarray, ...]

    __repr__ = brief

    @property
    def measures(self) -> dict[str, Float[np.ndarray, 'M E']]:
        """Each of `MEASURES` of each text; NaN where it does not apply."""
        return {
            'rank correlation': self.rank,
            'comprehensiveness': self.comprehensiveness.mean(axis=1),
            'sufficiency': self.sufficiency.mean(axis=1),
        }


def faithfulness(
    pretrained: Pretrained,
    encoded: Encoded,
    scores: TokenScores,
    *,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    compute: Compute = Compute(),
) -> Faithfulness:
    """Test whether scores of tokens say what the model does without these tokens.

    It takes a pass for each token, and up to two for each method and share; what several methods
    ask for is computed once. Tokens with the same score are put in a random order.
    """
    check_shares(shares)
    plan = plan_of(scores.special, scores.scores.values(), shares, seed)
    variants = kept_tokens(encoded, plan.text, plan.kept)
    logits = outputs_of(pretrained, variants, compute).astype(np.float64)
    weights = np.asarray(prediction_weights(jnp.asarray(logits[plan.whole])), np.float64)
    values = logits[:, 0]
    if logits.shape[-1] > 1:
        classes = logits[plan.whole].argmax(axis=-1)[plan.text]
        values = scipy.special.softmax(logits, axis=-1)[np.arange(len(logits)), classes]
    fall = values[plan.whole] - values[plan.best]
    fall = fall if logits.shape[-1] > 1 else np.abs(fall)
    tokens = np.array([int((~special).sum()) for special in scores.special])
    fall[..., tokens == 0] = np.nan
    margins = (logits * weights[plan.text]).sum(axis=-1)
    effects, methods = [], tuple(scores.scores)
    rank, signed = np.full((2, len(methods), len(scores.tokens)), np.nan)
    for text, (special, alone) in enumerate(zip(scores.special, plan.without_one, strict=True)):
        effect = margins[plan.whole[text]] - margins[alone]
        effects.append(np.zeros(len(special)))
        effects[-1][~special] = effect
        for row, method in enumerate(methods):
            score = scores.scores[method][text][~special]
            rank[row, text] = _rank(np.abs(score), np.abs(effect))
            if method in SIGNED:
                signed[row, text] = _rank(score, effect)
    return Faithfulness(
        methods=methods,
        shares=np.array(shares),
        tokens=tokens,
        rank=rank,
        signed=signed,
        comprehensiveness=fall[0],
        sufficiency=fall[1],
        effects=tuple(effects),
    )


def check_shares(shares: object) -> None:
    """Raise ValueError for shares of tokens that are out of range or come twice."""
    listed = np.asarray(shares, dtype=object)
    given = listed.tolist() if listed.ndim == 1 else []
    known = [each for each in given if isinstance(each, numbers.Real) and 0 < float(each) < 1]
    if not known or len(known) < len(given) or len(set(known)) < len(known):
        raise ValueError(
            f'Shares are a list of numbers between 0 and 1, each once, such as {SHARES}, not '
            f'{shares!r}.'
        )


def _rank(score: np.ndarray, effect: np.ndarray) -> float:
    if len(effect) < FEWEST_TOKENS or len(np.unique(effect)) < 2:
        return np.nan
    correlation = spearman(score, effect)
    return 0.0 if np.isnan(correlation) else correlation


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which variants of the texts are run, each once.

    `text` and `kept` are the text of each and which of its tokens are left. The others number
    variants: `whole` with all tokens, `without_one` without each that can be deleted, `best`
    without the best ones and with them alone.
    """

    text: Int[np.ndarray, ' V']
    kept: Bool[np.ndarray, 'V T']
    whole: Int[np.ndarray, ' E']
    without_one: Sequence[Int[np.ndarray, ' _']]
    best: Int[np.ndarray, '2 M P E']


def plan_of(
    special: Sequence[Bool[np.ndarray, ' _']],
    scores: Iterable[Sequence[np.ndarray]] = (),
    shares: Sequence[float] = (),
    seed: int = 0,
) -> Plan:
    """Plan the variants of texts, by which tokens are special and by the scores of each method."""
    width, scores = max(map(len, special)), list(scores)
    numbered: dict[tuple[int, bytes], int] = {}

    def number(text: int, lost) -> int:
        """Return the number of a text without some tokens, which has one by then."""
        left = np.arange(width) < len(special[text])
        left[lost] = False
        return numbered.setdefault((text, left.tobytes()), len(numbered))

    whole, without_one = [], []
    best = np.zeros((2, len(scores), len(shares), len(special)), int)
    for text, of_text in enumerate(special):
        places = np.flatnonzero(~of_text)
        whole.append(number(text, []))
        without_one.append(np.array([number(text, [place]) for place in places], int))
        for row, of_method in enumerate(scores):
            # Equal scores in a random order, not from left to right.
            ties = np.random.default_rng([seed, text, row]).random(len(places))
            order = places[np.lexsort((ties, -of_method[text][places]))]
            for column, share in enumerate(shares):
                top, rest = np.split(order, [int(np.ceil(share * len(places)))])
                best[:, row, column, text] = number(text, top), number(text, rest)
    return Plan(
        text=np.array([text for text, _ in numbered], int),
        kept=np.stack([np.frombuffer(left, bool) for _, left in numbered]),
        whole=np.array(whole),
        without_one=without_one,
        best=best,
    )


def kept_tokens(
    encoded: Encoded, text: Int[np.ndarray, ' V'], kept: Bool[np.ndarray, 'V T']
) -> Encoded:
    """Return texts [V] with the tokens that are kept, which move up and keep their segment."""
    order = np.argsort(~kept, axis=1, kind='stable')
    names = 'input_ids', 'token_type_ids', 'special', 'offsets', 'text'
    arrays = {name: getattr(encoded, name)[text[:, None], order] for name in names}
    return Encoded(**arrays, lengths=kept.sum(axis=1), tokenizer=encoded.tokenizer)


def outputs_of(
    pretrained: Pretrained, variants: Encoded, compute: Compute
) -> Float[np.ndarray, 'V C']:
    """Return what a model makes of texts without tokens, such as logits."""
    descent = Descent.start(pretrained, none(pretrained.config), 'zero', None, compute)
    batches = bucket(variants, **encoding_for(descent, compute))
    how = {'folder': compute.folder, 'what': 'Texts without tokens'}
    (found,) = sweep_all(pretrained, batches, descent, **how)
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Compared:
    """Methods compared by one measure, text by text.

    Attributes:
      texts: The number of texts that the measure applies to.
      mean, low, high: [M] The mean of each method, with its 95 % interval over texts.
      beyond: By the name of a rival, how much the mean of each other method is above the rival's.
      tied: The methods that cannot be told from the best by paired t-tests of all pairs (Holm).
    """

    texts: int
    mean: Float[np.ndarray, ' M']
    low: Float[np.ndarray, ' M']
    high: Float[np.ndarray, ' M']
    beyond: Mapping[str, Effects]
    best: str
    tied: tuple[str, ...]


def compare(
    methods: Sequence[str],
    values: Float[np.ndarray, 'M E'],
    *,
    rivals: Sequence[str],
    more_is_better: bool,
    limit: float = np.inf,
    seed: int = 0,
) -> Compared:
    """Compare methods by a measure, with paired intervals and tests over texts.

    Values are NaN, for all methods, where the measure does not apply. All methods are compared with
    those `rivals` that are there. No interval goes beyond `limit`.
    """
    values = values[:, ~np.isnan(values).any(axis=0)]
    count = values.shape[1]
    if count < 2:
        raise ValueError(
            f'{count} texts have tokens that can be ranked, and two are needed: give longer texts, '
            'or more of them.'
        )
    ones, nothing = np.ones(count, int), np.zeros(count)
    of_all = assess_losses(values, nothing, ones, seed=seed)
    beyond = {}
    for rival in rivals:
        others = [row for row, method in enumerate(methods) if method != rival]
        if rival in methods and others:
            against = values[methods.index(rival)]
            beyond[rival] = assess_losses(values[others], against, ones, seed=seed)
    best = int(np.argmax(of_all.difference * (1 if more_is_better else -1)))
    firsts, seconds = np.triu_indices(len(values), 1)
    differences = values[firsts] - values[seconds]
    error = differences.std(axis=1, ddof=1) / np.sqrt(count)
    # Methods that are equal in all texts, up to rounding, are not told apart.
    told = error > ROUNDING * np.abs(values).max()
    t = differences.mean(axis=1) / np.where(told, error, np.inf)
    like_best = {
        int(first + second) - best
        for first, second, p in zip(firsts, seconds, holm(p_zero(t, count - 1)), strict=True)
        if best in (first, second) and p > LEVEL
    }
    return Compared(
        texts=count,
        mean=of_all.difference,
        low=np.maximum(of_all.low, -limit),
        high=np.minimum(of_all.high, limit),
        beyond=beyond,
        best=methods[best],
        tied=tuple(methods[row] for row in sorted(like_best)),
    )
