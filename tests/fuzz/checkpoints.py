"""Checkpoints in Hugging Face's layout: weights in safetensors, config.json, tokenizer files."""

import dataclasses
import functools
import json
import pathlib
import random
import shutil
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz import mutate
from tests.fuzz.target import MARKER, Target, integer, number, plain_json, require, visible

SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
SENTENCES = (
    'the cat saw a dog .',
    'a bird chased the big red house , and not he !',
    'she liked it ? ran sleeps liked sleeping unlikely',
    'Small TREE: old "new" friend-teacher\u00a0never',
    'the small cats and a zebra',
)
_WORDS = """the a cat dog bird saw chased liked big small red house tree and not he she it
ran sleep ##s ##ed ##ing un ##like ##ly . , ? ! ' " old new friend teacher never : -""".split()
VOCABULARY = (*SPECIAL, *_WORDS)
SETTINGS = {
    'architectures': ['BertForSequenceClassification'],
    'model_type': 'bert',
    'vocab_size': len(VOCABULARY),
    'hidden_size': 8,
    'num_hidden_layers': 2,
    'num_attention_heads': 2,
    'intermediate_size': 12,
    'hidden_act': 'gelu',
    'hidden_dropout_prob': 0.1,
    'attention_probs_dropout_prob': 0.2,
    'classifier_dropout': None,
    'max_position_embeddings': 24,
    'type_vocab_size': 2,
    'layer_norm_eps': 1e-12,
    'initializer_range': 0.02,
    'pad_token_id': 0,
    'position_embedding_type': 'absolute',
    'id2label': {'0': 'no', '1': 'yes', '2': 'perhaps'},
    'label2id': {'no': 0, 'yes': 1, 'perhaps': 2},
    'problem_type': 'single_label_classification',
}
_EVIL = f"import os\nos.system('touch {MARKER}')\nclass Evil:\n  from_pretrained = None\n"


def state_dict(seed: int) -> dict[str, np.ndarray]:
    """Return the tensors of a tiny BERT with a classifier of three classes, as they are named."""
    rng = np.random.default_rng(seed)
    wide, inner = SETTINGS['hidden_size'], SETTINGS['intermediate_size']
    shapes = {
        'bert.embeddings.word_embeddings.weight': (len(VOCABULARY), wide),
        'bert.embeddings.position_embeddings.weight': (24, wide),
        'bert.embeddings.token_type_embeddings.weight': (2, wide),
    }
    dense = {'bert.pooler.dense': (wide, wide), 'classifier': (3, wide)}
    norms = ['bert.embeddings.LayerNorm']
    for layer in range(SETTINGS['num_hidden_layers']):
        prefix = f'bert.encoder.layer.{layer}'
        dense |= {f'{prefix}.attention.self.{name}': (wide, wide) for name in ('query', 'key')}
        dense |= {f'{prefix}.attention.self.value': (wide, wide)}
        dense |= {f'{prefix}.attention.output.dense': (wide, wide)}
        dense |= {f'{prefix}.intermediate.dense': (inner, wide)}
        dense |= {f'{prefix}.output.dense': (wide, inner)}
        norms += [f'{prefix}.attention.output.LayerNorm', f'{prefix}.output.LayerNorm']
    for name, shape in dense.items():
        shapes |= {f'{name}.weight': shape, f'{name}.bias': shape[:1]}
    for name in norms:
        shapes |= {f'{name}.weight': (wide,), f'{name}.bias': (wide,)}
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


_CODES = {
    'F64': np.float64, 'F32': np.float32, 'F16': np.float16, 'BF16': ml_dtypes.bfloat16,
    'I64': np.int64, 'I32': np.int32, 'I16': np.int16, 'I8': np.int8, 'U8': np.uint8,
    'U32': np.uint32, 'BOOL': np.bool_,
}  # fmt: skip
FLOATS = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)


