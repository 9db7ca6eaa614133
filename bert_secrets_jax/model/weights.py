"""Checkpoints in Hugging Face's layout <-> our parameters, strictly in both directions."""

import dataclasses
import hashlib
import json
import pathlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from absl import logging

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.model import hub, torch_bin
from bert_secrets_jax.model.bert import Bert, init_params, param_shapes
from bert_secrets_jax.model.config import (
    FAMILIES,
    BertConfig,
    ComputeDtype,
    read_config,
    write_config,
)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """How the checkpoints of a model type name their tensors.

    Attributes:
      prefix: of all but the classifier's, in checkpoints with a head.
      modules: ours and theirs. '{}' is the number of the layer; ours are stacked on a leading axis.
      other_heads: what is left out knowingly: heads of other tasks, behind the last layer.
    """

    prefix: str
    modules: Mapping[str, str]
    other_heads: tuple[str, ...]


_BERT = {
    'embeddings/word': 'embeddings.word_embeddings',
    'embeddings/position': 'embeddings.position_embeddings',
    'embeddings/token_type': 'embeddings.token_type_embeddings',
    'embeddings/norm': 'embeddings.LayerNorm',
    'layers/attention/query': 'encoder.layer.{}.attention.self.query',
    'layers/attention/key': 'encoder.layer.{}.attention.self.key',
    'layers/attention/value': 'encoder.layer.{}.attention.self.value',
    'layers/attention/output': 'encoder.layer.{}.attention.output.dense',
    'layers/attention_norm': 'encoder.layer.{}.attention.output.LayerNorm',
    'layers/intermediate': 'encoder.layer.{}.intermediate.dense',
    'layers/output': 'encoder.layer.{}.output.dense',
    'layers/output_norm': 'encoder.layer.{}.output.LayerNorm',
    'pooler': 'pooler.dense',
    'classifier': 'classifier',
}
_BERT_WITH_HEAD = _BERT | {'pooler': 'classifier.dense', 'classifier': 'classifier.out_proj'}
# No classifier stands on RoBERTa's pooler.
_ROBERTA = _Layout('roberta.', _BERT_WITH_HEAD, ('lm_head.', 'qa_outputs.', 'pooler.'))
_LAYOUTS = {
    'bert': _Layout('bert.', _BERT, ('cls.', 'qa_outputs.')),
    'roberta': _ROBERTA,
    'xlm-roberta': _ROBERTA,
    'distilbert': _Layout(
        'distilbert.',
        {
            'embeddings/word': 'embeddings.word_embeddings',
            'embeddings/position': 'embeddings.position_embeddings',
            'embeddings/norm': 'embeddings.LayerNorm',
            'layers/attention/query': 'transformer.layer.{}.attention.q_lin',
            'layers/attention/key': 'transformer.layer.{}.attention.k_lin',
            'layers/attention/value': 'transformer.layer.{}.attention.v_lin',
            'layers/attention/output': 'transformer.layer.{}.attention.out_lin',
            'layers/attention_norm': 'transformer.layer.{}.sa_layer_norm',
            'layers/intermediate': 'transformer.layer.{}.ffn.lin1',
            'layers/output': 'transformer.layer.{}.ffn.lin2',
            'layers/output_norm': 'transformer.layer.{}.output_layer_norm',
            'pooler': 'pre_classifier',
            'classifier': 'classifier',
        },
        ('vocab_transform.', 'vocab_layer_norm.', 'vocab_projector.', 'qa_outputs.'),
    ),
    'electra': _Layout(
        'electra.',
        _BERT_WITH_HEAD | {'embeddings/project': 'embeddings_project'},
        (
            'discriminator_predictions.',
            'generator_predictions.',
            'generator_lm_head.',
            'sequence_summary.',
            'qa_outputs.',
        ),
    ),
}
# Where classifiers are, of whatever kind.
_CLASSIFIERS = ('classifier.', 'pre_classifier.')
_LEAVES = {'kernel': 'weight', 'embedding': 'weight', 'scale': 'weight', 'bias': 'bias'}
# Constant buffers that old releases saved.
_BUFFERS = ('embeddings.position_ids', 'embeddings.token_type_ids')
_WEIGHT_FILES = ('model.safetensors', 'pytorch_model.bin')


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model with its weights and its tokenizer.

    Attributes:
      bert: the Linen module; call `bert.apply({'params': params}, ...)`.
      params: nested dictionary of float32 arrays; layers stacked on a leading axis, heads explicit:
        `layers/attention/query/kernel` [L, D, N, H], `layers/attention/output/kernel` [L, N, H, D].
      tokenizer: `transformers`' fast tokenizer.
    """

    bert: Bert
    params: dict[str, Any]
    tokenizer: Any

    @property
    def config(self) -> BertConfig:
        """The hyperparameters of `bert`."""
        return self.bert.config


def from_pretrained(
    name: str | pathlib.Path,
    *,
    label_names: Sequence[str] | None = None,
    seed: int = 0,
    dtype: ComputeDtype = 'float32',
    revision: str | None = None,
    ignore_config: tuple[str, ...] = (),
) -> Pretrained:
    """Load a BERT, or a relative of a `model_type` in `config.FAMILIES`, from disk or the hub.

    Args:
      name: a directory in Hugging Face's layout (config.json, model.safetensors or
        pytorch_model.bin, tokenizer files), a name on the hub such as 'bert-base-uncased', or
        'all-MiniLM-L6-v2', which the `quickstart` extra brings along and needs no network.
      label_names: None keeps the checkpoint's own classifier, if it has one. Names put a freshly
        initialised classifier of that many classes (one: regression) in its place, and a pooler
        where there is none; an empty sequence leaves the classifier out.
      seed: of the fresh weights.
      dtype: what matrix products are computed in, 'float32' or 'bfloat16'.
      revision: branch, tag or commit on the hub.
      ignore_config: keys of config.json to disregard, when loading refused them as unknown.

    Raises:
      FileNotFoundError: no such directory, and the hub has no such model or is out of reach.
      ValueError: the files are not a BERT that we implement; the message lists every tensor that is
        missing, unexpected or misshapen and every setting that is not known.
    """
    directory = hub.locate(name, revision=revision)
    settings_file = directory / 'config.json'
    try:
        values = json.loads(settings_file.read_text(encoding='utf-8'))
        if not isinstance(values, dict):
            raise ValueError('it does not hold a JSON object.')
        settings = read_config(values, ignore=ignore_config)
    except (ValueError, OSError) as error:
        raise ValueError(f'{settings_file}: {error}') from error
    tensors, file = _read_tensors(directory)
    tensors = _normalise(tensors, _LAYOUTS[settings['model_type']], file)
    config, fresh = _settle_heads(settings, values, tensors, label_names, dtype, file)
    bert = Bert(config)
    # Without fresh weights only the shapes are needed, and those cost nothing.
    initial = init_params(bert, seed) if fresh else param_shapes(bert)
    params = params_from_tensors(config, tensors, initial=initial, fresh=fresh, source=str(file))
    if fresh:
        logging.info('%s: freshly initialised (seed %d): %s.', file, seed, ', '.join(fresh))
    return Pretrained(bert, params, _load_tokenizer(directory, config))


def save_pretrained(pretrained: Pretrained, directory: str | pathlib.Path) -> None:
    """Write config.json, model.safetensors and tokenizer files, which `transformers` and we load.

    Each file is replaced only once it is complete. In a run killed between two of them the weights
    are older than config.json; loading notices another architecture or number of classes.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as partial:
        for file in map(pathlib.Path, pretrained.tokenizer.save_pretrained(partial)):
            write_atomically(directory / file.name, file.read_bytes())
    tensors = tensors_from_params(pretrained.config, pretrained.params)
    text = json.dumps(write_config(pretrained.config), indent=2, sort_keys=True) + '\n'
    write_atomically(directory / 'config.json', text.encode())
    data = safetensors.numpy.save(tensors, metadata={'format': 'pt'})
    write_atomically(directory / 'model.safetensors', data)


