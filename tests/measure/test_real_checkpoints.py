"""Statistics of real models on real MRPC equal a plain PyTorch computation."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from tests.conftest import REAL_DATA, real_checkpoint
from tests.measure.test_collect import STATISTICS, written_out

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')


def plain_pytorch(directory, examples):
    """One sentence pair at a time, no padding, formulas written out: means [L, N] by statistic."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.BertModel.from_pretrained(
        directory, attn_implementation='eager', dtype=torch.float32, add_pooling_layer=False
    ).eval()
    found = []
    for example in examples:
        encoded = tokenizer(
            example.text_a, example.text_b, truncation='longest_first', max_length=128,
            return_tensors='pt',
        )  # fmt: skip
        with torch.no_grad():
            attentions = model(**encoded, output_attentions=True).attentions
        maps = torch.stack(attentions)[:, 0].double().numpy()
        found.append(written_out(maps, encoded['input_ids'][0].numpy() == tokenizer.sep_token_id))
    return {name: np.mean([each[name] for each in found], axis=0) for name in STATISTICS}


@pytest.mark.slow
@pytest.mark.usefixtures('optimized')
@pytest.mark.skipif(
    not (REAL_DATA / 'glue' / 'MRPC' / 'dev.tsv').exists(),
    reason='needs MRPC; set BERT_SECRETS_DATA to a folder with glue/MRPC/dev.tsv',
)
@pytest.mark.parametrize('name', ['all-MiniLM-L6-v2', 'gte-small'])
def test_mrpc_dev_equals_pytorch(name):
    directory = real_checkpoint(name)
    examples = bs.read_glue(REAL_DATA / 'glue', bs.get_task('mrpc'))
    model = bs.from_pretrained(directory)
    batches = bs.encode(model.tokenizer, examples)
    tables = bs.collect(model, batches, STATISTICS)
    expected = plain_pytorch(directory, examples)
    for statistic, table in tables.items():
        assert table.count == 408
        np.testing.assert_allclose(
            table.mean, expected[statistic], atol=1e-5, rtol=1e-5, err_msg=statistic
        )
