"""Calls of public functions with arguments of a wrong kind: one line names the argument."""

import inspect
import math
import pickle

import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.arguments import check

_MASKS = 'disable', 'one_head_left', 'pairs', 'parse_heads', 'random_sets', 'single_heads'
_TESTS = 'assess', 'benjamini_hochberg', 'holm', 'mcnemar', 'randomization_test', 'unseen_change'
_FUNCTIONS = {
    f'{home.__name__}.{name}': getattr(home, name)
    for home, names in (
        (bs, bs.__all__),
        (bs.analyses, bs.analyses.__all__),
        (bs.masks, _MASKS),
        (bs.significance, _TESTS),
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


@pytest.mark.parametrize(
    ('call', 'named'),
    [
        (lambda bs, m: bs.encode(m.tokenizer, ['a b'], max_length=math.nan), 'max_length=nan must'),
        (lambda bs, m: bs.encode(m.tokenizer, ['a b'], batch_multiple=math.inf), 'batch_multiple='),
        (lambda bs, m: bs.from_pretrained('x', seed=-1), 'seed=-1 must be a whole number from 0'),
        (lambda bs, m: bs.from_pretrained(None), 'name=None must be a text or a path'),
        (lambda bs, m: bs.from_pretrained(''), "name='' must be"),
        (lambda bs, m: bs.masks.parse_heads([]), r'text=\[\] must be a text'),
        (lambda bs, m: bs.masks.disable(1.5, [[(0, 1)]]), r'config=1.5 must be a bs.BertConfig'),
        (lambda bs, m: bs.masks.disable(m.config, 1.5), 'sets=1.5 must be a list'),
        (lambda bs, m: bs.masks.random_sets(m.config, size=2, count=1, seed=-1), 'seed=-1'),
        (lambda bs, m: bs.read_table('x.csv', text_a='a', labels=[0, None]), r'labels=\[0, None\]'),
        (lambda bs, m: bs.from_pretrained('x', label_names='ab'), "label_names='ab' must be"),
        (lambda bs, m: bs.collect(m.bert, [], ['[SEP]']), 'pretrained=.* must be a bs.Pretrained'),
        (lambda bs, m: bs.analyses.across({'a': m.bert}, {}), "pretrained={'a': Bert"),
        (lambda bs, m: bs.analyses.hypotheses(m, [], tuned={3: 5}), 'tuned={3: 5} must be a dict'),
        (
            lambda bs, m: bs.collect(m, [None], ['[SEP]']),
            r'batches=\[None\] must be a list of Batch',
        ),
    ],
)
def test_errors_say_what_is_needed(model, call, named):
    with pytest.raises((ValueError, TypeError), match=f'^{named}'):
        call(bs, model)
