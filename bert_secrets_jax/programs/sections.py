"""The sections of a report, and how a study answers each of them.

An analysis is added to reports and to the command line by one entry in `SECTIONS`.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from absl import logging

import bert_secrets_jax as bs
from bert_secrets_jax import processes
from bert_secrets_jax.analyses.attention_change import change_statistics
from bert_secrets_jax.analyses.cls_tokens import cls_statistics
from bert_secrets_jax.analyses.clusters import cluster_statistics
from bert_secrets_jax.analyses.contributions import statistics as moved_statistics
from bert_secrets_jax.analyses.declaration import Declaration
from bert_secrets_jax.analyses.features import feature_statistics
from bert_secrets_jax.analyses.gates import Gates, assess_gates
from bert_secrets_jax.analyses.look_at import STATISTICS as LOOKED_AT
from bert_secrets_jax.analyses.patterns import compared_statistics, map_statistics
from bert_secrets_jax.analyses.pruning import Pruning
from bert_secrets_jax.analyses.relations import relation_statistics
from bert_secrets_jax.analyses.special_tokens import STATISTICS
from bert_secrets_jax.devices import MASKS
from bert_secrets_jax.measure.catalogue import Described, named
from bert_secrets_jax.model.weights import save_pretrained
from bert_secrets_jax.programs import bindings, calls, checks, costs, needs
from bert_secrets_jax.programs.calls import Arguments, Binding, Call
from bert_secrets_jax.programs.costs import Cost
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.programs.titles import refuse_unknown
from bert_secrets_jax.pruning.removal import remove_heads
from bert_secrets_jax.runs.result import Result


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the report, by functions of a study.

    Attributes:
      answer: Returns the result, computed or read; takes the results of the sections before, too.
      call: Binds the analysis; the line of Python and the command on the page are made from it.
      wants: Returns the statistics of the model as it is that it reads. One pass measures all.
      compares: Returns those of that model and a fine-tuned one together, for another pass.
      needs: Names the input which the study lacks; empty if it has everything.
      costs: Returns the parts of its work, by names that sections share.
      asked: When a report has it: 'always', with 'all' sections, or only by its 'name'.
    """

    answer: Callable[[Study, Mapping[str, Result]], Result]
    call: Binding = lambda arguments: None
    wants: Callable[[Study], Iterable[Described]] = lambda study: ()
    compares: Callable[[Study], Iterable[Described]] = lambda study: ()
    needs: Callable[[Study], str] = lambda study: ''
    costs: Callable[[Study], Mapping[str, Cost]] = lambda study: {}
    asked: Literal['always', 'all', 'name'] = 'always'


# In the place of names of sections: all but those that take hours.
ALL = 'all'


def applicable(study: Study, asked: Collection[str] = ('always', 'all')) -> list[str]:
    """Return the names of the sections of a report whose inputs the study has."""
    return [
        name
        for name, section in SECTIONS.items()
        if section.asked in asked and not section.needs(study)
    ]


def left_out(study: Study, names: Sequence[str] | None) -> dict[str, str]:
    """Return what sections need that a report lacks because its texts are not English."""
    asked = {(): ('always',), (ALL,): ('always', 'all')}.get(tuple(names or ()), ())
    needed = {name: each.needs(study) for name, each in SECTIONS.items() if each.asked in asked}
    missing = {name: each for name, each in needed.items() if each}
    return {name: each for name, each in missing.items() if study.foreign and study.foreign in each}


def chosen_of(study: Study, names: Sequence[str] | None) -> list[str]:
    """Return the names of the sections that somebody asked for.

    ['all'] takes all with inputs but those of hours, None those that answer the paper's questions.
    """
    if names is None:
        return applicable(study, ('always',))
    if list(names) == [ALL]:
        return applicable(study)
    check(study, names)
    return list(names)


def check(study: Study, names: Sequence[str]) -> None:
    """Refuse sections that do not exist, or for which the study lacks something."""
    refuse_unknown(names, SECTIONS)
    for name in names:
        missing = SECTIONS[name].needs(study)
        if missing:
            raise ValueError(f'{name} needs {missing}.')


def watch(study: Study, names: Iterable[str]) -> None:
    """Let each pass of a study measure all statistics that these sections want."""
    chosen = [SECTIONS[name] for name in names]
    study.wanted = lambda study: [each for section in chosen for each in section.wants(study)]
    study.compared = lambda study: [each for section in chosen for each in section.compares(study)]


def _special_wants(study: Study) -> list[Described]:
    return [named(name) for name in study.config.statistics]


_PRUNED = calls.kept(bindings.prune, check=checks.pruned, shares=True)


