"""The README's example runs, and mistakes in Python are named."""

import re

import numpy as np
import pytest

import bert_secrets_jax as bs
from tests.conftest import ROOT


@pytest.mark.slow
def test_the_example_runs(optimized, capsys):
    text = (ROOT / 'README.md').read_text('utf-8')
    (block,) = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    names = {}
    exec(compile(block, 'README.md', 'exec'), names)
    assert names['tables']['[SEP]'].mean.shape == (6, 12)
    batch, layers, heads, *_ = names['output'].attentions.shape
    assert (layers, heads) == (6, 12)
    said = capsys.readouterr().out
    assert f'({batch}, 6, 12, ' in said and 'entropy (nats)' in said
    assert 'Attention to [SEP] is greatest in layer' in said


@pytest.mark.parametrize(
    ('wrong', 'message'),
    [
        (
            lambda model, maps: bs.sweep(
                model, bs.encode(model.tokenizer, ['The cat']), np.ones((1, 2, 1))
            ),
            r'masks must be \[masks, layers, heads\] = \[M, 3, 4\]',
        ),
        (lambda model, maps: bs.masks.single_heads(model), 'Masks are made for a config, such as'),
        (
            lambda model, maps: bs.masks.disable(model.config, [(0, 1)]),
            r'Each set is a list of \(layer, head\): \[\[\(0, 1\)\]\]',
        ),
        (
            lambda model, maps: bs.analyses.ablation(model.bert, [bs.Example('The cat', label=0)]),
            'Bert is not a model: give what `bs.from_pretrained` or `bs.finetune` returns.',
        ),
        (
            lambda model, maps: bs.analyses.ablation(model, [bs.Example('The cat')]),
            'text/0 has no label: labelled texts are needed.',
        ),
        (
            lambda model, maps: bs.analyses.claims(maps),
            'TokenMaps is not a result: give what functions of `bs.analyses` return.',
        ),
        (
            lambda model, maps: bs.Explorer([maps]),
            'An explorer takes maps by the name of their mod',
        ),
        (
            lambda model, maps: bs.Explorer({'it': maps}),
            'An explorer takes a list of maps for each',
        ),
        (lambda model, maps: bs.to_bertviz([maps]), 'bertviz shows one example'),
        (
            lambda model, maps: bs.plots.head_maps({'L1-H1': maps.attentions}, maps.tokens),
            r"The map 'L1-H1' must be \[T, T\] of 2 tokens, got \[1, 1, 2, 2\]",
        ),
    ],
)
def test_mistakes_in_python_are_named(pretrained, untyped, wrong, message):
    maps = bs.TokenMaps(['a', 'b'], np.full((1, 1, 2, 2), 0.5))
    with pytest.raises((TypeError, ValueError), match=f'^{message}'):
        wrong(pretrained, maps)
