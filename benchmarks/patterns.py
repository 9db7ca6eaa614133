"""Classes of all heads' maps over a corpus: PyTorch against `bs.collect`.

    python -m benchmarks.patterns --model=all-MiniLM-L6-v2
    python -m benchmarks.patterns --model=... --glue_dir=...

PyTorch runs eager BERT on the same length-sorted batches, resizes the maps of an example with
`torch.nn.functional.interpolate` and classifies them with the same network and weights. Its filter
differs a little from ours, so that a few maps fall into another class: the share is printed.
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


class Network(torch.nn.Module):
    """`PatternCNN` with trained weights."""

    def __init__(self, params):
        super().__init__()
        tensor = lambda array: torch.nn.Parameter(torch.from_numpy(np.array(array)))
        count = sum(name.startswith('Conv') for name in params)
        self.convolutions, self.norms = torch.nn.ModuleList(), torch.nn.ModuleList()
        for index in range(count):
            ours = params[f'Conv_{index}']
            height, width, inputs, outputs = ours['kernel'].shape
            layer = torch.nn.Conv2d(inputs, outputs, (height, width))
            layer.weight = tensor(ours['kernel'].transpose(3, 2, 0, 1))
            layer.bias = tensor(ours['bias'])
            self.convolutions.append(layer)
        for index in range(count - 2):
            ours = params[f'GroupNorm_{index}']
            norm = torch.nn.GroupNorm(4, len(ours['scale']), eps=1e-6)
            norm.weight, norm.bias = tensor(ours['scale']), tensor(ours['bias'])
            self.norms.append(norm)

    def forward(self, images):
        """Return logits [B, C] of images [B, 3, X, X]."""
        hidden = images
        for index, (layer, norm) in enumerate(zip(self.convolutions, self.norms, strict=False)):
            hidden = torch.relu(norm(layer(hidden)))
            if index in (1, 3):
                hidden = torch.nn.functional.max_pool2d(hidden, 2)
        hidden = torch.relu(self.convolutions[-2](hidden)).mean(dim=(2, 3), keepdim=True)
        return self.convolutions[-1](hidden)[:, :, 0, 0]


def in_pytorch(model, network, side: int, batches: list[bs.Batch]) -> np.ndarray:
    """Return how many maps are of each class, [L, N, C]."""
    total = 0
    for batch in batches:
        filled = batch.example >= 0
        inputs = {k: torch.from_numpy(v[filled]).long() for k, v in batch.inputs.items()}
        with torch.no_grad():
            maps = torch.stack(model(**inputs, output_attentions=True).attentions, dim=1)
            for example, separators in zip(maps, batch.marks['sep'][filled], strict=True):
                first, *_, last = np.flatnonzero(separators) + 1
                values = example[..., :last, :last].flatten(0, 1)[:, None]
                pixels = torch.nn.functional.interpolate(
                    values, (side, side), mode='bilinear', antialias=True
                )
                pixels = pixels / pixels.amax(dim=(2, 3), keepdim=True)
                text = (torch.arange(side) + 0.5) * last / side < first
                same = (text[:, None] == text[None, :]).float().expand_as(pixels)
                images = torch.cat([pixels, same, pixels.sqrt()], dim=1)
                classes = network(images).argmax(1).reshape(maps.shape[1:3])
                total = total + torch.nn.functional.one_hot(classes, len(bs.patterns.CLASSES))
    return total.numpy()


def main(_):
    directory = hub.locate(_MODEL.value)
    ours = bs.from_pretrained(directory)
    theirs = transformers.BertModel.from_pretrained(
        directory, attn_implementation='eager', dtype=torch.float32, add_pooling_layer=False
    ).eval()
    classifier = bs.patterns.load_classifier()
    network = Network(classifier.params).eval()
    examples = (
        bs.read_glue(_GLUE_DIR.value, bs.get_task('mrpc')) if _GLUE_DIR.value else bs.read_corpus()
    )[: _EXAMPLES.value]
    batches = bs.encode(ours.tokenizer, examples)
    collect = lambda statistics: bs.collect(ours, batches, statistics)
    classify = {'pattern': bs.patterns.pattern(classifier)}
    without = {'sep': bs.statistics.to_sep}
    ways = {
        'ours': lambda: collect(classify)['pattern'].mean * len(examples),
        'ours, a pass without classes': lambda: collect(without)['sep'].mean,
        'PyTorch, same batches': lambda: in_pytorch(theirs, network, classifier.side, batches),
    }
    results = {name: way() for name, way in ways.items()}
    counted, expected = results['ours'], results['PyTorch, same batches']
    differ = np.abs(counted - expected).sum() / 2 / expected.sum()
    # One class in a hundred is what another filter may do; more is a mistake.
    assert differ < 0.01, f'{differ:.1%} of the classes differ'
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
