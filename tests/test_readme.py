"""What the README shows in Python runs as it stands there."""

import re

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
