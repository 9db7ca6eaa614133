"""Disabling every head in turn: PyTorch `transformers` and our naive loop against `bs.sweep`.

    python -m benchmarks.sweep --model=all-MiniLM-L6-v2
    python -m benchmarks.sweep --model=... --glue_dir=...
    python -m benchmarks.sweep --model=bert-base-random --fixed_length=128 --out=sweep.json

PyTorch runs one full forward pass per head, which hooks disable: on batches of 8 padded to 128, as
the authors and Michel et al. did, and on the same batches as ours. The naive loop is our model
under `jit`, one mask at a time. Each head costs these the same, so they are timed on a few and
scaled up (`--torch_heads`); the sweep always takes all. `--fixed_length=128` pads all inputs of all
sides alike. Runs are interleaved and medians compared; on busy cores PyTorch's threads wait for one
another, so try `--torch_threads=1` as well. Memory and the time to the first result are those of a
fresh process each (Linux).
"""

import functools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np
import torch
import transformers
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks.timing import interleaved
from bert_secrets_jax.ablation.sweep import one_behind
from bert_secrets_jax.data.encoding import BUCKETS, in_order, tokenize
from bert_secrets_jax.model import attention, hub

_MODEL = flags.DEFINE_string(
    'model', 'all-MiniLM-L6-v2', 'Directory, name on the hub, or bert-base-random.'
)
_GLUE_DIR = flags.DEFINE_string('glue_dir', None, 'GLUE with MRPC; the embedded corpus without.')
_EXAMPLES = flags.DEFINE_integer('examples', 64, 'How many examples, drawn at random.')
_SEED = flags.DEFINE_integer('seed', 0, 'Of that draw.')
_ROUNDS = flags.DEFINE_integer('rounds', 5, 'Interleaved runs of each, after one that warms up.')
_TORCH_HEADS = flags.DEFINE_integer('torch_heads', 4, 'Timed by all but the sweep; 0: all heads.')
_TORCH_BATCH = flags.DEFINE_integer('torch_batch', 8, "Rows of PyTorch's padded batches.")
_TORCH_THREADS = flags.DEFINE_integer('torch_threads', None, "PyTorch's own choice by default.")
_CHUNK_TOKENS = flags.DEFINE_integer('chunk_tokens', None, 'Of the sweep.')
_FIXED_LENGTH = flags.DEFINE_integer('fixed_length', 0, 'Pad all to this length; 0: in buckets.')
# PyTorch's side disables by hooks on maps.
_BASELINE = flags.DEFINE_enum('baseline', 'uniform', attention.MAP_BASELINES, 'Of disabled heads.')
_PEAK_TFLOPS = flags.DEFINE_float('peak_tflops', None, "The device's; reports the share of it.")
_OUT = flags.DEFINE_string('out', None, 'JSON file to write the same to.')
_ONLY = flags.DEFINE_string('only', None, 'The first result of this way alone (fresh processes).')

PYTORCH, NAIVE, SWEEP, PLAIN = 'PyTorch', 'naive loop', 'sweep', 'plain, no mask'
TOLERANCE = 1e-4


def forward_operations(config: bs.BertConfig, rows: int, length: int) -> int:
    """Return the multiply-adds of a plain forward pass over [rows, length] tokens."""
    width, wide = config.hidden_size, config.intermediate_size
    layer = length * (4 * width**2 + 2 * width * wide + 2 * length * width)
    return rows * (config.num_hidden_layers * layer + width**2 + width * config.num_labels)


def sweep_operations(config: bs.BertConfig, rows: int, length: int, baseline: str) -> int:
    """Return those of the sweep over single heads (`ablation/layers.py`), no chunk filled up.

    Masks of one layer share its attention, where D^2 more per token tell what each head adds; each
    then pays for the rest of that layer and for all later ones but the last. There a token costs
    2 N D ([CLS]'s scores, its averages of the hidden states), and D for the uniform average.
    """
    width, wide, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    before = config.num_hidden_layers - 1  # layers before the last
    later = before * (before - 1) // 2  # between an opened layer and the last, summed over them
    feed_forward = length * 2 * width * wide
    layer = length * (4 * width**2 + 2 * length * width) + feed_forward
    uniform = baseline == 'uniform'
    last = (2 * heads + uniform) * length * width + (3 + uniform) * width**2
    row = 2 * width**2 + 2 * width * wide + width * config.num_labels
    alone = heads * (before * (feed_forward + last + row) + later * layer)
    return rows * (alone + before * (layer + length * width**2) + last + heads * row)


