"""Reading and writing Hugging Face's `config.json`; what is not implemented is refused by name."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bert_secrets_jax.brief import either, shortened
from bert_secrets_jax.model.config import (
    ACTIVATIONS,
    CHOICES,
    CLASSES,
    GLOBAL,
    LOCAL,
    RANGES,
    SCORE_PARTS,
    SEQUENCES,
    TOKENS,
    BertConfig,
    fixed,
    groups_of,
    not_implemented,
)
from bert_secrets_jax.model.families import FAMILIES, Family
from bert_secrets_jax.ranges import Range

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
_CHUNK, _LABELS = Range(0, 10_000_000), Range(0, 1_000_000)
# The only values in `rope_parameters`, beside a base.
_ROPE = {'rope_type': ('default',), 'type': ('default',), 'partial_rotary_factor': (1,)}
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


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_token(value: Any) -> bool:
    return type(value) is int


def _are_tokens(value: Any) -> bool:
    return all(map(_is_token, value if isinstance(value, list) else [value]))


def _is_names(value: Any) -> bool:
    if not isinstance(value, dict) or not all(re.fullmatch('[0-9]{1,9}', key) for key in value):
        return False
    names = list(map(str, value.values()))
    kinds = {type(name) for name in value.values()}
    return kinds <= {str, int} and len({*names}) == len(names) and all(map(str.strip, names))


_TOKEN_IDS = frozenset(name for name in _IGNORED if name.endswith('_token_id'))
# Other values that are read of config.json, beside numbers and `hidden_act`, and those that no
# layer reads and of which `transformers` takes some alone.
_OTHERS: Mapping[str, tuple[Any, Callable[[Any], bool]]] = (
    {
        'architectures': ('a list of texts', _is_list_of_texts),
        'problem_type': (f'one of {", ".join(_PROBLEMS)}', _PROBLEMS.__contains__),
        'tokenizer_class': ('a text', _is_text),
        'id2label': (
            'an object of numbers and names, none of them empty or given twice',
            _is_names,
        ),
        'label2id': ('an object', lambda value: isinstance(value, dict)),
        'chunk_size_feed_forward': (_CHUNK, _CHUNK.__contains__),
        'num_labels': (_LABELS, _LABELS.__contains__),
        'eos_token_id': ('a whole number or a list of them', _are_tokens),
    }
    | dict.fromkeys(
        """gradient_checkpointing output_attentions output_hidden_states return_dict
    tie_encoder_decoder tie_word_embeddings torchscript use_bfloat16 use_cache""".split(),
        ('true or false', _is_bool),
    )
    | dict.fromkeys(sorted(_TOKEN_IDS - {'eos_token_id'}), ('a whole number', _is_token))
)
# Those of them that may be null.
_MAY_BE_NULL = _TOKEN_IDS | set(
    """architectures problem_type tokenizer_class id2label label2id output_attentions
    output_hidden_states return_dict""".split()
)


def _is_one_of(value: Any, allowed: Iterable[Any]) -> bool:
    """Return whether a value is allowed; 0 is not false, and 1 is not true."""
    return any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed
    )


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
    model_type = 'bert' if 'model_type' in ignore else values.get('model_type', 'bert')
    for name, family in FAMILIES.items():
        said = {key: values.get(key) for key in family.known_by}
        if said and said == family.known_by and 'model_type' not in ignore:
            model_type = name
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ValueError(f'{not_implemented(model_type)}.')
    family = FAMILIES[model_type]
    keys = _keys(family)
    problems = []
    # A value is named as the file names it.
    spelled = {new: old for old, new in family.former.items() if old in values}
    if 'rope_theta' in family.reads:
        values, problems = _modernised(values, family)
    if 'pos_att_type' in family.reads:
        values, problems = _with_distances(values)
    required = (
        'vocab_size',
        'hidden_size',
        'num_hidden_layers',
        'num_attention_heads',
        'intermediate_size',
    )
    missing = [keys[name] for name in required if keys[name] not in values]
    if missing:
        problems.append(f'missing: {", ".join(missing)}')
    must_be = {
        name: allowed
        for name, allowed in {**_MUST_BE, **family.must_be}.items()
        if name not in (*keys.values(), *family.ignored, family.pruned_key)
    } | dict(family.must_be)
    for name, allowed in must_be.items():
        if name in values and name not in ignore and not _is_one_of(values[name], allowed):
            problems.append(
                f'{name}={shortened(values[name])} is not implemented (only {allowed[0]!r} is)'
            )
    known = {
        'model_type',
        family.pruned_key,
        *keys.values(),
        *must_be,
        *family.ignored,
        *_IGNORED,
        *ignore,
    }
    unknown = sorted(set(values) - known)
    if unknown:
        problems.append(
            f'unknown: {", ".join(f"{name}={shortened(values[name])}" for name in unknown)} '
            f'(if it changes no arithmetic, pass ignore_config={tuple(unknown)!r})'
        )
    for name, key in keys.items():
        allowed, given = RANGES.get(name), key in values
        if allowed is not None and name in family.defaults:
            # A null would not be the default, and `transformers` refuses it.
            allowed = dataclasses.replace(allowed, optional=None in family.must_be.get(key, ()))
        if given and allowed is not None and values[key] not in allowed:
            named = spelled.get(key, key)
            problems.append(f'{named}={shortened(values[key])} must be {allowed}')
        choices = tuple(family.values.get(name, CHOICES.get(name, ())))
        if given and choices and not _is_one_of(values[key], choices):
            problems.append(f'{key}={shortened(values[key])} must be {either(choices)}')
    activation = values.get(keys['hidden_act'], ACTIVATIONS[0])
    if activation not in ACTIVATIONS:
        problems.append(
            f'{keys["hidden_act"]}={shortened(activation)} is not implemented (only '
            f'{", ".join(ACTIVATIONS)} are)'
        )
    for key, (kind, is_of_kind) in _OTHERS.items():
        given = key in values and not (values[key] is None and key in _MAY_BE_NULL)
        if given and key not in (*ignore, *keys.values()) and not is_of_kind(values[key]):
            problems.append(f'{key}={shortened(values[key])} must be {kind}')
    if problems:
        raise ValueError('; '.join(problems) + '.')
    read = {
        name: values[key]
        for name, key in keys.items()
        if key in values and not (values[key] is None and name in family.defaults)
    }
    for name, ours in family.values.items():
        if name in read:
            read[name] = ours[read[name]]
    about = {'model_type': model_type, **fixed(family), **family.defaults, **read}
    size = about['hidden_size'] / about['num_attention_heads']
    if 'head_dim' in family.ignored and values.get('head_dim') not in (None, size):
        raise ValueError(f'head_dim={shortened(values["head_dim"])} must be {size:g}.')
    if family.pruned_key in values and family.pruned_key not in ignore:
        groups = groups_of(about['num_hidden_layers'], about['num_hidden_groups'])
        about['pruned_heads'] = _read_pruned(family.pruned_key, values[family.pruned_key], groups)
    return about


def _read_pruned(key: str, value: Any, groups: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the heads that each layer has lost, by layers of the file; () if none has."""
    value = {} if value is None else value
    if not isinstance(value, dict) or not all(
        re.fullmatch(r'[0-9]{1,9}', str(layer))
        and isinstance(heads, list)
        and all(isinstance(head, int) and not isinstance(head, bool) for head in heads)
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


def _modernised(values: Mapping[str, Any], family: Family) -> tuple[dict[str, Any], list[str]]:
    """Return settings with the keys of today and bases of rotary positions, and what is wrong."""
    values, problems = dict(values), []
    if 'max_trained_positions' in family.ignored and values.pop('rotary_scaling_factor', None):
        # Beyond these, the authors' own code turns by other angles in longer texts.
        values['n_positions'] = values.get('max_trained_positions', 2048)
    for old, new in family.former.items():
        if old in values:
            if new in values and values[old] != values[new]:
                both = f'{old}={shortened(values[old])} and {new}={shortened(values[new])}'
                problems.append(f'{both} are one setting: leave one of them out')
            values = {new: values.pop(old)} | values
    if 'layer_types' in family.reads:
        values, wrong = _with_layer_types(values)
        problems += wrong
    bases = values.pop('rope_parameters', None)
    theta, local = family.keys.get('rope_theta', 'rope_theta'), 'local_rope_theta'
    kinds: dict[Any, str] = {None: theta}
    if local in family.reads:
        kinds = {GLOBAL: theta, LOCAL: local}
    # One for all layers, or one for each kind where a family has two.
    given = {} if bases is None else bases if None not in kinds else {None: bases}
    if not isinstance(given, dict) or not given.keys() <= kinds.keys():
        return values, [*problems, f'rope_parameters={shortened(bases)} is not implemented']
    for kind, rope in given.items():
        for key, value in rope.items() if isinstance(rope, dict) else [('', rope)]:
            if key == 'rope_theta':
                values[kinds[kind]] = value
            elif not _is_one_of(value, _ROPE.get(key, ())):
                named = ': '.join(filter(None, ('rope_parameters', kind, key)))
                problems.append(f'{named}={shortened(value)} is not implemented')
    return values, problems


def _with_layer_types(values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return settings with `layer_types`: older files say only how often a layer is global."""
    problems = []
    count, every = values.get('num_hidden_layers', 0), values.pop('global_attn_every_n_layers', 3)
    kinds = values.pop('layer_types', None)
    if kinds is not None and _is_list_of_texts(kinds):
        values['layer_types'] = tuple(kinds)
    elif kinds is not None:
        problems.append(f'layer_types={shortened(kinds)} must be a list of texts')
    elif every not in Range(1, 1_000):
        problems.append(f'global_attn_every_n_layers={shortened(every)} must be {Range(1, 1_000)}')
    elif count in RANGES['num_hidden_layers']:
        values['layer_types'] = tuple(LOCAL if layer % every else GLOBAL for layer in range(count))
    return values, problems


def _with_distances(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return DeBERTa's settings with its parts of scores as a tuple, and what is wrong."""
    values, problems = dict(values), []
    kinds = values.pop('pos_att_type', None)
    kinds = [] if kinds in (None, '') else kinds
    if isinstance(kinds, str):
        kinds = [kind.strip() for kind in kinds.lower().split('|')]
    if _is_list_of_texts(kinds) and set(kinds) <= set(SCORE_PARTS[1:]):
        values['pos_att_type'] = tuple(kind for kind in SCORE_PARTS[1:] if kind in kinds)
    else:
        problems.append(f'pos_att_type={shortened(kinds)} must name some of {SCORE_PARTS[1:]}')
    width, heads = values.get('hidden_size'), values.get('num_attention_heads')
    for key, count in (('pooler_hidden_size', 1), ('attention_head_size', heads)):
        size = values.pop(key, None)
        sizes = all(each in Range(1, 100_000) for each in (size, count, width))
        if size is not None and not (sizes and size * count == width):
            problems.append(f'{key}={shortened(size)} is not implemented')
    return values, problems


def write_config(config: BertConfig) -> dict[str, Any]:
    """Return the content of a `config.json` that Hugging Face and `read_config` understand."""
    values = {key: getattr(config, name) for name, key in _keys(config.family).items()}
    for name, ours in config.family.values.items():
        theirs = {our: their for their, our in ours.items()}
        values[config.family.keys.get(name, name)] = theirs[getattr(config, name)]
    for key in ('layer_types', 'pos_att_type'):
        if values.get(key) is not None:
            values[key] = list(values[key])
    if values.get('embedding_size', 0) is None:
        # `transformers` would make a table of no width.
        del values['embedding_size']
    values |= {'model_type': config.model_type, 'dtype': 'float32'}
    if 'position_embedding_type' not in values:
        values['position_embedding_type'] = 'absolute'
    if config.family.code:
        values |= {**config.family.known_by, 'auto_map': dict(config.family.code)}
    if any(config.pruned_heads):
        # ALBERT's layers have the numbers that they have in the file.
        lost = dict(zip(config.groups, config.pruned_heads, strict=True))
        values[config.family.pruned_key] = {
            str(layer): list(heads) for layer, heads in lost.items() if heads
        }
    ending = CLASSES.get(config.head, 'Model') if config.has_head else 'Model'
    values['architectures'] = [f'{config.family.name}{ending}']
    values['tie_word_embeddings'] = config.tie_word_embeddings
    if config.head in (SEQUENCES, TOKENS) and config.label_names:
        values['id2label'] = {str(index): name for index, name in enumerate(config.label_names)}
        values['label2id'] = {name: index for index, name in enumerate(config.label_names)}
    if config.head == SEQUENCES and config.label_names:
        kind = 'multi_label' if config.multi_label else 'single_label'
        regression = config.num_labels == 1 and not config.multi_label
        values['problem_type'] = 'regression' if regression else f'{kind}_classification'
    return values
