"""Settings of each family that `transformers` has: what is read computes what PyTorch computes."""

import functools
import json
import pathlib
import tempfile
import warnings

import hypothesis
import jax
import numpy as np
import pytest
from hypothesis import strategies as st

import bert_secrets_jax as bs
from bert_secrets_jax.model import config_json
from tests.conftest import RELATIVES, as_torch, random_inputs, relative
from tests.fuzz.broken import FOLDER, folder_of, logged, within_limits
from tests.fuzz.damage import broken, changed_value, dump, encoded, odd_values
from tests.model.conftest import in_pytorch, of_real_tokens

transformers = pytest.importorskip('transformers')
torch = pytest.importorskip('torch')

# Jina's second version, which `transformers` lacks, is read by code of its own.
FAMILIES = sorted(name for name, family in RELATIVES.items() if not family.code)
TINY = bs.BertConfig(
    vocab_size=60, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40,
    max_position_embeddings=32, label_names=('no', 'yes', 'perhaps'), initializer_range=0.3,
)  # fmt: skip
_ROPES = (
    {'rope_type': 'yarn', 'factor': 4.0}, {'rope_type': 'linear', 'factor': 2.0},
    {'type': 'dynamic', 'factor': 2.0}, {'rope_type': 'default', 'rope_theta': 77.0},
    {'rope_type': 'default', 'partial_rotary_factor': 0.5}, {'rope_theta': 77}, {},
)  # fmt: skip
_LAYERS = 'full_attention', 'sliding_attention'


class _NoTokenizer:
    """The tokenizer of a model of ids."""

    def save_pretrained(self, directory):
        """Write nothing."""


@functools.cache
def sample(model_type: str) -> dict[str, bytes]:
    """Return the files of a tiny random model."""
    with tempfile.TemporaryDirectory() as home, warnings.catch_warnings(action='ignore'):
        folder = pathlib.Path(home)
        in_pytorch(relative(TINY, model_type), folder, _NoTokenizer())
        return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(autouse=True, scope='module')
def samples():
    """Strategies make no files."""
    known_settings()


@functools.cache
def known_settings() -> dict[str, object]:
    """Return a value of each key that a config.json of some family has."""
    found = {}
    for model_type in FAMILIES:
        found |= transformers.AutoConfig.for_model(model_type).to_dict()
        found |= json.loads(sample(model_type)['config.json'])
    return {name: found[name] for name in sorted(found.keys() - {'model_type'})}


@st.composite
def settings(draw, model_type: str) -> bytes:
    """A config.json with another value, or with a key of another family or of another kind."""
    values, known = json.loads(sample(model_type)['config.json']), known_settings()
    how = draw(st.sampled_from(('changed', 'changed', 'more', 'more', 'rope')))
    if how == 'changed':
        return encoded(draw(changed_value(values)))
    if how == 'more':
        key = draw(st.sampled_from(sorted(known)))
        more = {key: draw(odd_values(known[key]) | st.just(known[key]) | st.none())}
    else:
        rope = draw(st.sampled_from(_ROPES))
        forms = rope, {each: rope for each in _LAYERS}, {_LAYERS[draw(st.booleans())]: rope}
        key = draw(st.sampled_from(('rope_parameters', 'rope_scaling')))
        more = {key: draw(st.sampled_from(forms))}
    return encoded(dump(values | more))


def outputs_here(inputs):
    model = bs.from_pretrained(FOLDER)
    # In pieces: each config would be a program of its own to compile.
    with jax.disable_jit():
        found = model.bert.apply({'params': model.params}, **inputs)
    return model.config, np.asarray(found.logits), np.asarray(found.attentions)


def outputs_there(config, inputs):
    with warnings.catch_warnings(action='ignore'), torch.no_grad():
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            FOLDER, attn_implementation='eager', local_files_only=True, dtype=torch.float32
        ).eval()
        found = model(**as_torch(config, inputs), output_attentions=True)
    return found.logits.numpy(), np.stack([each.numpy() for each in found.attentions], axis=1)


@broken(
    st.sampled_from(FAMILIES).flatmap(
        lambda name: st.tuples(st.just(name), st.deferred(lambda: settings(name)))
    )
)
def test_families(changed):
    model_type, content = changed
    files = sample(model_type) | {'config.json': content}
    inputs = random_inputs(TINY, lengths=(9, 5), length=9, seed=5)
    with folder_of(files), logged() as lines, within_limits():
        try:
            config, *found = outputs_here(inputs)
        except (ValueError, OSError) as error:
            assert 'config.json' in str(error) or FOLDER.name in str(error), repr(error)
            hypothesis.event('refused')
            return
        if any('config.json' in line for line in lines):
            hypothesis.event('told')
            return
        try:
            expected = outputs_there(config, inputs)
        except Exception as error:
            values, before = json.loads(content), json.loads(sample(model_type)['config.json'])
            unlike = {key for key in values | before if values.get(key, b'') != before.get(key)}
            # `transformers` refuses odd values of keys that no layer reads, whole numbers as bases,
            # and an ESM without a number of [PAD]. The number of classes we take from the weights.
            unread = {*config_json._IGNORED, *config.family.ignored, 'rope_theta', 'pad_token_id'}
            assert unlike & unread, f'`transformers` refuses {unlike}: {error!r}'
            hypothesis.event('refused there')
            return
    hypothesis.event('read')
    np.testing.assert_allclose(found[0], expected[0], atol=1e-4)
    np.testing.assert_allclose(*of_real_tokens(config, inputs, found[1], expected[1]), atol=1e-4)
