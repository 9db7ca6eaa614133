"""Checkpoints in Hugging Face's layout: files that are broken or hostile."""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import sentencepiece
import tokenizers
from hypothesis import example
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

import bert_secrets_jax as bs
from bert_secrets_jax.model import weights
from bert_secrets_jax.model.bert import init_params
from bert_secrets_jax.model.config_json import write_config
from tests.conftest import WORDS, relative
from tests.fuzz.broken import MARKER, Format, integer, number, plain_json, require
from tests.fuzz.damage import (
    FLOATS,
    broken,
    changed_json,
    changed_tensors,
    changed_value,
    changes,
    damaged,
    encoded,
    respelled,
)

SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
SENTENCES = (
    'the cat saw a dog .',
    'a bird chased the big red house , and not he !',
    'she liked it ? ran sleeps liked sleeping unlikely',
    'Small TREE: old "new" friend-teacher\u00a0never',
    'the small cats and a zebra',
)
VOCABULARY = (*SPECIAL, *WORDS, ':', '-')
BERT = bs.Bert(
    bs.BertConfig(
        vocab_size=len(VOCABULARY), hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=12, max_position_embeddings=24, attention_probs_dropout_prob=0.2,
        label_names=('no', 'yes', 'perhaps'),
    )
)  # fmt: skip
SETTINGS = {
    name: value
    for name, value in write_config(BERT.config).items()
    if name not in ('dtype', 'tie_word_embeddings')
}
_EVIL = f"import os\nos.system('touch {MARKER}')\nclass Evil:\n  from_pretrained = None\n"


@functools.cache
def state_dict() -> dict[str, np.ndarray]:
    """Return the tensors of a tiny BERT with a classifier of three classes, as they are named."""
    rng = np.random.default_rng(0)
    return {
        name: rng.normal(0, 0.5, tensor.shape).astype(np.float32)
        for name, tensor in weights.tensors_from_params(BERT.config, init_params(BERT, 0)).items()
    }


_CODES = {
    'F64': np.float64, 'F32': np.float32, 'F16': np.float16, 'BF16': ml_dtypes.bfloat16,
    'I64': np.int64, 'I32': np.int32, 'I16': np.int16, 'I8': np.int8, 'U8': np.uint8,
    'U32': np.uint32, 'BOOL': np.bool_,
}  # fmt: skip


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


def make_checkpoint(folder: pathlib.Path) -> None:
    """Write a tiny BERT with vocab.txt and the settings of a tokenizer."""
    (folder / 'config.json').write_text(json.dumps(SETTINGS, indent=2))
    metadata = {'format': 'pt'}
    (folder / 'model.safetensors').write_bytes(safetensors.numpy.save(state_dict(), metadata))
    (folder / 'vocab.txt').write_text('\n'.join(VOCABULARY) + '\n')
    settings = {
        'tokenizer_class': 'BertTokenizer', 'do_lower_case': True, 'model_max_length': 24,
        'cls_token': '[CLS]', 'unk_token': '[UNK]', 'strip_accents': None,
        'tokenize_chinese_chars': True,
    }  # fmt: skip
    (folder / 'tokenizer_config.json').write_text(json.dumps(settings))


def make_with_tokenizer_json(folder: pathlib.Path) -> None:
    """Write a tiny BERT with all files that a tokenizer may have."""
    make_checkpoint(folder)
    _backend(VOCABULARY).save(str(folder / 'tokenizer.json'), pretty=True)
    roles = ('pad', 'unk', 'cls', 'sep', 'mask')
    special = {f'{role}_token': word for role, word in zip(roles, SPECIAL, strict=True)}
    (folder / 'special_tokens_map.json').write_text(json.dumps(special))


def _backend(words):
    """Return a WordPiece tokenizer of these words, made of the parts of `tokenizers`."""
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


@pytest.fixture(autouse=True, scope='module')
def shapes_once():
    """Most of loading a tiny model is tracing it for its shapes: once for each config."""
    compute, known = weights.param_shapes, {}

    def param_shapes(bert):
        # By its text: True, 1 and 1.0 are equal and have the same hash.
        key = repr(bert.config)
        if key not in known:
            known[key] = compute(bert)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, 'param_shapes', param_shapes)
        yield


def load(folder: pathlib.Path):
    return bs.from_pretrained(folder, allow_unknown=True)


