"""The range of each setting that is a number, and the words that other settings may be."""

import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_secrets_jax.brief import either, shortened
from bert_secrets_jax.devices import parse_axes
from bert_secrets_jax.ranges import Range

_COUNT = Range(1, 10_000_000)
_COUNT_OR_ALL = Range(0, 10_000_000)
_SEED = Range(0, 2**31 - 1)

# Wide enough for any use, and narrow enough that what is in them can be tried.
NUMBERS: Mapping[str, Range] = types.MappingProxyType(
    {
        'data.max_examples': _COUNT_OR_ALL,
        'encoding.max_length': Range(5, 100_000),
        'encoding.tokens_per_batch': Range(1, 100_000_000),
        'links.draws': Range(1, 100_000),
        'frames.per_unit': _COUNT_OR_ALL,
        'treebank.max_train': _COUNT_OR_ALL,
        'treebank.max_dev': _COUNT_OR_ALL,
        'probe.num_seeds': Range(1, 1_000),
        'probe.epochs': Range(0, 10_000),
        'probe.cache_mb': Range(0, 1_000_000),
        'maps.examples': Range(0, 1_000),
        'train.num_seeds': Range(1, 1_000),
        'train.max_examples': _COUNT_OR_ALL,
        'train.max_dev_examples': _COUNT_OR_ALL,
        'train.epochs': Range(1, 10_000),
        'train.batch_size': Range(1, 100_000),
        'train.micro_batch': Range(1, 100_000),
        'train.learning_rate': Range(0.0, 10.0, whole=False, without=0.0),
        'train.warmup': Range(0.0, 1.0, whole=False, without=1.0),
        'train.weight_decay': Range(0.0, 10.0, whole=False),
        'train.clip': Range(0.0, 1e9, whole=False, without=0.0),
        'train.log_every': _COUNT,
        'train.checkpoint_every': _COUNT,
        'masked_lm.share': Range(0.01, 0.99, whole=False),
        # Among fewer random sets, none is rarer than one in twenty.
        'outliers.draws': Range(19, 100_000),
        'outliers.max_examples': _COUNT_OR_ALL,
        'ablation.max_examples': _COUNT_OR_ALL,
        'ablation.choose_examples': _COUNT_OR_ALL,
        'ablation.seeds': Range(0, 1_000),
        'ablation.chunk_tokens': Range(0, 100_000_000),
        'importance.max_examples': _COUNT_OR_ALL,
        'importance.permutations': Range(0, 100_000),
        'attribution.max_examples': _COUNT_OR_ALL,
        'prune.draws': Range(0, 1_000),
        'prune.tolerance': Range(0.0, 1.0, whole=False, without=1.0),
        'replacements.max_examples': _COUNT_OR_ALL,
        'replacements.passes': Range(1, 10_000),
        'subnetworks.share': Range(0.01, 0.99, whole=False),
        'gates.num_seeds': Range(1, 1_000),
        'gates.epochs': Range(1, 10_000),
        'gates.learning_rate': Range(0.0, 100.0, whole=False, without=0.0),
        'gates.model_learning_rate': Range(0.0, 10.0, whole=False, without=0.0),
        'patterns.count': Range(1, 100_000),
        'patterns.side': Range(32, 1_024),
        'patterns.longest': Range(0, 100_000),
        'patterns.epochs': Range(0, 100_000),
        'patterns.folds': Range(2, 1_000),
        'seed': _SEED,
    }
)
# The words that settings may be. If a setting is a tuple, each item is one of them.
WORDS: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        'model.dtype': ('float32', 'tf32x3', 'bfloat16'),
        'data.source': ('glue', 'corpus', 'file', 'tags', 'questions', 'segments'),
        'data.bad_rows': ('error', 'skip'),
        'frames.reading': ('paper', 'notebook'),
        'train.starts': ('pretrained', 'random'),
        'train.optimizer': ('adamw', 'bert_adam'),
        'change.readings': ('paper', 'notebook'),
        'ablation.checkpoint': ('finetuned', 'model'),
        'ablation.sets': ('heads', 'layers', 'one_head_left'),
        'ablation.baseline': ('uniform', 'zero', 'mean', 'resample'),
    }
)
# The names that these settings may have, with commas between them; they may also be ''.
_LISTED: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        'data.metrics': (
            'accuracy', 'f1', 'f1_macro', 'f1_micro', 'matthews', 'pearson', 'spearman',
            'span_f1', 'word_accuracy', 'exact_match', 'answer_f1',
        )
    }
)  # fmt: skip
# The range of each number in these settings, which have commas between their numbers.
_NUMBERS_LISTED: Mapping[str, Range] = types.MappingProxyType(
    {
        'gates.coefficients': Range(0.0, 1e6, whole=False),
        'prune.batch_sizes': Range(1, 100_000),
    }
)
_NEEDED = ('gates.coefficients',)
_NUMBER = re.compile(r'[0-9]+(\.[0-9]*)?(e-?[0-9]{1,2})?')
_SWITCHES = (
    'model.allow_unknown', 'masked_lm.one_at_a_time', 'probe.random_weights', 'gates.frozen',
)  # fmt: skip
_SEVERAL = ('train.starts', 'change.readings', 'ablation.sets')
_OPTIONAL = (
    'model.revision', 'data.glue_dir', 'data.tfds_dir', 'data.file', 'data.name', 'data.text_b',
    'data.label',
    'data.train_file', 'frames.folder',
)  # fmt: skip
_TUPLES_OF_TEXTS = ('model.ignore_config', 'data.columns', 'data.labels', 'statistics')


