"""Reading and writing Hugging Face's `config.json`; what is not implemented is refused by name."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bert_secrets_jax.checks import either, shortened
from bert_secrets_jax.model.config import (
    CHOICES,
    CLASSES,
    GLOBAL,
    LOCAL,
    SEQUENCES,
    TOKENS,
    BertConfig,
    fixed,
    groups_of,
    not_implemented,
)
from bert_secrets_jax.model.families import FAMILIES
from bert_secrets_jax.model.families.family import Family
from bert_secrets_jax.ranges import ranges_of

# Fields that config.json does not decide alone.
_ELSEWHERE = (
    'model_type', 'rope_frequencies', 'rotary_rounding', 'add_pooler', 'add_contact_head', 'head',
    'label_names', 'multi_label', 'pooling', 'tie_word_embeddings', 'pruned_heads', 'dtype',
)  # fmt: skip
# Keys that would change the arithmetic if they had any other value than these.
_MUST_BE: Mapping[str, tuple[Any, ...]] = {
    'position_embedding_type': ('absolute',),
    'rope_scaling': (None,),
    'sinusoidal_pos_embds': (False,),
    'is_decoder': (False,),
    'is_encoder_decoder': (False,),
    'add_cross_attention': (False,),
    'pruned_heads': ({}, None),
    'quantization_config': (None,),
}
_PROBLEMS = ('regression', 'single_label_classification', 'multi_label_classification')
# The only values in `rope_parameters`, beside a base.
_ROPE = {'rope_type': ('default',), 'type': ('default',), 'partial_rotary_factor': (1,)}
_REQUIRED = (
    'vocab_size',
    'hidden_size',
    'num_hidden_layers',
    'num_attention_heads',
    'intermediate_size',
)
# Bookkeeping that no layer reads.
_IGNORED = frozenset(
    """_name_or_path _attn_implementation _attn_implementation_autoset attn_implementation
    architectures auto_map bos_token_id eos_token_id sep_token_id cls_token_id mask_token_id
    unk_token_id bad_words_ids begin_suppress_tokens chunk_size_feed_forward
    cross_attention_hidden_size decoder_start_token_id eos_token_ids directionality
    diversity_penalty do_sample dtype torch_dtype early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id
    gradient_checkpointing id2label label2id length_penalty max_length min_length model_max_length
    no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences output_attentions
    output_hidden_states output_past output_scores pooler_fc_size pooler_num_attention_heads
    pooler_num_fc_layers pooler_size_per_head pooler_type prefix problem_type qa_dropout
    remove_invalid_values repetition_penalty return_dict return_dict_in_generate
    sentence_transformers summary_activation summary_last_dropout summary_type summary_use_proj
    suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder tie_weights_
    tie_word_embeddings tokenizer_class top_k top_p torchscript transformers_version typical_p
    use_bfloat16 use_cache xla_device""".split()
)


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is kind for each in value)


def _is_one_of(allowed: Iterable[Any]) -> Callable[[Any], bool]:
    """Return what tells whether a value is allowed; 0 is not false, and 1 is not true."""
    return lambda value: any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed
    )


def _is_names(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or not all(re.fullmatch('[0-9]{1,9}', key) for key in value):
        return False
    names = list(map(str, value.values()))
    kinds = {type(name) for name in value.values()}
    return kinds <= {str, int} and len({*names}) == len(names) and all(map(str.strip, names))


# Values that are read of config.json besides our fields: what they must be, and the test of it.
_OTHERS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    'architectures': ('a list of texts', lambda value: value is None or _is_list_of(str, value)),
    'problem_type': (f'one of {", ".join(_PROBLEMS)}', (None, *_PROBLEMS).__contains__),
    'tokenizer_class': ('a text', lambda value: isinstance(value, str | None)),
    'id2label': ('an object of numbers and names, none of them empty or given twice', _is_names),
    'tie_word_embeddings': ('true or false', _is_one_of((True, False))),
}


def _keys(family: Family) -> dict[str, str]:
    """Return the key in config.json of each of our fields that is read as it stands."""
    names = [field.name for field in dataclasses.fields(BertConfig)]
    elsewhere = {*_ELSEWHERE, *fixed(family)}
    return {name: family.keys.get(name, name) for name in names if name not in elsewhere}


def read_config(values: Mapping[str, Any], *, ignore: tuple[str, ...] = ()) -> dict[str, Any]:
    """Turn `config.json` into arguments of `BertConfig`, refusing what we do not implement.

    Pooler and classifier are not among them: the weights show whether the model has them.
    ValueError names all keys that are missing, unknown, or have a value that changes the
    arithmetic; `ignore` names further keys to disregard.
    """
    family = _family_of(values, ignore)
    keys = _keys(family)
    # A value is named as the file names it.
    spelled = {new: old for old, new in family.former.items() if old in values}
    values, problems = dict(values), []
    if family.modernise is not None:
        family.modernise(values, problems)
    for old, new in family.former.items():
        if old in values:
            if new in values and values[old] != values[new]:
                both = f'{old}={shortened(values[old])} and {new}={shortened(values[new])}'
                problems.append(f'{both} are one setting: leave one of them out')
            values = {new: values.pop(old)} | values
    if 'rope_theta' in family.reads:
        problems += _take_rope(values, family)
    missing = [keys[name] for name in _REQUIRED if keys[name] not in values]
    if missing:
        problems.append(f'missing: {", ".join(missing)}')
    read = {*keys.values(), *family.ignored, family.pruned_key}
    must_be = {name: _MUST_BE[name] for name in _MUST_BE if name not in read} | {**family.must_be}
    problems += [
        f'{name}={shortened(values[name])} is not implemented (only {allowed[0]!r} is)'
        for name, allowed in must_be.items()
        if name in values and name not in ignore and not _is_one_of(allowed)(values[name])
    ]
    unknown = sorted(values.keys() - {'model_type', *read, *must_be, *_IGNORED, *ignore})
    if unknown:
        problems.append(
            f'unknown: {", ".join(f"{name}={shortened(values[name])}" for name in unknown)} '
            f'(if it changes no arithmetic, pass ignore_config={tuple(unknown)!r})'
        )
    for key, is_allowed, needed in _checks(family, keys, ignore):
        if key in values and not is_allowed(values[key]):
            problems.append(f'{spelled.get(key, key)}={shortened(values[key])} {needed}')
    if problems:
        raise ValueError('; '.join(problems) + '.')
    found = {
        name: family.values[name][values[key]] if name in family.values else values[key]
        for name, key in keys.items()
        if key in values and not (values[key] is None and name in family.defaults)
    }
    about = {'model_type': family.model_type, **fixed(family), **family.defaults, **found}
    size = about['hidden_size'] / about['num_attention_heads']
    if 'head_dim' in family.ignored and values.get('head_dim') not in (None, size):
        raise ValueError(f'head_dim={shortened(values["head_dim"])} must be {size:g}.')
    if family.pruned_key in values and family.pruned_key not in ignore:
        groups = groups_of(about['num_hidden_layers'], about['num_hidden_groups'])
        about['pruned_heads'] = _read_pruned(family.pruned_key, values[family.pruned_key], groups)
    return about


def _family_of(values: Mapping[str, Any], ignore: tuple[str, ...]) -> Family:
    """Return the family of a config.json, which another one's `model_type` may hide."""
    if 'model_type' in ignore:
        return FAMILIES['bert']
    for family in FAMILIES.values():
        if family.known_by and family.known_by.items() <= values.items():
            return family
    model_type = values.get('model_type', 'bert')
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ValueError(f'{not_implemented(model_type)}.')
    return FAMILIES[model_type]


