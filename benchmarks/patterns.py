"""Classes of all heads' maps over a corpus: PyTorch against `bs.collect`.

    python -m benchmarks.patterns --model=all-MiniLM-L6-v2
    python -m benchmarks.patterns --model=... --glue_dir=...

PyTorch runs eager BERT on the same length-sorted batches and hands its maps, as arrays, to the same
classifier: that is how somebody with a PyTorch model would use it. Two maps of a thousand may fall
into another class by rounding: the share is printed.
"""

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
_EXAMPLES = flags.DEFINE_integer('examples', 64, 'How many examples.')
_REPEATS = flags.DEFINE_integer('repeats', 3, 'Interleaved runs of each.')


def from_pytorch(model, classify, batches: list[bs.Batch]) -> np.ndarray:
    """Return how many maps are of each class, [L, N, C]."""
    total = 0
    for batch in batches:
        inputs = {name: torch.from_numpy(values).long() for name, values in batch.inputs.items()}
        with torch.no_grad():
            maps = torch.stack(model(**inputs, output_attentions=True).attentions, dim=1).numpy()
        classes, _ = classify(maps, batch.marks)
        total = total + np.asarray(classes)[batch.example >= 0].sum(axis=0)
    return total


def main(_):
    directory = hub.locate(_MODEL.value)
    ours = bs.from_pretrained(directory)
    theirs = transformers.BertModel.from_pretrained(
        directory, attn_implementation='eager', dtype=torch.float32, add_pooling_layer=False
    ).eval()
    pattern = bs.patterns.pattern(bs.patterns.load_classifier())
    classify = jax.jit(jax.vmap(pattern))
    examples = (
        bs.read_glue(_GLUE_DIR.value, bs.get_task('mrpc')) if _GLUE_DIR.value else bs.read_corpus()
    )[: _EXAMPLES.value]
    batches = bs.encode(ours.tokenizer, examples)
    collect = lambda statistics: bs.collect(ours, batches, statistics)
    without = {'sep': bs.statistics.to_sep}
    ways = {
        'ours': lambda: collect({'pattern': pattern})['pattern'].mean * len(examples),
        'ours, a pass without classes': lambda: collect(without)['sep'].mean,
        'PyTorch, same batches': lambda: from_pytorch(theirs, classify, batches),
    }
    results = {name: way() for name, way in ways.items()}
    counted, expected = results['ours'], results['PyTorch, same batches']
    differ = np.abs(counted - expected).sum() / 2 / expected.sum()
    # So few are what rounding may do; more is a mistake.
    assert differ < 0.002, f'{differ:.1%} of the classes differ'
    seconds = interleaved(ways, rounds=_REPEATS.value)
    maps = expected.sum()
    print(
        f'{_MODEL.value}, {len(examples)} examples, {maps:.0f} maps, '
        f'{jax.devices()[0].device_kind}, {torch.get_num_threads()} threads; '
        f'{differ:.2%} of the classes differ.'
    )
    print_table(seconds, maps, 'maps')


if __name__ == '__main__':
    app.run(main)