def pytorch_logits(model, inputs, layer: int, head: int, baseline: str) -> torch.Tensor:
    """Return the logits of one forward pass with one head disabled."""
    module = model.bert.encoder.layer[layer].attention
    size = module.self.attention_head_size
    columns = slice(head * size, (head + 1) * size)
    real = inputs['attention_mask'][..., None].float()
    weights = real / real.sum(1, keepdim=True) if baseline == 'uniform' else torch.zeros_like(real)
    mean = None

    def keep(_, __, value):
        nonlocal mean
        mean = (value[..., columns] * weights).sum(1, keepdim=True)

    def replace(_, arguments):
        arguments[0][..., columns] = mean

    hooks = (
        module.self.value.register_forward_hook(keep),
        module.output.dense.register_forward_pre_hook(replace),
    )
    logits = model(**inputs).logits
    for hook in hooks:
        hook.remove()
    return logits


def in_pytorch(model, baseline: str, batches: list[bs.Batch], masks) -> np.ndarray:
    """Return the logits [M, E, C] of one full forward pass per head."""
    to_device = lambda array: torch.from_numpy(array).long().to(model.device)
    with torch.no_grad():
        placed = [jax.tree.map(to_device, batch.inputs) for batch in batches]
        logits = [
            torch.cat([pytorch_logits(model, inputs, *head, baseline) for inputs in placed]).cpu()
            for head in (np.argwhere(mask == 0)[0] for mask in masks)
        ]
    return in_order(_examples(batches), [torch.stack(logits).numpy()], axis=1)


def one_by_one(forward, params, batches: list[bs.Batch], masks) -> np.ndarray:
    """Return the logits [M, E, C] of our model, one mask at a time."""
    placed = [jax.device_put(batch.inputs) for batch in batches]
    calls = ((None, forward(params, inputs, mask)) for mask in masks for inputs in placed)
    logits = np.concatenate([found for _, found in one_behind(calls)])
    logits = logits.reshape(len(masks), -1, logits.shape[-1])
    return in_order(_examples(batches), [logits], axis=1)


def _examples(batches: list[bs.Batch]) -> list[np.ndarray]:
    return [batch.example for batch in batches]


def load_pytorch(directory: str):
    """Return the model on the kind of device that JAX has, or None where PyTorch has none."""
    on_cpu = jax.default_backend() == 'cpu'
    if not (on_cpu or torch.cuda.is_available()):
        return None
    torch.set_num_threads(_TORCH_THREADS.value or torch.get_num_threads())
    model = transformers.BertForSequenceClassification.from_pretrained(
        directory, attn_implementation='eager', dtype=torch.float32
    )
    for parameter in model.parameters():
        # Only mapped from the file so far: its first use would count as memory of the work.
        parameter.data = parameter.data.clone()
    return model.eval().to('cpu' if on_cpu else 'cuda')


