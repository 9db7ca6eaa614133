"""The calls of the sections: which analysis, on which inputs, with which settings as values."""

import dataclasses
import inspect
import operator
from typing import Any

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.masks import disable, parse_heads
from bert_secrets_jax.analyses.ablation import SETS
from bert_secrets_jax.analyses.special_tokens import STATISTICS
from bert_secrets_jax.configs.ranges import numbers_in
from bert_secrets_jax.data.framenet import read_framenet, read_framenet_sample
from bert_secrets_jax.measure.catalogue import named
from bert_secrets_jax.probes.vectors import Vectors, read_vectors
from bert_secrets_jax.programs import inputs, needs, passes
from bert_secrets_jax.programs.calls import OF_NO_MATTER, Arguments, Binding, Call, Expression, kept
from bert_secrets_jax.programs.study import Study

# Probes learn little from fewer updates: a small treebank is read several times.
_UPDATES = 2000
_ABLATED = operator.attrgetter('subject_of_ablated')
_EMBEDDED_PAIRS = operator.attrgetter('subject_of_embedded_pairs')


def _on_texts(a: Arguments, analysis: str, **given: Any) -> Call:
    return a.analysis(analysis, 'pretrained', 'texts', **given)


def _on_trees(a: Arguments, analysis: str, **given: Any) -> Call:
    about = operator.attrgetter('treebank_subject')
    return a.analysis(analysis, 'pretrained', 'trees', 'dev_trees', subject=about, **given)


def special_tokens(a: Arguments) -> Call:
    return _on_texts(a, 'special_tokens', statistics=a.statistics)


def relations(a: Arguments) -> Call:
    return _on_texts(a, 'relations', annotated=True, draws=a['links.draws'], **a.seed)


def frames(a: Arguments) -> Call:
    sample, given = a['frames.sample'], ['pretrained']
    if sample == 'framenet':
        reading = {'reading': a['frames.reading'], 'per_unit': a['frames.per_unit'] or None}
        reading |= a.seed
        folder = a['frames.folder']
        framenet = Expression(
            a.call('read_framenet', repr(folder), **reading),
            lambda study: read_framenet(folder, **reading),
            lambda study: [study.input('frames'), reading],
        )
        given.append(framenet)
    elif sample:
        prepared = Expression(
            f'bs.read_framenet_sample({sample!r})',
            lambda study: read_framenet_sample(sample),
            lambda study: study.input('frames'),
        )
        given.append(prepared)
    return a.analysis(
        'frames',
        *given,
        subject=lambda study: study.frames_subject,
        draws=a['links.draws'],
        shown=a['maps.examples'],
        **a.seed,
    )


def finetune(a: Arguments) -> Call:
    names = {'pretrained': 'tuned', 'random': 'tuned_random'}
    models = [names[start] for start in a['train.starts']]
    texts = inputs.text_name(a.study.config.data, 'train')
    return a.analysis('finetuning', *models, train_texts=texts)


def patterns(a: Arguments) -> Call:
    path = a['patterns.classifier']
    classifier = Expression(
        f'bs.patterns.load_classifier({path!r})' if path else '',
        lambda study: study.classifier,
        lambda study: study.input('classifier'),
    )
    return _on_texts(a, 'patterns', classifier=classifier, **a.tuned)


def attention_change(a: Arguments) -> Call:
    given = {'readings': a['change.readings'], 'statistics': a.statistics}
    return a.analysis('attention_change', 'pretrained', 'tuned', 'texts', **given)


def where_it_changes(a: Arguments) -> Call:
    a.group('where_it_changes')
    named, start = a.study.schedules.items(), 'pretrained'
    tuned = Expression(
        f'{{{", ".join(f"{k!r}: {a.tuned_by(start, **own)}" for k, own in named)}}}',
        lambda study: {k: study.finetuned(start, **own) for k, own in named},
        lambda study: [study.finetuning_digest(start, **own) for _, own in named],
    )
    return a.analysis('where_it_changes', 'pretrained', tuned, 'texts', **a.seed)


