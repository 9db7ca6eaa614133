"""Calls of public functions with arguments of a wrong kind: one line names the argument."""

import dataclasses
import inspect
import math
import pickle

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.arguments import check

_MASKS = (
    'check_masks', 'describe', 'disable', 'one_head_left', 'pairs', 'parse_heads', 'random_sets',
    'single_heads', 'with_intact',
)  # fmt: skip
_TESTS = 'assess', 'benjamini_hochberg', 'holm', 'mcnemar', 'randomization_test', 'unseen_change'
_FUNCTIONS = {
    f'{home.__name__}.{name}': getattr(home, name)
    for home, names in (
        (bs, bs.__all__),
        (bs.analyses, bs.analyses.__all__),
        (bs.masks, _MASKS),
        (bs.significance, _TESTS),
        (bs.links, ('offset_baseline', 'offset_histogram', 'turned')),
    )
    for name in names
}
# Kinds of which no argument that is annotated may be, and numbers out of all ranges.
_WRONG = (object(), b'x', math.nan, 10**30, 'a\0b', [object()], 1j)


@pytest.mark.parametrize('name', [n for n, each in _FUNCTIONS.items() if inspect.isfunction(each)])
def test_wrong_kinds_are_refused_by_name(name):
    signature, refused = inspect.signature(_FUNCTIONS[name]), 0
    assert hasattr(_FUNCTIONS[name], '__wrapped__')
    for argument in signature.parameters.values():
        for value in _WRONG:
            try:
                check(argument.name, value, argument.annotation)
            except (ValueError, TypeError) as error:
                refused += 1
                assert str(error).startswith(f'{argument.name}=') and '\n' not in str(error)
    plain = [each for each in signature.parameters.values() if each.annotation in (int, bool, str)]
    assert refused >= 5 * len(plain)
    # Other processes get it by its name.
    assert pickle.loads(pickle.dumps(_FUNCTIONS[name])) is _FUNCTIONS[name]


def test_lists_are_arrays(model):
    """Each function has arguments that are arrays; no function of `bs` is left without a check."""
    heads = np.arange(12).reshape(1, 3, 4) % 5 / 4
    two = np.array([[1, 0, 1, 1], [0, 0, 1, 1]])
    given = {
        bs.significance.assess: ('accuracy', two, two[0], two[1]),
        bs.significance.benjamini_hochberg: ([0.01, 0.04],),
        bs.significance.holm: ([0.01, 0.04],),
        bs.significance.mcnemar: (two, two[0], two[1]),
        bs.significance.randomization_test: ('f1', two, two[0], two[1]),
        bs.significance.unseen_change: ('accuracy', two[0], two[1]),
        bs.masks.check_masks: (model.config, heads),
        bs.masks.describe: (heads[0],),
        bs.masks.with_intact: (heads,),
        bs.links.offset_baseline: ([[[1, 2, 0], [2, 2, 1]]],),
        bs.links.offset_histogram: ([[[1, 2, 0], [2, 2, 1]]],),
        bs.links.turned: ([[1, 2, 0]],),
    }
    for function, arguments in given.items():
        arrays = [np.asarray(each) if isinstance(each, list) else each for each in arguments]
        lists = [each.tolist() if isinstance(each, np.ndarray) else each for each in arrays]
        np.testing.assert_equal(vars_of(function(*lists)), vars_of(function(*arrays)))
    homes = bs.masks, bs.significance, bs.links
    public = [each for home in homes for each in vars(home).values() if inspect.isfunction(each)]
    for each in public:
        if getattr(each, '__module__', '') in {home.__name__ for home in homes}:
            kinds = getattr(each, '__annotations__', {}).items()
            own = [kind for name, kind in kinds if hasattr(kind, 'dims') and name != 'return']
            assert each in given or not own or each.__name__.startswith('_'), each


def vars_of(found):
    return vars(found) if dataclasses.is_dataclass(found) else found


@pytest.mark.parametrize(
    ('call', 'named'),
    [
        (lambda bs, m: bs.significance.holm(['a']), r"p_values=\['a'\] must be an array"),
        (lambda bs, m: bs.encode(m.tokenizer, ['a b'], max_length=math.nan), 'max_length=nan must'),
        (lambda bs, m: bs.from_pretrained('x', seed=-1), 'seed=-1 must be a whole number from 0'),
        (lambda bs, m: bs.from_pretrained(''), "name='' must be"),
        (lambda bs, m: bs.masks.disable(m.config, 1.5), 'sets=1.5 must be a list'),
        (lambda bs, m: bs.read_table('x.csv', text_a='a', labels=[0, None]), r'labels=\[0, None\]'),
        (lambda bs, m: bs.analyses.across({'a': m.bert}, {}), "pretrained={'a': Bert"),
        (
            lambda bs, m: bs.collect(m, [None], ['[SEP]']),
            r'batches=\[None\] must be a list of Batch',
        ),
        (
            lambda bs, m: bs.collect(m, bs.encode(m.tokenizer, ['the cat'])[0], ['[SEP]']),
            r'batches=Batch.* Batches are several, as bs.encode\(.*\[batch\] for a single one',
        ),
        (
            lambda bs, m: bs.sweep(m, 'a b', bs.masks.single_heads(m.config)),
            "batches='a b' must be a list of Batch: .* makes them from texts",
        ),
        (lambda bs, m: bs.read_table('x.csv', text_a='a', columns='a'), "columns='a' must be a"),
        (lambda bs, m: bs.read_table('x.csv', text_a='a', labels='no'), "labels='no' must be a"),
        (lambda bs, m: bs.masks.random_sets(m.config, size=1, count=0, seed=0), 'count=0 must be'),
        (lambda bs, m: bs.paired_tokens(m, [('a', 'b')], steps=0), 'steps=0 must be .* from 1'),
    ],
)
def test_errors_say_what_is_needed(model, call, named):
    with pytest.raises((ValueError, TypeError), match=f'^{named}'):
        call(bs, model)
