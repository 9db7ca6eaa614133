"""Norms of what heads give to tokens: beside weights alone, and beside PyTorch.

    python -m benchmarks.norms --model=all-MiniLM-L6-v2
    python -m benchmarks.norms --model=... --glue_dir=...

'norms' and 'weights' measure the same statistics in one pass each (`bs.collect`), of norms as
shares of their rows and of attention. 'all' computes everything of Kobayashi et al. (2020, 2021)
for each pair of tokens: norms of heads, norms over heads, with the residual, with LayerNorm, and
mixing ratios. PyTorch computes the same, one example at a time, in the way of the published code:
from the vectors of all pairs of tokens and all heads, [N, T, S, D]. Runs are interleaved and the
medians compared, because the machine may be noisy.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks.timing import interleaved, print_table
from bert_secrets_jax.contributions import norms
from bert_secrets_jax.contributions.layers import each_layer
from bert_secrets_jax.model import hub

_MODEL = flags.DEFINE_string('model', 'all-MiniLM-L6-v2', 'Directory, or name on the hub.')
_GLUE_DIR = flags.DEFINE_string('glue_dir', None, 'GLUE with MRPC; the embedded corpus without.')
_EXAMPLES = flags.DEFINE_integer('examples', 16, 'How many examples.')
_REPEATS = flags.DEFINE_integer('repeats', 5, 'Interleaved runs of each.')

STATISTICS = ['[CLS]', 'all [SEP]', 'period or comma', 'self', 'previous token', 'next token']


def all_of_batch(bert, params, batch: bs.Batch) -> list[jax.Array]:
    """Return means over the pairs of tokens, or the tokens, of each example: [B, L], [B, L, N]."""
    token = jnp.asarray(batch.attention_mask, jnp.float32)
    pairs = token[:, :, None] * token[:, None, :]

    def of_layer(of_params, attended):
        norm = norms.norm_map(of_params['attention_norm'])
        of_pairs = [
            norms.pair_norms(attended),
            norms.pair_norms(attended, residual=True),
            norms.pair_norms(attended, norm, residual=True) / deviation(attended)[:, :, None],
        ]
        of_heads = norms.head_norms(attended) * pairs[:, None]
        mixing = norms.mixing(bert, of_params, attended) * token[..., None]
        return [
            of_heads.sum(axis=(2, 3)) / pairs.sum(axis=(1, 2))[:, None],
            *((each * pairs).sum(axis=(1, 2)) / pairs.sum(axis=(1, 2)) for each in of_pairs),
            mixing.sum(axis=1) / token.sum(axis=1)[:, None],
        ]

    def deviation(attended):
        return jnp.sqrt(attended.residual.var(axis=-1) + bert.config.layer_norm_eps)

    output = bert.apply({'params': params}, **batch.inputs)
    return each_layer(of_layer, bert, params, output)


def in_pytorch(model, batches: list[bs.Batch]) -> list[np.ndarray]:
    """Return the same of all examples, in the order of the batches."""
    rows = []
    for batch in batches:
        for row in np.flatnonzero(batch.example >= 0):
            length = int(batch.lengths[row])
            inputs = {
                name: torch.from_numpy(each[row : row + 1, :length]).long()
                for name, each in batch.inputs.items()
            }
            rows.append(_of_example(model, inputs))
    return [np.stack(each) for each in zip(*rows, strict=True)]


@torch.no_grad()
def _of_example(model, inputs) -> list[np.ndarray]:
    output = model(**inputs, output_attentions=True, output_hidden_states=True)
    found = []
    for layer, maps, (hidden,) in zip(
        model.encoder.layer, output.attentions, output.hidden_states, strict=False
    ):
        maps, attention = maps[0], layer.attention
        heads, length = maps.shape[:2]
        width = hidden.shape[-1] // heads
        values = attention.self.value(hidden).view(length, heads, width)
        kernel = attention.output.dense.weight.view(-1, heads, width)
        moved = torch.einsum('snh,dnh->nsd', values, kernel)
        vectors = maps[..., None] * moved[:, None]  # [N, T, S, D]
        summed = vectors.sum(0)
        with_own = summed + torch.eye(length)[..., None] * hidden[:, None]
        whole = with_own.sum(1) + attention.output.dense.bias
        norm = attention.output.LayerNorm
        deviation = (whole.var(-1, unbiased=False) + norm.eps).sqrt()
        normed = (with_own - with_own.mean(-1, keepdim=True)) * norm.weight
        normed = normed / deviation[:, None, None]
        weights = 1 - maps.mean(0).diagonal()
        mixing = [weights, _ratio(summed), weights / 2, _ratio(with_own), _ratio(normed)]
        found.append(
            [
                vectors.norm(dim=-1).mean((1, 2)),
                *(each.norm(dim=-1).mean() for each in (summed, with_own, normed)),
                torch.stack(mixing).mean(1),
            ]
        )
    return [torch.stack(each).numpy() for each in zip(*found, strict=True)]


def _ratio(vectors: torch.Tensor) -> torch.Tensor:
    own = vectors.diagonal(dim1=0, dim2=1).T
    context = (vectors.sum(1) - own).norm(dim=-1)
    return context / (context + own.norm(dim=-1))


def main(_):
    directory = hub.locate(_MODEL.value)
    ours = bs.from_pretrained(directory, label_names=())
    theirs = transformers.BertModel.from_pretrained(
        directory, attn_implementation='eager', dtype=torch.float32, add_pooling_layer=False
    ).eval()
    examples = (
        bs.read_glue(_GLUE_DIR.value, bs.get_task('mrpc')) if _GLUE_DIR.value else bs.read_corpus()
    )[: _EXAMPLES.value]
    batches = bs.encode(ours.tokenizer, examples)
    compiled = jax.jit(lambda params, batch: all_of_batch(ours.bert, params, batch))

    def everything() -> list[np.ndarray]:
        rows = [
            [np.asarray(each)[batch.example >= 0] for each in compiled(ours.params, batch)]
            for batch in batches
        ]
        return [np.concatenate(each) for each in zip(*rows, strict=True)]

    def collect(maps_of):
        return lambda: bs.collect(ours, batches, STATISTICS, maps_of=maps_of)

    ways = {
        'norms': collect(bs.shares_of_norms),
        'weights': lambda: bs.collect(ours, batches, STATISTICS),
        'all': everything,
        'PyTorch, vectors of all pairs': lambda: in_pytorch(theirs, batches),
    }
    start = time.perf_counter()
    for way in list(ways.values())[:3]:
        way()
    first = time.perf_counter() - start
    for mine, expected in zip(everything(), in_pytorch(theirs, batches), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=2e-4)
    seconds = interleaved(ways, rounds=_REPEATS.value)
    print(
        f'{_MODEL.value}, {len(examples)} examples, '
        f'{len({b.input_ids.shape for b in batches})} padded lengths, '
        f'{jax.devices()[0].device_kind}, {torch.get_num_threads()} threads; '
        f'all and PyTorch are equal to 2e-4; first calls with compilation {first:.1f} s.'
    )
    print_table(seconds, len(examples), 'examples')
    print_table({name: seconds[name] for name in list(ways)[2:]}, len(examples), 'examples')


if __name__ == '__main__':
    app.run(main)
