"""Read and write checkpoints in Hugging Face's layout; every tensor must have its place."""

import collections
import dataclasses
import functools
import hashlib
import json
import math
import mmap
import pathlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy
from absl import logging

from bert_secrets_jax.brief import tree
from bert_secrets_jax.files import open_regular, parse_json, read_text, sha256, write_atomically
from bert_secrets_jax.model import hub, torch_bin
from bert_secrets_jax.model.bert import (
    Bert,
    all_heads,
    check_has_all_heads,
    init_params,
    own_heads,
    param_shapes,
)
from bert_secrets_jax.model.config import (
    ANSWER,
    CHOICES,
    CLASSES,
    EMBEDDING,
    HEADS,
    MASKED_LM,
    QUESTIONS,
    SEQUENCES,
    BertConfig,
    ComputeDtype,
    needs_pooler,
)
from bert_secrets_jax.model.config_json import read_config, write_config
from bert_secrets_jax.model.embedding import Pooling, read_pooling, write_pooling
from bert_secrets_jax.model.families import FAMILIES, Family
from bert_secrets_jax.model.layouts import LAYOUTS, Layout
from bert_secrets_jax.model.positions.rotary import frequencies_of, rotation_frequencies, sinusoids
from bert_secrets_jax.model.tokenizer import load_tokenizer, own_tokenizer

