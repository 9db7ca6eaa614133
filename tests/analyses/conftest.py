"""A tiny model, texts of its vocabulary, and one result of every analysis."""

import dataclasses

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.data.annotation import Annotation, Link, Span
from tests.conftest import WORDS, random_params
from tests.probes.conftest import random_parses

_TEXTS = (
    ('the cat saw a dog and it ran .', 'she liked the small bird .'),
    ('he chased a big red house .', 'the bird saw it and he ran .'),
    ('a friend liked the teacher .', 'she never saw a new dog .'),
    ('the old teacher chased it .', 'a cat liked the house and she ran .'),
)

_PAIRS = [
    bs.MinimalPair(f'{first} {good} {last}', f'{first} {bad} {last}', phenomenon)
    for phenomenon, good, bad in (
        ('one', 'saw', 'red'),
        ('two', 'he', 'sleeping'),
        ('three', 'the', 'ran'),
    )
    for first, last in (('the cat', 'a dog .'), ('she', 'it'), ('a new friend', 'the house .'))
]
_PLAIN = bs.analyses.TextSettings(max_length=32)


@pytest.fixture(scope='package')
def texts():
    """Twenty-four labelled pairs, with something of every feature."""
    rng = np.random.default_rng(0)
    words = [word for word in WORDS if word.isalpha()]
    return [
        bs.Example(f'{first[:-1]}{rng.choice(words)} .', second, row % 3 % 2, f'own/{row}')
        for row, (first, second) in enumerate(_TEXTS * 6)
    ]


@pytest.fixture(scope='package')
def annotations(texts):
    """Return for each text its second word as noun and pronoun, and a link between two words."""

    def word(text, index, which):
        words = text.split()
        start = len(' '.join(words[:index])) + (index > 0)
        return Span(start, start + len(words[index]), which)

    found = []
    for example in texts:
        one, two = word(example.text_a, 1, 0), word(example.text_a, 4, 0)
        other = word(example.text_b, 1, 1)
        features = {name: (one,) for name in ('noun', 'verb', 'pronoun', 'subject', 'object')}
        features |= {name: (other,) for name in ('negation', 'negation_word', 'negation_substring')}
        features['punctuation'] = (two,)
        links = {name: (Link((two,), (one,)),) for name in ('verb-subject', 'verb-nsubj')}
        links['noun-pronoun'] = (Link((one,), (other,)),)
        found.append(Annotation(features, links))
    return found


@pytest.fixture(scope='package')
def settings(annotations):
    return bs.analyses.TextSettings(max_length=32, annotations=annotations)


@pytest.fixture(scope='package')
def masked_lm(model):
    """The same model with a head that predicts wordpieces."""
    bert = bs.Bert(dataclasses.replace(model.config, head='masked_lm'))
    return bs.Pretrained(bert, random_params(bert) | model.params, model.tokenizer)


def with_outliers(model, dimensions, seed=0):
    """Return a model whose output LayerNorm is noise, with outliers in these dimensions."""
    rng = np.random.default_rng(seed)
    norm = {}
    for name, leaf in model.params['layers']['output_norm'].items():
        noise = 0.05 * rng.normal(size=leaf.shape).astype(np.float32)
        noise[:, dimensions] = 1
        norm[name] = np.asarray(leaf) + noise
    layers = model.params['layers'] | {'output_norm': norm}
    return dataclasses.replace(model, params=model.params | {'layers': layers})


def flat_table(mean):
    """Return a table of ten examples that are all alike."""
    mean = np.asarray(mean, float)
    return bs.HeadTable(mean, np.zeros_like(mean), 10.0)


def with_attention(model, change):
    """Return a model whose parameters of attention a function changes in their place."""
    attention = jax.tree.map(np.array, dict(model.params['layers']['attention']))
    change(attention)
    layers = model.params['layers'] | {'attention': attention}
    return dataclasses.replace(model, params=model.params | {'layers': layers})


@pytest.fixture(scope='package')
def tuned(model, texts):
    """Two seeds, which learn nothing in three steps, the first of which only warms up."""
    return bs.finetune(
        model, texts, texts, seeds=2, epochs=1, batch_size=8, learning_rate=1e-3, warmup=0.4,
        max_length=32,
    )  # fmt: skip


def _first_state(output):
    return output.hidden_states[:, -1, 0, 0]