def make_ways(ours: bs.Pretrained, theirs) -> dict:
    """Return name to (batches, function of batches and masks that returns logits [M, E, C])."""
    folder, length, rows = _GLUE_DIR.value, _FIXED_LENGTH.value or 128, _TORCH_BATCH.value
    corpus = bs.read_glue(folder, bs.get_task('mrpc')) if folder else bs.read_corpus()
    drawn = np.random.default_rng(_SEED.value).permutation(len(corpus))[: _EXAMPLES.value]
    examples = [corpus[index] for index in drawn]
    buckets = () if _FIXED_LENGTH.value else BUCKETS
    batches = bs.encode(ours.tokenizer, examples, max_length=length, buckets=buckets)
    full = [jax.tree.map(lambda array, b=b: array[b.example >= 0], b) for b in batches]
    encoded, numbers = tokenize(ours.tokenizer, examples, max_length=length), np.arange(len(drawn))
    padded = [encoded.batch(part, length) for part in np.split(numbers, numbers[rows::rows])]
    bert, baseline, chunk = ours.bert, _BASELINE.value, _CHUNK_TOKENS.value

    @jax.jit
    def forward(params, inputs, mask):
        return bert.apply({'params': params}, **inputs, head_mask=mask, baseline=baseline).logits

    def sweep(batches, masks):
        return bs.sweep(ours, batches, masks, baseline=baseline, chunk_tokens=chunk).logits

    pytorch = functools.partial(in_pytorch, theirs, baseline)
    naive = functools.partial(one_by_one, forward, ours.params)
    ways = {
        f'{PYTORCH}, padded to {length}': (padded, pytorch),
        f'{PYTORCH}, same batches': (full, pytorch),
        NAIVE: (batches, naive),
        SWEEP: (batches, sweep),
        PLAIN: (batches, lambda batches, masks: naive(batches, [None])),
    }
    return {name: way for name, way in ways.items() if theirs or not name.startswith(PYTORCH)}


def held_bytes(name: str, *, peak: bool) -> int:
    """Return the memory held now, or at most since then (on accelerators: ever)."""
    if jax.default_backend() == 'cpu':
        # Not ru_maxrss: a child inherits its parent's, and loading may hold more than the work.
        if not peak:
            pathlib.Path('/proc/self/clear_refs').write_text('5')
        status = pathlib.Path('/proc/self/status').read_text()
        return int(re.search(r'VmHWM:\s+(\d+)', status)[1]) * 1024
    if name.startswith(PYTORCH):
        return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
    return jax.devices()[0].memory_stats()['peak_bytes_in_use' if peak else 'bytes_in_use']


def first_result(name: str, batches: list[bs.Batch], run, masks) -> dict[str, float]:
    """Return seconds and MiB from the call to the logits of one batch, the longest."""
    batch = max(batches, key=lambda batch: (batch.input_ids.shape[1], batch.size))
    before = held_bytes(name, peak=False)
    start = time.perf_counter()
    run([batch], masks)
    seconds = time.perf_counter() - start
    return {'first': seconds, 'MiB': (held_bytes(name, peak=True) - before) / 2**20}


def prepare(name: str, directory: str) -> None:
    """Write the model with a fresh classifier, for both sides to load."""
    if name != 'bert-base-random':
        bs.save_pretrained(bs.from_pretrained(name, label_names=('no', 'yes'), seed=0), directory)
        return
    torch.manual_seed(0)
    # At BERT's own 0.02 maps are all but uniform, and a disabled head changes next to nothing.
    config = transformers.BertConfig(num_labels=2, initializer_range=0.06)
    transformers.BertForSequenceClassification(config).save_pretrained(directory)
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub.locate('all-MiniLM-L6-v2'))
    tokenizer.save_pretrained(directory)


def measure(config: bs.BertConfig, ways: dict, heads, some: np.ndarray) -> dict[str, dict]:
    """Check that all ways agree, time them, scale up to all heads, and count operations."""
    masks = {name: heads if name == SWEEP else heads[some] for name in ways}
    logits = {name: run(batches, masks[name]) for name, (batches, run) in ways.items()}
    for name in ways.keys() - {SWEEP, PLAIN}:
        np.testing.assert_allclose(logits[name], logits[SWEEP][some], 0, TOLERANCE, err_msg=name)
    seconds = interleaved(
        {name: functools.partial(run, given, masks[name]) for name, (given, run) in ways.items()},
        rounds=_ROUNDS.value,
    )
    total, rows = len(heads), {}
    for name, (batches, _) in ways.items():
        rounds = [each * total / len(logits[name]) for each in seconds[name]]
        shapes = [batch.input_ids.shape for batch in batches]
        operations = total * sum(forward_operations(config, *shape) for shape in shapes)
        if name == SWEEP:
            operations = sum(sweep_operations(config, *shape, _BASELINE.value) for shape in shapes)
        median = statistics.median(rounds)
        rows[name] = {
            'seconds': median,
            'rounds': rounds,
            'per_second': total * logits[name].shape[1] / median,
            'operations': operations,
            'tflops': 2e-12 * operations / median,
            'of_peak': _PEAK_TFLOPS.value and 2e-12 * operations / median / _PEAK_TFLOPS.value,
            'heads_move_logits_by': float(np.abs(logits[name] - logits[PLAIN]).max()),
        }
    return rows