def _prune(study: Study, results: Mapping[str, Result]) -> Pruning:
    found = _PRUNED(study, results)
    mask = found.chosen[0].mask
    folder = study.run.folder_for('pruned/model', bindings.prune(Arguments(study, {})).key(study))
    if not (study.run.read_only or (mask != 0).all() or processes.exists(folder)):
        # The sparsest model of the first seed, with its heads cut out.
        with study.run.aside():
            save_pretrained(remove_heads(study.ablated_model(), mask), folder)
        logging.info('%s: the model with heads cut out, %d left.', folder, found.chosen[0].kept)
    return found


def _gates(study: Study, _) -> Gates:
    gated = study.gated()
    metrics = study.metrics(gated.intact.shape[-1])
    seed = study.config.seed
    found = study.run.keep(
        'gates',
        Gates,
        study.on_gated() | {'metrics': metrics, 'seed': seed},
        lambda: assess_gates(gated, metrics, seed=seed, subject=study.subject),
    )
    return dataclasses.replace(found, subject=study.subject)


def _claims(study: Study, results: Mapping[str, Result]) -> Result:
    return bindings.claims(Arguments(study, results)).result(study, study.folder)


def _called(bind: Binding, **section: Any) -> Section:
    return Section(calls.kept(bind), bind, **section)


def _swept(bind: Binding, check: Callable[[Study], object], **section: Any) -> Section:
    """Return a section that is answered by one call, whose sweeps stay for other sections."""
    return Section(calls.kept(bind, check=check, shares=True, second=MASKS), bind, **section)


def _declared(declaration: Declaration) -> Section:

    def bind(a: Arguments) -> Call:
        values = {name: a[setting] for name, setting in declaration.settings.items()}
        return a.analysis(
            declaration.name, *declaration.inputs, annotated='words' in declaration.needs, **values
        )

    def missing(study: Study) -> str:
        return next(filter(None, (getattr(needs, name)(study) for name in declaration.needs)), '')

    return _called(
        bind,
        needs=missing,
        wants=lambda study: declaration.statistics,
        costs=costs.plus(declaration.name, declaration.passes, 1, declaration.seconds),
        asked=declaration.asked,
    )


def declarations() -> list[Declaration]:
    """Return what the modules of analyses declare."""
    homes = {inspect.unwrap(getattr(bs.analyses, name)).__module__ for name in bs.analyses.__all__}
    modules = {home: sys.modules[home] for home in sorted(homes)}
    return [module.SECTION for module in modules.values() if hasattr(module, 'SECTION')]


