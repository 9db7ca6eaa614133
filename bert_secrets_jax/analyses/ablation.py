"""The effect of disabling heads and layers, and how much of it is real (section 4.6).

Its figures are Figures 8 and 9 of the paper.

Shapes: M masks, L layers, N heads.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bert_secrets_jax import paper
from bert_secrets_jax.analyses.common import disabling, effects
from bert_secrets_jax.analyses.common.disabling import SOURCE, Ablated, Disabled, MaskSets
from bert_secrets_jax.analyses.common.inputs import one_model, unless_noise
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import MASKS, Compute
from bert_secrets_jax.data.tasks import Example, Text
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import Finding, agreement_of_grids, framed, measured
from bert_secrets_jax.stats.effects import VERDICTS

# Words for what the masks of a set take away, in the captions of frames.
_LOST = effects.WITHOUT | {'one_head_left': 'all other heads of a layer'}
# The figures of the paper and its numbers, by the name of the set.
_PUBLISHED = {
    'heads': ('Figure 8', paper.disable_one_head),
    'layers': ('Figure 9', paper.disable_one_layer),
}
_COLUMNS = {
    'score': 'value',
    **effects.INTERVAL,
    'changed': 'changed',
    'p_value': 'p_value',
    'p_holm': 'corrected',
    'p_beyond_holm': 'p_beyond',
    'p_benjamini_hochberg': 'benjamini_hochberg',
    'least_significant': 'critical',
    'detectable': 'detectable',
    'p_tost': 'tost',
    'p_tost_holm': 'equivalent',
    'verdict': 'verdict',
}
_IN_POINTS = ('score', 'difference', 'low', 'high', 'detectable')
# Those of a short frame, some of them in points.
_SHOWN = {
    f'{column}_points' if column in _IN_POINTS else column: attribute
    for column, attribute in _COLUMNS.items()
    if column not in ('least_significant', 'p_tost', 'p_beyond_holm')
}


class Ablation(Disabled):
    """The effect on the score of disabling each head, each layer, or sets of your own.

    Attributes:
      baseline, sets: As in `common.disabling.Disabled`.
      own_corpus: Whether the mean outputs of 'mean' are those over texts of your own.
    """

    title = 'Disabling heads and layers'

    own_corpus: bool = False

    def figures(self):
        return effects.drawn_sets(self, self.sets, told_apart=Disabled.told_apart, effects=_draw)

    def findings(self):
        first = next(iter(self.sets.values()))
        found = (each for name in self.sets for each in self._set_findings(name, self.sets[name]))
        intact = effects.intact_of(first.found, source=SOURCE)
        return unless_noise([*first.warnings('the intact model'), *found, intact])

    @property
    def meaning(self) -> str:
        corpus = 'a corpus of its own' if self.own_corpus else 'these texts'
        return disabling.instead(self.baseline, corpus)

    def notes(self):
        return [f'{self.meaning} Another model may lean on other heads.']

    def gives(self):
        return {'disabled': self}

    def at_a_glance(self):
        # Extremes of a model that has learnt nothing are noise.
        sets, texts = self.sets if self.learnt else {}, {}
        for kind in ('head', 'layer'):
            if (ablated := sets.get(f'{kind}s')) is None:
                continue
            found = ablated.found
            if not np.isnan(found.difference).all():
                for which, index in (('best', found.best), ('worst', found.worst)):
                    change = f'{found.names[index]} {100 * found.difference[index]:+.1f}'
                    texts[f'{which} {kind} to lose (points)'] = change
            if kind == 'head':
                verdicts = found.verdict.tolist()
                counts = [str(verdicts.count(each)) for each in VERDICTS]
                texts[f'heads: {" / ".join(VERDICTS)}'] = ' / '.join(counts)
        return texts

    def _set_findings(self, name: str, ablated: Ablated) -> Iterator[Finding]:
        found, alone = ablated.found, name == 'one_head_left'
        if not alone:
            yield from effects.findings_of_outcomes(ablated.outcomes, name, source=SOURCE)
        yield from effects.findings_of(found, name, source=SOURCE, extremes=not alone)
        if alone or len(found.names) < 2 or np.isnan(found.difference).all():
            return
        if name == 'heads' or ablated.elsewhere is not None:
            yield _without_luck(name, ablated)
        if name == 'heads' and found.difference.size == math.prod(ablated.shape):
            yield from agreement_of_grids(
                'heads: rank correlation with the paper',
                found.difference.reshape(ablated.shape),
                _published(name, self.subject.task),
                source=f'{SOURCE}, Figure 8',
            )


@analysis(
    question='disabling heads and layers, and what of it is real',
    group='What matters',
    report='always',
    section='ablate',
    reads=('ablation.',),
    inputs={
        'tuned': 'model',
        'examples': 'ablated',
        'masks': disabling.masks_of_run,
        'baseline': 'ablation.baseline',
        'choose_on': 'choosing',
    },
    check=disabling.check_disabling,
    cost=lambda given: disabling.swept_cost(given, 1),
    shares=True,
    axis=MASKS,
)
def ablation(
    tuned: Pretrained | Finetuned,
    examples: Sequence[Example],
    *,
    masks: MaskSets = 'heads',
    baseline: str = 'uniform',
    corpus: Sequence[Text] | None = None,
    metrics: Sequence[str] | None = None,
    choose_on: Sequence[Example] | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
) -> Ablation:
    """Disable heads, and tell real changes of the score from chance (section 4.6).

    Args:
      tuned: A model with a classifier. Of several fine-tuned models, the first is used.
      examples: The labelled texts.
      masks: The names of sets of masks: 'heads' disables one head at a time (Figure 8), 'layers'
        one layer at a time (Figure 9), and 'one_head_left' all heads of a layer but one (Michel et
        al. 2019). Masks of your own [M, L, N] (see `bs.masks`) come by the name of their set.
      baseline: The behaviour of a disabled head. 'uniform' gives every token 1/length, as in the
        paper, and 'zero' removes the head. 'mean' replaces its output by its mean output over a
        corpus, and 'resample' by its output on another of the examples (see `bs.sweep`).
      corpus: For 'mean', texts of the same kind without labels; None takes the examples.
      metrics: The names of the metrics, the most important first. None takes those of the task of
        the examples; without a GLUE task, F1 and accuracy for two classes, accuracy for more, and
        Pearson's correlation for a regression.
      choose_on: Other labelled texts, such as held-out training ones, on which the best mask of
        each set is chosen before it is measured on `examples`. They are swept, too. None chooses by
        cross-validation. Nothing is chosen for 'one_head_left' and a set of a single mask.
      seed: The seed of resamples, the randomization test, random parts of the examples, and donors.
      compute: How it is computed.

    Raises:
      TypeError: The model or the examples are something else.
      ValueError: An argument is unknown, or does not fit the others; the model has no classifier; a
        label is missing; a text is in `choose_on`, too; or for 'resample' there are fewer than two
        examples.
    """
    if corpus is not None and baseline != 'mean':
        raise ValueError(f"A corpus goes with baseline='mean', not with {baseline=}.")
    how = {'metrics': metrics, 'corpus': corpus, 'choose_on': choose_on, 'compute': compute}
    models = [one_model(tuned)]
    sets = disabling.assess_sets(models, examples, masks, baseline=baseline, seed=seed, **how)
    return labelled(Ablation(baseline, sets, own_corpus=corpus is not None))


def _best_alone(ablated: Ablated):
    shape, rows = ablated.shape, effects.rows_of(ablated.found, _SHOWN)
    difference = ablated.found.difference
    best = np.where(np.isnan(difference), -np.inf, difference).reshape(shape).argmax(axis=1)
    return framed(
        ('head_left', *_SHOWN),
        [
            (head_name(*head), *rows[int(np.ravel_multi_index(head, shape))][1:])
            for head in enumerate(best)
        ],
        f'{effects.title_of(ablated.found)} with the head of each layer that scores highest alone. '
        'It was chosen on these examples, so the score is too good.',
    )


def _draw(result: Ablation, name: str):
    published, theirs = _published(name, result.subject.task), {}
    if name == 'layers' and published is not None:
        theirs = {'published': 100 * published, 'published_name': 'paper: BERT-base'}
    caption = f'Change of the score without {effects.WITHOUT[name]} '
    caption += f'({result.subject.as_in(_PUBLISHED[name][0])}).'
    return result.of_score(name, caption, **theirs)


def _published(name: str, task: str | None) -> np.ndarray | None:
    found = _PUBLISHED[name][1](task) if name in _PUBLISHED else None
    return None if found is None else found.differences


def _without_luck(name: str, ablated: Ablated) -> Finding:
    """Return what losing the best mask does to examples on which it was not chosen."""
    found, gain, chosen = ablated.found, ablated.gain, ablated.elsewhere
    if chosen is not None:
        label, which = 'chosen on other examples', found.names[chosen.best]
        there, *here = chosen.where_chosen, chosen.gain, chosen.low, chosen.high
    else:
        assert gain is not None
        label, which = 'of nine tenths, measured on the rest', 'the best head'
        there, *here = gain.naive, gain.from_nine_tenths, gain.low, gain.high
    return measured(
        f'{name}: best, {label}',
        100 * np.array(here),
        where=which * (chosen is not None),
        unit=effects.unit_of(found),
        **effects.sample_of(found, SOURCE),
        template='Losing {which} changes {outcome} by {there:+.1f} points where it was chosen, and '
        'by {estimate:+.1f} elsewhere.',
        numbers={'which': which, 'outcome': effects.title_of(found), 'there': 100 * there},
    )


def labelled(found: Ablation) -> Ablation:
    """Return the result with the tables of each set, and of its extremes."""
    frames = {}
    for name, ablated in found.sets.items():
        caption = f'The score without {_LOST.get(name, "each set")}, and its change.'
        frames[name] = effects.frame_of(ablated.assessed, _COLUMNS, caption, 'metric')
        tests = {metric: each.test for metric, each in ablated.assessed.items()}
        frames[name].insert(1, 'test', frames[name]['metric'].map(tests))
        frames[f'{name}_outcomes'] = effects.frame_of_outcomes(ablated.outcomes, name)
    if 'heads' in found.sets:
        frames['heads_extremes'] = effects.extremes_of(found.sets['heads'].found, _SHOWN)
    alone = found.sets.get('one_head_left')
    # Masks of one's own may have the name of a set, and be others.
    if alone is not None and len(alone.masks) == math.prod(alone.shape):
        frames['one_head_left_best'] = _best_alone(alone)
    for frame in frames.values():
        frame['learnt'] = found.learnt
    return found.with_frames(frames)
