"""Folders of checkpoints: their settings, their tensors, and the head that these belong to."""

import json
import math
import mmap
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
from absl import logging

from bert_secrets_jax.checks import check_enough, check_shape
from bert_secrets_jax.files import of_kind, open_regular, parse_json, read_text
from bert_secrets_jax.model import hub, torch_bin
from bert_secrets_jax.model.config import (
    ANSWER,
    CHOICES,
    CLASSES,
    HEADS,
    MASKED_LM,
    QUESTIONS,
    SEQUENCES,
    BertConfig,
    needs_pooler,
)
from bert_secrets_jax.model.config_json import read_config
from bert_secrets_jax.model.conversion import FREQUENCIES, why_unusable
from bert_secrets_jax.model.families import FAMILIES
from bert_secrets_jax.model.families.family import Family
from bert_secrets_jax.model.families.tensors import Arrays
from bert_secrets_jax.model.positions.rotary import rotation_frequencies, saved_sinusoids

_CLASSIFIERS = ('classifier.', 'pre_classifier.', 'head.')
# Constant buffers that old releases saved.
_BUFFERS = ('embeddings.position_ids', 'embeddings.token_type_ids')
_WEIGHT_FILES = ('model.safetensors', 'pytorch_model.bin')
# Types of safetensors, by their names there.
_TYPES = {'BOOL': np.bool_, 'BF16': ml_dtypes.bfloat16} | {
    f'{kind.upper()}{8 * size}': f'<{kind}{size}' for kind in 'fiu' for size in (1, 2, 4, 8)
}


def read_settings(
    directory: pathlib.Path, ignore: tuple[str, ...]
) -> tuple[BertConfig, dict[str, Any]]:
    """Return the model that a config.json is of, without head and pooler, and all that it holds."""
    file = directory / 'config.json'
    try:
        values = of_kind(parse_json(read_text(file)), dict)
        # Values that do not fit each other are this file's fault, too.
        config = BertConfig(**read_config(values, ignore=ignore), add_pooler=False)
    except (ValueError, OSError) as error:
        raise ValueError(f'{file}: {error}') from error
    # The tensors of another family may have the same names.
    family, endings = config.family, '(?:Model|For|PreTrained|LMHead)'
    classes = ' '.join(values.get('architectures') or ())
    named = [each for each in FAMILIES.values() if re.match(each.name + endings, classes)]
    # Some differ in their name alone.
    known = family.known_by or not named or any(map(family.differs_in_name, named))
    counts = config.has_positions and family.positions_after_padding
    if not known or (counts and not config.pad_token_id):
        kind = classes if not known else f'pad_token_id={config.pad_token_id}'
        logging.warning(
            '%s: model_type=%r and %s do not go together: is it a checkpoint of another family? '
            'It is computed as %s, by other arithmetic, perhaps, than that of its authors.',
            file, values.get('model_type', config.model_type), kind, family.name,
        )  # fmt: skip
    return config, values


def read_tensors(
    directory: pathlib.Path, config: BertConfig, values: Mapping[str, Any]
) -> tuple[Arrays, pathlib.Path]:
    """Return the tensors of a checkpoint by the names of today, and the file that has them.

    The heads of other tasks and adapters are left out.
    """
    tensors, file = {}, directory / hub.INDEX
    for file in (files := weight_files(directory)):
        open_regular(file).close()
        hub.check_cached(file)
        part = torch_bin.load(file) if file.suffix == '.bin' else _mapped(file)
        if twice := sorted(tensors.keys() & part.keys()):
            raise ValueError(f'{file} holds {twice[0]}, as another file of the same model does.')
        tensors |= part
    file = directory / hub.INDEX if len(files) > 1 else file
    family, result, left_out, adapters = config.family, {}, [], []
    for name, tensor in tensors.items():
        short = family.renamed(name, legacy=values.get('legacy') is not False)
        if '.parametrizations.' in short:
            adapters.append(short)
        elif short.startswith(family.other_heads):
            left_out.append(short)
        elif short in result:
            raise ValueError(f'{file} holds two tensors for {short}.')
        elif short not in _BUFFERS:
            result[short] = tensor
    if left_out:
        logging.info('%s: left out the head of another task: %s.', file, ', '.join(left_out))
    if adapters:
        logging.warning(
            '%s: left out %d tensors of adapters, such as %s: this is the model without them, and '
            'not what its authors publish for a task.', file, len(adapters), adapters[0],
        )  # fmt: skip
    result = family.part(result)
    if not config.position_biased_input:
        # Some files hold them all the same.
        result.pop(f'{family.encoder["embeddings/position"]}.weight', None)
    return result, file