def params_from_tensors(
    config: BertConfig,
    tensors: Mapping[str, np.ndarray],
    *,
    initial: Mapping[str, Any],
    fresh: Sequence[str] = (),
    source: str = 'checkpoint',
) -> dict[str, Any]:
    """Turn Hugging Face tensors (names without the prefix `bert.`) into parameters.

    Args:
      config: what the model is made of.
      tensors: name to array; every one must have a place, and every place a tensor.
      initial: parameters of the wanted structure, for shapes and for what is `fresh`.
      fresh: top-level modules to take from `initial` ('pooler', 'classifier').
      source: named in errors.

    Raises:
      ValueError: lists all missing, unexpected and misshapen tensors.
    """
    leaves = flax.traverse_util.flatten_dict(initial, sep='/')
    result, used = {}, set()
    wrong: dict[str, list[str]] = {'missing': [], 'unexpected': [], 'misshapen': []}
    for path, leaf in leaves.items():
        if path.split('/')[0] in fresh:
            result[path] = leaf
            continue
        shape = _their_shape(path, leaf.shape)
        parts = []
        for name in _their_names(config, path):
            used.add(name)
            if name not in tensors:
                wrong['missing'].append(f'{name} {list(shape)}')
            elif tensors[name].shape != shape:
                found = list(tensors[name].shape)
                wrong['misshapen'].append(f'{name} {found}, expected {list(shape)}')
            else:
                parts.append(_to_ours(path, tensors[name]))
        if not any(wrong.values()):
            result[path] = jnp.asarray(np.stack(parts).reshape(leaf.shape), jnp.float32)
    wrong['unexpected'] = [
        f'{name} {list(tensors[name].shape)}' for name in sorted(set(tensors) - used)
    ]
    if any(wrong.values()):
        counts = ', '.join(
            f'{len(names)} tensors {kind} ({names[0]}{", ..." if len(names) > 1 else ""})'
            for kind, names in wrong.items()
            if names
        )
        listing = '\n'.join(f'{kind}: {name}' for kind, names in wrong.items() for name in names)
        raise ValueError(
            f'{source} does not fit its config.json ({config.num_hidden_layers} layers, '
            f'{config.num_attention_heads} heads, hidden {config.hidden_size}): {counts}. Is it '
            f'another architecture, or a damaged file?\n{listing}'
        )
    return flax.traverse_util.unflatten_dict(result, sep='/')


