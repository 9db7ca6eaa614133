"""Statistics of real models on real MRPC equal a plain PyTorch computation."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from tests.conftest import REAL_DATA, real_checkpoint

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

STATISTICS = {
    'cls': bs.statistics.to_cls,
    'sep': bs.statistics.to_sep,
    'special': bs.statistics.to_special,
    'previous': bs.statistics.to_previous,
    'next': bs.statistics.to_next,
    'self': bs.statistics.to_self,
    'entropy': bs.statistics.entropy,
}


def plain_pytorch(directory, examples):
    """One sentence pair at a time, no padding, formulas written out: means [L, N] by statistic."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.BertModel.from_pretrained(
        directory, attn_implementation='eager', dtype=torch.float32, add_pooling_layer=False
    ).eval()
    totals = dict.fromkeys(STATISTICS, 0)
    for example in examples:
        encoded = tokenizer(
            example.text_a, example.text_b, truncation='longest_first', max_length=128,
            return_tensors='pt',
        )  # fmt: skip
        with torch.no_grad():
            attentions = model(**encoded, output_attentions=True).attentions
        maps = torch.stack(attentions)[:, 0].double()
        received = maps.mean(dim=2)
        separators = encoded['input_ids'][0] == tokenizer.sep_token_id
        length = maps.shape[-1]
        along = lambda offset, maps=maps, length=length: (
            maps.diagonal(offset, dim1=2, dim2=3).sum(-1) / length
        )
        totals['cls'] = totals['cls'] + received[:, :, 0]
        totals['sep'] = totals['sep'] + received[:, :, separators].amax(dim=2)
        totals['special'] = (
            totals['special'] + received[:, :, 0] + received[:, :, separators].sum(dim=2)
        )
        totals['previous'] = totals['previous'] + along(-1)
        totals['next'] = totals['next'] + along(1)
        totals['self'] = totals['self'] + along(0)
        totals['entropy'] = totals['entropy'] + torch.special.entr(maps).sum(-1).mean(-1)
    return {name: (total / len(examples)).numpy() for name, total in totals.items()}


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