# In the order in which they run, those that take seconds first. Claims are about the results of the
# others, and stand first in the report. By name alone: pairs of all heads take a day, and what
# replacements, subnetworks and gates train takes minutes to hours. So are direct effects, which no
# regression has, and pairs of tokens, which need pairs of texts and an encoder of texts. Patching
# and gates of both prices take minutes, and few models can score minimal pairs.
SECTIONS: Mapping[str, Section] = {
    'special_tokens': _called(bindings.special_tokens, wants=_special_wants, costs=costs.one_pass),
    'finetune': _called(bindings.finetune, needs=needs.training, costs=costs.finetuned),
    'ablate': _swept(
        bindings.ablate,
        checks.disabling,
        needs=needs.classifier,
        costs=lambda study: costs.swept(study, 1),
    ),
    'relations': _called(
        bindings.relations,
        wants=lambda study: relation_statistics(),
        needs=needs.words,
        costs=costs.plus('places', 0, 0, 2),
    ),
    'frames': _called(
        bindings.frames, needs=needs.english, costs=lambda study: {'frames': Cost(10_000, 8, 4)}
    ),
    'patterns': _called(
        bindings.patterns,
        wants=lambda study: map_statistics(study.classifier),
        compares=lambda study: compared_statistics(study.classifier),
        costs=lambda study: costs.plus('classes', 2, 7, 3)(study) | costs.compared(study),
    ),
    'attention_change': _called(
        bindings.attention_change,
        compares=lambda study: [*change_statistics('paper'), *_special_wants(study)],
        needs=needs.training,
        costs=costs.compared,
    ),
    'features': _called(
        bindings.features,
        wants=lambda study: feature_statistics(),
        compares=lambda study: feature_statistics(),
        needs=needs.words,
        costs=lambda study: costs.plus('features', 0, 0, 5)(study) | costs.compared(study),
    ),
    'cls_tokens': _called(
        bindings.cls_tokens,
        wants=lambda study: cls_statistics(),
        compares=lambda study: cls_statistics(),
        needs=needs.words,
        costs=lambda study: costs.plus('[CLS]', 0, 0, 1)(study) | costs.compared(study),
    ),
    'look_at': _called(
        bindings.look_at,
        wants=lambda study: map(named, LOOKED_AT),
        costs=costs.plus('gradients', 6, 5, 3),
        asked='all',
    ),
    'cluster': _called(
        bindings.cluster,
        wants=lambda study: cluster_statistics(),
        costs=costs.plus('divergences', 2, 1, 2),
        asked='all',
    ),
    'hypotheses': _called(
        bindings.hypotheses, costs=costs.plus('hypotheses', 4, 12, 3), asked='all'
    ),
    'syntax_heads': _called(
        bindings.syntax_heads,
        needs=needs.trees,
        costs=lambda study: {'treebank': Cost(40_000, 12, 5)},
        asked='all',
    ),
    'probe': _called(
        bindings.probe,
        needs=needs.trees,
        costs=lambda study: {'probes': Cost(20_000, 6, 5)},
        asked='all',
    ),
    'across': _called(
        bindings.across, costs=lambda study: {'across': Cost(90_000, 20, 20)}, asked='name'
    ),
    'masked_lm': _swept(
        bindings.masked_lm, checks.donors, needs=needs.masked_lm, costs=costs.masked_lm, asked='all'
    ),
    'where_it_changes': _called(
        bindings.where_it_changes, needs=needs.own_layers, costs=costs.rescheduled, asked='name'
    ),
    'outliers': _called(
        bindings.outliers, needs=needs.output_norm, costs=costs.outliers, asked='all'
    ),
    'ablate_seeds': _swept(
        bindings.ablate_seeds,
        checks.disabling,
        needs=needs.seeds,
        costs=lambda study: costs.swept(study, len(study.ablated_seeds)),
        asked='all',
    ),
    'interactions': _swept(
        bindings.interactions, checks.pairs, needs=needs.classifier, costs=costs.pairs, asked='name'
    ),
    'importance': Section(
        calls.kept(bindings.importance, shares=True),
        bindings.importance,
        needs=needs.both,
        costs=costs.importance,
        asked='all',
    ),
    'prune': Section(_prune, bindings.prune, needs=needs.both, costs=costs.pruned, asked='all'),
    'replacements': _called(
        bindings.replacements, needs=needs.both, costs=costs.replaced, asked='name'
    ),
    'subnetworks': _called(
        bindings.subnetworks, needs=needs.own_layers, costs=costs.retrained, asked='name'
    ),
    'gates': Section(_gates, bindings.gates, needs=needs.both, costs=costs.gated, asked='name'),
    'contributions': _called(
        bindings.contributions,
        wants=lambda study: moved_statistics(),
        costs=costs.plus('moved', 6, 12, 5),
        asked='all',
    ),
    'attribution': _called(
        bindings.attribution, needs=needs.classifier, costs=costs.attributed, asked='all'
    ),
    'direct_effects': _called(
        bindings.direct_effects, needs=needs.classifier, costs=costs.directly, asked='name'
    ),
    'patching': _called(bindings.patching, needs=needs.patching, costs=costs.patched, asked='name'),
    'head_gating': _called(
        bindings.head_gating, needs=needs.both, costs=costs.gated_twice, asked='name'
    ),
    'minimal_pairs': _called(
        bindings.minimal_pairs, needs=needs.minimal_pairs, costs=costs.preferred, asked='name'
    ),
    'token_pairs': _called(
        bindings.token_pairs, needs=needs.pairs, costs=costs.paired, asked='name'
    ),
    'similarity': _called(
        bindings.similarity,
        needs=needs.pairs,
        costs=costs.embedded('cosines', 'pairs'),
        asked='all',
    ),
    'retrieval': _called(
        bindings.retrieval,
        needs=needs.retrieval,
        costs=costs.embedded('ranks', 'searched'),
        asked='all',
    ),
    'roles': _called(bindings.roles, costs=costs.plus('rarest', 2, 3, 3), asked='all'),
    **{each.name: _declared(each) for each in declarations()},
    # Shows the findings of the others for each head.
    'maps': Section(
        calls.kept(bindings.maps, check=checks.shown),
        bindings.maps,
        wants=lambda study: map(named, STATISTICS),
        costs=costs.plus('example maps', 0, 6, 6),
    ),
    'claims': Section(_claims, bindings.claims),
}
# The beginning of the names of a section's files, if it is not the name of the section.
FILES = {
    'cluster': 'clusters',
    'ablate': 'ablation',
    'ablate_seeds': 'ablation_over_seeds',
    'finetune': 'finetuning',
    'masked_lm': 'masked_lm_ablation',
    'probe': 'probes',
    'prune': 'pruning',
}
