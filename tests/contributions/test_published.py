"""Published mixing ratios that public checkpoints must give: needs the hub, or its cache."""

import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.contributions.norms import MIXING, mixing_ratios, over_tokens
from bert_secrets_jax.measure.stream import stream
from tests.conftest import published_model


@pytest.mark.network
@pytest.mark.usefixtures('optimized')
@pytest.mark.parametrize('name', ['bert-base-uncased', 'roberta-base'])
def test_how_much_of_a_token_comes_from_others(name):
    """Kobayashi et al. 2021: on other running text than theirs, to within three points."""
    model = published_model(name)
    texts = bs.read_segments(None, model.tokenizer)[:60]
    batches = bs.encode(model.tokenizer, texts, max_length=128)
    table = stream((model,), batches, {'mixing': over_tokens}, maps_of=mixing_ratios)['mixing']
    found = dict(zip(MIXING, table.mean.mean(axis=0), strict=True))
    assert found == pytest.approx(bs.paper.mixing_ratios()[name], abs=0.03)
    # By weights, little depends on the texts.
    assert found['weights'] == pytest.approx(bs.paper.mixing_ratios()[name]['weights'], abs=0.01)
