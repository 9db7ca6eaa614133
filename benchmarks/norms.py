"""Norms of what heads give to tokens: beside weights alone, and beside PyTorch.

'statistics of norms' and 'of weights' measure the same statistics in one pass each (`bs.collect`),
of norms as shares of their rows and of attention. 'ours' computes everything of Kobayashi et al.
(2020, 2021) for each pair of tokens: norms of heads, norms over heads, with the residual, with
LayerNorm, and mixing ratios. PyTorch computes the same, one example at a time, in the way of the
published code: from the vectors of all pairs of tokens and all heads, [N, T, S, D].
"""

import jax
import jax.numpy as jnp
import numpy as np

import bert_secrets_jax as bs
from benchmarks.cases import Case
from benchmarks.timing import Question, Way
from bert_secrets_jax.contributions import norms
from bert_secrets_jax.contributions.norms import each_layer

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
    import torch

    rows = []
    for batch in batches:
        for row in np.flatnonzero(batch.example >= 0):
            length = int(batch.lengths[row])
            inputs = {
                name: torch.from_numpy(each[row : row + 1, :length]).long().to(model.device)
                for name, each in batch.inputs.items()
            }
            with torch.no_grad():
                rows.append(_of_example(model, inputs))
    return [np.stack(each) for each in zip(*rows, strict=True)]


def _of_example(model, inputs) -> list[np.ndarray]:
    import torch

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
        with_own = summed + torch.eye(length, device=model.device)[..., None] * hidden[:, None]
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
    return [torch.stack(each).cpu().numpy() for each in zip(*found, strict=True)]


def _ratio(vectors):
    own = vectors.diagonal(dim1=0, dim2=1).T
    context = (vectors.sum(1) - own).norm(dim=-1)
    return context / (context + own.norm(dim=-1))


def questions(case: Case) -> list[Question]:
    """Return the question of norms."""
    examples = case.examples[: case.settings.few]

    def batches() -> list[bs.Batch]:
        return bs.encode(case.ours.tokenizer, examples, max_length=case.settings.length)

    def ours():
        pretrained, given = case.ours, batches()
        compiled = jax.jit(lambda params, batch: all_of_batch(pretrained.bert, params, batch))

        def run():
            rows = [
                [
                    np.asarray(each)[batch.example >= 0]
                    for each in compiled(pretrained.params, batch)
                ]
                for batch in given
            ]
            return [np.concatenate(each) for each in zip(*rows, strict=True)]

        return run

    def collect(**options):
        pretrained, given = case.ours, batches()
        return lambda: bs.collect(pretrained, given, STATISTICS, **options)

    def theirs():
        model, given = case.theirs(), batches()
        return lambda: in_pytorch(model, given)

    def agree(found):
        name = 'PyTorch, vectors of all pairs'
        for mine, expected in zip(found['ours'], found.get(name, found['ours']), strict=True):
            np.testing.assert_allclose(mine, expected, rtol=2e-4)
        return {'equal to, as a share': 2e-4}

    return [
        Question(
            name='norms of Kobayashi et al.',
            unit='examples',
            amount=len(examples),
            about=f'the first {len(examples)} of {case.about}',
            agree=agree,
            ways={
                'ours': Way(ours),
                'PyTorch, vectors of all pairs': Way(theirs, in_pytorch=True, peer=True),
                'statistics of norms': Way(lambda: collect(maps_of=bs.shares_of_norms)),
                'statistics of weights': Way(collect),
            },
        )
    ]
