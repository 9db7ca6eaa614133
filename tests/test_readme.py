"""What the README shows in Python runs as it stands there."""

import re
import subprocess
import sys

from tests.conftest import ROOT


def test_the_examples_run(optimized, capsys):
    blocks = re.findall(r'```python\n(.*?)```', (ROOT / 'README.md').read_text('utf-8'), re.DOTALL)
    assert len(blocks) >= 2
    # As a reader would, one after the other.
    names = {}
    for block in blocks:
        exec(compile(block, 'README.md', 'exec'), names)
    assert '(6, 12)' in str(names['tables']['sep'].mean.shape)
    batch, layers, heads, *_ = names['output'].attentions.shape
    assert (layers, heads) == (6, 12)
    assert f'({batch}, 6, 12, ' in capsys.readouterr().out
    assert names['maps'][0].tokens[0] == '[CLS]'


def test_mistakes_in_python_are_named():
    """In a process of its own: the types that the tests check here are not checked for users."""
    code = """
import numpy as np, bert_secrets_jax as bs
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.model.bert import Bert, init_params
from bert_secrets_jax.report import figures
sizes = dict(hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
bert = Bert(bs.BertConfig(vocab_size=9, max_position_embeddings=8, label_names=('a',), **sizes))
params = init_params(bert, 0)
model = bs.Pretrained(bert, params, None)
maps = bs.TokenMaps(['a', 'b'], np.full((1, 1, 2, 2), 0.5))
ids = np.ones((1, 3), np.int32)
here = np.ones((1, 3), bool)
batch = bs.Batch(ids, 0 * ids, ids, {'token': here, 'cls': here}, np.array([0]))
of = {'verb': bs.statistics.attention_to('verb')}
for wrong in (
    lambda: tokenize(model, [bs.Example('The cat', None, None, '')]),
    lambda: tokenize(type('', (), {'num_special_tokens_to_add': 0}), ['The cat']),
    lambda: bs.collect(model, params, [batch], of),
    lambda: bs.collect(bert, params, batch, of),
    lambda: bs.collect(bert, params, [batch], list(of)),
    lambda: bs.collect(bert, params, [batch], of),
    lambda: bs.collect(bert, params, [batch], {'mine': lambda maps, marks: maps.mean()}),
    lambda: bs.sweep(model, params, [batch], np.ones((1, 1, 1))),
    lambda: bs.sweep(bert, params, batch, np.ones((1, 1, 1))),
    lambda: bs.masks.single_heads(bert),
    lambda: bs.masks.disable(bert.config, [(0, 1)]),
    lambda: bs.Explorer([maps]),
    lambda: bs.Explorer({'it': maps}),
    lambda: bs.to_bertviz([maps]),
    lambda: bs.to_frame({'sep': np.eye(2)}),
    lambda: figures.head_maps({'L1-H1': maps.attentions}, maps.tokens),
):
    try:
        wrong()
    except (TypeError, ValueError) as error:
        print(error)
"""
    result = subprocess.run(
        [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    beginnings = (
        'Pretrained is no tokenizer: what `from_pretrained` returns has one',
        'Examples are bs.Example(',
        'Pretrained is not the model: give .bert and .params',
        'Batches are several',
        "Statistics have names: {'sep'",
        "These batches have no marks 'verb', but cls, token: what words are",
        "Statistic 'mine' must return two things",
        'Pretrained is not the model',
        'Batches are several',
        'Masks are made for a config, such as bert.config',
        'Each set is a list of (layer, head): [[(0, 1)]]',
        "An explorer takes maps by the name of their model: {'MiniLM': maps}",
        'An explorer takes a list of maps for each model',
        'bertviz shows one example',
        'Tables come by name, as `collect` returns them',
        "The map 'L1-H1' must be [T, T] of 2 tokens, got [1, 1, 2, 2]",
    )
    said = result.stdout.splitlines()
    for line, beginning in zip(said, beginnings, strict=True):
        assert line.startswith(beginning), line
