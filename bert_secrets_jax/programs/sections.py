"""The sections of a report, and how a study answers each of them.

An analysis is added to reports and to the command line by one entry in `SECTIONS`.
"""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from absl import logging

import bert_secrets_jax as bs
from bert_secrets_jax import processes
from bert_secrets_jax.ablation.donors import check_enough
from bert_secrets_jax.ablation.interactions import single_and_pair_masks
from bert_secrets_jax.ablation.masks import (
    disable,
    parse_heads,
)
from bert_secrets_jax.ablation.seeds import METRICS as METRICS_OVER_SEEDS
from bert_secrets_jax.analyses.ablation import (
    SETS,
    Ablation,
)
from bert_secrets_jax.analyses.attention_change import change_statistics
from bert_secrets_jax.analyses.claims import Claims, claims
from bert_secrets_jax.analyses.cls_tokens import cls_statistics
from bert_secrets_jax.analyses.clusters import cluster_statistics
from bert_secrets_jax.analyses.contributions import (
    Contributions,
    Moved,
    lost_in,
    measure_moved,
)
from bert_secrets_jax.analyses.contributions import statistics as moved_statistics
from bert_secrets_jax.analyses.declaration import Declaration
from bert_secrets_jax.analyses.example_maps import ExampleMaps, example_maps, telling_heads
from bert_secrets_jax.analyses.features import feature_statistics
from bert_secrets_jax.analyses.finetuning import Finetuning
from bert_secrets_jax.analyses.gates import Gates, assess_gates
from bert_secrets_jax.analyses.look_at import STATISTICS as LOOKED_AT
from bert_secrets_jax.analyses.look_at import LookAt
from bert_secrets_jax.analyses.masked_lm_ablation import (
    DISABLED,
    MaskedLMAblation,
    assess_masked_lm,
)
from bert_secrets_jax.analyses.outliers import Outliers, outliers
from bert_secrets_jax.analyses.patterns import (
    ALL_SPECIAL,
    ClassExample,
    Patterns,
    clearest,
    map_statistics,
)
from bert_secrets_jax.analyses.pruning import Pruning, check_pruning
from bert_secrets_jax.analyses.relations import relation_statistics
from bert_secrets_jax.analyses.roles import Roles, role_statistics, with_rarest
from bert_secrets_jax.analyses.roles import from_results as roles_from
from bert_secrets_jax.analyses.special_tokens import STATISTICS
from bert_secrets_jax.analyses.subnetworks import has_own_layers
from bert_secrets_jax.analyses.syntax_heads import SyntaxHeads
from bert_secrets_jax.analyses.tables import Tables, describe
from bert_secrets_jax.analyses.texts import batches_of, encoded_of, in_one_pass
from bert_secrets_jax.data.encoding import knows_words
from bert_secrets_jax.data.framenet import framenet_sample
from bert_secrets_jax.data.tasks import Example, draw
from bert_secrets_jax.data.treebank import treebank_sample
from bert_secrets_jax.devices import MASKS
from bert_secrets_jax.measure.catalogue import Described, named
from bert_secrets_jax.model.attention import check_baseline
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import save_pretrained
from bert_secrets_jax.patterns.classifier import pattern_comparisons
from bert_secrets_jax.programs import bindings, calls, costs, inputs
from bert_secrets_jax.programs.calls import Arguments, Binding, Call
from bert_secrets_jax.programs.costs import Cost
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.pruning.outliers import ends_with_norm
from bert_secrets_jax.pruning.removal import remove_heads
from bert_secrets_jax.pruning.scores import check_permutations
from bert_secrets_jax.runs.result import Result
from bert_secrets_jax.runs.run import NotKept


def _needs_nothing(study: Study) -> str:
    return ''


def _needs_words(study: Study) -> str:
    return '' if study.has_words else 'a spaCy pipeline (setting linguistics.pipeline)'


def _needs_english(study: Study) -> str:
    """The embedded sentences are English, and say nothing of a model of something else."""
    if study.config.frames.sample or _knows(study, 'frames', lambda: framenet_sample()[0]):
        return ''
    return 'sentences that the tokenizer knows (setting frames.sample), or model.allow_unknown'