def report(result: dict) -> None:
    """Print it."""
    settings, rows = result['flags'], result['ways']
    print(
        f'{settings["model"]}, {result["heads"]} heads one at a time, {result["examples"]} '
        f'examples, padded lengths {result["lengths"]}, {result["device"]}, {result["threads"]} '
        f'PyTorch threads;\nequal to {TOLERANCE:g}, where heads move logits by up to '
        f'{rows[SWEEP]["heads_move_logits_by"]:.2g}. All but the sweep: timed on '
        f'{result["timed"]} of the heads\n(plain: one pass) and scaled up. MiB, first: a fresh '
        'process, compilation included, to the logits of\nits longest batch under one mask, of the '
        f'sweep under all masks.\n{"":24}{"seconds":>9}{"masks x ex./s":>15}{"ours is":>9}'
        f'{"Tflop/s":>9}{"of peak":>9}{"MiB":>7}{"first":>8}'
    )
    for name, row in rows.items():
        ratio = '' if name == SWEEP else f'{row["seconds"] / rows[SWEEP]["seconds"]:.2f}x'
        share = f'{row["of_peak"]:.1%}' if row['of_peak'] else ''
        print(
            f'{name:24}{row["seconds"]:9.2f}{row["per_second"]:15.1f}{ratio:>9}'
            f'{row["tflops"]:9.3f}{share:>9}{row["MiB"]:7.0f}{row["first"]:7.1f}s'
        )
    print(
        'Plain passes per mask: {passes_per_mask:.3f} measured, {passes_per_mask_in_theory:.3f} in '
        'theory; operations saved: {operations_saved:.2f}x.'.format(**result)
    )


def main(_):
    # Both sides and the fresh processes share an accelerator.
    os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
    only = _ONLY.value
    with tempfile.TemporaryDirectory() as directory:
        if only is None:
            prepare(_MODEL.value, directory)
        source = _MODEL.value if only else directory
        ours = bs.from_pretrained(source)
        ways = make_ways(ours, load_pytorch(source) if PYTORCH in (only or PYTORCH) else None)
        heads = bs.masks.single_heads(ours.config)
        timed = min(_TORCH_HEADS.value or len(heads), len(heads))
        some = np.linspace(0, len(heads) - 1, timed).round().astype(int)
        if only:
            masks = heads if only == SWEEP else heads[some[:1]]
            print(json.dumps(first_result(only, *ways[only], masks)))
            return
        child = [sys.executable, '-m', 'benchmarks.sweep', *sys.argv[1:], f'--model={directory}']
        fresh = {
            name: json.loads(subprocess.check_output([*child, f'--only={name}'])) for name in ways
        }
    rows = measure(ours.config, ways, heads, some)
    result = {
        'flags': {f.name: f.value for f in flags.FLAGS.get_key_flags_for_module(sys.argv[0])},
        'device': jax.devices()[0].device_kind,
        'threads': torch.get_num_threads(),
        'heads': len(heads),
        'timed': timed,
        'examples': sum(batch.size for batch in ways[SWEEP][0]),
        'lengths': sorted({batch.input_ids.shape[1] for batch in ways[SWEEP][0]}),
        'passes_per_mask': rows[SWEEP]['seconds'] / rows[PLAIN]['seconds'],
        'passes_per_mask_in_theory': rows[SWEEP]['operations'] / rows[PLAIN]['operations'],
        'operations_saved': rows[NAIVE]['operations'] / rows[SWEEP]['operations'],
        'ways': {name: {**row, **fresh[name]} for name, row in rows.items()},
    }
    report(result)
    if _OUT.value:
        pathlib.Path(_OUT.value).write_text(json.dumps(result, indent=2) + '\n')


if __name__ == '__main__':
    app.run(main)
