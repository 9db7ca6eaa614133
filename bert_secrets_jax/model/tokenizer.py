"""Make a tokenizer from the files of a checkpoint, without running anything that they name."""

import base64
import collections
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from absl import logging

from bert_secrets_jax.checks import summary
from bert_secrets_jax.files import of_kind, read_bytes, read_json, read_text
from bert_secrets_jax.model.config import BertConfig

_TOKENIZER_FILES = (
    'tokenizer.json', 'vocab.txt', 'vocab.json', 'merges.txt', 'special_tokens_map.json',
    'added_tokens.json', 'spm.model',
)  # fmt: skip
_LONGEST_ERROR = 1000
_MANY_CAPITALS = 0.01
# How vocabularies spell the special tokens.
_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    'pad_token': ('[PAD]', '<pad>'),
    'unk_token': ('[UNK]', '<unk>'),
    'cls_token': ('[CLS]', '<cls>', '<s>'),
    'sep_token': ('[SEP]', '<sep>', '</s>', '<eos>'),
    'mask_token': ('[MASK]', '<mask>'),
}
_NAMES = tuple(_SPELLINGS)
# A model is asked for nothing that is hidden unless it has a token for that.
_OPTIONAL = ('mask_token',)
INPUTS = ['input_ids', 'token_type_ids', 'attention_mask']


def load_tokenizer(directory: pathlib.Path, config: BertConfig, settings: Mapping[str, Any]):
    """Return the fast tokenizer of a checkpoint; None if it has none, which is told."""
    if not any(
        # A link to nothing is a fault of the file, which its reader will name.
        os.path.lexists(directory / name)
        for name in ('tokenizer.json', 'vocab.txt', 'merges.txt', 'spm.model')
    ):
        logging.warning(
            '%s has no tokenizer (tokenizer.json, vocab.txt, spm.model, or vocab.json with '
            'merges.txt): the model takes ids and no texts. Copy the files of the model it was '
            'fine-tuned from into it, or give from_pretrained(tokenizer=...).', directory,
        )  # fmt: skip
        return None
    try:
        with tempfile.TemporaryDirectory() as plain:
            # The name by which `transformers` knows the tokenizer.
            kind = config.family.known_by.get('model_type', config.model_type)
            content = _copy_tokenizer(directory, pathlib.Path(plain), kind, settings)
            tokenizer = _auto_tokenizer().from_pretrained(
                plain, use_fast=True, trust_remote_code=False
            )
        if not tokenizer.is_fast:
            raise ValueError(
                f'{type(tokenizer).__name__} is no fast tokenizer, which tells where tokens stand '
                f'in a text. In a clone, `python -m tools.convert.vocabulary {directory} FOLDER` '
                'copies the model to a folder that has one.'
            )
        if type(tokenizer).__name__ == 'RoFormerTokenizer':
            # Read from vocab.txt, it knows no words of several letters until it is written.
            cast(Any, tokenizer).__setstate__(tokenizer.__dict__)
        tokenizer.name_or_path = str(directory)
        made_of = () if content else tokenizer.vocab_files_names.values()
        pieces: Any = None
        lines = known = None
        if 'spm.model' in made_of:
            from sentencepiece import SentencePieceProcessor
            from transformers.convert_slow_tokenizer import SentencePieceExtractor

            file = str(directory / 'spm.model')
            # Its own reader refuses empty pieces and scores that are no numbers.
            SentencePieceProcessor(model_file=file)
            pieces = SentencePieceExtractor(file).proto
            # The mask is added behind them.
            known = {*(each.piece for each in pieces.pieces), tokenizer.mask_token}
        elif (directory / 'vocab.txt').exists() and not content:
            text = read_text(directory / 'vocab.txt').removesuffix('\n')
            lines = [line.rstrip('\r') for line in text.split('\n')]
            known = set(map(str.strip, lines))
        _check_backend(tokenizer.backend_tokenizer, content, pieces)
        added, vocabulary = tokenizer('', '')['input_ids'], tokenizer.get_vocab()
        tokens = [getattr(tokenizer, name) for name in _NAMES]
    # A damaged file raises whatever the reader of that file happens to raise; one of the readers
    # is written in Rust, whose panics are no `Exception`.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        reason = ' '.join(str(error).split()) or summary(error)
        reason = reason if len(reason) <= _LONGEST_ERROR else f'{reason[:_LONGEST_ERROR]}...'
        raise ValueError(f'The tokenizer in {directory} was not loaded: {reason}') from error
    # For special tokens that are not in the file, nothing was learnt.
    lacking = [token for token in tokens if None not in (token, known) and token not in known]
    if lacking or not vocabulary:
        lacking = lacking or ['every wordpiece']
        raise ValueError(
            f'The vocabulary of the tokenizer in {directory} lacks {", ".join(lacking)}: is '
            'its file empty, cut off, or of another model?'
        )
    for fault in _faults(tokenizer, added, content):
        raise ValueError(f'The tokenizer in {directory} {fault}')
    ends = [tokenizer.bos_token_id, tokenizer.eos_token_id]
    if tokenizer.cls_token is None and None not in ends and [*added[:1], *added[-1:]] == ends:
        # EuroBERT's stand where others have [CLS] and [SEP].
        tokenizer.cls_token, tokenizer.sep_token = tokenizer.bos_token, tokenizer.eos_token
    _check_size(f'The tokenizer in {directory}', vocabulary, config)
    _tell_of_vocabulary(directory, tokenizer, config, lines)
    return tokenizer


