"""Statistics of all heads over a corpus: PyTorch `transformers` against `bs.collect`.

    python -m benchmarks.attention_statistics --model=all-MiniLM-L6-v2
    python -m benchmarks.attention_statistics --model=... --glue_dir=...

They are those of the catalogue that need no annotations and one model. PyTorch runs eager attention
(the only one that returns maps), once as a careful user would (the same length-sorted batches as
ours, statistics reduced per batch) and once as the authors' notebook does (one example at a time).
Runs are interleaved and the medians compared, because the machine may be noisy. Compilation is
timed apart: it is paid once per padded length.
"""

import time

import jax
import numpy as np
import torch
import transformers
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks.timing import interleaved, print_table
from bert_secrets_jax.model import hub

_MODEL = flags.DEFINE_string('model', 'all-MiniLM-L6-v2', 'Directory, or name on the hub.')
_GLUE_DIR = flags.DEFINE_string('glue_dir', None, 'GLUE with MRPC; the embedded corpus without.')
_EXAMPLES = flags.DEFINE_integer('examples', 128, 'How many examples.')
_REPEATS = flags.DEFINE_integer('repeats', 5, 'Interleaved runs of each.')


# Which of two nearly equal ones is the greatest depends on rounding.
_BY_RANK = ('greatest at previous token', 'greatest at next token')
STATISTICS = [
    name
    for name, described in bs.catalogue.CATALOGUE.items()
    if not (described.annotated or described.pairwise or name in _BY_RANK)
]


def pytorch_statistics(model, inputs, marks) -> dict[str, torch.Tensor]:
    """Return the sum over examples [L, N] of each statistic that is written here in PyTorch."""
    with torch.no_grad():
        maps = torch.stack(model(**inputs, output_attentions=True).attentions)  # [L, B, N, T, T]
    real = inputs['attention_mask'][None, :, None, :].to(maps.dtype)
    length = real.sum(-1)
    received = (maps * real[..., None]).sum(3) / length[..., None]
    cls, sep = (marks[name][None, :, None, :] for name in ('cls', 'sep'))
    from_cls = maps[..., 0, :]
    stops = marks['period_comma'][None, :, None, :]
    even = real / length[..., None]
    smoothed = 0.9999 * maps + 0.0001 * even[:, :, :, None, :]
    has_stops = stops.any(-1).to(maps.dtype)
    to_sep = (maps * sep[..., None, :]).sum(-1)
    found = {
        '[CLS]': (received * cls).amax(-1),
        '[SEP]': (received * sep).amax(-1),
        '[CLS] and all [SEP]': (received * (cls | sep)).sum(-1),
        'entropy (nats)': (torch.special.entr(maps).sum(-1) * real).sum(-1) / length,
        'all [SEP]': (received * sep).sum(-1),
        # A mean over the examples that have one.
        'period or comma': (received * stops).sum(-1) * has_stops,
        '[SEP] to [SEP]': (to_sep * sep).sum(-1) / sep.sum(-1),
        'other tokens to [SEP]': (to_sep * (real - sep.to(real.dtype))).sum(-1)
        / (length - sep.sum(-1)),
        'entropy of [CLS] (nats)': torch.special.entr(from_cls).sum(-1),
        'entropy, smoothed (nats)': (torch.special.entr(smoothed).sum(-1) * real).sum(-1) / length,
        'entropy of [CLS], smoothed (nats)': torch.special.entr(smoothed[..., 0, :]).sum(-1),
        'entropy of even attention': length.log().expand(from_cls.shape[:3]),
        'from [CLS] to [CLS]': (from_cls * cls).amax(-1),
        'from [CLS] to [SEP]': (from_cls * sep).amax(-1),
    }
    others = real * ~sep
    sure = maps.masked_fill(sep[..., None, :], 0).amax(-1)
    found['confidence'] = (sure * others).sum(-1) / others.sum(-1)
    for name, offset in (('self', 0), ('previous token', -1), ('next token', 1)):
        diagonal = maps.diagonal(offset, dim1=3, dim2=4)
        rows = real[..., abs(min(offset, 0)) :][..., : diagonal.shape[-1]]
        found[name] = (diagonal * rows).sum(-1) / length
    return {name: values.sum(1) for name, values in found.items()}


def in_pytorch(model, batches: list[bs.Batch]) -> np.ndarray:
    """Return the means [S, L, N] of all S statistics over all batches."""
    total, count = 0, 0
    for batch in batches:
        filled = batch.example >= 0
        inputs = {k: torch.from_numpy(v[filled]).long() for k, v in batch.inputs.items()}
        marks = {name: torch.from_numpy(mark[filled]) for name, mark in batch.marks.items()}
        sums = pytorch_statistics(model, inputs, marks)
        # A new one of the catalogue has to be written above.
        total = total + torch.stack([sums[name] for name in STATISTICS]).numpy()
        count += batch.size
    return total / count


def main(_):
    directory = hub.locate(_MODEL.value)
    ours = bs.from_pretrained(directory)
    theirs = transformers.BertModel.from_pretrained(
        directory, attn_implementation='eager', dtype=torch.float32, add_pooling_layer=False
    ).eval()
    examples = (
        bs.read_glue(_GLUE_DIR.value, bs.get_task('mrpc')) if _GLUE_DIR.value else bs.read_corpus()
    )[: _EXAMPLES.value]
    batches = bs.encode(ours.tokenizer, examples)
    singles = [bs.encode(ours.tokenizer, [example], buckets=range(128))[0] for example in examples]

    def collect():
        tables = bs.collect(ours, batches, STATISTICS)
        return np.stack([tables[name].mean for name in STATISTICS])

    start = time.perf_counter()
    expected = collect()
    first = time.perf_counter() - start
    ways = {
        'ours': collect,
        'PyTorch, same batches': lambda: in_pytorch(theirs, batches),
        'PyTorch, one at a time': lambda: in_pytorch(theirs, singles),
    }
    for name in ways.keys() - {'ours'}:
        np.testing.assert_allclose(ways[name](), expected, atol=1e-5, err_msg=name)
    seconds = interleaved(ways, rounds=_REPEATS.value)
    print(
        f'{_MODEL.value}, {len(STATISTICS)} statistics, {len(examples)} examples, '
        f'{len({b.input_ids.shape for b in batches})} padded lengths, '
        f'{jax.devices()[0].device_kind}, {torch.get_num_threads()} threads; '
        f'equal to 1e-5; first call with compilation {first:.1f} s.'
    )
    print_table(seconds, len(examples), 'examples')


if __name__ == '__main__':
    app.run(main)