def features(a: Arguments) -> Call:
    return _on_texts(a, 'features', annotated=True, **a.tuned)


def cls_tokens(a: Arguments) -> Call:
    return _on_texts(a, 'cls_tokens', title='[CLS]', annotated=True, **a.tuned)


def look_at(a: Arguments) -> Call:
    given = a.masking if a.study.has_own_loss else a.masking | a.tuned_already
    return a.analysis('look_at', a.with_own_head, 'texts', **given)


def cluster(a: Arguments) -> Call:
    return _on_texts(a, 'clusters', **a.seed)


def hypotheses(a: Arguments) -> Call:
    return _on_texts(a, 'hypotheses')


def syntax_heads(a: Arguments) -> Call:
    return _on_trees(a, 'syntax_heads', draws=a['links.draws'], **a.seed)


def across(a: Arguments) -> Call:
    subject = operator.attrgetter('subject_of_parallel')
    return a.analysis('across', 'pretrained', 'parallel', **a.seed, subject=subject)


def probe(a: Arguments) -> Call:
    path, trees = a['probe.vectors'], a.input('trees')
    given: dict[str, Any] = {
        'seeds': a['probe.num_seeds'],
        'epochs': a['probe.epochs'],
        'random_weights': a['probe.random_weights'],
        'cache_mb': a['probe.cache_mb'],
    }
    if not given['epochs']:
        given['epochs'] = Expression(
            f'-(-{_UPDATES} // len({trees.python}))',
            lambda study: -(-_UPDATES // len(study.train_trees)),
            lambda study: 'enough',
        )
    if path:
        both = f'(*{trees.python}, *{a.input("dev_trees").python})'
        words = f'{{word for each in {both} for word in each.forms}}'

        def load(study: Study) -> Vectors:
            words = [word for each in (*study.train_trees, *study.dev_trees) for word in each.forms]
            return read_vectors(path, words, bad_rows=study.config.data.bad_rows)

        python = f'bs.read_vectors({path!r}, {words})'
        given['vectors'] = Expression(python, load, lambda study: study.input('vectors'))
    return _on_trees(a, 'probing', title='probes', like=bs.ProbeConfig, **given)


def masked_lm(a: Arguments) -> Call:
    given = {'baseline': a['ablation.baseline'], **a.masking, **a.tuned_already, **a.seed}
    return a.analysis('masked_lm_ablation', a.with_own_head, 'texts', title='masked LM', **given)


def outliers(a: Arguments) -> Call:
    tuned = {}
    if not needs.classifier(a.study):
        as_it_is = a['ablation.checkpoint'] == 'model'
        tuned = {'tuned': a.model} if as_it_is else a.tuned_already
    # A score needs the labels of what is ablated.
    drawn = a.drawn('ablated' if tuned else 'texts', 'outliers.max_examples')
    given = {'draws': a['outliers.draws'], **tuned, **a.masking}
    if tuned:
        given['metrics'] = a.metrics
    return a.analysis('outliers', a.with_own_head, drawn, **given, **a.seed)


def ablate(a: Arguments) -> Call:
    given = _disabling(a) | {'subject': _ABLATED}
    if a['ablation.choose_examples']:
        given['choose_on'] = a.input('choosing')
    return a.analysis('ablation', a.model, 'ablated', **given, metrics=a.metrics, **a.seed)


def ablate_seeds(a: Arguments) -> Call:
    given = {**_disabling(a), 'metrics': a.metrics, 'subject': _ABLATED, **a.seed}
    return a.analysis('ablation_over_seeds', a.models, 'ablated', **given)


def _disabling(a: Arguments) -> dict[str, Any]:
    sets, heads = list(a['ablation.sets']), parse_heads(a['ablation.together'])
    masks: Any = sets[0] if len(sets) == 1 else tuple(sets)
    if heads:
        config = f'{a.input("pretrained").python}.config'
        ways = {name: f'bs.masks.{SETS[name].__name__}({config})' for name in sets}
        ways['together'] = f'bs.masks.disable({config}, [{heads}])'

        def load(study: Study) -> dict[str, np.ndarray]:
            config = study.pretrained.config
            return {name: SETS[name](config) for name in sets} | {
                'together': disable(config, [heads])
            }

        masks = Expression(
            f'{{{", ".join(f"{name!r}: {way}" for name, way in ways.items())}}}',
            load,
            lambda study: [sets, heads],
        )
    return {'masks': masks, 'baseline': a['ablation.baseline']}


def interactions(a: Arguments) -> Call:
    pairs = a['ablation.pairs_of']
    given = {
        'heads': None if pairs == 'all' else sorted(set(parse_heads(pairs))),
        'baseline': a['ablation.baseline'],
    }
    return a.analysis('interactions', a.model, 'ablated', **given, metric=a.metric, **a.seed)


def _scored(a: Arguments) -> dict[str, Any]:
    return {
        'measured_on': a.input('measured'),
        'permutations': a['importance.permutations'],
        'metric': a.metric,
        **a.seed,
    }


def importance(a: Arguments) -> Call:
    return a.analysis('importance', a.model, 'ablated', **_scored(a))


def prune(a: Arguments) -> Call:
    sizes = a['prune.batch_sizes']
    given = {
        'draws': a['prune.draws'],
        'tolerance': a['prune.tolerance'],
        'batch_sizes': numbers_in(sizes) if sizes else (),
    }
    return a.analysis('pruning', a.models, 'ablated', **given, **_scored(a))


def similarity(a: Arguments) -> Call:
    own = {} if a.study.has_pairs else {'subject': _EMBEDDED_PAIRS}
    given = {'baseline': a['ablation.baseline'], **a.seed, **own}
    return a.analysis('similarity', 'pretrained', 'pairs', **given)


def retrieval(a: Arguments) -> Call:
    search = a.input('search')
    parts = [
        dataclasses.replace(
            search, python=f'search[{at}]', load=lambda study, at=at: study.search[at]
        )
        for at in range(3)
    ]
    given = {'baseline': a['ablation.baseline'], **a.seed}
    subject = operator.attrgetter('subject_of_search')
    return a.analysis('retrieval', 'pretrained', *parts, **given, subject=subject)


def replacements(a: Arguments) -> Call:
    fit_on = a.drawn('train', 'replacements.max_examples')
    given = {'fit_on': fit_on, 'passes': a['replacements.passes'], **a.seed}
    return a.analysis('replacements', a.model, 'ablated', **given)


def subnetworks(a: Arguments) -> Call:
    defaults = inspect.signature(bs.FinetuneConfig).parameters
    training = {
        name: value
        for name, value in a.study.training.items()
        if value != defaults[name].default and f'train.{name}' not in OF_NO_MATTER
    }
    given = {
        'measured_on': a.input('measured'),
        'share': a['subnetworks.share'],
        'training': training or None,
    }
    return a.analysis('subnetworks', 'pretrained', 'tuned', 'train', 'ablated', **given)


def gates(a: Arguments) -> Call:
    of_training = {k: v for k, v in a.study.gate_settings.items() if k != 'max_length'}
    a.group('gates', without=['price'])
    given = {'metrics': a.metrics, **of_training, **a.seed, 'like': bs.GateConfig}
    return a.analysis('gates', a.model, 'train', 'ablated', **given)


def contributions(a: Arguments) -> Call:
    ablation = {'ablation': a.result('ablate')} if 'ablate' in a.results else {}
    return _on_texts(a, 'contributions', **ablation)


def attribution(a: Arguments) -> Call:
    drawn = a.drawn('ablated', 'attribution.max_examples')
    given = {'steps': a['attribution.steps'], **a.seed}
    return a.analysis('attribution', a.model, drawn, **given)


def direct_effects(a: Arguments) -> Call:
    return a.analysis('direct_effects', a.model, 'ablated', **a.seed)


def patching(a: Arguments) -> Call:
    given = {'of': a['patching.of'], 'most': a['patching.max_examples'], **a.seed}
    if not needs.classifier(a.study):
        return a.analysis('patching', a.model, 'ablated', **given, subject=_ABLATED)
    # An embedding is of one text.
    model, texts = a.input('pretrained'), a.input('texts')
    embedder = Expression(
        f'bs.with_pooling({model.python})',
        lambda study: bs.with_pooling(study.pretrained),
        lambda study: [model.digest(study), 'embedding'],
    )
    single = Expression(
        f'[each.text_a for each in {texts.python}]',
        lambda study: [each.text_a for each in study.texts],
        lambda study: [texts.digest(study), 'text_a'],
    )
    return a.analysis('patching', embedder, single, **given)


def head_gating(a: Arguments) -> Call:
    texts = a.drawn('train', 'head_gating.max_examples')
    first, settings = a['seed'], a.group('head_gating', without=['max_examples', 'num_seeds'])
    shared = ('batch_size', 'micro_batch', 'warmup', 'clip', 'optimizer')
    settings |= {name: a[f'train.{name}'] for name in shared}
    seeds = tuple(range(first, first + a['head_gating.num_seeds']))
    given = {'price': a['gates.price'], 'gate_learning_rate': a['gates.learning_rate'], **a.seed}
    given |= {'seeds': seeds, **settings, 'like': bs.GateConfig, 'subject': _ABLATED}
    return a.analysis('head_gating', a.model, texts, 'ablated', **given)


def minimal_pairs(a: Arguments) -> Call:
    file, label = a['minimal_pairs.file'], a['minimal_pairs.label']
    named = ('good', 'bad', 'phenomenon', 'anchor')
    columns = {name: a[f'minimal_pairs.{name}'] or None for name in named}
    pairs = Expression(
        a.call('read_pairs', repr(file), **columns, bad_rows=a['data.bad_rows']) if file else '',
        operator.attrgetter('minimal_pairs'),
        lambda study: study.input('minimal pairs'),
    )
    subject = operator.attrgetter('subject_of_minimal_pairs')
    given = {'pairs': pairs, 'label': label or None, 'baseline': a['ablation.baseline'], **a.seed}
    own = a.input('pretrained') if columns['anchor'] else a.with_own_head
    model = a.model if label else own
    return a.analysis('minimal_pairs', model, **given, subject=subject)


def token_pairs(a: Arguments) -> Call:
    own = {} if a.study.has_pairs else {'subject': _EMBEDDED_PAIRS}
    given = {name: a[f'token_pairs.{name}'] for name in ('max_examples', 'steps')}
    return a.analysis('token_pairs', 'pretrained', 'pairs', **given, **own)


def roles(a: Arguments) -> Call:
    known = ('syntax_heads', 'patterns', 'prune', 'gates')
    results = [a.result(each) for each in known if each in a.results]
    if 'syntax_heads' not in a.results and not needs.trees(a.study):
        results.append(_called(a, syntax_heads))
    given = {'results': a.listed(results)} if results else {}
    return a.analysis('roles', a.with_own_head, 'texts', **given, **a.seed)


def _called(a: Arguments, bind: Binding) -> Expression:
    """Return the result of a section that was not asked for, by its call."""
    call = bind(a)
    python = call.python(a, call.subject(a.study))
    return Expression(python, lambda study: kept(bind)(study, {}), call.key)


def maps(a: Arguments) -> Call:
    asked = 'special_tokens' in a.results
    result = a.result('special_tokens') if asked else _called(a, special_tokens)
    tables = Expression(
        f'{result.python}.tables',
        lambda study: passes.tables_before(study, [named(name) for name in STATISTICS]),
        lambda study: STATISTICS,
    )
    given = {'count': a['maps.examples'], **a.length, 'tables': tables, **a.tuned_already}
    return a.analysis('example_maps', 'pretrained', 'texts', title='maps', **given)


def claims(a: Arguments) -> Call:
    others = [each for each in a.results if each not in ('maps', 'claims')]
    return a.analysis('claims', *map(a.result, others))