def weight_files(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return the file of the weights, or all if there are several."""
    for names in ([_WEIGHT_FILES[0]], hub.shards(directory), [_WEIGHT_FILES[1]]):
        if names and (directory / names[0]).exists():
            return [directory / name for name in names]
    files = ', '.join(sorted(path.name for path in directory.iterdir())) or 'nothing'
    raise FileNotFoundError(
        f'{directory} has neither {" nor ".join(_WEIGHT_FILES)}; it holds: {files}.'
    )


def _mapped(file: pathlib.Path) -> Arrays:
    """Return the tensors of a safetensors file, whose numbers are read where they are used."""
    try:
        # The library refuses a header that does not fit the file.
        with safetensors.safe_open(file, framework='np'), open(file, 'rb') as opened:
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        start = 8 + int.from_bytes(data[:8], 'little')
        header = json.loads(data[8:start])
        header.pop('__metadata__', None)
        return {
            name: np.frombuffer(
                data,
                _TYPES[about['dtype']],
                math.prod(about['shape']),
                start + about['data_offsets'][0],
            ).reshape(about['shape'])
            for name, about in header.items()
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


def take_frequencies(
    config: BertConfig, tensors: Arrays, file: pathlib.Path
) -> tuple[float, ...] | None:
    """Take frequencies of rotary positions out; None if they are those of `rope_theta`."""
    names = [name for name in tensors if name.endswith(FREQUENCIES)]
    saved = [tensors.pop(name) for name in names]
    if not saved or config.rope_theta is None or config.position_embedding_type != 'rotary':
        return None
    expected = rotation_frequencies(config.head_size, config.rope_theta)
    if any(
        each.shape != expected.shape or why_unusable(each) or not np.array_equal(each, saved[0])
        for each in saved
    ):
        raise ValueError(f'{file}: {names[0]} is not the same {list(expected.shape)} everywhere.')
    frequencies = saved[0].astype(np.float32)
    same = np.allclose(frequencies, expected, rtol=1e-6, atol=0)
    return None if same else tuple(map(float, frequencies))


def take_rounding(config: BertConfig, tensors: Arrays, file: pathlib.Path) -> str:
    """Take a table of sinusoids out, and return its type."""
    name = config.family.sinusoids
    if name not in tensors:
        return 'float32'
    table, shape = tensors.pop(name), (config.max_position_embeddings, config.head_size)
    dtype = table.dtype.name
    if table.shape == shape and dtype in CHOICES['rotary_rounding']:
        both = (each.astype(np.float32) for each in (table, saved_sinusoids(config, dtype)))
        if np.allclose(*both, rtol=0, atol=1e-6):
            return dtype
    raise ValueError(f'{file}: {name} holds no sinusoids of the shape {list(shape)}.')


def settle_head(
    config: BertConfig,
    values: Mapping[str, Any],
    tensors: Arrays,
    label_names: Sequence[str] | None,
    head: str,
    file: pathlib.Path,
) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of the head, and the fresh modules; take unused tensors out."""
    family = config.family
    if label_names is None:
        about = _head_of_file(config, values, tensors, file)
    else:
        about = {'head': head if label_names else SEQUENCES, 'label_names': tuple(label_names)}
    head, names = about['head'], about.get('label_names', ())
    if head == MASKED_LM:
        about['tie_word_embeddings'] = _settle_ties(family, tensors, file)
    modules = family.modules(head)
    # A norm is part of the pooler.
    poolers = [name for name in family.pooler if name in modules]
    needed, kept = needs_pooler(family, head, names), []
    if label_names is None and (names or head == MASKED_LM):
        kept = [*family.head(head)]
    elif label_names and _has(poolers, modules, tensors):
        # A fresh classifier stands on the pooler that is there.
        kept = poolers
    unused = poolers if family.pooler_is_of_classifier and not needed else []
    theirs, unused = (tuple(f'{modules[name]}.' for name in each) for each in (kept, unused))
    for name in list(tensors):
        of_head = any(family.is_of(each, name) for each in HEADS)
        if name.startswith(unused) or (of_head and not name.startswith(theirs)):
            del tensors[name]
            logging.info('%s: left out its %s.', file, name)
    has_pooler = _has(poolers, modules, tensors)
    fresh = ['classifier'] if label_names else []
    if fresh and needed and not has_pooler:
        fresh = [*poolers, *fresh]
    return about | {
        'add_pooler': has_pooler or needed,
        'add_contact_head': _has(['contact_head'], modules, tensors),
    }, fresh


def _head_of_file(
    config: BertConfig, values: Mapping[str, Any], tensors: Arrays, file: pathlib.Path
) -> dict[str, Any]:
    """Return the settings of the head that a checkpoint has, if it is whole and implemented."""
    family = config.family
    classes = {f'{family.name}{ending}': head for head, ending in CLASSES.items()}
    architectures = values.get('architectures') or []
    named = classes.get(architectures[0]) if len(architectures) == 1 else None
    unbiased = named == MASKED_LM and values.get('decoder_bias') is False
    if unbiased and _has(['pooler'], family.head(MASKED_LM), tensors):
        # A bias that ModernBERT does without adds nothing.
        tensors[_end_of(family, MASKED_LM)] = np.zeros(config.vocab_size, np.float32)
    whole = [head for head in HEADS if _end_of(family, head) in tensors]
    if family.lm_plain and named == MASKED_LM:
        # No tensor is left of one that is tied.
        tied = values.get('tie_word_embeddings') or _has(['lm/decoder'], family.lm, tensors)
        whole = [MASKED_LM] if tied else []
    head = named if named in whole else whole[0] if whole else SEQUENCES
    if head != MASKED_LM and any(name.startswith(_CLASSIFIERS) for name in tensors):
        wanted = named or head
        modules = family.modules(wanted) if wanted == SEQUENCES else family.head(wanted)
        parts = [modules[name] for name in (*family.pooler, 'classifier') if name in modules]
        lacking = [name for name in parts if f'{name}.weight' not in tensors]
        unknown = architectures if named is None else []
        if unknown or lacking:
            fault = f'of {", ".join(unknown)}' if unknown else f'without {" and ".join(lacking)}'
            raise ValueError(
                f'{file} has a classifier {fault}, and these are implemented: '
                f'{", ".join(classes)}. Pass label_names=() to leave it out.'
            )
    about: dict[str, Any] = {'head': head}
    if head not in whole or head == MASKED_LM:
        return about
    if head == QUESTIONS:
        return about | {'label_names': ANSWER}
    about['label_names'] = _label_names(values, tensors[_end_of(family, head)], file)
    if head == SEQUENCES:
        about['multi_label'] = values.get('problem_type') == 'multi_label_classification'
    return about


def _end_of(family: Family, head: str) -> str:
    """Return the tensor that shows that a checkpoint has a head."""
    modules = family.head(head)
    if head == MASKED_LM:
        # Where a head of tokens stands on a layer of its own, that layer is under others, too.
        return f'{modules["lm/dense"]}.weight' if 'lm/dense' in modules else f'{modules["lm"]}.bias'
    return f'{modules["classifier"]}.weight'


def _settle_ties(family: Family, tensors: Arrays, file: pathlib.Path) -> bool:
    """Leave out what a masked LM has twice, and return whether its weights are the embeddings."""
    bias, decoder = f'{family.lm["lm"]}.bias', f'{family.lm["lm/decoder"]}.weight'
    if family.second_bias in tensors:
        second = tensors.pop(family.second_bias)
        if not np.array_equal(tensors.setdefault(bias, second), second):
            logging.warning(
                '%s: %s is not the same as %s, which is used.', file, family.second_bias, bias
            )
    words = tensors.get(f'{family.encoder["embeddings/word"]}.weight')
    tied = decoder not in tensors or (words is not None and np.array_equal(tensors[decoder], words))
    if tied:
        tensors.pop(decoder, None)
    return tied


def _has(names: Iterable[str], modules: Mapping[str, str], tensors: Arrays) -> bool:
    """Return whether there are such modules, and a checkpoint has all of them."""
    found = [name in modules and f'{modules[name]}.weight' in tensors for name in names]
    return bool(found) and all(found)


def _label_names(
    values: Mapping[str, Any], classifier: np.ndarray, file: pathlib.Path
) -> tuple[str, ...]:
    """Return the names of the classes; as many as the classifier has rows."""
    check_shape(f'The classifier of {file}', classifier, classes=None, hidden_size=None)
    check_enough(f'classes in the classifier of {file}', classifier)
    placeholders = {str(index): f'LABEL_{index}' for index in range(len(classifier))}
    names = values.get('id2label')
    # Old releases wrote those of two classes, however many there are.
    if not isinstance(names, dict) or all(
        re.fullmatch(r'LABEL_\d+', str(name)) for name in names.values()
    ):
        names = placeholders
    if names.keys() != placeholders.keys():
        raise ValueError(
            f'{file} classifies into {len(classifier)} classes, and id2label in its config.json '
            f'names {names}: correct id2label.'
        )
    return tuple(str(names[index]) for index in placeholders)