def _needs_trees(study: Study) -> str:
    treebank = study.config.treebank
    if bool(treebank.train) != bool(treebank.dev):
        return 'both parts of a treebank (settings treebank.train and treebank.dev)'
    if treebank.dev or _knows(study, 'treebank', _treebank_texts):
        return ''
    return (
        'a treebank that the tokenizer knows (settings treebank.train and treebank.dev), or '
        'model.allow_unknown'
    )


def _treebank_texts() -> list[Example]:
    return [parse.example for parse in treebank_sample('dev')]


def _knows(study: Study, name: str, read: Callable[[], Sequence[Example]]) -> bool:
    """Return whether the tokenizer knows the words of English examples."""

    def find() -> bool:
        texts = [each.text_a for each in read()]
        return knows_words(study.pretrained.tokenizer, texts)

    return study.holds(f'knows the words of the {name}', find, unknown=True)


def _needs_training(study: Study) -> str:
    if study.has_training:
        return ''
    return (
        'a fine-tuned model: give labelled texts to train on (settings data.train_file and '
        'data.label)'
    )


def _needs_classifier(study: Study) -> str:
    if study.config.data.source in ('tags', 'questions'):
        return 'one label of each text (settings data.source=file and data.label)'
    if study.config.ablation.checkpoint != 'model':
        return _needs_training(study)
    data = study.config.data
    if data.source in ('file', 'segments') and data.label is None:
        return 'labels: name their column (setting data.label)'
    return ''


def _needs_seeds(study: Study) -> str:
    if study.config.ablation.checkpoint == 'model':
        return 'models that this run fine-tunes (setting ablation.checkpoint=finetuned)'
    missing = _needs_classifier(study)
    if missing or len(study.ablated_seeds) > 1:
        return missing
    return 'several fine-tuned models (settings train.num_seeds and ablation.seeds)'


def _needs_both(study: Study) -> str:
    return _needs_classifier(study) or _needs_training(study)


def _needs_finetuning(study: Study) -> str:
    if study.config.ablation.checkpoint == 'model':
        return 'models that this run fine-tunes (setting ablation.checkpoint=finetuned)'
    return _needs_both(study)


def _needs_own_layers(study: Study) -> str:
    if missing := _needs_finetuning(study):
        return missing
    own = _fits(study, 'uses layers once', has_own_layers)
    return '' if own else 'a model that uses each of its layers once'


def _needs_masked_lm(study: Study) -> str:
    return '' if study.is_masked_lm else 'a model with the head of a masked LM'


def _needs_output_norm(study: Study) -> str:
    if _fits(study, 'ends with LayerNorm', ends_with_norm):
        return ''
    return 'a model whose layers end with LayerNorm, such as BERT or RoBERTa'


def _fits(study: Study, name: str, rule: Callable[[BertConfig], bool]) -> bool:
    """Return whether the config of the model is as a rule says."""
    return study.holds(name, lambda: rule(study.pretrained.config), unknown=True)