def read_tensors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint as the package has them."""
    loaded = load(folder)
    tensors = weights.tensors_from_params(loaded.config, loaded.params)
    return {name.removeprefix('bert.'): np.asarray(tensor) for name, tensor in tensors.items()}


def read_settings(folder: pathlib.Path) -> dict[str, Any]:
    """Return the hyperparameters as the package has them."""
    config = load(folder).config
    found = {name: getattr(config, name) for name in (*_FIELDS, 'model_type', 'label_names')}
    # A rate of 0 is one of 0.0; true is none.
    rates = [name for name in (*_RATES, 'classifier_dropout') if type(found[name]) is int]
    return found | {name: float(found[name]) for name in rates}


def read_tokens(folder: pathlib.Path) -> Any:
    """Return the wordpieces of some sentences and of a pair, as the package has them."""
    tokenizer = load(folder).tokenizer
    if tokenizer is not None:
        # Wordpieces alone are compared, also more than the tiny model reads.
        tokenizer.reads = 512
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


_RATES = ('hidden_dropout_prob', 'attention_probs_dropout_prob', 'initializer_range',
          'layer_norm_eps')  # fmt: skip
_SIZES = {
    'vocab_size': 1, 'hidden_size': 1, 'num_hidden_layers': 1, 'num_attention_heads': 1,
    'intermediate_size': 1, 'max_position_embeddings': 1, 'type_vocab_size': 0, 'pad_token_id': 0,
}  # fmt: skip
_FIELDS = (*_SIZES, *_RATES, 'hidden_act', 'classifier_dropout')
# What else a config.json may leave out.
_DEFAULTS = {'attention_probs_dropout_prob': 0.1, 'max_position_embeddings': 512}
_NEEDED = _SIZES.keys() - {'max_position_embeddings', 'type_vocab_size', 'pad_token_id'}


def _plain_settings(folder: pathlib.Path) -> dict[str, Any]:
    values = plain_json((folder / 'config.json').read_bytes().decode('utf-8-sig'))
    require(values.get('model_type', 'bert') == 'bert')
    require(values.get('position_embedding_type', 'absolute') == 'absolute')
    require(values.get('problem_type') != 'multi_label_classification')
    require(values.get('architectures') in (None, [], SETTINGS['architectures']))
    require(values.keys() >= _NEEDED)
    values = SETTINGS | _DEFAULTS | {'id2label': None} | values
    found = {name: integer(values[name], least) for name, least in _SIZES.items()}
    # An epsilon of 0 divides by zero.
    found |= {name: number(values[name], 0, 1) for name in _RATES}
    require(found['layer_norm_eps'] > 0)
    require(values['hidden_act'] in ('gelu', 'gelu_new', 'gelu_pytorch_tanh', 'relu'))
    require(found['pad_token_id'] < found['vocab_size'])
    rate = values['classifier_dropout']
    found['classifier_dropout'] = None if rate is None else number(rate, 0, 1)
    names = values['id2label'] or {str(place): f'LABEL_{place}' for place in range(3)}
    require(isinstance(names, dict) and set(names) == {'0', '1', '2'}, names)
    labels = [names[str(place)] for place in range(3)]
    require(all(type(label) in (str, int, float) for label in labels), labels)
    about = {'model_type': 'bert', 'hidden_act': values['hidden_act']}
    return found | about | {'label_names': tuple(map(str, labels))}


def _plain_tensors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    return modern(unpack((folder / 'model.safetensors').read_bytes())[0])


def _plain_vocabulary(folder: pathlib.Path) -> Any:
    words = (folder / 'vocab.txt').read_bytes().decode().removesuffix('\n').split('\n')
    require(len(set(words)) == len(words) and all(word.strip() == word for word in words))
    require(all(words) and set(SPECIAL) <= set(words))
    # Models are filled up to a round number of wordpieces; more than that must be told.
    require(0.95 * len(VOCABULARY) <= len(words) <= len(VOCABULARY), f'{len(words)} words')
    return _tokens(_backend(words))


def _plain_tokenizer(folder: pathlib.Path) -> Any:
    """Read tokenizer.json with `tokenizers` alone, and check by hand what stands beside it."""
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


WEIGHTS = Format(make_checkpoint, read_tensors, _plain_tensors)
CONFIG = Format(make_checkpoint, read_settings, _plain_settings, names=tuple(SETTINGS))
# Without a vocabulary it is a model of ids: what asks it to read texts says that.
VOCABULARIES = Format(
    make_checkpoint, read_tokens, _plain_vocabulary, names=('came without a tokenizer',), told=True
)
TOKENIZER = Format(make_with_tokenizer_json, read_tokens, _plain_tokenizer, told=True)


def changed_header(data: bytes) -> st.SearchStrategy[bytes]:
    """A safetensors file whose header, or the length of it, is another."""
    header, rest = unframe(data)
    lengths = st.sampled_from((0, 1, 2**31, 2**40, 2**63, 2**64 - 1, len(header) - 1))
    return st.one_of(
        damaged(header.encode()).map(lambda text: len(text).to_bytes(8, 'little') + text + rest),
        changed_value(json.loads(header)).map(lambda text: frame(text, rest)),
        lengths.map(lambda length: length.to_bytes(8, 'little') + data[8:]),
    )


def changed_weights(data: bytes) -> st.SearchStrategy[bytes]:
    """A safetensors file that is valid, of other tensors."""
    tensors, metadata = unpack(data)
    return changed_tensors(tensors).map(lambda found: safetensors.numpy.save(found, metadata))


def with_bias(bias: np.ndarray) -> dict[str, bytes]:
    tensors = state_dict() | {'classifier.bias': bias}
    return {'model.safetensors': safetensors.numpy.save(tensors, {'format': 'pt'})}


@broken(
    changes(WEIGHTS, 'model.safetensors', changed_header, changed_weights, changed_weights),
    share=1.5,
)
@example(with_bias(np.full(3, np.nan, np.float32)))
@example(with_bias(np.full(3, -np.inf, np.float16)))
# More than float32 can hold.
@example(with_bias(np.full(3, 1e300)))
@example(with_bias(np.arange(3)))
@example(with_bias(np.ones(3, bool)))
def test_safetensors(changed):
    WEIGHTS.check(changed)


_AUTO_MAP = {
    'AutoConfig': 'evil.Evil',
    'AutoModel': 'evil.Evil',
    'AutoTokenizer': ['evil.Evil', 'evil.Evil'],
}


def with_code(**values: Any) -> dict[str, bytes]:
    """Return the files of a checkpoint that offers code; values that are None are left out."""
    settings = SETTINGS | {'auto_map': _AUTO_MAP} | values
    kept = {name: value for name, value in settings.items() if value is not None}
    about = {'auto_map': _AUTO_MAP, 'tokenizer_class': 'Evil'}
    return {
        'evil.py': _EVIL.encode(),
        'config.json': json.dumps(kept).encode(),
        'tokenizer_config.json': json.dumps(about).encode(),
    }


@broken(changes(CONFIG, 'config.json', changed_json, changed_json), share=2)
@example({'config.json': json.dumps(SETTINGS)[:-1].encode() + b', "hidden_dropout_prob": 0.2}'})
@example(with_code())
@example(with_code(model_type=None))
@example(with_code(model_type='evil', tokenizer_class='Evil'))
@example(with_code() | {'tokenizer_config.json': 'missing'})
def test_config(changed):
    CONFIG.check(changed)


def changed_words(data: bytes) -> st.SearchStrategy[bytes]:
    """A vocabulary with other words, in another order, or of another length."""
    words = data.decode().splitlines()
    places = st.integers(0, len(words) - 1)
    other = st.sampled_from(['', 'zebra', 'the ', ' ', *words]) | st.text(max_size=5)
    return st.one_of(
        places.map(lambda place: words[:place]),
        places.map(lambda count: words + [f'word{n}' for n in range(count + 1)]),
        st.tuples(places, other).map(lambda at: [*words[: at[0]], at[1], *words[at[0] + 1 :]]),
        st.tuples(places, places).map(lambda at: words[at[0] :] + words[: at[1]]),
    ).map(lambda found: encoded('\n'.join([*found, ''])))


def vocabulary(*words: str) -> dict[str, bytes]:
    return {'vocab.txt': '\n'.join([*words, '']).encode()}


@broken(changes(VOCABULARIES, 'vocab.txt', changed_words, lambda data: respelled(data.decode())))
@example(vocabulary(*VOCABULARY[:2]))
@example(vocabulary(*(word for word in VOCABULARY if word != '[SEP]')))
@example(vocabulary(*VOCABULARY, *['the'] * 40))
@example(vocabulary(*VOCABULARY[:10], *VOCABULARY[:10], *VOCABULARY[10:]))
@example(vocabulary(*VOCABULARY[:-1], 'cat'))
@example(vocabulary(*VOCABULARY[:30]))
def test_vocabulary(changed):
    VOCABULARIES.check(changed)


def tokenizer_files() -> st.SearchStrategy[dict[str, bytes | str]]:
    names = ('tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json')
    return st.one_of(*(changes(TOKENIZER, name, changed_json, changed_json) for name in names))


def special_tokens(**values: Any) -> dict[str, bytes]:
    return {'special_tokens_map.json': json.dumps(values).encode()}


@broken(tokenizer_files())
@example(special_tokens(cls_token='[CLS]', sep_token='[CLS]'))
@example(special_tokens(cls_token='[MASK]', sep_token='[SEP]'))
@example(special_tokens(unk_token='[PAD]'))
@example(special_tokens(sep_token=['[SEP]', 3]))
@example(special_tokens(sep_token=None))
@example({'special_tokens_map.json': b'[]'})
@example({'tokenizer_config.json': b'{"tokenizer_class": "BertTokenizer"}\0'})
@example({'tokenizer_config.json': b'{"tokenizer_class": "LlamaTokenizer"}'})
@example(with_code())
@example(with_code(tokenizer_class='BertTokenizer'))
def test_tokenizer(changed):
    TOKENIZER.check(changed)


def make_with_pieces(folder: pathlib.Path) -> None:
    """Write a tiny DeBERTa whose vocabulary is a file of sentencepiece."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SENTENCES, ' '.join(WORDS)] * 9), model_prefix=f'{folder}/spm',
        vocab_size=60, pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece='[PAD]',
        bos_piece='[CLS]', eos_piece='[SEP]', unk_piece='[UNK]', minloglevel=2,
    )  # fmt: skip
    (folder / 'spm.vocab').unlink()
    config = dataclasses.replace(
        relative(BERT.config, 'deberta-v2'), vocab_size=64, label_names=(), add_pooler=False
    )
    bert = bs.Bert(config)
    bs.save_pretrained(bs.Pretrained(bert, init_params(bert, 0), None), folder)
    (folder / 'tokenizer_config.json').write_text('{"do_lower_case": false, "vocab_type": "spm"}')


