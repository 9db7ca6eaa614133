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


def test_mistakes_with_examples_and_maps_are_named():
    """In a process of its own: the types that the tests check here are not checked for users."""
    code = """
import numpy as np, bert_secrets_jax as bs
from bert_secrets_jax.data.encoding import tokenize
maps = bs.TokenMaps(['a', 'b'], np.full((1, 1, 2, 2), 0.5))
for wrong in (lambda: tokenize(None, ['The cat']), lambda: bs.Explorer({'it': maps}),
              lambda: bs.to_bertviz([maps])):
    try:
        wrong()
    except TypeError as error:
        print(error)
"""
    result = subprocess.run(
        [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    said = result.stdout.splitlines()
    assert [line.split()[0] for line in said] == ['Examples', 'An', 'bertviz']
