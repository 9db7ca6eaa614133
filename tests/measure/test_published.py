"""Published numbers that a public checkpoint must give: needs the hub, or its cache."""

import pytest

import bert_secrets_jax as bs
from tests.conftest import REAL_DATA, published_model

SAMPLE = REAL_DATA / 'framenet' / 'framenet_473.jsonl'


@pytest.mark.network
@pytest.mark.skipif(not SAMPLE.exists(), reason=f'{SAMPLE} is not there')
def test_bert_base_has_the_two_heads_of_figure_3():
    """Section 4.2: L1-H2 0.201 and L7-H6 0.209, in the reading of the authors' notebook."""
    model = published_model('bert-base-uncased')
    examples, annotations = bs.read_framenet_sample(SAMPLE)
    batches = bs.encode(model.tokenizer, examples, annotations=annotations, max_length=32)
    along = bs.catalogue.relation('frame element-target', reading='notebook')
    table = bs.collect(model, batches, [along])[along.name]
    assert table.count == 473
    assert table.mean[0, 1] == pytest.approx(0.201, abs=0.002)
    assert table.mean[6, 5] == pytest.approx(0.209, abs=0.002)
    assert sorted(table.mean.ravel())[-2:] == sorted([table.mean[0, 1], table.mean[6, 5]])


@pytest.mark.network
@pytest.mark.parametrize('name', ['bert-base-uncased', 'roberta-base'])
def test_published_outlier_dimensions_are_found(name):
    """Kovaleva et al. 2021: among the dimensions that stand out in most layers."""
    model = published_model(name)
    found = bs.find_outliers(model)
    assert set(bs.paper.outlier_dimensions(name)) <= set(found.dimensions.tolist())
    # They are a handful of 768.
    assert len(found.dimensions) <= 12