@pytest.fixture(scope='package')
def results(model, masked_lm, tuned, texts, settings):
    """Name of an analysis to its result."""
    of, compute, few = bs.analyses, bs.Compute(), texts[:12]
    subject = {'subject': of.Subject('tiny', 'own texts', 'mrpc')}
    common, swept = subject | {'settings': settings}, subject | {'compute': compute}
    annotated, masks = (texts, settings.annotations), ('heads', 'layers', 'one_head_left')
    found = {
        'special_tokens': of.special_tokens(model, texts, **common),
        'features': of.features(model, texts, tuned=tuned, **common),
        'cls_tokens': of.cls_tokens(model, texts, tuned=tuned, **common),
        'relations': of.relations(model, texts, draws=99, **common),
        'frames': of.frames(model, annotated, draws=99, shown=2, **common),
        'patterns': of.patterns(model, texts, tuned=tuned, **common),
        'attention_change': of.attention_change(model, tuned, texts, **common),
        'where_it_changes': of.where_it_changes(
            model, {'usual': tuned, 'again': tuned}, texts, draws=1, **swept
        ),
        'finetuning': of.finetuning(tuned, **subject),
        'ablation': of.ablation(tuned, texts, masks=masks, **swept),
        'ablation_over_seeds': of.ablation_over_seeds(tuned, texts, masks=masks, **swept),
        'interactions': of.interactions(tuned, texts, heads=[(0, 0), (1, 2), (2, 3)], **swept),
    }
    found['gates'] = of.gates(
        tuned, texts, texts, coefficients=(0.0, 0.05), seeds=2, epochs=2, batch_size=8,
        gate_learning_rate=1.0, max_length=32, **subject,
    )  # fmt: skip
    found['head_gating'] = of.head_gating(
        tuned, texts, texts, price=0.05, seeds=2, epochs=2, batch_size=8, gate_learning_rate=1.0,
        **swept,
    )  # fmt: skip
    found['minimal_pairs'] = of.minimal_pairs(masked_lm, _PAIRS, permutations=20, **swept)
    found['example_maps'] = of.example_maps(
        model, texts, tuned=tuned, count=2, max_length=32,
        tables=found['special_tokens'].tables, **subject,
    )  # fmt: skip
    found['masked_lm_ablation'] = of.masked_lm_ablation(masked_lm, texts, tuned=tuned, **swept)
    found['syntax_heads'] = of.syntax_heads(model, annotated, annotated, draws=9, **common)
    trees = {name: random_parses(seed, 48) for seed, name in enumerate(('one', 'two'))}
    found['across'] = of.across(model, trees, resamples=9, **common)
    found['clusters'] = of.clusters(model, texts, **common)
    found['hypotheses'] = of.hypotheses(model, texts, **common)
    found['matching'] = of.matching(model, masked_lm, texts, **common)
    found['look_at'] = of.look_at(masked_lm, texts, **common)
    found['probing'] = of.probing(
        model, random_parses(0, 20), random_parses(1, 24), seeds=2, max_length=32, **subject
    )
    planted = with_outliers(masked_lm, [5])
    found['outliers'] = of.outliers(planted, texts, tuned=tuned, draws=19, **swept)
    found['importance'] = of.importance(tuned, texts, measured_on=few, permutations=20, **swept)
    found['pruning'] = of.pruning(
        tuned, texts, measured_on=few, draws=2, shares=(0, 0.5, 0.75), **swept
    )
    found['subnetworks'] = of.subnetworks(
        model, tuned, texts, texts, measured_on=few,
        training={'epochs': 1, 'batch_size': 8, 'learning_rate': 1e-3}, **swept,
    )  # fmt: skip
    found['contributions'] = of.contributions(model, texts, ablation=found['ablation'], **common)
    methods = ('random', 'rollout', 'DecompX', 'gradient x input')
    embedder, kinds = bs.with_pooling(model, 'mean'), ['one', 'two'] * 12
    scores = np.arange(24) % 5 / 4
    found['similarity'] = of.similarity(embedder, texts, gold=scores, kinds=kinds, **swept)
    queries, documents = zip(*(each.texts for each in texts), strict=True)
    found['retrieval'] = of.retrieval(embedder, queries, documents, **swept)
    found['attribution'] = of.attribution(tuned, texts, methods=methods, **swept)
    found['patching'] = of.patching(
        model, texts[:8], texts[8:16], metric=_first_state, steps=1, **swept
    )
    found['direct_effects'] = of.direct_effects(tuned, texts, **swept)
    found['token_pairs'] = of.token_pairs(
        model, texts, steps=2, pooling='mean', max_examples=3, **swept
    )
    others = [found[name] for name in ('syntax_heads', 'patterns', 'pruning')]
    found['roles'] = of.roles(model, texts, results=others, **common)
    found['claims'] = of.claims(*found.values(), **subject)
    own = of.special_tokens(model, few, settings=_PLAIN, **subject)
    found['comparison'] = of.comparison(
        {'MRPC': list(found.values()), 'own': [own]}, missing={'own': ['patterns']}
    )
    return found