def _checks(
    family: Family, keys: Mapping[str, str], ignore: tuple[str, ...]
) -> Iterator[tuple[str, Callable[[Any], bool], str]]:
    """Yield keys of config.json, the tests of their values, and what is said of a wrong one."""
    ranges = ranges_of(BertConfig)
    for name, key in keys.items():
        numbers = ranges.get(name)
        if numbers is not None and name in family.defaults:
            # A null would not be the default, and `transformers` refuses it.
            optional = None in family.must_be.get(key, ())
            numbers = dataclasses.replace(numbers, optional=optional)
        if numbers is not None:
            yield key, numbers.__contains__, f'must be {numbers}'
        choices = tuple(family.values.get(name, CHOICES.get(name, ())))
        if choices:
            yield key, _is_one_of(choices), f'must be {either(choices)}'
    for key, (kind, is_allowed) in _OTHERS.items():
        if key not in ignore:
            yield key, is_allowed, f'must be {kind}'


def _read_pruned(key: str, value: Any, groups: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the heads that each layer has lost, by layers of the file; () if none has."""
    value = {} if value is None else value
    if not isinstance(value, dict) or not all(
        re.fullmatch(r'[0-9]{1,9}', str(layer)) and _is_list_of(int, heads)
        for layer, heads in value.items()
    ):
        raise ValueError(
            f'{key}={shortened(value)} must be an object of layers and their removed heads, such '
            'as {"0": [2, 3]}.'
        )
    lost = {int(layer): tuple(sorted(set(heads))) for layer, heads in value.items()}
    if not set(lost) <= set(groups):
        raise ValueError(
            f'{key}={shortened(value)} must name layers from 0 to {max(groups)} alone.'
        )
    return tuple(lost.get(group, ()) for group in groups) if any(lost.values()) else ()


def _take_rope(values: dict[str, Any], family: Family) -> list[str]:
    """Put bases of rotary positions from `rope_parameters` in their places; return what is wrong.

    There is one for all layers, or one for each kind where a family has two.
    """
    bases, problems = values.pop('rope_parameters', None), []
    theta, local = family.keys.get('rope_theta', 'rope_theta'), 'local_rope_theta'
    kinds: dict[Any, str] = (
        {GLOBAL: theta, LOCAL: local} if local in family.reads else {None: theta}
    )
    given = {} if bases is None else bases if None not in kinds else {None: bases}
    if not isinstance(given, dict) or not given.keys() <= kinds.keys():
        return [f'rope_parameters={shortened(bases)} is not implemented']
    for kind, rope in given.items():
        for key, value in rope.items() if isinstance(rope, dict) else [('', rope)]:
            if key == 'rope_theta':
                values[kinds[kind]] = value
            elif not _is_one_of(_ROPE.get(key, ()))(value):
                named = ': '.join(filter(None, ('rope_parameters', kind, key)))
                problems.append(f'{named}={shortened(value)} is not implemented')
    return problems


def write_config(config: BertConfig) -> dict[str, Any]:
    """Return the content of a `config.json` that Hugging Face and `read_config` understand."""
    family = config.family
    # `transformers` would make a table of no width.
    values = {'position_embedding_type': 'absolute'} | {
        key: getattr(config, name)
        for name, key in _keys(family).items()
        if name != 'embedding_size' or config.embedding_size is not None
    }
    for name, ours in family.values.items():
        theirs = {our: their for their, our in ours.items()}
        values[family.keys.get(name, name)] = theirs[getattr(config, name)]
    values |= {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
    values |= {'model_type': family.model_type, 'dtype': 'float32'}
    if family.code:
        values |= {**family.known_by, 'auto_map': dict(family.code)}
    if any(config.pruned_heads):
        # ALBERT's layers have the numbers that they have in the file.
        lost = dict(zip(config.groups, config.pruned_heads, strict=True))
        values[family.pruned_key] = {
            str(layer): list(heads) for layer, heads in lost.items() if heads
        }
    ending = CLASSES.get(config.head, 'Model') if config.has_head else 'Model'
    values['architectures'] = [f'{family.name}{ending}']
    values['tie_word_embeddings'] = config.tie_word_embeddings
    if config.head in (SEQUENCES, TOKENS) and config.label_names:
        values['id2label'] = {str(index): name for index, name in enumerate(config.label_names)}
        values['label2id'] = {name: index for index, name in enumerate(config.label_names)}
    if config.head == SEQUENCES and config.label_names:
        kind = 'multi_label' if config.multi_label else 'single_label'
        regression = config.num_labels == 1 and not config.multi_label
        values['problem_type'] = 'regression' if regression else f'{kind}_classification'
    return values
