"""Inputs of the benchmarks: a model on both sides, and texts."""

import collections
import dataclasses
import functools
import importlib.util
import pathlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.model.bert import init_params

# Models of random weights, by their sizes.
SHAPES = {
    'minilm': {'hidden_size': 384, 'num_hidden_layers': 6, 'intermediate_size': 1536},
    'bert-base': {'hidden_size': 768, 'num_hidden_layers': 12, 'intermediate_size': 3072},
    'tiny': {
        'hidden_size': 16,
        'num_hidden_layers': 2,
        'num_attention_heads': 4,
        'intermediate_size': 32,
        'vocab_size': 2000,
    },
}
_SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')


@dataclasses.dataclass(frozen=True)
class Settings:
    """The sizes of all benchmarks.

    Attributes:
      glue_dir: A folder of GLUE with MRPC; None takes the embedded texts.
      examples: The number of examples, drawn at random.
      few: The number of examples where one takes long: clusters and norms.
      length: The length of all inputs where they should be alike; also that to which PyTorch pads
        as the authors do, in batches of 8.
      rounds: The number of interleaved rounds.
      heads: The number of heads on which all but the sweep are timed.
      steps: The number of training steps in a round.
      batch_sizes: The examples per batch of a model whose heads were removed.
      growth: The number of doublings over which growth is measured.
      matrix: The side of the matrices whose product shows the machine's peak.
      threads: PyTorch's threads; None leaves its own choice.
      dtype: The type of matrix products, as in `bs.BertConfig`. PyTorch computes in the same one;
        compared with 'tf32x3', in one product of TF32.
      tokens: The greatest number of tokens of a batch: an accelerator needs more than a CPU.
      micro_batch: The number of examples of a training step that ours takes at once.
    """

    glue_dir: str | None = None
    examples: int = 128
    few: int = 8
    length: int = 128
    rounds: int = 5
    heads: int = 3
    steps: int = 2
    batch_sizes: tuple[int, ...] = (1, 16)
    growth: int = 3
    matrix: int = 2048
    threads: int | None = None
    dtype: str = 'float32'
    tokens: int = 2048
    micro_batch: int = 8