def check(config: ConfigDict) -> None:
    """Check every setting on its own, before anything is read or computed.

    Args:
      config: All settings.

    Raises:
      ValueError: Settings are out of range; the error names them all.
    """
    faults = []
    for name, allowed in NUMBERS.items():
        value = _of(config, name)
        if value not in allowed:
            faults.append(f'{name}={shortened(value)} must be {allowed}')
    for name, allowed in WORDS.items():
        value = _of(config, name)
        several = isinstance(value, tuple | list)
        if name in _SEVERAL and not several:
            faults.append(f'{name}={shortened(value)} must be a tuple of {either(allowed)}')
            continue
        if value in ((), []) and name != 'ablation.sets':
            faults.append(f'{name}=() must have at least one of {either(allowed)}')
        for word in value if several else (value,):
            if word not in allowed:
                faults.append(f'{name} is {either(allowed)}, not {shortened(word)}')
    for name, allowed in _LISTED.items():
        value = _of(config, name)
        words = [word.strip() for word in value.split(',')] if isinstance(value, str) else []
        for word in words if value else ():
            if words.count(word) > 1:
                faults.append(f'{name} has {shortened(word)} twice')
            if word not in allowed:
                faults.append(f'{name} is {either(allowed)}, not {shortened(word)}')
    for name, allowed in _NUMBERS_LISTED.items():
        value = _of(config, name)
        if value == '' and name not in _NEEDED:
            continue
        try:
            found = numbers_in(value)
        except ValueError:
            found = ()
        if not found or len(set(found)) < len(found) or not all(each in allowed for each in found):
            faults.append(
                f'{name}={shortened(value)} must be different numbers with commas between them, '
                f'each {allowed}'
            )
    for name in _SWITCHES:
        if not isinstance(_of(config, name), bool):
            faults.append(f'{name}={shortened(_of(config, name))} must be True or False')
    for name in _TUPLES_OF_TEXTS:
        value = _of(config, name)
        if not isinstance(value, tuple | list) or not all(isinstance(each, str) for each in value):
            faults.append(f'{name}={shortened(value)} must be a tuple of texts')
    try:
        parse_axes(_of(config, 'mesh'))
    except (ValueError, TypeError) as error:
        faults.append(f'mesh={str(error).rstrip(".")}')
    labels = _of(config, 'data.labels')
    if isinstance(labels, tuple | list) and len(set(map(repr, labels))) < len(labels):
        faults.append(f'data.labels={shortened(labels)} has a name twice')
    if _of(config, 'statistics') in ((), []):
        faults.append('statistics=() must have at least one name')
    for name, value in _texts(config.to_dict()):
        if not isinstance(value, str) or '\0' in value or not _is_encodable(value):
            faults.append(f'{name}={shortened(value)} must be a text that a file can hold')
    batch, micro = _of(config, 'train.batch_size'), _of(config, 'train.micro_batch')
    permutations = _of(config, 'importance.permutations')
    if permutations in NUMBERS['importance.permutations'] and (
        permutations % 2 or permutations == 2
    ):
        faults.append(
            f'importance.permutations={permutations} must be even and at least 4 (each is drawn '
            'with its reverse), or 0 to leave Shapley values out'
        )
    if not faults and batch % micro:
        faults.append(f'train.micro_batch={micro} must divide train.batch_size={batch}')
    if faults:
        raise ValueError('; '.join(faults) + '.')


def numbers_in(text: str) -> tuple[float | int, ...]:
    """Return the numbers of a setting that has several, with commas between them.

    >>> numbers_in('0.01, 3e-2')
    (0.01, 0.03)

    Raises:
      ValueError: A part of it is no number.
    """
    words = [word.strip() for word in text.split(',')] if isinstance(text, str) else ['']
    if not all(_NUMBER.fullmatch(word) for word in words):
        raise ValueError(f'{shortened(text)} must be numbers with commas between them.')
    return tuple(int(word) if word.isdigit() else float(word) for word in words)


def _texts(settings: Mapping[str, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
    """Yield the settings that are texts, by name; those that may be left out only if given."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _texts(value, f'{prefix}{name}.')
        elif prefix + name in (*NUMBERS, *WORDS, *_SWITCHES):
            continue
        elif prefix + name in _TUPLES_OF_TEXTS:
            if isinstance(value, tuple | list):
                yield from ((prefix + name, item) for item in value if isinstance(item, str))
        elif value is not None or prefix + name not in _OPTIONAL:
            yield prefix + name, value


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _of(config: ConfigDict, name: str) -> Any:
    for part in name.split('.'):
        config = config[part]
    return config