def _faults(tokenizer: Any, added: Sequence[int], content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what makes a tokenizer unfit, where it puts the tokens `added` around texts."""
    named = {tokenizer.cls_token_id, tokenizer.sep_token_id}  # pyright: ignore[reportUnhashable]
    # A token that a tokenizer does not name at all is missed when texts are encoded.
    ends = [*added[:1], *added[-1:]]
    if None not in named and {*ends} != named:
        yield (
            f'begins and ends texts with {tokenizer.convert_ids_to_tokens(ends)}, and names '
            f'{tokenizer.cls_token!r} and {tokenizer.sep_token!r} in its settings: correct '
            'special_tokens_map.json, tokenizer_config.json, or the post_processor of '
            'tokenizer.json.'
        )
    counts = collections.Counter(tokenizer.get_vocab().values())
    twice = [token for token, number in tokenizer.get_vocab().items() if counts[number] > 1]
    if twice or min(counts) < 0:
        yield f'gives one number to {twice[:2]}: is tokenizer.json damaged?'
    tokens = {name: getattr(tokenizer, name) for name in _NAMES if getattr(tokenizer, name)}
    if tokenizer.eos_token is not None and tokenizer.pad_token == tokenizer.eos_token:
        # The attention mask tells them apart.
        del tokens['pad_token']
    same = len({*tokens.values()}) < len(tokens)
    model = content.get('model')
    unknown = model.get('unk_token') if isinstance(model, dict) else None
    around = json.dumps(content.get('post_processor'))
    other = content.get('post_processor') is not None and not all(
        json.dumps(tokens[name]) in around for name in ('cls_token', 'sep_token') if name in tokens
    )
    if same or other or unknown not in (None, tokenizer.unk_token):
        listed = ', '.join(f'{name}={token!r}' for name, token in tokens.items())
        yield (
            f'has {listed}, which are not different tokens of tokenizer.json: correct '
            'special_tokens_map.json or tokenizer_config.json.'
        )


def own_tokenizer(given: Any, config: BertConfig):
    """Return the tokenizer that a user gives as a fast one of `transformers`, if it fits."""
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    if isinstance(given, tokenizers.Tokenizer):
        named = special_tokens(given.get_vocab(), {})
        given = PreTrainedTokenizerFast(tokenizer_object=given, model_input_names=INPUTS, **named)
    if not getattr(given, 'is_fast', False):
        raise TypeError(
            f'tokenizer={type(given).__name__} must be a fast tokenizer of transformers or of '
            'tokenizers. In a clone, tools.convert.vocabulary makes one from a vocabulary.'
        )
    lacking = [name for name in _NAMES[:4] if getattr(given, name) is None]
    if lacking:
        raise ValueError(f'The tokenizer names no {", ".join(lacking)}: set them.')
    _check_size('The tokenizer', given.get_vocab(), config)
    return given


def special_tokens(numbers: Mapping[str, int], special: Mapping[str, str]) -> dict[str, str]:
    """Return the special tokens of a vocabulary by name; `special` are those that a user names."""
    unknown = set(special) - set(_SPELLINGS)
    if unknown:
        raise TypeError(f'Special tokens are {", ".join(_SPELLINGS)}, not {sorted(unknown)}.')
    named = {}
    for name, spellings in _SPELLINGS.items():
        wanted = (special[name],) if name in special else spellings
        present = [token for token in wanted if token in numbers]
        if present:
            named[name] = present[0]
        elif name in special or name not in _OPTIONAL:
            raise ValueError(
                f'The vocabulary has no {" or ".join(wanted)}: give {name}=, the token that stands '
                'for it.'
            )
    return named


def _check_size(what: str, vocabulary: Mapping[str, int], config: BertConfig) -> None:
    largest = max(vocabulary, key=vocabulary.__getitem__)
    if vocabulary[largest] >= config.vocab_size:
        raise ValueError(
            f'{what} has {len(vocabulary)} wordpieces, the model '
            f'{config.vocab_size}: {largest!r} is number {vocabulary[largest]}, counted from 0. '
            'It belongs to another model, or lines of its vocabulary occur twice.'
        )


def _copy_tokenizer(
    directory: pathlib.Path, plain: pathlib.Path, model_type: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Copy what a tokenizer is made from, and return the content of tokenizer.json, or {}.

    `auto_map`, which names Python of a checkpoint for `transformers` to run, is left out.
    """
    content = {}
    for name in _TOKENIZER_FILES:
        if os.path.lexists(directory / name):
            data = read_bytes(directory / name)
            if b'\0' in data and not name.endswith('.model'):
                raise ValueError(f'{directory / name} has bytes that are no text.')
            (plain / name).write_bytes(data)
            if name.endswith('.json'):
                # Its reader takes the last of two values of one key.
                values = read_json(directory / name)
                if name == 'tokenizer.json':
                    content = values
                if name == 'special_tokens_map.json':
                    _check_special_tokens(values, directory / name)
    about = directory / 'tokenizer_config.json'
    if about.exists():
        values = of_kind(read_json(about), dict, f'{about}: ')
        values.pop('auto_map', None)
        kind = values.get('tokenizer_class')
        # First, for it asks the library to be quiet.
        _auto_tokenizer()
        from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

        # For a kind that it lacks, it would make a tokenizer that does not tell segments apart.
        if kind is not None and not (isinstance(kind, str) and tokenizer_class_from_name(kind)):
            raise ValueError(
                f'{about}: tokenizer_class={kind!r} is none that transformers has, and code of a '
                'checkpoint is not run. If it is a tokenizer of another kind, name that kind there.'
            )
        (plain / about.name).write_text(json.dumps(values))
    kept = {key: settings[key] for key in ('tokenizer_class',) if settings.get(key)}
    (plain / 'config.json').write_text(json.dumps({'model_type': model_type} | kept))
    return content


def _check_backend(backend: Any, content: Mapping[str, Any], pieces: Any) -> None:
    """Refuse what would fail in Rust at the first text: no words, or a table of no texts.

    Release 5 of `transformers` leaves the table of sentencepiece out for DeBERTa: letters of other
    widths, ligatures and odd spaces would be unknown, which the model was trained without. It is
    put before the other normalizers.
    """
    from tokenizers import normalizers

    if not backend.get_vocab_size(with_added_tokens=False):
        raise ValueError('its vocabulary is empty.')
    others = [backend.normalizer] if backend.normalizer else []
    kept = [table for each in others for table in _tables(json.loads(each.__getstate__()))]
    made_of = pieces.normalizer_spec.precompiled_charsmap if pieces else b''
    lost = []
    if not kept:
        lost = [made_of] if made_of else _tables(content.get('normalizer'))
    if not all(map(_is_table, kept + lost)):
        raise ValueError('the precompiled_charsmap of its normalizer is damaged.')
    if lost:
        backend.normalizer = normalizers.Sequence([normalizers.Precompiled(lost[0]), *others])


def _tables(normalizer: Any) -> list[bytes]:
    """Return the tables of sentencepiece within a normalizer, as tokenizer.json has it."""
    parts, found = [normalizer], []
    for part in parts:
        if isinstance(part, dict):
            parts += part.get('normalizers', [])
            found += filter(None, [part.get('precompiled_charsmap')])
    return list(map(base64.b64decode, found))


def _is_table(data: bytes) -> bool:
    """Return whether all paths through a table of sentencepiece (Darts-clone) stay within it."""
    size = int.from_bytes(data[:4], 'little')
    units, texts = np.frombuffer(data[4 : 4 + size], '<u4').astype(np.int64), len(data) - 4 - size
    seen, reached = np.zeros(len(units), bool), np.array([0])
    while len(reached):
        seen[reached] = True
        # The bits of a unit: label, whether a text ends here, and the distance of what follows.
        follows = reached ^ ((units[reached] >> 10) << ((units[reached] & 512) >> 6))
        ends = follows[units[reached] & 256 > 0]
        if follows.max() >= len(units) or any(units[ends] & (2**31 - 1) >= texts):
            return False
        letters = np.arange(1, 256)
        # The last block of a published table is not a whole one.
        places = np.minimum(follows[:, None] ^ letters, len(units) - 1)
        taken = (units[places] & (2**31 | 255)) == letters
        reached = np.unique(places[taken])
        reached = reached[~seen[reached]]
    return True


def _check_special_tokens(values: Any, file: pathlib.Path) -> None:
    """Refuse special tokens that are no texts: they would be left out, or taken for others."""

    def is_token(value: Any) -> bool:
        content = value.get('content') if isinstance(value, dict) else value
        return isinstance(content, str)

    for name, value in of_kind(values, dict, f'{file}: ').items():
        if not all(map(is_token, value if isinstance(value, list) else [value])):
            raise ValueError(f'{file}: {name}={value!r} must be a text, or an object with one.')


def _tell_of_vocabulary(
    directory: pathlib.Path, tokenizer: Any, config: BertConfig, lines: Sequence[str] | None
) -> None:
    """Log what is odd about a vocabulary, and what some published models have all the same."""
    vocabulary, normalizer = tokenizer.get_vocab(), tokenizer.backend_tokenizer.normalizer
    left = config.vocab_size - len(vocabulary)
    # Embeddings are often filled up to a multiple of 64 or 128.
    if left >= 128 or left > config.vocab_size // 20:
        logging.warning(
            'The tokenizer in %s has %d wordpieces, the model %d: words of a vocabulary that was '
            'cut off become [UNK].',
            directory, len(vocabulary), config.vocab_size,
        )  # fmt: skip
    if lines is not None:
        file = directory / 'vocab.txt'
        odd = [number for number, line in enumerate(lines, 1) if line.split() != [line]]
        if odd:
            logging.warning('%s: line %d is no wordpiece, and counts as one.', file, odd[0])
        twice = [line for line, count in collections.Counter(lines).items() if count > 1]
        if twice:
            logging.warning(
                '%s has %d wordpieces twice, such as %r: the later line holds.',
                file, len(twice), twice[0],
            )  # fmt: skip
    if normalizer is None or normalizer.normalize_str('A') != 'a':
        return
    special = set(tokenizer.all_special_tokens)
    words = [each for each in vocabulary if each not in special and not each.startswith('[unused')]
    capitals = sorted(token for token in words if token != token.lower())
    if len(capitals) > _MANY_CAPITALS * len(words):
        logging.warning(
            'The tokenizer in %s writes texts in lower case, and %d of its %d wordpieces have '
            'capitals, such as %r, so that no text can have them: set do_lower_case to false in '
            'tokenizer_config.json if texts are to keep their case.',
            directory, len(capitals), len(words), capitals[0],
        )  # fmt: skip


def _auto_tokenizer():
    """Import `transformers`, without its advice to install PyTorch, which we do not need."""
    name = 'TRANSFORMERS_NO_ADVISORY_WARNINGS'
    before = os.environ.get(name)
    os.environ[name] = '1'
    try:
        # It takes a second to import, and is needed for tokenizers alone.
        from transformers import AutoTokenizer
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
    return AutoTokenizer