_CLASSIFIERS = ('classifier.', 'pre_classifier.', 'head.')
_ENCODER = ('embeddings', 'layers', 'final_norm')
_LEAVES = {'kernel': 'weight', 'embedding': 'weight', 'scale': 'weight', 'bias': 'bias'}
# Constant buffers that old releases saved.
_BUFFERS = ('embeddings.position_ids', 'embeddings.token_type_ids')
# A trained weight is far below this.
_MOST_WEIGHT = 1e6
# Rotary positions of ESM: in one place, or in each layer.
_FREQUENCIES = 'rotary_embeddings.inv_freq'
_WEIGHT_FILES = ('model.safetensors', 'pytorch_model.bin')
# Types of safetensors, by their names there.
_TYPES = {'BOOL': np.bool_, 'BF16': ml_dtypes.bfloat16} | {
    f'{kind.upper()}{8 * size}': f'<{kind}{size}' for kind in 'fiu' for size in (1, 2, 4, 8)
}
_DTYPES = ('float16', 'bfloat16', 'float32', 'float64')


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model with its weights and its tokenizer.

    Attributes:
      bert: The Linen module. Call it by `bert.apply({'params': params}, ...)`.
      params: Nested dictionary of arrays in float32, or as `keep_dtype` left them. Layers are
        stacked on a leading axis and heads have an axis of their own:
        `layers/attention/query/kernel` is [L, D, N, H] and `layers/attention/output/kernel` is
        [L, N, H, D]. If heads were removed, the layers are
        apart, with as many heads as are left: `layers/3/attention/query/kernel` is [D, N, H].
      tokenizer: The fast tokenizer of `transformers`; None for a model that came without one.
    """

    bert: Bert
    params: dict[str, Any]
    tokenizer: Any

    @property
    def config(self) -> BertConfig:
        """The hyperparameters of `bert`."""
        return self.bert.config

    _repr_html_ = tree

    def __repr__(self) -> str:
        count = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        reads = 'no tokenizer' if self.tokenizer is None else type(self.tokenizer).__name__
        return f'Pretrained({self.config.summary}, {count:,} parameters, {reads})'


def check_whole(*models: Pretrained) -> None:
    """Raise ValueError for a model that has lost heads."""
    for model in models:
        check_has_all_heads(model.config)


def check_heads_alike(before: Pretrained, after: Pretrained) -> None:
    """Raise ValueError for two models whose heads have no counterparts, and name both shapes."""
    shapes = [
        (each.config.num_hidden_layers, each.config.num_attention_heads) for each in (before, after)
    ]
    if shapes[0] != shapes[1]:
        one, other = ('{} layers of {} heads'.format(*shape) for shape in shapes)
        raise ValueError(
            f'The first model has {one}, the second {other}: their heads have no counterparts. '
            'bs.analyses.matching(one, other, texts) pairs them by their maps, and '
            'bs.compare_runs compares layers at the same relative depth.'
        )


def from_pretrained(
    name: str | pathlib.Path,
    *,
    label_names: Sequence[str] | None = None,
    head: str = SEQUENCES,
    seed: int = 0,
    dtype: ComputeDtype = 'float32',
    keep_dtype: bool = False,
    revision: str | None = None,
    ignore_config: tuple[str, ...] = (),
    tokenizer: Any = None,
    allow_unknown: bool = False,
) -> Pretrained:
    """Load a BERT, or a relative with a `model_type` in `config.FAMILIES`, from disk or the hub.

    Args:
      name: A directory in Hugging Face's layout (config.json, model.safetensors or
        pytorch_model.bin, tokenizer files), a name on the hub such as 'bert-base-uncased', or
        'all-MiniLM-L6-v2', which the `quickstart` extra brings along without network.
      label_names: None keeps the checkpoint's own head, if it has one: a classifier, or a masked
        LM. Names put a freshly initialised classifier of that many classes in its place (one name
        means regression), with a pooler if it needs one. An empty sequence leaves the head out.
      head: The kind of head: the names are classes of the input ('sequence_classification') or of
        its tokens ('token_classification'). With the names 'start' and 'end', it may also find
        where an answer is ('question_answering').
      seed: Seed of the fresh weights.
      dtype: Type of matrix products: 'float32', 'tf32x3' (NVIDIA GPUs) or 'bfloat16'.
      keep_dtype: Whether weights stay as the file has them, such as in bfloat16, with half the
        memory. Each is made float32 where it is used, so that no result changes.
      revision: Branch, tag or commit on the hub.
      ignore_config: Keys of config.json to disregard, if loading refused them as unknown.
      tokenizer: A `PreTrainedTokenizerFast` or a `tokenizers.Tokenizer`. None takes that of the
        checkpoint; if it has none, this is told, and the model takes ids and no texts.
      allow_unknown: Whether texts are encoded even if half of their tokens or more become [UNK].

    Raises:
      FileNotFoundError: There is no such directory, and the hub has no such model or is out of
        reach.
      ValueError: The files are not a BERT that we implement. The message lists every tensor that is
        missing, unexpected or misshapen and every setting that is not known. Or the device does not
        compute in this dtype.
    """
    if dtype == 'tf32x3' and jax.default_backend() != 'gpu':
        raise ValueError(
            f"dtype='tf32x3' is for NVIDIA GPUs, and this device is a {jax.default_backend()}: use "
            "'float32' or 'bfloat16'."
        )
    directory = hub.locate(
        name, revision=revision, check=lambda folder: _read_settings(folder, ignore_config)
    )
    settings, values = _read_settings(directory, ignore_config)
    tensors, file = _read_tensors(directory)
    _check_plausible(settings, tensors, directory / 'config.json', file)
    layout = LAYOUTS[settings['model_type']]
    tensors = _normalise(tensors, layout, file, legacy=values.get('legacy') is not False)
    if not settings.get('position_biased_input', True):
        # Some files hold them all the same.
        tensors.pop(f'{layout.encoder["embeddings/position"]}.weight', None)
    settings['rope_frequencies'] = _frequencies(settings, tensors, file)
    settings['rotary_rounding'] = _rounding(settings, tensors, file)
    settings, fresh = _settle_head(settings, values, tensors, label_names, head, file)
    config = BertConfig(**settings, pooling=read_pooling(directory), dtype=dtype)
    bert = Bert(config)
    # Without fresh weights only the shapes are needed, and those cost nothing.
    initial = init_params(bert, seed) if fresh else param_shapes(bert)
    params = params_from_tensors(
        config, tensors, initial=initial, fresh=fresh, source=str(file), keep_dtype=keep_dtype
    )
    if fresh:
        logging.info('%s: freshly initialised (seed %d): %s.', file, seed, ', '.join(fresh))
    if tokenizer is None:
        tokenizer = load_tokenizer(directory, config, values)
    else:
        tokenizer = own_tokenizer(tokenizer, config)
    if tokenizer is not None:
        # Whoever encodes texts has the tokenizer alone, perhaps of several models.
        tokenizer.reads = max(getattr(tokenizer, 'reads', 0), config.max_length)
    if allow_unknown and tokenizer is not None:
        # Written and read again with the tokenizer's settings.
        tokenizer.init_kwargs['allow_unknown'] = True
    return Pretrained(bert, params, tokenizer)


def with_classifier(
    pretrained: Pretrained, label_names: Sequence[str], *, head: str = SEQUENCES, seed: int = 0
) -> Pretrained:
    """Return the model with a freshly initialised classifier, and a pooler if it has none.

    The fresh weights are those of `from_pretrained` with the same names, head and seed. All other
    weights are shared with the given model, not copied. A single name means regression.

    Raises:
      ValueError: There are no names.
    """
    if isinstance(label_names, str) or not label_names:
        raise ValueError(f'{label_names=} must be a sequence of at least one name.')
    bert = _with_head(pretrained.config, head, tuple(label_names))
    kept = {name: part for name, part in pretrained.params.items() if name != 'classifier'}
    params = {name: kept.get(name, part) for name, part in init_params(bert, seed).items()}
    return Pretrained(bert, params, pretrained.tokenizer)


def without_head(pretrained: Pretrained) -> Pretrained:
    """Return the encoder alone, as `from_pretrained(..., label_names=())` does, sharing weights."""
    bare = _with_head(pretrained.config, SEQUENCES, ())
    params = {name: pretrained.params[name] for name in param_shapes(bare)}
    return Pretrained(bare, params, pretrained.tokenizer)


def with_pooling(
    pretrained: Pretrained, pooling: str | Pooling | None = None, *, normalised: bool | None = None
) -> Pretrained:
    """Return the encoder with the embedding of each text in the place of logits, sharing weights.

    All that reads logits then reads embeddings: the model itself, `bs.sweep`, gradients.

    Args:
      pooling: How the states of tokens become one vector: 'mean', 'cls', 'max' or another of the
        modes of `bs.Pooling`, or such a record. None takes what the folder of the model says, if it
        is one of sentence-transformers.
      normalised: Whether embeddings have length 1; None leaves that to `pooling`.

    Raises:
      ValueError: The model does not say how it pools, or in a way that is not implemented.
    """
    known = pretrained.config.pooling
    if isinstance(pooling, str):
        pooling = dataclasses.replace(known or Pooling(), modes=(pooling,), refused='')
    pooling = known if pooling is None else pooling
    if pooling is None or pooling.refused:
        lacks = (
            "does not say how it pools: give pooling='mean', 'cls' or 'max', as its authors say."
        )
        if pooling is not None:
            lacks = (
                f'needs more than pooling, {pooling.refused}, which is not implemented. '
                "pooling='mean', 'cls' or 'max' gives embeddings without it, which are not those "
                'of its authors.'
            )
        raise ValueError(f'The model ({pretrained.config.summary}) {lacks}')
    if normalised is not None:
        pooling = dataclasses.replace(pooling, normalised=normalised)
    config = dataclasses.replace(pretrained.config, pooling=pooling)
    bare = _with_head(config, EMBEDDING, ())
    params = {name: pretrained.params[name] for name in param_shapes(bare)}
    return Pretrained(bare, params, pretrained.tokenizer)


def _with_head(config: BertConfig, head: str, names: tuple[str, ...]) -> Bert:
    stays = config.add_pooler and not config.family.pooler_is_of_classifier
    return Bert(
        dataclasses.replace(
            config,
            head=head,
            label_names=names,
            multi_label=False,
            tie_word_embeddings=True,
            add_pooler=stays or needs_pooler(config.family, head, names),
        )
    )


def with_masked_lm(tuned: Pretrained, pretrained: Pretrained) -> Pretrained:
    """Return a fine-tuned encoder with the masked-LM head of the model that it started from.

    So the same head reads both encoders. Where its weights are the embeddings of wordpieces (as in
    most models), they are the fine-tuned ones, too.

    Raises:
      ValueError: The second model is no masked LM, or the two have other layers or wordpieces.
    """
    config = pretrained.config
    if config.head != MASKED_LM:
        raise ValueError(f'The model ({config.summary}) has no head of a masked LM.')
    theirs, ours = (
        jax.tree.map(np.shape, {name: model.params[name] for name in ('embeddings', 'layers')})
        for model in (pretrained, tuned)
    )
    kinds = [(each.config.model_type, each.config.pruned_heads) for each in (pretrained, tuned)]
    if kinds[0] != kinds[1] or theirs != ours:
        raise ValueError(
            f'A head of {config.summary} does not fit {tuned.config.summary}: give the model that '
            'the other one was fine-tuned from.'
        )
    encoder = {name: tuned.params[name] for name in tuned.params if name in _ENCODER}
    return Pretrained(pretrained.bert, {**pretrained.params, **encoder}, pretrained.tokenizer)


def save_pretrained(pretrained: Pretrained, directory: str | pathlib.Path) -> None:
    """Write config.json, model.safetensors and tokenizer files, for us and for `transformers`.

    The directory is made if it is missing. Each file is replaced only once it is complete. If the
    process is killed between two of them, the weights are older than config.json; loading notices
    another architecture or number of classes.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as partial:
        for file in map(pathlib.Path, tokenizer_files(pretrained.tokenizer, partial)):
            write_atomically(directory / file.name, file.read_bytes())
    config = pretrained.config
    write_pooling(directory, config.pooling, config.hidden_size)
    write_model(directory, config, tensors_from_params(config, pretrained.params))