def pack(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a safetensors file, written by hand."""
    header: dict[str, Any] = {'__metadata__': dict(metadata or {'format': 'pt'})}
    codes = {np.dtype(kind): code for code, kind in _CODES.items()}
    start = 0
    for name, tensor in tensors.items():
        end = start + tensor.nbytes
        header[name] = {
            'dtype': codes[tensor.dtype],
            'shape': list(tensor.shape),
            'data_offsets': [start, end],
        }
        start = end
    return frame(json.dumps(header), b''.join(t.tobytes() for t in tensors.values()))


def frame(header: str, data: bytes) -> bytes:
    """Return a safetensors file with this header and these data."""
    text = header.encode('utf-8', 'surrogatepass')
    return len(text).to_bytes(8, 'little') + text + data


def unframe(file: bytes) -> tuple[str, bytes]:
    """Return the header and the data of a safetensors file."""
    end = 8 + int.from_bytes(file[:8], 'little')
    require(8 <= end <= len(file), 'the header ends beyond the file')
    return file[8:end].decode(), file[end:]


def unpack(file: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read a safetensors file by hand: tensors and metadata."""
    header, data = unframe(file)
    found = plain_json(header)
    metadata = found.pop('__metadata__', {})
    tensors, ends = {}, [0]
    for name, about in found.items():
        start, end = (integer(offset, 0, len(data)) for offset in about['data_offsets'])
        shape = [integer(size) for size in about['shape']]
        kind = np.dtype(_CODES[about['dtype']])
        tensors[name] = np.frombuffer(data[start:end], kind).reshape(shape)
        ends.append(end)
    require(max(ends) == len(data), 'bytes behind the last tensor')
    return tensors, metadata


def modern(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what a model of tensors should have: finite float32, without their prefix."""
    result = {}
    for name, tensor in tensors.items():
        require(tensor.dtype.type in FLOATS, tensor.dtype)
        name = name.removeprefix('module.').removeprefix('bert.')
        name = name.replace('LayerNorm.gamma', 'LayerNorm.weight')
        name = name.replace('LayerNorm.beta', 'LayerNorm.bias')
        if name.startswith(('cls.', 'qa_outputs.')) or name.endswith('position_ids'):
            continue
        require(name not in result, name)
        with np.errstate(over='ignore'):
            result[name] = tensor.astype(np.float32)
        require(np.isfinite(result[name]).all(), name)
    return result


def make_checkpoint(folder: pathlib.Path, number: int) -> None:
    """Write a tiny BERT with vocab.txt and the settings of a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = SETTINGS | ({'layer_norm_eps': 1e-5, 'hidden_act': 'relu'} if number else {})
    (folder / 'config.json').write_text(json.dumps(settings, indent=2))
    (folder / 'model.safetensors').write_bytes(pack(state_dict(number)))
    words = [*VOCABULARY[:30], *VOCABULARY[30:][::-1]] if number else VOCABULARY
    (folder / 'vocab.txt').write_text('\n'.join(words) + '\n')
    (folder / 'tokenizer_config.json').write_text(
        json.dumps(
            {
                'tokenizer_class': 'BertTokenizer',
                'do_lower_case': True,
                'model_max_length': 24 - number,
                'cls_token': '[CLS]',
                'unk_token': '[UNK]',
                'strip_accents': None,
                'tokenize_chinese_chars': True,
            }
        )
    )


def make_with_tokenizer_json(folder: pathlib.Path, number: int) -> None:
    """Write a tiny BERT with all files that a tokenizer may have."""
    make_checkpoint(folder, number)
    words = (folder / 'vocab.txt').read_text().splitlines()
    _backend(words).save(str(folder / 'tokenizer.json'), pretty=True)
    roles = ('pad', 'unk', 'cls', 'sep', 'mask')
    special = {f'{role}_token': word for role, word in zip(roles, SPECIAL, strict=True)}
    (folder / 'special_tokens_map.json').write_text(json.dumps(special))


def _backend(words):
    """Return a WordPiece tokenizer of these words, made of the parts of `tokenizers`."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    places = {word: place for place, word in enumerate(words)}
    backend = tokenizers.Tokenizer(models.WordPiece(places, unk_token='[UNK]'))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single='[CLS] $A [SEP]',
        pair='[CLS] $A [SEP] $B:1 [SEP]:1',
        special_tokens=[(word, places[word]) for word in ('[CLS]', '[SEP]')],
    )
    backend.add_special_tokens([word for word in SPECIAL if word in places])
    return backend


def load(folder: pathlib.Path):
    """Load a checkpoint with the package; shapes that it computed once are not computed again."""
    import bert_secrets_jax as bs

    _remember_shapes()
    return bs.from_pretrained(folder, allow_unknown=True)


@functools.cache
def _remember_shapes() -> None:
    """For speed alone: most of loading a tiny model is tracing it for its shapes."""
    from bert_secrets_jax.model import weights

    compute = getattr(weights, 'param_shapes', None)
    if compute is None:
        return
    known: dict[str, Any] = {}

    def param_shapes(bert):
        # By its text: True, 1 and 1.0 are equal and have the same hash.
        key = repr(bert)
        if key not in known:
            known[key] = compute(bert)
        return known[key]

    weights.param_shapes = param_shapes


def read_tensors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint as the package has them."""
    from bert_secrets_jax.model import weights

    loaded = load(folder)
    tensors = weights.tensors_from_params(loaded.config, loaded.params)
    return {name.removeprefix('bert.'): np.asarray(tensor) for name, tensor in tensors.items()}


def read_settings(folder: pathlib.Path) -> dict[str, Any]:
    """Return the hyperparameters as the package has them."""
    config = load(folder).config
    found = {name: getattr(config, name) for name in (*_FIELDS, 'model_type', 'label_names')}
    # A rate of 0 is one of 0.0; true is none.
    rates = [*(name for name in _FIELDS if isinstance(SETTINGS[name], float)), 'classifier_dropout']
    return found | {name: float(found[name]) for name in rates if type(found[name]) is int}


def read_tokens(folder: pathlib.Path) -> Any:
    """Return the wordpieces of some sentences and of a pair, as the package has them."""
    import bert_secrets_jax as bs

    tokenizer = load(folder).tokenizer
    singles, pair = bs.tokenize(tokenizer, SENTENCES), bs.tokenize(tokenizer, [SENTENCES[:2]])
    return {
        'singles': _cut(singles.input_ids, singles.lengths),
        'pair': _cut(pair.input_ids, pair.lengths),
        'segments': _cut(pair.token_type_ids, pair.lengths),
    }


def _cut(rows: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    return [row[:length].tolist() for row, length in zip(rows, lengths, strict=True)]


def _tokens(backend) -> Any:
    pair = backend.encode(*SENTENCES[:2])
    return {
        'singles': [backend.encode(sentence).ids for sentence in SENTENCES],
        'pair': [pair.ids],
        'segments': [pair.type_ids],
    }


_FIELDS = tuple(
    name
    for name in SETTINGS
    if name
    not in ('architectures', 'model_type', 'id2label', 'label2id', 'problem_type',
            'position_embedding_type')
)  # fmt: skip


def _plain_settings(folder: pathlib.Path) -> dict[str, Any]:
    values = plain_json((folder / 'config.json').read_bytes().decode('utf-8-sig'))
    require(values.get('model_type', 'bert') == 'bert')
    require(values.get('position_embedding_type', 'absolute') == 'absolute')
    require(values.get('problem_type') != 'multi_label_classification')
    require(values.get('architectures') in (None, [], SETTINGS['architectures']))
    least = {'type_vocab_size': 0, 'pad_token_id': 0, 'intermediate_size': 1}
    defaults = SETTINGS | {'attention_probs_dropout_prob': 0.1, 'max_position_embeddings': 512}
    found: dict[str, Any] = {'model_type': 'bert'}
    for name in _FIELDS:
        default = defaults[name]
        if type(default) is int and default and name != 'max_position_embeddings':
            require(name in values or name == 'type_vocab_size', name)
        value = values.get(name, default)
        if name == 'classifier_dropout':
            found[name] = None if value is None else number(value, 0, 1)
        elif type(default) is int:
            found[name] = integer(value, least.get(name, 1))
        elif isinstance(default, float):
            # An epsilon of 0 divides by zero; of dropout at 1 nothing is left.
            found[name] = number(value, 0, 1)
            require(name != 'layer_norm_eps' or value > 0)
        else:
            require(value in ('gelu', 'gelu_new', 'gelu_pytorch_tanh', 'relu'), value)
            found[name] = value
    require(found['pad_token_id'] < found['vocab_size'])
    names = values.get('id2label') or {str(place): f'LABEL_{place}' for place in range(3)}
    require(isinstance(names, dict) and set(names) == {'0', '1', '2'}, names)
    labels = tuple(names[str(place)] for place in range(3))
    for label in labels:
        require(type(label) in (str, int, float), label)
    return found | {'label_names': tuple(map(str, labels))}


def _change_weights(rng: random.Random, folder: pathlib.Path) -> str:
    file = folder / 'model.safetensors'
    header, data = unframe(file.read_bytes())
    match rng.randrange(8):
        case 0 | 1:
            return mutate.damage_file(rng, folder, file.name)
        case 2:
            damaged, how = mutate.damage(rng, header.encode())
            file.write_bytes(len(damaged).to_bytes(8, 'little') + damaged + data)
            return f'header {how}:'
        case 3:
            length = rng.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1, len(header) - 1))
            file.write_bytes(length.to_bytes(8, 'little') + header.encode() + data)
            return f'length of the header: {length}'
        case 4 | 5:
            text, how = mutate.change_json(rng, json.loads(header))
            file.write_bytes(frame(text, data))
            return f'header {how}'
    tensors = dict(unpack(file.read_bytes())[0])
    name = rng.choice(list(tensors))
    how, tensors = change_tensors(rng, tensors, name)
    file.write_bytes(pack(tensors))
    return f'{how}: {name}'


def change_tensors(
    rng: random.Random, tensors: dict[str, np.ndarray], name: str
) -> tuple[str, dict[str, np.ndarray]]:
    """Return other tensors of a valid file, and what is other about them."""
    tensor = tensors[name].copy()
    tensor.ravel()[rng.randrange(tensor.size)] = rng.choice((np.nan, np.inf, -np.inf))
    wide = tensors[name].astype(np.float64)
    wide.ravel()[0] = 1e300
    how, changed = rng.choice(
        (
            ('not finite', tensors | {name: tensor}),
            ('integers', tensors | {name: (tensors[name] * 9).astype(np.int32)}),
            ('truth values', tensors | {name: tensors[name] > 0}),
            ('float16', tensors | {name: tensors[name].astype(np.float16)}),
            ('bfloat16', tensors | {name: tensors[name].astype(ml_dtypes.bfloat16)}),
            ('float64', tensors | {name: tensors[name].astype(np.float64)}),
            ('beyond float32', tensors | {name: wide}),
            ('missing tensor', {key: value for key, value in tensors.items() if key != name}),
            ('transposed', tensors | {name: np.ascontiguousarray(tensors[name].T)}),
            ('one axis more', tensors | {name: tensors[name][None]}),
            ('flat', tensors | {name: tensors[name].ravel()}),
            ('shorter', tensors | {name: tensors[name][:-1]}),
            ('empty', tensors | {name: tensors[name][:0]}),
            ('twice', tensors | {f'module.{name}': tensors[name]}),
            ('another head', tensors | {'cls.predictions.bias': np.zeros(3, np.float32)}),
            ('buffer', tensors | {'bert.embeddings.position_ids': np.arange(24)[None]}),
            ('extra tensor', tensors | {'bert.encoder.layer.2.bias': np.zeros(3, np.float32)}),
            ('renamed', {key.replace('layer.1.', 'layer.01.'): v for key, v in tensors.items()}),
            ('no layers', {key: value for key, value in tensors.items() if 'layer.' not in key}),
            ('none', {}),
        )
    )
    return how, changed


def _plain_tensors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    return modern(unpack((folder / 'model.safetensors').read_bytes())[0])


_AUTO_MAP = {
    'AutoConfig': 'evil.Evil',
    'AutoModel': 'evil.Evil',
    'AutoTokenizer': ['evil.Evil', 'evil.Evil'],
}


def _change_settings(rng: random.Random, folder: pathlib.Path) -> str:
    file = folder / 'config.json'
    match rng.randrange(10):
        case 0 | 1:
            return mutate.damage_file(rng, folder, file.name)
        case 2:
            values = json.loads(file.read_text()) | {'auto_map': _AUTO_MAP}
            (folder / 'evil.py').write_text(_EVIL)
            how = rng.choice(('', 'no model_type', 'unknown model_type', 'other tokenizer'))
            if how == 'no model_type':
                del values['model_type']
            elif how == 'unknown model_type':
                values['model_type'] = 'evil'
            elif how:
                values['tokenizer_class'] = 'Evil'
                (folder / 'tokenizer_config.json').unlink()
            file.write_text(json.dumps(values))
            return f'auto_map {how}: config.json'
        case 3:
            # One field after the other, with what a person may write by mistake.
            values = json.loads(file.read_text())
            name = rng.choice(_FIELDS)
            value = values[name]
            wrong = rng.choice(
                (str(value), float(value or 0) if not isinstance(value, str) else value.upper(),
                 None, True, False, [value], -1, 0, 1.5, '', float('nan'), float('inf'))
            )  # fmt: skip
            file.write_text(json.dumps(values | {name: wrong}))
            return f'field {name}: {wrong!r}'
    return mutate.change_json_file(rng, file)


def _change_vocabulary(rng: random.Random, folder: pathlib.Path) -> str:
    file = folder / 'vocab.txt'
    words = file.read_text().splitlines()
    place, other = rng.randrange(len(words)), rng.randrange(len(words))
    match rng.randrange(14):
        case 0 | 1 | 2 | 3:
            return mutate.damage_file(rng, folder, file.name)
        case 4:
            how, words = 'cut', words[:place]
        case 5:
            how, words[place] = 'twice the same word', words[other]
        case 6:
            how, words[place] = 'empty line', ''
        case 7:
            how, words[place] = 'another word', 'zebra'
        case 8:
            how, words[place] = 'space behind a word', words[place] + ' '
        case 9:
            words[place], words[other] = words[other], words[place]
            how = 'two words swapped'
        case 10:
            file.write_bytes('\r\n'.join([*words, '']).encode())
            return 'line ends of Windows: vocab.txt'
        case 11:
            encoding = rng.choice(('utf-8-sig', 'utf-16', 'utf-16-le'))
            file.write_bytes('\n'.join([*words, '']).encode(encoding))
            return f'{encoding}: vocab.txt'
        case 12:
            how, words = 'too many words', words + [f'word{n}' for n in range(place + 1)]
        case 13:
            special = rng.randrange(len(SPECIAL))
            how, words[special] = f'without {words[special]}', 'zebra'
    file.write_text('\n'.join([*words, '']))
    return f'{how}: vocab.txt'


def _plain_vocabulary(folder: pathlib.Path) -> Any:
    words = (folder / 'vocab.txt').read_bytes().decode().removesuffix('\n').split('\n')
    require(len(set(words)) == len(words) and all(word.strip() == word for word in words))
    require(all(map(visible, words)) and set(SPECIAL) <= set(words))
    # Models are filled up to a round number of wordpieces; more than that must be told.
    require(0.95 * len(VOCABULARY) <= len(words) <= len(VOCABULARY), f'{len(words)} words')
    return _tokens(_backend(words))


def _change_tokenizer(rng: random.Random, folder: pathlib.Path) -> str:
    name = rng.choice(('tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json'))
    if not rng.randrange(20):
        shutil.copyfile(folder / rng.choice(('config.json', 'vocab.txt')), folder / name)
        return f'another file as: {name}'
    if rng.randrange(3) == 0:
        return mutate.damage_file(rng, folder, name)
    if name == 'tokenizer_config.json' and not rng.randrange(3):
        values = json.loads((folder / name).read_text()) | {'auto_map': _AUTO_MAP}
        (folder / 'evil.py').write_text(_EVIL)
        values['tokenizer_class'] = rng.choice(('Evil', 'BertTokenizer', None, 'LlamaTokenizer'))
        (folder / name).write_text(json.dumps(values))
        if rng.randrange(2):
            config = json.loads((folder / 'config.json').read_text())
            (folder / 'config.json').write_text(json.dumps(config | {'auto_map': _AUTO_MAP}))
        return f'auto_map of {values["tokenizer_class"]}: {name}'
    return mutate.change_json_file(rng, folder / name)


def _plain_tokenizer(folder: pathlib.Path) -> Any:
    """Read tokenizer.json with `tokenizers` alone, and check by hand what stands beside it."""
    import tokenizers

    for name in ('tokenizer_config.json', 'special_tokens_map.json'):
        if not (folder / name).exists():
            continue
        values = plain_json((folder / name).read_bytes().decode())
        require(isinstance(values, dict), name)
        for key, value in values.items():
            if key.endswith('_token'):
                # Another word as [CLS] is another tokenizer than tokenizer.json describes.
                require(value in (f'[{key[:3].upper()}]', '[MASK]'), key)
            elif key in ('do_lower_case', 'tokenize_chinese_chars'):
                require(value is True, key)
    text = (folder / 'tokenizer.json').read_bytes().decode()
    places = plain_json(text)['model']['vocab']
    numbers = [integer(place, 0, len(VOCABULARY) - 1) for place in places.values()]
    require(len(set(numbers)) == len(numbers) >= 0.95 * len(VOCABULARY), 'numbers of the words')
    backend = tokenizers.Tokenizer.from_str(text)
    require(backend.get_vocab_size() == len(places), 'added words')
    # The package cuts and pads by itself.
    backend.no_truncation()
    backend.no_padding()
    return _tokens(backend)


WEIGHTS = Target(
    'safetensors', make_checkpoint, _change_weights, read_tensors, _plain_tensors, weight=15
)
CONFIG = Target(
    'config',
    make_checkpoint,
    _change_settings,
    read_settings,
    _plain_settings,
    # A message may name the setting alone.
    names=lambda folder: ['mutant', 'config.json', *SETTINGS],
    weight=20,
)
VOCAB = Target(
    'vocab', make_checkpoint, _change_vocabulary, read_tokens, _plain_vocabulary, told=True
)
TOKENIZER = dataclasses.replace(
    VOCAB,
    name='tokenizer',
    make=make_with_tokenizer_json,
    mutate=_change_tokenizer,
    oracle=_plain_tokenizer,
)