def _wants_nothing(study: Study) -> list[Described]:
    return []


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the report.

    Attributes:
      answer: A function of a study and the results of the sections before. It returns the result of
        the section, computed or read.
      call: A function that returns the call of the analysis, from which the line of Python and the
        command on the page are made.
      wants: A function that returns the statistics of the model as it is that the section reads.
        One pass measures those of all sections.
      compares: A function that returns the statistics of that model and a fine-tuned one together.
        One pass measures those of all sections.
      needs: A function that names the input which the study lacks; empty if it has everything.
      costs: A function that returns the parts of its work, by names that sections share.
      asked: When a report has the section: 'always', with 'all' sections, or only by its 'name'.
    """

    answer: Callable[[Study, Sequence[Result]], Result]
    call: Binding = calls.nothing
    wants: Callable[[Study], Iterable[Described]] = _wants_nothing
    compares: Callable[[Study], Iterable[Described]] = _wants_nothing
    needs: Callable[[Study], str] = _needs_nothing
    costs: Callable[[Study], Mapping[str, Cost]] = costs.nothing
    asked: Literal['always', 'all', 'name'] = 'always'


# In the place of names of sections: all but those that take hours.
ALL = 'all'


def applicable(study: Study, asked: Collection[str] = ('always', 'all')) -> list[str]:
    """Return the names of the sections of a report whose inputs the study has.

    Args:
      study: The study.
      asked: When they are in a report, as in `Section`.
    """
    return [
        name
        for name, section in SECTIONS.items()
        if section.asked in asked and not section.needs(study)
    ]


def chosen_of(study: Study, names: Sequence[str] | None) -> list[str]:
    """Return the names of the sections that somebody asked for.

    Args:
      study: The study.
      names: The names; ['all'] takes all for which the study has the inputs, but not those that
        take hours. None takes those that answer the questions of the paper.

    Raises:
      ValueError: A section is unknown, none is given, or the study lacks something that it needs.
    """
    if names is None:
        return applicable(study, ('always',))
    names = list(names)
    if names == [ALL]:
        return applicable(study)
    check(study, names)
    return names


def check(study: Study, names: Iterable[str]) -> None:
    """Refuse sections that do not exist, or for which the study lacks something.

    Args:
      study: The study.
      names: The names of the sections that somebody asked for.

    Raises:
      ValueError: A section is unknown, none is given, or something is missing. The error names it.
    """
    names = list(names)
    unknown = [name for name in names if name not in SECTIONS]
    if unknown or not names:
        known = ', '.join(SECTIONS)
        raise ValueError(f'Sections are {known}, or {ALL}, not {", ".join(unknown) or "none"}.')
    for name in names:
        missing = SECTIONS[name].needs(study)
        if missing:
            raise ValueError(f'{name} needs {missing}.')


def watch(study: Study, names: Iterable[str]) -> None:
    """Let each pass of a study measure all statistics that these sections want.

    Args:
      study: The study, which is changed.
      names: The names of the sections.
    """
    chosen = [SECTIONS[name] for name in names]
    study.wanted = lambda study: [each for section in chosen for each in section.wants(study)]
    study.compared = lambda study: [each for section in chosen for each in section.compares(study)]


def _special_wants(study: Study) -> list[Described]:
    return [named(name) for name in study.config.statistics]


def _look_at(study: Study, results: Sequence[Result]) -> LookAt:
    wanted = _look_at_wants(study)
    # Nothing is fine-tuned only for this.
    tuned = any(isinstance(result, Finetuning) for result in results)
    gradients, why_not = study.gradients(tuned=tuned)
    return LookAt(study.subject, describe(wanted), study.before(wanted), gradients, why_not)


@dataclasses.dataclass(frozen=True, eq=False)
class _Clearest:
    """Class to the maps that are most clearly of it, as a file keeps them."""

    examples: Mapping[str, tuple[ClassExample, ...]]


def _patterns(study: Study, _) -> Patterns:
    before = study.before(map_statistics(study.classifier))
    compared = _pattern_compares(study)
    runs = {str(seed): study.after(seed, compared) for seed in study.tuned_seeds}
    depends_on = study.on_texts() | {
        'classifier': study.input('classifier'),
        'examples': study.config.maps.examples,
    }
    shown = study.run.keep(
        'clearest maps',
        _Clearest,
        depends_on,
        lambda: _Clearest(clearest(study.classifier, _maps_before(study).first)),
    )
    return Patterns(study.subject, before, runs, study.classifier.confusions, shown.examples)


def _maps_depend_on(study: Study) -> dict:
    if study.config.maps.examples < 1:
        raise ValueError(
            'maps.examples must be at least 1; to do without, leave out the section maps.'
        )
    return study.on_texts() | {'examples': study.config.maps.examples}


def _maps_before(study: Study) -> ExampleMaps:
    return study.run.keep(
        'maps',
        ExampleMaps,
        _maps_depend_on(study),
        lambda: example_maps(
            study.pretrained,
            study.texts,
            count=study.config.maps.examples,
            max_length=study.config.encoding.max_length,
        ),
    )


def _maps_after(study: Study) -> ExampleMaps:
    seed = study.seeds[0]
    tuned = {'finetuned': study.finetuning_digest('pretrained'), 'seed': seed}
    return study.run.keep(
        'maps of the fine-tuned model',
        ExampleMaps,
        _maps_depend_on(study) | tuned,
        lambda: example_maps(
            study.finetuned('pretrained').models[0],
            study.texts,
            count=study.config.maps.examples,
            max_length=study.config.encoding.max_length,
        ),
    )


def _example_maps(study: Study, results: Sequence[Result]) -> ExampleMaps:
    maps = {study.model_name: _maps_before(study).first}
    # Nothing is fine-tuned only to be looked at.
    if any(isinstance(result, Finetuning) for result in results):
        # A run that only reads shows no maps that are not computed yet.
        with contextlib.suppress(NotKept):
            maps['fine-tuned'] = _maps_after(study).first
    telling = study.before([named(name) for name in STATISTICS])
    return ExampleMaps(study.subject, maps, telling_heads(telling))


def _check_disabling(study: Study) -> None:
    """Refuse masks and too few texts before anything is trained."""
    config = study.config.ablation
    unknown = set(config.sets) - set(SETS)
    if unknown:
        raise ValueError(f'ablation.sets are {", ".join(SETS)}, not {", ".join(sorted(unknown))}.')
    names = [*config.sets, *(['together'] if parse_heads(config.together) else [])]
    if not names:
        raise ValueError('Nothing to ablate: give ablation.sets, or heads in ablation.together.')
    if 'together' in names:
        disable(study.pretrained.config, [parse_heads(config.together)])
    if config.choose_examples and set(names) <= {'one_head_left', 'together'}:
        raise ValueError(
            f'ablation.choose_examples={config.choose_examples} chooses the best head or layer to '
            'lose, and neither is disabled here: set it to 0, or give ablation.sets more.'
        )
    _check_donors(study)


def _check_donors(study: Study) -> None:
    check_baseline(study.config.ablation.baseline)
    if study.config.ablation.baseline == 'resample':
        check_enough(len(study.ablated_texts))


def _check_over_seeds(study: Study) -> None:
    chosen = inputs.metrics(study.config.data)
    if len(study.ablated_seeds) > 1 and chosen and not set(chosen) & set(METRICS_OVER_SEEDS):
        raise ValueError(
            f'data.metrics={study.config.data.metrics} has nothing that is offered over seeds: add '
            f'one of {", ".join(METRICS_OVER_SEEDS)}, or analyse one seed (train.num_seeds=1).'
        )
    _check_disabling(study)


def _check_pairs(study: Study) -> None:
    wanted = study.config.ablation.pairs_of
    if wanted != 'all':
        single_and_pair_masks(study.pretrained.config, sorted(set(parse_heads(wanted))))
    _check_donors(study)


def _check_pruned(study: Study) -> None:
    settings = study.config.prune
    for metric in inputs.metrics(study.config.data)[:1]:
        check_pruning(metric, draws=settings.draws, tolerance=settings.tolerance)
    check_permutations(study.config.importance.permutations)


def _check_scored(study: Study) -> None:
    check_permutations(study.config.importance.permutations)


_PRUNED = calls.kept('pruning', bindings.prune, check=_check_pruned, shares=True)


def _prune(study: Study, results: Sequence[Result]) -> Pruning:
    found = _PRUNED(study, results)
    mask = found.chosen[0].mask
    folder = study.run.folder_for(
        'pruned/model', bindings.prune(Arguments(study, {}, ())).key(study)
    )
    if not (study.run.read_only or (mask != 0).all() or processes.exists(folder)):
        # The sparsest model of the first seed, with its heads cut out.
        with study.run.aside():
            save_pretrained(remove_heads(study.ablated_model(), mask), folder)
        logging.info('%s: the model with heads cut out, %d left.', folder, found.chosen[0].kept)
    return found


def _masked_lm(study: Study, results: Sequence[Result]) -> MaskedLMAblation:
    before = {name: study.masked_lm_losses('before', name) for name in DISABLED}
    after = {}
    # Nothing is fine-tuned only for this.
    if any(isinstance(result, Finetuning) for result in results):
        after = {name: study.masked_lm_losses('after', name) for name in DISABLED}
    baseline, seed = study.config.ablation.baseline, study.config.seed
    return assess_masked_lm(
        before,
        after,
        masking=study.masking,
        baseline=baseline,
        seed=seed,
        subject=study.subject,
    )


def _outliers(study: Study, results: Sequence[Result]) -> Outliers:
    settings, seed = study.config.outliers, study.config.seed
    beside = {'outliers': [settings.draws, settings.max_examples], 'seed': seed}

    def found(texts: Sequence[Example], **given) -> Outliers:
        model = study.with_own_head if study.is_masked_lm and not given else study.pretrained
        return outliers(
            model,
            draw(texts, settings.max_examples, seed, setting='outliers.max_examples'),
            draws=settings.draws,
            masking=study.masking,
            seed=seed,
            compute=study.compute(),
            **given,
        )

    before = study.run.keep(
        'outliers',
        Outliers,
        study.on_texts() | beside | {'masking': dataclasses.asdict(study.masking)},
        lambda: found(study.texts),
    )
    before = dataclasses.replace(before, subject=study.subject)
    # Nothing is fine-tuned only for this.
    tuned = study.config.ablation.checkpoint == 'model' or any(
        isinstance(result, Finetuning) for result in results
    )
    if not before.disabled or not tuned or _needs_classifier(study):
        return before

    def of_tuned() -> Outliers:
        model = study.ablated_model()
        metrics = study.metrics(model.config.num_labels)
        return found(study.ablated_texts, tuned=model, metrics=metrics)

    after = study.run.keep(
        'outliers in a fine-tuned model',
        Outliers,
        {name: each for name, each in study.on_ablated().items() if name in _OF_SCORES}
        | beside
        | {'weights': study.input('weights'), 'metrics': study.config.data.metrics},
        of_tuned,
    )
    return dataclasses.replace(before, scores=after.scores, examples=after.examples)


# The part of what a sweep depends on that scores without dimensions depend on, too.
_OF_SCORES = ('model', 'texts', 'max_length')


def _gates(study: Study, _) -> Gates:
    gated = study.gated()
    metrics = study.metrics(gated.intact.shape[-1])
    found = study.run.keep(
        'gates',
        Gates,
        study.on_gated() | {'metrics': metrics, 'seed': study.config.seed},
        lambda: assess_gates(gated, metrics, seed=study.config.seed, subject=study.subject),
    )
    return dataclasses.replace(found, subject=study.subject)


@dataclasses.dataclass(frozen=True, eq=False)
class _OfRoles:
    """The measurements that the roles of heads are read from, as a file keeps them."""

    FORMAT: ClassVar[int] = 2

    tables: Tables
    chance: tuple[float, float]


def _roles(study: Study, results: Sequence[Result]) -> Roles:
    def compute() -> _OfRoles:
        settings, model = study.settings, study.pretrained
        encoded = encoded_of(model, study.texts, settings, annotated=False)
        encoded, chance = with_rarest(encoded)
        return _OfRoles(in_one_pass(model, encoded, role_statistics(), settings, 'Roles'), chance)

    found = study.run.keep('roles', _OfRoles, study.on_texts(), compute)
    others = list(results)
    if not any(isinstance(each, SyntaxHeads) for each in others) and not _needs_trees(study):
        others.append(SECTIONS['syntax_heads'].answer(study, ()))
    return roles_from(
        found.tables,
        found.chance,
        others,
        pruned_finetuned=bool(study.ablated_seeds),
        seed=study.config.seed,
        subject=study.subject,
    )


def _contributions(study: Study, results: Sequence[Result]) -> Contributions:
    def compute() -> Moved:
        model, settings = study.pretrained, study.settings
        return measure_moved(
            model, batches_of(model, study.texts, settings, annotated=False), settings
        )

    found = study.run.keep('contributions', Moved, study.on_texts(), compute)
    weights = study.before(moved_statistics())
    ablation = next((each for each in results if isinstance(each, Ablation)), None)
    lost = lost_in(ablation, next(iter(weights.values())).mean.shape)
    return Contributions(study.subject, weights, found, lost)


def _claims(study: Study, results: Sequence[Result]) -> Claims:
    return claims(*results, subject=study.subject)


def _pattern_wants(study: Study) -> list[Described]:
    return map_statistics(study.classifier)


def _pattern_compares(study: Study) -> list[Described]:
    # The share of vertical maps that are attention to special tokens is told of the fine-tuned
    # model, too.
    return [*pattern_comparisons(study.classifier), named(ALL_SPECIAL)]


def _change_compares(study: Study) -> list[Described]:
    return [*change_statistics('paper'), *_special_wants(study)]


def _telling(study: Study) -> list[Described]:
    return [named(name) for name in STATISTICS]


def _look_at_wants(study: Study) -> list[Described]:
    return [named(name) for name in LOOKED_AT]


def _and(passes: float | int, programs: float | int, seconds: float | int, *, of: str):
    """Return the costs of a section of the first pass with a part of its own."""

    def of_study(study: Study) -> Mapping[str, Cost]:
        return costs.one_pass(study, passes, programs, seconds, of=of)

    return of_study


def _fixed(name: str, tokens: float | int, programs: float | int, seconds: float | int):
    """Return the costs of a section about texts of its own."""

    def of_study(study: Study) -> Mapping[str, Cost]:
        return {name: Cost(tokens, programs, seconds)}

    return of_study


def _called(
    title: str,
    bind: Binding,
    *,
    check: Callable[[Study], object] = _needs_nothing,
    shares: bool = False,
    second: str = '',
    **section: Any,
) -> Section:
    """Return a section that is answered by one call; arguments as in `calls.kept` and `Section`."""
    answer = calls.kept(title, bind, check=check, shares=shares, second=second)
    return Section(answer, bind, **section)


def _declared(declaration: Declaration) -> Section:
    """Return the section that an analysis declares."""

    def bind(a: Arguments) -> Call:
        values = {name: a[setting] for name, setting in declaration.settings.items()}
        return a.analysis(
            declaration.name,
            *declaration.inputs,
            computing='settings',
            annotated='words' in declaration.needs,
            **values,
        )

    def missing(study: Study) -> str:
        return next(filter(None, (_NEEDS[name](study) for name in declaration.needs)), '')

    return _called(
        declaration.name,
        bind,
        needs=missing,
        wants=lambda study: declaration.statistics,
        costs=_and(declaration.passes, 1, declaration.seconds, of=declaration.name),
        asked=declaration.asked,
    )


# The needs of declarations, by name.
_NEEDS = {
    'words': _needs_words,
    'trees': _needs_trees,
    'training': _needs_training,
    'classifier': _needs_classifier,
}


def declarations() -> list[Declaration]:
    """Return what the modules of analyses declare."""
    functions = (getattr(bs.analyses, name) for name in bs.analyses.__all__)
    modules = {each.__module__: sys.modules[each.__module__] for each in functions}
    return [module.SECTION for module in modules.values() if hasattr(module, 'SECTION')]


# In the order in which they run, those that take seconds first. Claims are about the results of the
# others, and stand first in the report. By name alone: pairs of all heads take a day, and what
# replacements, subnetworks and gates train takes minutes to hours.
SECTIONS: Mapping[str, Section] = {
    'special_tokens': _called(
        'special tokens', bindings.special_tokens, wants=_special_wants, costs=costs.one_pass
    ),
    'finetune': _called(
        'finetuning', bindings.finetune, needs=_needs_training, costs=costs.finetuned
    ),
    'ablate': _called(
        'ablation',
        bindings.ablate,
        check=_check_disabling,
        shares=True,
        second=MASKS,
        needs=_needs_classifier,
        costs=lambda study: costs.swept(study, 1),
    ),
    'relations': _called(
        'relations',
        bindings.relations,
        wants=lambda study: relation_statistics(),
        needs=_needs_words,
        costs=_and(0, 0, 2, of='places'),
    ),
    'frames': _called(
        'frames',
        bindings.frames,
        needs=_needs_english,
        costs=_fixed('frames', 10_000, 8, 4),
    ),
    'patterns': Section(
        _patterns,
        bindings.patterns,
        _pattern_wants,
        _pattern_compares,
        costs=lambda study: _and(2, 7, 3, of='classes')(study) | costs.compared(study),
    ),
    'attention_change': _called(
        'attention change',
        bindings.attention_change,
        compares=_change_compares,
        needs=_needs_training,
        costs=costs.compared,
    ),
    'features': _called(
        'features',
        bindings.features,
        wants=lambda study: feature_statistics(),
        compares=lambda study: feature_statistics(),
        needs=_needs_words,
        costs=lambda study: _and(0, 0, 5, of='features')(study) | costs.compared(study),
    ),
    'cls_tokens': _called(
        '[CLS]',
        bindings.cls_tokens,
        wants=lambda study: cls_statistics(),
        compares=lambda study: cls_statistics(),
        needs=_needs_words,
        costs=lambda study: _and(0, 0, 1, of='[CLS]')(study) | costs.compared(study),
    ),
    'look_at': Section(
        _look_at, bindings.look_at, _look_at_wants, costs=_and(6, 5, 3, of='gradients'), asked='all'
    ),
    'cluster': _called(
        'clusters',
        bindings.cluster,
        wants=lambda study: cluster_statistics(),
        costs=_and(2, 1, 2, of='divergences'),
        asked='all',
    ),
    'syntax_heads': _called(
        'syntax heads',
        bindings.syntax_heads,
        needs=_needs_trees,
        costs=_fixed('treebank', 40_000, 12, 5),
        asked='all',
    ),
    'probe': _called(
        'probes',
        bindings.probe,
        needs=_needs_trees,
        costs=_fixed('probes', 20_000, 6, 5),
        asked='all',
    ),
    'masked_lm': Section(
        _masked_lm, bindings.masked_lm, needs=_needs_masked_lm, costs=costs.masked_lm, asked='all'
    ),
    'outliers': Section(
        _outliers, bindings.outliers, needs=_needs_output_norm, costs=costs.outliers, asked='all'
    ),
    'ablate_seeds': _called(
        'ablation over seeds',
        bindings.ablate_seeds,
        check=_check_over_seeds,
        shares=True,
        second=MASKS,
        needs=_needs_seeds,
        costs=lambda study: costs.swept(study, len(study.ablated_seeds)),
        asked='all',
    ),
    'interactions': _called(
        'interactions',
        bindings.interactions,
        check=_check_pairs,
        shares=True,
        second=MASKS,
        needs=_needs_classifier,
        costs=costs.pairs,
        asked='name',
    ),
    'importance': _called(
        'importance',
        bindings.importance,
        check=_check_scored,
        shares=True,
        needs=_needs_both,
        costs=costs.importance,
        asked='all',
    ),
    'prune': Section(_prune, bindings.prune, needs=_needs_both, costs=costs.pruned, asked='all'),
    'replacements': _called(
        'replacements',
        bindings.replacements,
        needs=_needs_both,
        costs=costs.replaced,
        asked='name',
    ),
    'subnetworks': _called(
        'subnetworks',
        bindings.subnetworks,
        needs=_needs_own_layers,
        costs=costs.retrained,
        asked='name',
    ),
    'gates': Section(_gates, bindings.gates, needs=_needs_both, costs=costs.gated, asked='name'),
    'contributions': Section(
        _contributions,
        bindings.contributions,
        lambda study: moved_statistics(),
        costs=_and(6, 12, 5, of='moved'),
        asked='all',
    ),
    'attribution': _called(
        'attribution',
        bindings.attribution,
        needs=_needs_classifier,
        costs=costs.attributed,
        asked='all',
    ),
    'roles': Section(_roles, bindings.roles, costs=_and(2, 3, 3, of='rarest'), asked='all'),
    **{each.name: _declared(each) for each in declarations()},
    # Shows the findings of the others for each head.
    'maps': Section(_example_maps, bindings.maps, _telling, costs=_and(0, 6, 6, of='example maps')),
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
