"""Claims that several results decide together, and the verdicts of all results.

What a single result decides, it says itself (`Result.verdicts`).
"""

import dataclasses
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_secrets_jax import paper
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.disabling import Ablated, instead
from bert_secrets_jax.analyses.common.effects import margin_of, title_of
from bert_secrets_jax.analyses.verdicts import Claim, Verdict
from bert_secrets_jax.analyses.verdicts.verdict import with_more
from bert_secrets_jax.runs.result import Result, Subject, framed, given_by
from bert_secrets_jax.stats.effects import BETTER

if TYPE_CHECKING:
    import pandas

# The name under which effects over fine-tunings are given.
OVER_SEEDS = 'disabled over seeds'
# The attribute of a verdict in each column of its frame.
_COLUMNS = {
    'claim': 'claim.text',
    'source': 'claim.source',
    'verdict': 'verdict',
    'for': 'population',
    'evidence': 'evidence',
    'does not show': 'claim.limits',
    **{name: name for name in ('what', 'estimate', 'low', 'high', 'unit', 'threshold')},
    'threshold_from': 'claim.bound',
    **{name: name for name in ('p_if_false', 'p_if_true', 'p', 'sample', 'sample_of')},
}
# Claims about several tasks are listed with these. Those of other papers, where a result has them.
_CLAIMS = tuple(
    claim
    for claim in verdicts.CLAIMS.values()
    if claim not in (verdicts.FINETUNING_GAINS, verdicts.SAME_HEADS)
)


def decided(results: Sequence[Result]) -> tuple[Verdict, ...]:
    """Return the verdict on each claim of the paper, and on those of others that results decide.

    Results are of one model, and decide alone or together. Where several are from one analysis, the
    first is used. Verdicts of fine-tuned models stand for those of the model as it is.
    """
    alone = list({type(each): each for each in reversed(results)}.values())[::-1]
    alone.sort(key=lambda each: 'attention after fine-tuning' not in each.gives())
    found: dict[Claim, Verdict] = {}
    for verdict in (*(each for result in alone for each in result.verdicts()), *_together(results)):
        found.setdefault(verdict.claim, verdict)
    paper_of_all = verdicts.PRETRAINING.paper
    return tuple(
        found.get(claim) or verdicts.not_measured(claim)
        for claim in dict.fromkeys((*_CLAIMS, *found))
        if claim in found or claim.paper == paper_of_all
    )


def claims_over_tasks(tasks: Mapping[str, Sequence[Result]]) -> dict[str, tuple[Verdict, ...]]:
    """Test the claims about several tasks at once, for each model that results name as subject."""
    models: dict[str, dict[str, list[Result]]] = {}
    for result in (each for results in tasks.values() for each in results):
        subject = result.subject
        if subject.task is not None and {'unlearnt', 'disabled'} & result.gives().keys():
            models.setdefault(subject.model, {}).setdefault(subject.task, []).append(result)
    return {
        model: (_gains(measured), _same_heads(measured))
        for model, measured in (models or {Subject().model: {}}).items()
    }


def _gains(tasks: Mapping[str, Sequence[Result]]) -> Verdict:
    gains = {
        paper.title(task) or task: given[0]
        for task, results in tasks.items()
        if (given := given_by(results, 'gain'))
    }
    if len(gains) > 1:
        return verdicts.finetuning_gains(gains)
    return verdicts.not_measured(verdicts.FINETUNING_GAINS, 'fine-tuning on two tasks of the paper')


def _same_heads(tasks: Mapping[str, Sequence[Result]]) -> Verdict:
    sets = {paper.title(task): _sets(results).get('heads') for task, results in tasks.items()}
    effects = {task: each.found for task in ('STS-B', 'RTE') if (each := sets.get(task))}
    if len(effects) > 1 and len({tuple(each.names) for each in effects.values()}) == 1:
        return verdicts.same_heads_are_needed(effects)
    return verdicts.not_measured(verdicts.SAME_HEADS, 'disabling heads on STS-B and RTE')


def _sets(results: Sequence[Result], which: str = 'disabled') -> Mapping[str, Ablated]:
    """Return the effects of sets of masks, such as 'heads'; empty if they are not measured."""
    given = given_by(results, which)
    return given[0].sets if given else {}


def _ablated(results: Sequence[Result], name: str) -> Ablated | None:
    """Return effects over fine-tunings if enough for any to be significant, or on one model."""
    several = _sets(results, OVER_SEEDS).get(name)
    if several and (seeds := several.found.seeds) and seeds.least_p <= verdicts.LEVEL:
        return several
    return _sets(results).get(name)


def _instead(results: Sequence[Result], name: str) -> str:
    """Return a sentence on what disabled heads did; empty if it is what the paper's did."""
    for which in ('disabled', OVER_SEEDS):
        for result in given_by(results, which)[:1]:
            if name in result.sets and result.baseline != 'uniform':
                return f' {instead(result.baseline)} In the paper, it attends to all tokens alike.'
    return ''


def _together(results: Sequence[Result]) -> Iterable[Verdict]:
    effects: dict[str, verdicts.Effects] = {}
    for claim, name in ((verdicts.HEAD_HELPS, 'heads'), (verdicts.LAYER_HELPS, 'layers')):
        ablated = _ablated(results, name)
        if ablated is not None:
            effects[name] = ablated.found
            if ablated.found.sample_of == 'fine-tunings':
                effects[name] = dataclasses.replace(ablated.found, sample_of='runs')
            # A sentence on telling texts apart beside that on the score.
            (over, margin), lead = margin_of(ablated.lead), ablated.lead
            found = with_more(
                verdicts.some_mask_helps(claim, effects[name]),
                f' For {{told_apart}} of them, losing it improves {{outcome}} by {over}.',
                **margin,
                told_apart=int((lead.verdict == BETTER).sum()),
                outcome=title_of(lead),
            )
            yield with_more(found, _instead(results, name))
    instead_of_heads = _instead(results, 'heads')
    ablated = {**_sets(results), **_sets(results, OVER_SEEDS)}.get('heads')
    if ablated is not None:
        found = verdicts.a_random_head_helps(ablated.averages, heads=len(ablated.masks))
        yield with_more(found, instead_of_heads)
    along = given_by(results, 'attention along frames')
    if along and 'heads' in effects:
        best = np.argsort(-along[0], axis=None, kind='stable')[:2].tolist()
        yield with_more(verdicts.heads_are_not_needed(effects['heads'], best), instead_of_heads)


def verdicts_frame(found: Sequence[Verdict]) -> 'pandas.DataFrame':
    """Return a frame of verdicts, of which a person reads some of the columns."""
    rows = list(map(operator.attrgetter(*_COLUMNS.values()), found))
    frame = framed([*_COLUMNS], rows, 'Each claim with its verdict and the number that decides.')
    # A person reads these columns; the file has all of them.
    frame.attrs['shown'] = [
        'claim', 'source', 'verdict', 'evidence', 'sample', 'sample_of', 'does not show',
    ]  # fmt: skip
    return frame