def tensors_from_params(config: BertConfig, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Turn parameters into Hugging Face tensors, named as `transformers` saves them."""
    prefix = _LAYOUTS[config.model_type].prefix if config.num_labels else ''
    tensors = {}
    for path, leaf in flax.traverse_util.flatten_dict(params, sep='/').items():
        names = _their_names(config, path)
        shape = _their_shape(path, leaf.shape)
        layers = np.asarray(leaf, np.float32).reshape(len(names), -1)
        for name, layer in zip(names, layers, strict=True):
            array = (
                layer.reshape(shape[::-1]).T if path.endswith('kernel') else layer.reshape(shape)
            )
            full = name if name.startswith(_CLASSIFIERS) else prefix + name
            tensors[full] = np.ascontiguousarray(array)
    return tensors


def _their_names(config: BertConfig, path: str) -> list[str]:
    module, leaf = path.rsplit('/', 1)
    name = f'{_LAYOUTS[config.model_type].modules[module]}.{_LEAVES[leaf]}'
    count = config.num_hidden_layers if '{}' in name else 1
    return [name.format(layer) for layer in range(count)]


def _their_shape(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of one PyTorch tensor: linear weights are [out, in], heads are flat."""
    if path.startswith('layers/'):
        shape = shape[1:]
    if path == 'layers/attention/output/kernel':
        return (shape[2], shape[0] * shape[1])
    if path.endswith('kernel'):
        return (int(np.prod(shape[1:])), shape[0])
    return shape if path.endswith('embedding') else (int(np.prod(shape)),)


def _to_ours(path: str, tensor: np.ndarray) -> np.ndarray:
    return tensor.T if path.endswith('kernel') else tensor


def _read_tensors(directory: pathlib.Path) -> tuple[dict[str, np.ndarray], pathlib.Path]:
    file = _weight_file(directory)
    if file.suffix == '.bin':
        return torch_bin.load(file), file
    try:
        return safetensors.numpy.load_file(file), file
    except safetensors.SafetensorError as error:
        raise ValueError(f'{file} is not a complete safetensors file: {error}.') from error


def _weight_file(directory: pathlib.Path) -> pathlib.Path:
    for name in _WEIGHT_FILES:
        if (directory / name).exists():
            return directory / name
    found = ', '.join(sorted(path.name for path in directory.iterdir())) or 'nothing'
    raise FileNotFoundError(
        f'{directory} has neither {" nor ".join(_WEIGHT_FILES)}; it holds: {found}.'
    )


def _normalise(
    tensors: Mapping[str, np.ndarray], layout: _Layout, file: pathlib.Path
) -> dict[str, np.ndarray]:
    """Strip prefixes, modernise gamma and beta, leave out the heads of other tasks."""
    result, left_out = {}, []
    for name, tensor in tensors.items():
        # `module.` is what PyTorch's data parallelism leaves.
        short = name.removeprefix('module.').removeprefix(layout.prefix)
        short = re.sub(r'LayerNorm\.gamma$', 'LayerNorm.weight', short)
        short = re.sub(r'LayerNorm\.beta$', 'LayerNorm.bias', short)
        if short.startswith(layout.other_heads):
            left_out.append(name)
            continue
        if short in _BUFFERS:
            continue
        if short in result:
            raise ValueError(f'{file} holds two tensors for {short}.')
        result[short] = tensor
    if left_out:
        logging.info('%s: left out the head of another task: %s.', file, ', '.join(left_out))
    return result


def _settle_heads(
    settings: dict[str, Any],
    values: Mapping[str, Any],
    tensors: dict[str, np.ndarray],
    label_names: Sequence[str] | None,
    dtype: ComputeDtype,
    file: pathlib.Path,
) -> tuple[BertConfig, list[str]]:
    """Decide on pooler and classifier; returns the config and which of the two are to be fresh."""
    model_type = settings['model_type']
    pooler, classifier = (_LAYOUTS[model_type].modules[name] for name in ('pooler', 'classifier'))
    found = [name for name in tensors if name.startswith(_CLASSIFIERS)]
    if label_names is None and found:
        lacking = [name for name in (pooler, classifier) if f'{name}.weight' not in tensors]
        _check_classifier(values, model_type, lacking, file)
        names = _label_names(values, len(tensors[f'{classifier}.weight']), file)
        return BertConfig(**settings, label_names=names, dtype=dtype), []
    names = tuple(label_names or ())
    for name in found:
        # A fresh classifier stands on the pooler that is there.
        if not (names and name.startswith(f'{pooler}.')):
            del tensors[name]
            logging.info('%s: left out its %s.', file, name)
    has_pooler = f'{pooler}.weight' in tensors
    fresh = [] if not names else ['classifier'] if has_pooler else ['pooler', 'classifier']
    config = BertConfig(
        **settings, label_names=names, add_pooler=has_pooler or bool(names), dtype=dtype
    )
    return config, fresh


def _check_classifier(
    values: Mapping[str, Any], model_type: str, lacking: Sequence[str], file: pathlib.Path
) -> None:
    """Raise ValueError unless the classifier is one over sentences with one label each."""
    implemented = f'{FAMILIES[model_type].name}ForSequenceClassification'
    architectures = values.get('architectures') or [implemented]
    if architectures != [implemented]:
        kind = f'of {", ".join(architectures)}'
    elif lacking:
        kind = f'without {" and ".join(lacking)}'
    elif values.get('problem_type') == 'multi_label_classification':
        kind = 'of several labels at once'
    else:
        return
    raise ValueError(
        f'{file} has a classifier {kind}, and only that of {implemented} is implemented. Pass '
        'label_names=() to leave it out.'
    )


def _label_names(values: Mapping[str, Any], count: int, file: pathlib.Path) -> tuple[str, ...]:
    names = values.get('id2label') or {str(index): f'LABEL_{index}' for index in range(count)}
    if not isinstance(names, dict) or set(names) != set(map(str, range(count))):
        raise ValueError(
            f'{file} classifies into {count} classes, and id2label in its config.json names '
            f'{names}: correct id2label.'
        )
    return tuple(str(names[str(index)]) for index in range(count))


def fingerprint(name: str | pathlib.Path, *, revision: str | None = None) -> str:
    """Return the SHA-256 of a checkpoint's weights."""
    with _weight_file(hub.locate(name, revision=revision)).open('rb') as data:
        return hashlib.file_digest(data, 'sha256').hexdigest()


def _load_tokenizer(directory: pathlib.Path, config: BertConfig):
    # transformers takes a second to import, and is needed here alone.
    from transformers import AutoTokenizer

    if not any(
        (directory / name).exists() for name in ('tokenizer.json', 'vocab.txt', 'merges.txt')
    ):
        raise FileNotFoundError(
            f'{directory} has no tokenizer (tokenizer.json, vocab.txt, or vocab.json with '
            'merges.txt): copy the files of the model it was fine-tuned from into it.'
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, use_fast=True)
    # A damaged file raises whatever the reader of that file happens to raise.
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f'The tokenizer in {directory} was not loaded: {reason}') from error
    if len(tokenizer) > config.vocab_size:
        raise ValueError(
            f'The tokenizer in {directory} has {len(tokenizer)} wordpieces, the model '
            f'{config.vocab_size}: it belongs to another model.'
        )
    return tokenizer
