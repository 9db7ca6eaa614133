"""Claims that several results decide together, and the verdicts of all results.

What a single result decides, it says itself (`Result.verdicts`).
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from bert_secrets_jax import paper
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.ablation import Ablation
from bert_secrets_jax.analyses.ablation_over_seeds import AblationOverSeeds
from bert_secrets_jax.analyses.common.disabling import Ablated, instead
from bert_secrets_jax.analyses.common.effects import title_of
from bert_secrets_jax.analyses.features import Features
from bert_secrets_jax.analyses.finetuning import Finetuning
from bert_secrets_jax.analyses.frames import FRAMES_DIRECTION, Frames
from bert_secrets_jax.analyses.verdicts import Claim, Verdict
from bert_secrets_jax.runs.result import Result, Subject

T = TypeVar('T', bound=Result)


def first(results: Iterable[Result], kind: type[T]) -> T | None:
    """Return the first result of a kind; None if there is none."""
    return next((each for each in results if isinstance(each, kind)), None)


def verdicts_of(results: Sequence[Result]) -> dict[Claim, Verdict]:
    """Return the verdicts on all claims that results of one model decide, alone or together.

    Where several results are from one analysis, the first is used.
    """
    kinds = dict.fromkeys(map(type, results))
    # Features are measured in fine-tuned models, too: attention to [CLS] and [SEP] is judged there.
    ordered = sorted(kinds, key=lambda kind: kind is not Features)
    alone = [each for kind in ordered if (each := first(results, kind)) is not None]
    found: dict[Claim, Verdict] = {}
    for verdict in (*(each for result in alone for each in result.verdicts()), *_together(results)):
        found.setdefault(verdict.claim, verdict)
    return found


def unlearnt(results: Sequence[Result]) -> tuple[tuple[int, ...], bool]:
    """Return the seeds whose model learnt nothing, and whether the disabled one learnt nothing."""
    finetuning, ablation = first(results, Finetuning), first(results, Ablation)
    return (
        () if finetuning is None else tuple(finetuning.unlearnt),
        ablation is not None and not ablation.learnt,
    )


def claims_over_tasks(tasks: Mapping[str, Sequence[Result]]) -> dict[str, tuple[Verdict, ...]]:
    """Test the claims about several tasks at once, for each model that results name as subject."""
    models: dict[str, dict[str, list[Result]]] = {}
    for result in (each for results in tasks.values() for each in results):
        subject = result.subject
        if isinstance(result, Finetuning | Ablation) and subject.task is not None:
            models.setdefault(subject.model, {}).setdefault(subject.task, []).append(result)
    needed = 'fine-tuning on two tasks of the paper', 'disabling heads on STS-B and RTE'
    return {
        model: (
            _gains(measured) or verdicts.not_measured(verdicts.FINETUNING_GAINS, needed[0]),
            _same_heads(measured) or verdicts.not_measured(verdicts.SAME_HEADS, needed[1]),
        )
        for model, measured in (models or {Subject().model: {}}).items()
    }


def _gains(tasks: Mapping[str, Sequence[Result]]) -> Verdict | None:
    gains = {}
    for task, results in tasks.items():
        result, published = first(results, Finetuning), verdicts.published_gain(task)
        if result is None or published is None or 'pretrained' not in result.starts:
            continue
        start, regression = result.starts['pretrained'], bool(np.isnan(result.larger_class))
        metric = 'pearson' if regression else 'accuracy'
        before, after = (
            # Predictions that are all the same have no correlation with anything.
            [float(np.nan_to_num(row[metric])) for row in rows]
            for rows in (start.before, start.last)
        )
        gains[paper.title(task)] = verdicts.Gain(
            before, after, result.dev_examples, regression, published
        )
    return verdicts.finetuning_gains(gains) if len(gains) > 1 else None


def _same_heads(tasks: Mapping[str, Sequence[Result]]) -> Verdict | None:
    sets = {paper.title(task): _sets(results, Ablation) for task, results in tasks.items()}
    effects = {
        title: sets[title]['heads'].found
        for title in ('STS-B', 'RTE')
        if 'heads' in sets.get(title, ())
    }
    if len(effects) < 2 or len({tuple(each.names) for each in effects.values()}) > 1:
        return None
    return verdicts.same_heads_are_needed(effects)


def _sets(
    results: Sequence[Result], kind: type[Ablation | AblationOverSeeds]
) -> Mapping[str, Ablated]:
    """Return the effects of sets of masks, such as 'heads'; empty if they are not measured."""
    result = first(results, kind)
    return {} if result is None else result.sets


def _ablated(results: Sequence[Result], name: str) -> Ablated | None:
    """Return effects over fine-tunings if enough for any to be significant, or on one model."""
    several = _sets(results, AblationOverSeeds).get(name)
    if several and (seeds := several.found.seeds) and seeds.least_p <= verdicts.LEVEL:
        return several
    return _sets(results, Ablation).get(name)


def _effects(ablated: Ablated) -> verdicts.Effects:
    several = ablated.found.sample_of == 'fine-tunings'
    return dataclasses.replace(ablated.found, sample_of='runs') if several else ablated.found


def _told_apart(ablated: Ablated, verdict: Verdict) -> Verdict:
    """Return a verdict on the score with a sentence on telling texts apart beside it."""
    lead, helps = ablated.lead, ablated.lead.gain > 0
    # How many lower it, and how many raise it; that is told for one model alone.
    helping = lead.fewest[lead.outcome.more_is_better] if lead.fewest else 0
    said = ' For {told_apart} of them, losing it improves {outcome} significantly'
    return _with(
        f'{said}, and for at least {{helping}} at all.' if helping else f'{said}.',
        verdict,
        told_apart=int((helps & (lead.corrected <= verdicts.LEVEL)).sum()),
        outcome=title_of(lead),
        helping=helping,
    )


def _instead(results: Sequence[Result], name: str) -> str:
    """Return a sentence on what disabled heads did; empty if it is what the paper's did."""
    for result in (first(results, Ablation), first(results, AblationOverSeeds)):
        if result is not None and name in result.sets and result.baseline != 'uniform':
            return f' {instead(result.baseline)} In the paper, it attends to all tokens alike.'
    return ''


def _together(results: Sequence[Result]) -> Iterable[Verdict]:
    for claim, name in ((verdicts.HEAD_HELPS, 'heads'), (verdicts.LAYER_HELPS, 'layers')):
        ablated = _ablated(results, name)
        if ablated is not None:
            found = _told_apart(ablated, verdicts.some_mask_helps(claim, _effects(ablated)))
            yield _with(_instead(results, name), found)
    heads, chosen = _instead(results, 'heads'), _ablated(results, 'heads')
    ablated = {**_sets(results, Ablation), **_sets(results, AblationOverSeeds)}.get('heads')
    if ablated is not None:
        found = verdicts.a_random_head_helps(ablated.averages, heads=len(ablated.masks))
        yield _with(heads, found)
    frames = first(results, Frames)
    test = None if frames is None else frames.tests.get(FRAMES_DIRECTION)
    if test is not None and chosen is not None:
        best = np.argsort(-test.table.mean, axis=None, kind='stable')[:2].tolist()
        yield _with(heads, verdicts.heads_are_not_needed(_effects(chosen), best))


def _with(sentence: str, verdict: Verdict, **numbers: int | str) -> Verdict:
    """Return a verdict with a sentence more, and with its numbers."""
    known = dict(verdict.numbers) | numbers
    return dataclasses.replace(verdict, template=verdict.template + sentence, numbers=known)