SMOKE = Settings(
    examples=4, few=2, length=32, rounds=2, heads=2, steps=1, batch_sizes=(3,), growth=1, matrix=32
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model that stands in a folder for both sides, and the texts.

    Attributes:
      name: The name of the model.
      directory: Its folder, written by `prepare`.
      settings: The sizes.
    """

    name: str
    directory: pathlib.Path
    settings: Settings

    @functools.cached_property
    def ours(self) -> bs.Pretrained:
        """Our side, with a fresh classifier of two classes."""
        return bs.from_pretrained(self.directory, dtype=self.settings.dtype)

    @property
    def label(self) -> str:
        """The name of the model in results, with the type of its products if not float32."""
        dtype = self.settings.dtype
        return self.name if dtype == 'float32' else f'{self.name}, {dtype}'

    def theirs(self, attention: str = 'eager', *, classifier: bool = False, train: bool = False):
        """Return PyTorch's model, on the kind of device that JAX has.

        Args:
          attention: The implementation. Only 'eager' returns maps; 'sdpa' is the faster one.
          classifier: Whether it ends in logits, and not in hidden states.
          train: Whether it is in the mode of training.
        """
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        if self.settings.threads:
            torch.set_num_threads(self.settings.threads)
        dtype = self.settings.dtype
        torch.set_float32_matmul_precision('high' if dtype == 'tf32x3' else 'highest')
        # Weights that are trained stay in float32, and `autocast` rounds them.
        kept = torch.bfloat16 if dtype == 'bfloat16' and not train else torch.float32
        kind = transformers.BertForSequenceClassification if classifier else transformers.BertModel
        model = kind.from_pretrained(
            self.directory, attn_implementation=attention, dtype=kept,
            **({} if classifier else {'add_pooling_layer': False}),
        )  # fmt: skip
        for parameter in model.parameters():
            # Only mapped from the file so far: its first use would count as memory of the work.
            parameter.data = parameter.data.clone()
        on_cpu = jax.default_backend() == 'cpu'
        return model.train(train).to('cpu' if on_cpu else 'cuda')

    @functools.cached_property
    def examples(self) -> list[bs.Example]:
        """The examples, drawn at random."""
        corpus = read(self.settings.glue_dir)
        drawn = np.random.default_rng(0).permutation(len(corpus))[: self.settings.examples]
        return [corpus[index] for index in drawn]

    @functools.cached_property
    def batches(self) -> list[bs.Batch]:
        """Their batches, sorted by length."""
        return bs.encode(
            self.ours.tokenizer,
            self.examples,
            max_length=self.settings.length,
            tokens_per_batch=self.settings.tokens,
        )

    @functools.cached_property
    def filled(self) -> list[bs.Batch]:
        """The same without empty rows, for sides that need not compile."""
        return [jax.tree.map(lambda array, b=b: array[b.example >= 0], b) for b in self.batches]

    def agreed(self, found: Mapping[str, Any], expected: Any, tolerance: float) -> dict[str, float]:
        """Check that arrays by name equal another one, and return up to what.

        Rounded products do so only roughly: it is returned by how much they differ.
        """
        apart = {name: float(np.abs(array - expected).max()) for name, array in found.items()}
        if self.settings.dtype != 'float32':
            return {f'{name} differs by up to': each for name, each in apart.items()}
        for name, each in apart.items():
            assert each <= tolerance, f'{name} differs by {each:.2g}.'
        return {'equal to': tolerance}

    def alike(self, count: int, length: int, *, tokens: int = 2048) -> list[bs.Batch]:
        """Return batches of texts that all have the same length.

        Args:
          count: The number of texts.
          length: The number of tokens of each.
          tokens: The greatest number of tokens of a batch.
        """
        words = ' '.join(example.text_a for example in read(self.settings.glue_dir)).split()
        places = [np.arange(length) + length * row for row in range(count)]
        texts = [' '.join(words[at % len(words)] for at in place) for place in places]
        return bs.encode(
            self.ours.tokenizer, texts, max_length=length, buckets=(), tokens_per_batch=tokens
        )

    @property
    def about(self) -> str:
        """The inputs, in words."""
        kind = 'pairs of MRPC' if self.settings.glue_dir else 'pairs of the embedded texts'
        lengths = np.concatenate([batch.lengths for batch in self.filled])
        return f'{len(lengths)} {kind}, {lengths.mean():.0f} tokens on average'


def read(glue_dir: str | None, split: str = 'dev') -> list[bs.Example]:
    """Return the pairs of MRPC, or the embedded ones without a folder."""
    return bs.read_glue(glue_dir, bs.get_task('mrpc'), split) if glue_dir else bs.read_corpus(split)


def prepare(name: str, directory: pathlib.Path, settings: Settings) -> Case:
    """Write a model for both sides to load, with a fresh classifier.

    Args:
      name: One of `SHAPES`, a folder, or a name on the hub.
      directory: The folder to write to.
      settings: The sizes.
    """
    if name in SHAPES:
        save_random(SHAPES[name], directory, read(settings.glue_dir, 'train'))
    else:
        bs.save_pretrained(bs.from_pretrained(name, label_names=('no', 'yes'), seed=0), directory)
    return Case(name, pathlib.Path(directory), settings)


def save_random(
    sizes: Mapping[str, int], directory: pathlib.Path, texts: Iterable[bs.Example]
) -> None:
    """Write a model of random weights, whose wordpieces are the words of texts.

    Args:
      sizes: Fields of its config.
      directory: The folder to write to.
      texts: The texts.
    """
    # At BERT's own 0.02 maps are all but uniform, and a disabled head changes next to nothing.
    config = bs.BertConfig(
        **{'vocab_size': 30522, 'num_attention_heads': 12} | dict(sizes),
        label_names=('no', 'yes'), initializer_range=0.06,
    )  # fmt: skip
    bert = bs.Bert(config)
    pretrained = bs.Pretrained(bert, init_params(bert, 0), _tokenizer(texts, config.vocab_size))
    bs.save_pretrained(pretrained, directory)


def _tokenizer(texts: Iterable[bs.Example], count: int):
    import transformers

    words = collections.Counter(
        word
        for example in texts
        for word in re.findall(r'\w+|[^\w\s]', f'{example.text_a} {example.text_b}'.lower())
    )
    pieces = [*_SPECIAL, *[word for word, _ in words.most_common(count - len(_SPECIAL))]]
    pieces += [f'[unused{index}]' for index in range(count - len(pieces))]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n', 'utf-8')
        (folder / 'tokenizer_config.json').write_text(
            '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}'
        )
        return transformers.AutoTokenizer.from_pretrained(folder)


def has_pytorch() -> bool:
    """Whether PyTorch is there, and runs on the kind of device that JAX has."""
    if importlib.util.find_spec('torch') is None:
        return False
    import torch

    return jax.default_backend() == 'cpu' or torch.cuda.is_available()


def to_torch(batch: bs.Batch, model) -> dict:
    """Return the inputs of a batch as PyTorch's tensors, where the model is."""
    import torch

    return {
        name: torch.from_numpy(np.asarray(array)).long().to(model.device)
        for name, array in batch.inputs.items()
    }


def wait_for(model) -> None:
    """Wait for what PyTorch computes on the device of a model or a tensor."""
    import torch

    if model.device.type == 'cuda':
        torch.cuda.synchronize()
