"""Read and write checkpoints in Hugging Face's layout; every tensor must have its place."""

import dataclasses
import functools
import hashlib
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from absl import logging

from bert_secrets_jax.checks import check_enough, tree
from bert_secrets_jax.files import sha256, write_atomically, write_json
from bert_secrets_jax.model import hub
from bert_secrets_jax.model.bert import (
    Bert,
    check_has_all_heads,
    init_params,
    own_layers,
    param_shapes,
)
from bert_secrets_jax.model.checkpoint import (
    read_settings,
    read_tensors,
    settle_head,
    take_frequencies,
    take_rounding,
    weight_files,
)
from bert_secrets_jax.model.config import (
    EMBEDDING,
    MASKED_LM,
    SEQUENCES,
    BertConfig,
    ComputeDtype,
    needs_pooler,
)
from bert_secrets_jax.model.config_json import write_config
from bert_secrets_jax.model.conversion import params_from_tensors, tensors_from_params
from bert_secrets_jax.model.embedding import Pooling, read_pooling, write_pooling
from bert_secrets_jax.model.tokenizer import load_tokenizer, own_tokenizer

_ENCODER = ('embeddings', 'layers', 'final_norm')


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
        name, revision=revision, check=lambda folder: read_settings(folder, ignore_config)
    )
    config, values = read_settings(directory, ignore_config)
    tensors, file = read_tensors(directory, config, values)
    config = dataclasses.replace(
        config,
        rope_frequencies=take_frequencies(config, tensors, file),
        rotary_rounding=take_rounding(config, tensors, file),
        pooling=read_pooling(directory),
        dtype=dtype,
    )
    about, fresh = settle_head(config, values, tensors, label_names, head, file)
    bert = Bert(config := dataclasses.replace(config, **about))
    # Without fresh weights only the shapes are needed, and those cost nothing.
    shapes = param_shapes(bert)
    # Layers that are one layer are in the file once.
    own = jax.eval_shape(functools.partial(own_layers, config), shapes)
    wanted, held = (sum(each.size for each in jax.tree.leaves(of)) for of in (own, tensors))
    # Nothing of the size of the model is made yet. Smaller differences are named one by one.
    if wanted > 2 * held:
        raise ValueError(
            f'{directory / "config.json"} is of a model of {wanted:,} numbers or more '
            f"({config.summary}), and {file} holds {held:,}: is one of them another model's, or "
            'damaged?'
        )
    initial = init_params(bert, seed) if fresh else shapes
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
        if allow_unknown:
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
    check_enough('label_names', label_names)
    return _with_head(pretrained, pretrained.config, head, tuple(label_names), seed)


def without_head(pretrained: Pretrained) -> Pretrained:
    """Return the encoder alone, as `from_pretrained(..., label_names=())` does, sharing weights."""
    return _with_head(pretrained, pretrained.config, SEQUENCES)


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
    return _with_head(pretrained, config, EMBEDDING)


def _with_head(
    model: Pretrained, config: BertConfig, head: str, names: tuple[str, ...] = (), seed: int = 0
) -> Pretrained:
    """Return a model with another head, whose classifier is fresh; all else is shared."""
    stays = config.add_pooler and not config.family.pooler_is_of_classifier
    about = {'head': head, 'label_names': names, 'multi_label': False, 'tie_word_embeddings': True}
    about['add_pooler'] = stays or needs_pooler(config.family, head, names)
    bert = Bert(dataclasses.replace(config, **about))
    kept = {name: part for name, part in model.params.items() if name != 'classifier'}
    # Without names, nothing is fresh.
    made = init_params(bert, seed) if names else param_shapes(bert)
    params = {name: kept.get(name, part) for name, part in made.items()}
    return Pretrained(bert, params, model.tokenizer)


def check_masked_lm(model: Pretrained) -> None:
    """Raise ValueError for a model that predicts no hidden wordpieces."""
    if model.config.head != MASKED_LM:
        raise ValueError(
            f'The model ({model.config.summary}) has no head of a masked LM. Checkpoints of '
            "pre-training have one, such as 'bert-base-uncased'; sentence-embedding models and "
            'fine-tuned ones do not. bs.with_masked_lm(tuned, pretrained) gives a fine-tuned '
            'encoder the head of the model that it was fine-tuned from.'
        )


def with_masked_lm(tuned: Pretrained, pretrained: Pretrained) -> Pretrained:
    """Return a fine-tuned encoder with the masked-LM head of the model that it started from.

    So the same head reads both encoders. Where its weights are the embeddings of wordpieces (as in
    most models), they are the fine-tuned ones, too.

    Raises:
      ValueError: The second model is no masked LM, or the two have other layers or wordpieces.
    """
    check_masked_lm(pretrained)
    config = pretrained.config
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
    write_json(directory / 'config.json', write_config(config))
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


def fingerprint(name: str | pathlib.Path, *, revision: str | None = None) -> str:
    """Return the SHA-256 of a checkpoint's weights, to compare with what their authors published.

    The hub shows it for each large file. That of weights in several files is the SHA-256 of theirs,
    in the order of their names. Arguments are those of `from_pretrained`.

    Raises:
      FileNotFoundError: There is no such checkpoint.
    """
    hashes = list(map(sha256, weight_files(hub.locate(name, revision=revision))))
    return hashes[0] if len(hashes) == 1 else hashlib.sha256(''.join(hashes).encode()).hexdigest()
