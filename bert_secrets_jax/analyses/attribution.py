"""Which tokens a prediction comes from, by many methods, and which method explains this model.

All methods take one test: what the model does without the tokens that they name.

Shapes: T tokens, E texts, P shares of tokens.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.analyses.common.disabling import assessed_metrics
from bert_secrets_jax.analyses.common.inputs import (
    Learnt,
    Models,
    if_not_learnt,
    labels_of,
    learning_test,
    one_model,
)
from bert_secrets_jax.analyses.common.tables import table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.contributions import faithfulness as tests
from bert_secrets_jax.contributions import scores as scoring
from bert_secrets_jax.contributions.faithfulness import MEASURES, SHARES, Compared, Faithfulness
from bert_secrets_jax.contributions.integrated import STEPS, Steps
from bert_secrets_jax.contributions.scores import (
    METHODS,
    RANDOM,
    SOURCES,
    TIMES_INPUT,
    TokenScores,
    check_classifies,
)
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.finetune.metrics import predictions
from bert_secrets_jax.measure.token_maps import GLOSSES
from bert_secrets_jax.ranges import CountOrZero
from bert_secrets_jax.runs import store
from bert_secrets_jax.runs.result import Finding, Interval, Result, drawn, framed, measured
from bert_secrets_jax.stats.scores import quietly
from bert_secrets_jax.stats.student import LEVEL

SOURCE = 'DeYoung et al. 2020'
# The methods that others are compared with, and their names in columns.
RIVALS = {RANDOM: 'random', TIMES_INPUT: 'gradient_x_input'}
# The attribute of the effects beyond a rival in each column of a frame.
_BEYOND = {
    'beyond_': 'difference',
    'low_beyond_': 'low',
    'high_beyond_': 'high',
    'corrected_p_beyond_': 'corrected',
}
# The column of the exact effect beside the methods' scores of a token.
EFFECT = 'effect of deleting it'
# To be raised whenever a method gives other scores: kept ones are then computed again.
_SCORED = 2
# Probabilities that differ by less are the same.
_FLAT = 1e-6
_TEMPLATES = {
    'texts are too few': '{estimate} of {sample:text|texts} can tell methods apart, and two are '
    'needed: give more texts, of several tokens each.',
    'nothing changes': 'Whatever tokens are deleted, the prediction does not change ({unit}: at '
    'most {estimate:.1g}): has the model learnt anything?',
    'texts are too short': 'The texts have {estimate:g} tokens that can be deleted (median), too '
    'few to tell methods apart: give longer texts.',
}
_BEST = (
    '{best:method|methods} {best:|shows|show} best which tokens matter, by {unit} (highest: '
    '{where}, {estimate:.2f}).'
)
_BEYOND_RANDOM = ' Better than random tokens: {better} of {others} others.'
# In shorter texts (by their median), shares of tokens are one or two tokens.
SHORT = 6


class Attribution(Result):
    """Scores of tokens by several methods, and how far each says what the model does.

    Attributes:
      test: The findings of the test of all methods, text by text.
      lost: The name of the number that deleting tokens changes.
      learnt: The test of what the model has learnt: metric, value, larger class, p-value; None if
        not all texts have labels.
      compared: The methods compared by each measure that applies to two texts or more.
    """

    title = 'Which tokens a prediction comes from'

    test: Faithfulness
    lost: str
    learnt: Learnt | None
    compared: Mapping[str, Compared]

    def figures(self):
        return drawn(self, attribution_methods=_draw) if self.compared else drawn(self)

    def notes(self):
        known = [each for each in self.test.methods if each in GLOSSES]
        return [
            'Scores explain the predicted class, compared with the mean of the others.',
            'Methods that follow attention know no class: they say how much of a token is read.',
            'Without some tokens, a text may be unlike any that the model has seen.',
            *(f'{each[0].upper()}{each[1:]}: {GLOSSES[each]}.' for each in known),
        ]

    def _say_not_learnt(self):
        return self.learnt and [*if_not_learnt('the model', self.learnt, len(self.test.tokens))]

    def _say_warnings(self):
        tokens, falls = self.test.tokens, np.abs(self.test.comprehensiveness)
        median, enough = float(np.median(tokens)), int((tokens >= tests.FEWEST_TOKENS).sum())
        # Where no text has a token that can be deleted, nothing was tried.
        greatest = float(np.max(falls[~np.isnan(falls)], initial=-1.0))
        warnings = {
            'texts are too few': (median >= SHORT and not self.compared, enough, 'texts'),
            'nothing changes': (0 <= greatest < _FLAT, greatest, self.lost),
            'texts are too short': (median < SHORT, median, 'tokens'),
        }
        of = {'warning': True, 'sample': len(tokens), 'sample_of': 'texts', 'source': SOURCE}
        return [
            Finding(name=name, estimate=number, unit=unit, template=_TEMPLATES[name], **of)
            for name, (applies, number, unit) in warnings.items()
            if applies
        ]

    def _say_best_method(self):
        if not self.compared:
            return None
        # By the first measure, more is better.
        measure, found = next(iter(self.compared.items()))
        random, better, said = found.beyond.get(RANDOM), np.zeros(0, bool), _BEST
        if random is not None:
            better = (random.corrected <= LEVEL) & (random.difference > 0)
            said += _BEYOND_RANDOM
        return measured(
            f'best method: {measure}',
            _interval(found, self.test.methods.index(found.best)),
            where=found.best,
            unit=measure,
            template=said,
            **{'sample': found.texts, 'sample_of': 'texts', 'source': SOURCE},
            best=len({found.best, *found.tied}),
            better=int(better.sum()),
            others=len(better),
        )


def _interval(found: Compared, row: int) -> Interval:
    return float(found.mean[row]), float(found.low[row]), float(found.high[row])


def _draw(result: Attribution):
    methods, points, filled = result.test.methods, {}, {}
    for measure, found in result.compared.items():
        title = measure if MEASURES[measure] else f'{measure} (less is better)'
        points[title] = found.mean, found.low, found.high
        filled[title] = np.isin(methods, (found.best, *found.tied))
    return plots.interval_panels(methods, points, filled=filled).captioned(
        'Each method by each measure. Filled: the best method, and those that tie with it.'
    )


def _cost(given) -> float:
    share = given.share('ablated', given['attribution.max_examples'])
    # Each token is deleted once in the order of each method.
    length = given.tokens('ablated') / len(given.value('ablated'))
    passes = share * (10 * length + given.TRAINED * given['attribution.steps'])
    return passes * given.tokens('ablated')


@analysis(
    question='which tokens a prediction comes from, and which method explains it best',
    group='What matters',
    time='20 s',
    settings={
        'max_examples': {
            'help': 'The tokens of so many of the ablated texts are scored by all methods, and '
            'deleted one by one; 0 is all. On a CPU, a text takes seconds.',
            'default': 25,
            'range': [0, 10_000_000],
            'smoke': 6,
        },
        'steps': {
            'help': 'Points on the path of integrated gradients.',
            'default': 32,
            'range': [1, 10_000],
            'smoke': 4,
        },
    },
    inputs={
        'tuned': 'model',
        'examples': lambda given: given.drawn('ablated', 'attribution.max_examples'),
    },
    cost=_cost,
)
def attribution(
    tuned: Models,
    examples: Sequence[Text],
    *,
    methods: Sequence[str] = METHODS,
    shares: Sequence[float] = SHARES,
    steps: Steps = STEPS,
    shown: CountOrZero = 5,
    seed: int = 0,
    compute: Compute = Compute(),
) -> Attribution:
    """Score the tokens of texts by several methods, and test which says what the model does.

    It takes a pass for each token of each text and up to two for each method and share, besides
    what the methods take (see `token_scores`).

    Args:
      tuned: The model, with a classifier of texts or a regression. Of several, the first is used.
      examples: The texts; with labels, it is also told whether the model has learnt anything.
      methods: The names of the methods, those of `token_scores`.
      shares: The shares of tokens that are deleted or kept.
      steps: The number of points on the path of integrated gradients.
      shown: The number of texts, the first ones, whose scores are kept to be shown.
      seed: The seed of random tokens, of the order of equal scores, and of bootstraps.
      compute: As in `ablation`.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is unknown or out of range; the model has no classifier of texts, or
        lacks heads; or a label is none of the model's.
      FloatingPointError: The model predicts NaN or infinity.
    """
    model, examples = one_model(tuned), as_examples(examples)
    check_classifies(model)
    scoring.check_methods(methods)
    tests.check_shares(shares)
    config, labels = model.config, None
    if all(example.label is not None for example in examples):
        labels = labels_of(examples, config)
    encoded = tokenize(model.tokenizer, examples, max_length=compute.max_length)
    score = functools.partial(
        scoring.scores_of, model, encoded, methods=methods, steps=steps, seed=seed, compute=compute
    )
    read = encoded.input_ids, encoded.token_type_ids
    key = model.params, repr(config), *read, list(methods), steps, seed, _SCORED
    scores = store.kept(compute.folder, key, TokenScores, score)
    test = tests.faithfulness(model, encoded, scores, shares=shares, seed=seed, compute=compute)
    learnt = None
    if labels is not None:
        metrics = assessed_metrics(config.num_labels, examples)
        learnt = learning_test(metrics, config.num_labels, predictions(scores.logits), labels)
    of_tokens = {'special': scores.special, **scores.scores, EFFECT: test.effects}
    first = list(enumerate(scores.tokens[:shown]))
    places = [(text, place) for text, tokens in first for place in range(len(tokens))]
    of_places = {
        'text': [text + 1 for text, _ in places],
        'place': [place + 1 for _, place in places],
        'token': [scores.tokens[a][b] for a, b in places],
        **{name: [each[a][b].item() for a, b in places] for name, each in of_tokens.items()},
    }
    return assemble(test, config.num_labels, learnt, of_places, seed=seed)


def assemble(
    test: Faithfulness,
    classes: int,
    learnt: Learnt | None,
    tokens: Mapping[str, Sequence[Any] | np.ndarray],
    *,
    seed: int,
) -> Attribution:
    """Return the result from the test of methods, its other fields, and columns of tokens.

    They are, for each token of the first texts, its place, its scores by each method, and under
    `EFFECT` the fall of the logit of the class less the mean of the others if it is deleted.
    """
    compared = {
        measure: tests.compare(
            test.methods,
            values,
            rivals=tuple(RIVALS),
            more_is_better=MEASURES[measure],
            # Correlations and probabilities have a greatest size, values have none.
            limit=math.inf if classes == 1 and measure != 'rank correlation' else 1.0,
            seed=seed,
        )
        for measure, values in test.measures.items()
        if (~np.isnan(values).any(axis=0)).sum() > 1
    }
    lost = 'change of the value' if classes == 1 else 'fall of the probability'
    found = Attribution(test, lost, learnt, compared)
    curves = 'comprehensiveness', 'sufficiency'
    frames = {
        'methods': framed(
            (
                'method', 'measure', 'mean', 'low', 'high',
                *(f'{name}{rival}' for rival in RIVALS.values() for name in _BEYOND),
                'best_or_tied', 'texts', 'source',
            ),
            list(_rows(found)),
            'How well scores agree with the effect of deleting each token (rank correlation), '
            f'and the {lost}.',
        ),
        'curves': table(
            f'Mean {lost} by the share of tokens that is deleted or kept.',
            method=np.array(test.methods)[:, None],
            measure=np.reshape(curves, (-1, 1, 1)),
            share=test.shares,
            mean=[quietly(np.nanmean, getattr(test, each), axis=-1) for each in curves],
        ),
        'tokens': table(
            'Scores of the tokens of some texts, and the effect of deleting each.', **tokens
        ),
    }  # fmt: skip
    return found.with_frames(frames)


def _rows(result: Attribution) -> Iterator[tuple]:
    """Yield the rows of the table of methods: how each does by each measure, and beyond rivals."""
    compared = [(name, result.test.methods, found) for name, found in result.compared.items()]
    how = {'rivals': (), 'more_is_better': True, 'limit': 1.0}
    for method, values in zip(result.test.methods, result.test.signed, strict=True):
        known = values[~np.isnan(values)]
        if len(known) > 1:
            alone = tests.compare([method], known[None], **how)
            compared.append(('rank correlation with sign', (method,), alone))
    for measure, methods, found in compared:
        beyond = np.full((len(RIVALS), len(_BEYOND), len(methods)), math.nan)
        for place, rival in enumerate(RIVALS):
            if rival in found.beyond:
                of_others = [getattr(found.beyond[rival], each) for each in _BEYOND.values()]
                beyond[place][:, np.array(methods) != rival] = of_others
        for row, method in enumerate(methods):
            best = method in (found.best, *found.tied) if measure in MEASURES else math.nan
            numbers = *_interval(found, row), *beyond[..., row].ravel(), float(best)
            yield (method, measure, *numbers, found.texts, SOURCES[method])