def write_model(
    directory: pathlib.Path, config: BertConfig, tensors: dict[str, np.ndarray]
) -> None:
    """Write config.json and model.safetensors."""
    text = json.dumps(write_config(config), indent=2, sort_keys=True) + '\n'
    write_atomically(directory / 'config.json', text.encode())
    data = safetensors.numpy.save(tensors, metadata={'format': 'pt'})
    write_atomically(directory / 'model.safetensors', data)


def tokenizer_files(tokenizer: Any, folder: str) -> Sequence[str]:
    """Write a tokenizer, and return the names of its files."""
    if tokenizer is None:
        return ()
    try:
        return tokenizer.save_pretrained(folder)
    # The library, which is not written in Python, raises nothing more particular.
    except Exception as error:
        raise ValueError(
            f'The tokenizer cannot be written: {error}. One that a function of Python splits texts '
            'for has no file; one with `tokenizers.pre_tokenizers.Split` has.'
        ) from error


def params_from_tensors(
    config: BertConfig,
    tensors: dict[str, np.ndarray],
    *,
    initial: Mapping[str, Any],
    fresh: Sequence[str] = (),
    source: str = 'checkpoint',
    keep_dtype: bool = False,
) -> dict[str, Any]:
    """Turn Hugging Face tensors (names without the prefix `bert.`) into parameters.

    Modules that are `fresh`, and all shapes, are those of `initial`. Tensors are taken out of the
    dictionary, so that memory holds no model twice. ValueError lists all tensors that are missing,
    unexpected or misshapen, not floating-point, or hold NaN or infinity.
    """
    leaves = _leaves(initial)
    own = _leaves(jax.eval_shape(functools.partial(own_heads, config), initial))
    result = {}
    kinds = ('missing', 'unexpected', 'misshapen', 'unusable')
    wrong: dict[str, list[str]] = {kind: [] for kind in kinds}
    names_of = {
        path: _their_names(config, path) for path in leaves if path.split('/')[0] not in fresh
    }
    # Layers that stand apart may be one layer in the file.
    uses = collections.Counter(name for names in names_of.values() for name in {*names})
    for path, leaf in leaves.items():
        if path not in names_of:
            result[path] = leaf
            continue
        leaf, names = own[path], names_of[path]
        shape, parts = _their_shape(*_without_number(path, leaf.shape)), []
        for name in names:
            if name is None:
                parts.append(np.full(shape, path.endswith('scale'), np.float32))
            elif name not in tensors:
                wrong['missing'].append(f'{name} {list(shape)}')
            elif tensors[name].shape != shape:
                wrong['misshapen'].append(
                    f'{name} {list(tensors[name].shape)}, expected {list(shape)}'
                )
            elif fault := _fault(tensors[name]):
                wrong['unusable'].append(f'{name} {fault}')
            else:
                largest = float(np.abs(tensors[name]).max(initial=0))
                if largest > _MOST_WEIGHT:
                    logging.warning(
                        '%s: %s has a weight of %.2g. No trained model has, and what is computed '
                        'with it may mean nothing.',
                        source, name, largest,
                    )  # fmt: skip
                parts.append(tensors[name].T if path.endswith('kernel') else tensors[name])
        if not any(wrong.values()):
            # Two copies of a whole model are never in memory.
            uses.subtract({*names})
            last = [name for name in dict.fromkeys(names) if name in tensors and not uses[name]]
            types = {tensors[name].dtype for name in names if name is not None}
            taken = [tensors.pop(name) for name in last]
            kept = keep_dtype and [each.itemsize for each in types] == [2]
            stack = np.stack(parts, dtype=types.pop() if kept else np.float32, casting='unsafe')
            result[path] = jnp.asarray(stack.reshape(leaf.shape), stack.dtype)
            for tensor in taken:
                _forget(tensor)
            del parts, stack, taken
    wrong['unexpected'] = [
        f'{name} {list(tensors[name].shape)}' for name in sorted(tensors.keys() - uses.keys())
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
    return all_heads(config, flax.traverse_util.unflatten_dict(result, sep='/'))


def tensors_from_params(config: BertConfig, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Turn parameters into Hugging Face tensors, named as `transformers` saves them."""
    layout = LAYOUTS[config.model_type]
    prefix = layout.prefix if config.has_head else ''
    tensors, own = {}, own_heads(config, dict(params))
    if config.num_key_value_heads is not None:
        same = jax.tree.map(np.array_equal, dict(params), all_heads(config, own))
        if not all(jax.tree.leaves(same)):
            raise ValueError('Keys or values differ between heads that share them: change all.')
    for path, leaf in _leaves(own).items():
        names = _their_names(config, path)
        path, shape = _without_number(path, leaf.shape)
        shape = _their_shape(path, shape)
        layers = np.asarray(leaf, np.float32).reshape(len(names), -1)
        for name, layer in zip(names, layers, strict=True):
            if name is None:
                continue
            turned = path.endswith('kernel')
            array = layer.reshape(shape[::-1]).T if turned else layer.reshape(shape)
            full = name if layout.is_of(config.head, name) else prefix + name
            if not np.array_equal(tensors.get(full, array), array):
                raise ValueError(
                    f'{path} differs between layers that are one layer: with '
                    f'num_hidden_groups={config.num_hidden_groups}, '
                    f'{config.num_hidden_layers} layers share {full}.'
                )
            tensors[full] = np.ascontiguousarray(array)
    if 'lm' in params and layout.second_bias:
        tensors[layout.second_bias] = np.asarray(params['lm']['bias'], np.float32)
    if layout.sinusoids:
        tensors[prefix + layout.sinusoids] = _table(
            config.max_position_embeddings, config.head_size, config.rotary_rounding
        )
    if layout.saves_frequencies and config.rope_theta is not None and not config.has_positions:
        tensors[prefix + _FREQUENCIES] = frequencies_of(config, config.rope_theta)
    return layout.fuse(tensors)


def _leaves(params: Mapping[str, Any]) -> dict[str, Any]:
    return flax.traverse_util.flatten_dict(params, sep='/')


def _without_number(path: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return the path and the shape that the parameters of a layer apart have in a stack."""
    number = re.match(r'layers/\d+/', path)
    return (f'layers/{path[number.end() :]}', (1, *shape)) if number else (path, shape)


def _their_names(config: BertConfig, path: str) -> list[str | None]:
    """Return the names of the tensors of each layer; None where the layer has no such module."""
    apart = re.match(r'layers/(\d+)/', path)
    if apart:
        return [_their_names(config, _without_number(path, ())[0])[int(apart[1])]]
    module, leaf = path.rsplit('/', 1)
    modules = LAYOUTS[config.model_type].modules(config.head)
    name = f'{modules[module]}.{_LEAVES[leaf]}'
    if not module.startswith('layers/'):
        return [name]
    layers = zip(config.groups, config.layer_kinds, strict=True)
    of_some = {'layers/attention_norm': 'normed', 'layers/conv_norm': 'convolved'}.get(module)
    return [
        name.format(group) if of_some is None or getattr(kind, of_some) else None
        for group, kind in layers
    ]


def _their_shape(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of one PyTorch tensor: linear weights are [out, in], heads are flat."""
    if path.startswith('layers/'):
        shape = shape[1:]
    if path == 'layers/attention/output/kernel':
        return (shape[2], shape[0] * shape[1])
    if path == 'embeddings/conv/kernel':
        return shape[::-1]
    if path.endswith('kernel'):
        return (int(np.prod(shape[1:])), shape[0])
    return shape if path.endswith('embedding') else (int(np.prod(shape)),)


def _fault(tensor: np.ndarray) -> str:
    """Return why an array cannot be weights; empty if it can."""
    if tensor.dtype.name not in _DTYPES:
        return f'is of type {tensor.dtype.name}, and weights are of {", ".join(_DTYPES)}'
    # A number that float32 cannot hold becomes infinite.
    with np.errstate(over='ignore'):
        finite = np.isfinite(tensor.astype(np.float32, copy=False))
    if not finite.all():
        return f'has NaN or infinity in {(~finite).sum():,} of {finite.size:,} numbers'
    return ''


def _read_settings(
    directory: pathlib.Path, ignore: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of `BertConfig` in a config.json, and all that it holds."""
    file = directory / 'config.json'
    try:
        values = parse_json(read_text(file))
        if not isinstance(values, dict):
            raise ValueError('it does not hold a JSON object.')
        settings = read_config(values, ignore=ignore)
        # Values that do not fit each other are this file's fault, too.
        config = BertConfig(**settings, add_pooler=False)
    except (ValueError, OSError) as error:
        raise ValueError(f'{file}: {error}') from error
    _tell_of_type(file, values, config)
    return settings, values


def _tell_of_type(file: pathlib.Path, values: Mapping[str, Any], config: BertConfig) -> None:
    """Log that a file seems to be of another family, whose tensors may have the same names."""
    family = config.family
    classes = ' '.join(values.get('architectures') or ())
    # The longest name first: Bert is a part of others.
    names = '|'.join(sorted({each.name for each in FAMILIES.values()}, key=len, reverse=True))
    named = re.match(rf'({names})(?:Model|For|PreTrained|LMHead)', classes)
    others = [each for each in FAMILIES.values() if named and each.name == named[1]]
    # Some differ in their name alone.
    alike = [dataclasses.replace(each, name=family.name) == family for each in others]
    known = family.known_by or not named or any(alike)
    counts = config.has_positions and family.positions_after_padding
    if not known or (counts and not config.pad_token_id):
        kind = classes if not known else f'pad_token_id={config.pad_token_id}'
        logging.warning(
            '%s: model_type=%r and %s do not go together: is it a checkpoint of another family? '
            'It is computed as %s, by other arithmetic, perhaps, than that of its authors.',
            file, values.get('model_type', config.model_type), kind, family.name,
        )  # fmt: skip


def _read_tensors(directory: pathlib.Path) -> tuple[dict[str, np.ndarray], pathlib.Path]:
    tensors, file = {}, directory / hub.INDEX
    for file in (files := _weight_files(directory)):
        open_regular(file).close()
        hub.check_cached(file)
        part = torch_bin.load(file) if file.suffix == '.bin' else _mapped(file)
        if twice := sorted(tensors.keys() & part.keys()):
            raise ValueError(f'{file} holds {twice[0]}, as another file of the same model does.')
        tensors |= part
    return tensors, directory / hub.INDEX if len(files) > 1 else file


def _mapped(file: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file, whose numbers are read where they are used."""
    try:
        # The library refuses a header that does not fit the file.
        with safetensors.safe_open(file, framework='np'), open(file, 'rb') as opened:
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        start = 8 + int.from_bytes(data[:8], 'little')
        header = json.loads(data[8:start])
        return {
            name: np.frombuffer(
                data,
                _TYPES[about['dtype']],
                math.prod(about['shape']),
                start + about['data_offsets'][0],
            ).reshape(about['shape'])
            for name, about in header.items()
            if name != '__metadata__'
        }
    except OSError as error:
        raise ValueError(
            f'{file} is no file of a disk, and cannot be read as weights: copy it first. {error}'
        ) from error
    # The library has its own error for a damaged file, and others for types that NumPy lacks.
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, AttributeError,
            OverflowError, MemoryError) as error:  # fmt: skip
        raise ValueError(
            f'{file} is not a complete safetensors file: {type(error).__name__} {error}.'
        ) from error


def _forget(tensor: np.ndarray) -> None:
    """Give the memory back in which a mapped file lies; what is used again is read again."""
    base: Any = tensor
    while isinstance(base, np.ndarray):
        base = base.base
    mapped = getattr(base, 'obj', None)
    # Other systems than Linux do without.
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, 'MADV_DONTNEED'):
        mapped.madvise(mmap.MADV_DONTNEED)


def _check_plausible(
    settings: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    settings_file: pathlib.Path,
    file: pathlib.Path,
) -> None:
    """Refuse settings of a model far larger than its file, before anything of its size is made."""
    width = settings['hidden_size']
    # Layers that are one layer are in the file once.
    layers = settings['num_hidden_groups'] or settings['num_hidden_layers']
    tables = ['vocab_size', 'type_vocab_size']
    if settings.get('position_embedding_type', 'absolute') == 'absolute':
        tables.append('max_position_embeddings')
    rows = sum(settings.get(name, getattr(BertConfig, name)) for name in tables)
    of_layer = 4 * width**2 + 2 * width * settings['intermediate_size']
    of_head = 4 * width * width // settings['num_attention_heads']
    lost = sum(map(len, settings.get('pruned_heads', ()))) / settings['num_hidden_layers']
    wanted = int(layers * (of_layer - lost * of_head)) + rows * (
        settings.get('embedding_size') or width
    )
    held = sum(tensor.size for tensor in tensors.values())
    # Smaller differences are named tensor by tensor.
    if wanted > 2 * held:
        sizes = ', '.join(
            f'{name}={settings[name]}'
            for name in ('num_hidden_layers', 'hidden_size', 'intermediate_size', 'vocab_size')
        )
        raise ValueError(
            f'{settings_file} is of a model of {wanted:,} numbers or more ({sizes}), and {file} '
            f"holds {held:,}: is one of them another model's, or damaged?"
        )


def _weight_files(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return the file of the weights, or all if there are several."""
    for names in ([_WEIGHT_FILES[0]], hub.shards(directory), [_WEIGHT_FILES[1]]):
        if names and (directory / names[0]).exists():
            return [directory / name for name in names]
    files = ', '.join(sorted(path.name for path in directory.iterdir())) or 'nothing'
    raise FileNotFoundError(
        f'{directory} has neither {" nor ".join(_WEIGHT_FILES)}; it holds: {files}.'
    )


def _normalise(
    tensors: Mapping[str, np.ndarray], layout: Layout, file: pathlib.Path, *, legacy: bool
) -> dict[str, np.ndarray]:
    """Strip prefixes, modernise gamma and beta, leave out the heads of other tasks."""
    result, adapters = {}, []
    for name, tensor in tensors.items():
        # `module.` is what PyTorch's data parallelism leaves.
        short = layout.renamed(name.removeprefix('module.'))
        short = re.sub(r'LayerNorm\.gamma$', 'LayerNorm.weight', short)
        short = re.sub(r'LayerNorm\.beta$', 'LayerNorm.bias', short)
        for start, usual in {} if legacy else layout.not_legacy.items():
            short = usual + short.removeprefix(start) if short.startswith(start) else short
        if short in _BUFFERS:
            continue
        # LoRA changes a weight under this name; without it, it is the weight itself.
        short = short.replace('.parametrizations.weight.original', '.weight')
        if '.parametrizations.' in short:
            adapters.append(short)
            continue
        if short in result and not short.startswith(layout.other_heads):
            raise ValueError(f'{file} holds two tensors for {short}.')
        result[short] = tensor
    left_out = [name for name in result if name.startswith(layout.other_heads)]
    if left_out:
        logging.info('%s: left out the head of another task: %s.', file, ', '.join(left_out))
    if adapters:
        logging.warning(
            '%s: left out %d tensors of adapters, such as %s: this is the model without them, and '
            'not what its authors publish for a task.', file, len(adapters), adapters[0],
        )  # fmt: skip
    return layout.part({name: result[name] for name in result if name not in left_out})


def _frequencies(
    settings: Mapping[str, Any], tensors: dict[str, np.ndarray], file: pathlib.Path
) -> tuple[float, ...] | None:
    """Take the frequencies of rotary positions out; None if they are those of `rope_theta`."""
    names = [name for name in tensors if name.endswith(_FREQUENCIES)]
    saved = [tensors.pop(name) for name in names]
    theta = settings.get('rope_theta')
    if not saved or theta is None or settings.get('position_embedding_type') != 'rotary':
        return None
    expected = rotation_frequencies(
        settings['hidden_size'] // settings['num_attention_heads'], theta
    )
    if any(each.shape != expected.shape or _fault(each) for each in saved) or any(
        not np.array_equal(each, saved[0]) for each in saved
    ):
        raise ValueError(f'{file}: {names[0]} is not the same {list(expected.shape)} everywhere.')
    frequencies = saved[0].astype(np.float32)
    if np.allclose(frequencies, expected, rtol=1e-6, atol=0):
        return None
    return tuple(map(float, frequencies))


def _rounding(
    settings: Mapping[str, Any], tensors: dict[str, np.ndarray], file: pathlib.Path
) -> str:
    """Take a table of rotary positions out, and return its type."""
    name = LAYOUTS[settings['model_type']].sinusoids
    if name not in tensors:
        return 'float32'
    table = tensors.pop(name)
    dtype, width = table.dtype.name, settings['hidden_size'] // settings['num_attention_heads']
    shape = settings['max_position_embeddings'], width
    if table.shape == shape and dtype in CHOICES['rotary_rounding']:
        expected = _table(*shape, dtype)
        if np.allclose(table.astype(np.float32), expected.astype(np.float32), 0, 1e-6):
            return dtype
    raise ValueError(f'{file}: {name} holds no sinusoids of the shape {list(shape)}.')


def _table(length: int, width: int, dtype: str) -> np.ndarray:
    """Return sines, then cosines, of the angles of each position, as RoFormer keeps them."""
    return np.concatenate(sinusoids(length, width)[::-1], axis=1).astype(jnp.dtype(dtype))


def _settle_head(
    settings: dict[str, Any],
    values: Mapping[str, Any],
    tensors: dict[str, np.ndarray],
    label_names: Sequence[str] | None,
    head: str,
    file: pathlib.Path,
) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments of `BertConfig`, and the fresh modules; take unused tensors out."""
    layout, family = LAYOUTS[settings['model_type']], FAMILIES[settings['model_type']]
    if label_names is None:
        about = _checkpoint_head(values, layout, family, tensors, file)
    else:
        about = {'head': head if label_names else SEQUENCES, 'label_names': tuple(label_names)}
    head, names = about['head'], about.get('label_names', ())
    if head == MASKED_LM:
        about['tie_word_embeddings'] = _settle_ties(layout, tensors, file)
    modules = layout.modules(head)
    # A norm is part of the pooler.
    poolers = [name for name in ('pooler', 'pooler_norm') if name in modules]
    if label_names is None and (names or head == MASKED_LM):
        kept = tuple(layout.heads[head])
    elif label_names and _has(poolers, modules, tensors):
        # A fresh classifier stands on the pooler that is there.
        kept = tuple(poolers)
    else:
        kept = ()
    theirs = tuple(f'{modules[name]}.' for name in kept)
    needed, unused = needs_pooler(family, head, names), ()
    if family.pooler_is_of_classifier and not needed:
        unused = tuple(f'{modules[name]}.' for name in poolers)
    for name in list(tensors):
        of_head = any(layout.is_of(each, name) for each in layout.heads)
        if name.startswith(unused) or (of_head and not name.startswith(theirs)):
            del tensors[name]
            logging.info('%s: left out its %s.', file, name)
    has_pooler = _has(poolers, modules, tensors)
    fresh = ['classifier'] if label_names else []
    if fresh and needed and not has_pooler:
        fresh = [*poolers, *fresh]
    return settings | about | {
        'add_pooler': has_pooler or needed,
        'add_contact_head': _has(['contact_head'], modules, tensors),
    }, fresh


def _checkpoint_head(
    values: Mapping[str, Any],
    layout: Layout,
    family: Family,
    tensors: dict[str, np.ndarray],
    file: pathlib.Path,
) -> dict[str, Any]:
    """Return the settings of the head that a checkpoint has, if it is whole and implemented."""
    classes = {f'{family.name}{ending}': head for head, ending in CLASSES.items()}
    architectures = values.get('architectures') or []
    named = classes.get(architectures[0]) if len(architectures) == 1 else None
    unbiased = named == MASKED_LM and values.get('decoder_bias') is False
    if unbiased and _has(['pooler'], layout.heads[MASKED_LM], tensors):
        # A bias that ModernBERT does without adds nothing.
        tensors[_ends(layout, MASKED_LM)] = np.zeros(values['vocab_size'], np.float32)
    whole = [head for head in HEADS if _ends(layout, head) in tensors]
    if family.lm_plain and named == MASKED_LM:
        # No tensor is left of one that is tied.
        decoder = f'{layout.heads[MASKED_LM]["lm/decoder"]}.weight'
        whole = [MASKED_LM] if decoder in tensors or values.get('tie_word_embeddings') else []
    head = named if named in whole else whole[0] if whole else SEQUENCES
    fault = ''
    if head != MASKED_LM and any(name.startswith(_CLASSIFIERS) for name in tensors):
        wanted = named or head
        modules = layout.modules(wanted) if wanted == SEQUENCES else layout.heads[wanted]
        parts = [modules.get(name) for name in ('pooler', 'pooler_norm', 'classifier')]
        lacking = [name for name in parts if name and f'{name}.weight' not in tensors]
        if architectures and named is None:
            fault = f'of {", ".join(architectures)}'
        elif lacking:
            fault = f'without {" and ".join(lacking)}'
    if fault:
        raise ValueError(
            f'{file} has a classifier {fault}, and these are implemented: {", ".join(classes)}. '
            'Pass label_names=() to leave it out.'
        )
    about: dict[str, Any] = {'head': head}
    if head in whole and head == QUESTIONS:
        about['label_names'] = ANSWER
    elif head in whole and head != MASKED_LM:
        about['label_names'] = _label_names(values, tensors[_ends(layout, head)], file)
    if head == SEQUENCES and head in whole:
        about['multi_label'] = values.get('problem_type') == 'multi_label_classification'
    return about


def _ends(layout: Layout, head: str) -> str:
    """Return the tensor that shows that a checkpoint has a head."""
    modules = layout.heads.get(head, {})
    if head == MASKED_LM:
        # Where a head of tokens stands on a layer of its own, that layer is under others, too.
        return f'{modules["lm/dense"]}.weight' if 'lm/dense' in modules else f'{modules["lm"]}.bias'
    return f'{modules["classifier"]}.weight'


def _settle_ties(layout: Layout, tensors: dict[str, np.ndarray], file: pathlib.Path) -> bool:
    """Leave out what a masked LM has twice, and return whether its weights are the embeddings."""
    modules = layout.modules(MASKED_LM)
    bias, decoder = f'{modules["lm"]}.bias', f'{modules["lm/decoder"]}.weight'
    if layout.second_bias in tensors:
        second = tensors.pop(layout.second_bias)
        if not np.array_equal(tensors.setdefault(bias, second), second):
            logging.warning(
                '%s: %s is not the same as %s, which is used.', file, layout.second_bias, bias
            )
    words = tensors.get(f'{modules["embeddings/word"]}.weight')
    tied = decoder not in tensors or (words is not None and np.array_equal(tensors[decoder], words))
    if tied:
        tensors.pop(decoder, None)
    return tied


def _has(
    names: Sequence[str], modules: Mapping[str, str], tensors: Mapping[str, np.ndarray]
) -> bool:
    """Return whether there are such modules, and a checkpoint has all of them."""
    return bool(names) and all(
        name in modules and f'{modules[name]}.weight' in tensors for name in names
    )


def _label_names(
    values: Mapping[str, Any], classifier: np.ndarray, file: pathlib.Path
) -> tuple[str, ...]:
    """Return the names of the classes; as many as the classifier has rows."""
    if classifier.ndim != 2 or len(classifier) == 0:
        raise ValueError(
            f'{file} has a classifier of the shape {list(classifier.shape)}, and one of '
            '[classes, hidden_size] is needed.'
        )
    count = len(classifier)
    placeholders = {str(index): f'LABEL_{index}' for index in range(count)}
    names = values.get('id2label') or placeholders
    if isinstance(names, dict) and all(
        re.fullmatch(r'LABEL_\d+', str(name)) for name in names.values()
    ):
        # Old releases wrote those of two classes, however many there are.
        names = placeholders
    if not isinstance(names, dict) or set(names) != set(map(str, range(count))):
        raise ValueError(
            f'{file} classifies into {count} classes, and id2label in its config.json names '
            f'{names}: correct id2label.'
        )
    return tuple(str(names[str(index)]) for index in range(count))


def fingerprint(name: str | pathlib.Path, *, revision: str | None = None) -> str:
    """Return the SHA-256 of a checkpoint's weights, to compare with what their authors published.

    The hub shows it for each large file. That of weights in several files is the SHA-256 of theirs,
    in the order of their names. Arguments are those of `from_pretrained`.

    Raises:
      FileNotFoundError: There is no such checkpoint.
    """
    hashes = list(map(sha256, _weight_files(hub.locate(name, revision=revision))))
    return hashes[0] if len(hashes) == 1 else hashlib.sha256(''.join(hashes).encode()).hexdigest()