def plain_pieces(folder: pathlib.Path) -> Any:
    data = (folder / 'spm.model').read_bytes()
    pieces = sentencepiece.SentencePieceProcessor(model_proto=data)
    special = [pieces.id_to_piece(place) for place in range(4)]
    require(special == ['[PAD]', '[CLS]', '[SEP]', '[UNK]'], special)
    require(len({pieces.id_to_piece(place) for place in range(len(pieces))}) == len(pieces))
    first, second = map(pieces.encode, SENTENCES[:2])
    pair = [1, *first, 2, *second, 2]
    return {
        'singles': [[1, *pieces.encode(each), 2] for each in SENTENCES],
        'pair': [pair],
        'segments': [[0] * (len(first) + 2) + [1] * (len(second) + 1)],
    }


def changed_pieces(data: bytes) -> st.SearchStrategy[bytes]:
    """A vocabulary of sentencepiece with other pieces, scores, kinds or settings."""

    def changed(drawn):
        what, place, text, number = drawn
        model = sentencepiece_model_pb2.ModelProto.FromString(data)
        piece = model.pieces[place % len(model.pieces)]
        if what == 'piece':
            piece.piece = text
        elif what == 'score':
            piece.score = number
        elif what == 'type':
            # Control pieces and those of users are found in texts otherwise by `transformers`.
            piece.type = (1, 2, 5, 6)[place % 4]
        elif what == 'gone':
            del model.pieces[place % len(model.pieces) :]
        elif what == 'kind':
            model.trainer_spec.model_type = 1 + place % 4
        elif what == 'bytes':
            model.trainer_spec.byte_fallback = True
        elif what == 'unknown':
            model.trainer_spec.unk_id = place - 3
        elif what == 'table':
            model.normalizer_spec.precompiled_charsmap = text.encode() * 9
        else:
            spec = model.normalizer_spec
            spec.add_dummy_prefix, spec.remove_extra_whitespaces = place % 2 > 0, place % 4 > 1
        return model.SerializeToString()

    names = 'piece score type gone kind bytes unknown table spaces'.split()
    odd = st.sampled_from(
        ['', ' ', '\u2581', '\u2581the', 'zebra', '[CLS]', '<0x41>', 'x' * 70_000]
    )
    numbers = st.sampled_from([0.0, math.nan, math.inf]) | st.floats(-99, 9, width=32)
    drawn = st.tuples(
        st.sampled_from(names), st.integers(0, 99), odd | st.text(max_size=4), numbers
    )
    return drawn.map(changed)


PIECES = Format(make_with_pieces, read_tokens, plain_pieces, names=VOCABULARIES.names, told=True)


@broken(changes(PIECES, 'spm.model', changed_pieces, changed_pieces))
def test_pieces(changed):
    PIECES.check(changed)
