"""Make tokenizers from a vocabulary: by letters, by a regular expression, or by a function.

Models of chemistry, proteins and DNA often come with a list of tokens (`vocab.txt`) and a rule that
no file states. This copies such a model to an ordinary folder, which has a `tokenizer.json`:

    python -m tools.convert.vocabulary MODEL FOLDER             # a token for each letter, as in ESM
    python -m tools.convert.vocabulary MODEL FOLDER 'PATTERN'   # tokens by a regular expression
"""

import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_secrets_jax.files import read_text
from bert_secrets_jax.model.tokenizer import INPUTS, special_tokens

# The files of the former tokenizer that the new one replaces, or would contradict.
_FORMER = ('tokenizer_config.json', 'special_tokens_map.json', 'added_tokens.json')
# Numbers by token, tokens in the order of their numbers, or a file with one on each line.
Vocabulary = Mapping[str, int] | Sequence[str] | os.PathLike


def convert_vocabulary(
    source: str | os.PathLike, directory: str | os.PathLike, pattern: str | None = None
) -> None:
    """Copy the folder of a model, with a tokenizer made from its `vocab.txt`.

    Args:
      source: The folder of the model.
      directory: The folder to write, which must not exist.
      pattern: As in `regex_tokenizer`; None makes a token of each letter.

    Raises:
      FileExistsError: The folder to write exists.
      FileNotFoundError: There is no such model, or it has no `vocab.txt`.
      ValueError: As in `regex_tokenizer`.
    """
    vocabulary = pathlib.Path(source) / 'vocab.txt'
    made = letter_tokenizer(vocabulary) if pattern is None else regex_tokenizer(vocabulary, pattern)
    shutil.copytree(source, directory, ignore=shutil.ignore_patterns(*_FORMER))
    made.save_pretrained(directory)


def regex_tokenizer(vocabulary: Vocabulary, pattern: str, **special: str):
    """Return a tokenizer whose tokens are the matches of a regular expression.

    What lies between two matches becomes [UNK], and is not left out. Spaces separate tokens.

    Args:
      vocabulary: Numbers by token, tokens in the order of their numbers, or the path of a file with
        one on each line.
      pattern: The expression, such as that of Schwaller et al. 2019 for SMILES.
      special: The special tokens (`cls_token`, `sep_token`, `pad_token`, `unk_token`,
        `mask_token`), where they are spelt in another way than [CLS] or <cls> and so on.

    Raises:
      ValueError: The pattern is no regular expression or matches nothing at all, a special token is
        not in the vocabulary, or a token is there twice.
    """
    from tokenizers import Regex, pre_tokenizers

    try:
        re.compile(pattern)
        split = pre_tokenizers.Split(Regex(pattern), behavior='isolated')
    # The library has an error of its own for what Python would take.
    except Exception as error:
        raise ValueError(f'pattern={pattern!r} is no regular expression: {error}.') from error
    if re.fullmatch(pattern, ''):
        raise ValueError(f'pattern={pattern!r} matches the empty text: it must match tokens.')
    before = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), split])
    return _tokenizer(_numbers(vocabulary), before, special)


def letter_tokenizer(vocabulary: Vocabulary, **special: str):
    """Return a tokenizer with a token for each letter, as models of proteins have it.

    Tokens of the vocabulary in angle or square brackets, such as <mask>, stay whole. Arguments and
    errors are those of `regex_tokenizer`.
    """
    numbers = _numbers(vocabulary)
    whole = [re.escape(token) for token in numbers if re.fullmatch(r'<.+>|\[.+\]', token)]
    return regex_tokenizer(numbers, '|'.join([*whole, '.']), **special)


def function_tokenizer(vocabulary: Vocabulary, split: Callable[[str], Sequence[str]], **special):
    """Return a tokenizer whose tokens are what a function makes of a text.

    It cannot be written to a file: models with it can be measured and fine-tuned in memory.

    Args:
      vocabulary, special: As in `regex_tokenizer`.
      split: A function that returns the tokens of a text, each as it stands there and in their
        order. What it leaves out becomes [UNK], unless it is space.

    Raises:
      ValueError: As in `regex_tokenizer`; later, if the function returns what no text has.
    """
    from tokenizers import pre_tokenizers

    before = pre_tokenizers.PreTokenizer.custom(_Splitter(split))
    return _tokenizer(_numbers(vocabulary), before, special)


class _Splitter:
    """Cuts texts where a function does, in the form that `tokenizers` wants."""

    def __init__(self, split: Callable[[str], Sequence[str]]):
        self._split = split

    def pre_tokenize(self, text: Any) -> None:
        text.split(self._cut)

    def _cut(self, _, normalized: Any) -> list[Any]:
        text = str(normalized)
        parts, end = [], 0
        for piece in self._split(text):
            start = text.find(piece, end)
            if start < 0 or not piece:
                raise ValueError(
                    f'The function that splits texts returns {piece!r}, which does not stand in '
                    f'{text[end:]!r}.'
                )
            parts += [(end, start), (start, start + len(piece))]
            end = start + len(piece)
        parts.append((end, len(text)))
        return [normalized[start:stop] for start, stop in parts if text[start:stop].strip()]


def _numbers(vocabulary: Vocabulary) -> dict[str, int]:
    if isinstance(vocabulary, Mapping):
        return dict(vocabulary)
    if isinstance(vocabulary, str | os.PathLike):
        text = read_text(pathlib.Path(vocabulary))
        tokens = [line.rstrip('\r') for line in text.removesuffix('\n').split('\n')]
    else:
        tokens = list(vocabulary)
    numbers = {token: number for number, token in enumerate(tokens)}
    if len(numbers) < len(tokens):
        twice = next(token for number, token in enumerate(tokens) if numbers[token] != number)
        raise ValueError(f'The vocabulary has {twice!r} twice.')
    return numbers


def _tokenizer(numbers: Mapping[str, int], before: Any, special: Mapping[str, str]):
    """Return a fast tokenizer of whole tokens, which are split by `before`."""
    from tokenizers import Tokenizer, models, processors
    from transformers import PreTrainedTokenizerFast

    named = special_tokens(numbers, special)
    tokenizer = Tokenizer(models.WordLevel(dict(numbers), unk_token=named['unk_token']))
    first, last = named['cls_token'], named['sep_token']
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f'{first} $A {last}',
        pair=f'{first} $A {last} $B:1 {last}:1',
        special_tokens=[(token, numbers[token]) for token in (first, last)],
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=INPUTS, **named)
    # Not before: what is made of a function of Python cannot be copied.
    fast.backend_tokenizer.pre_tokenizer = before
    return fast


if __name__ == '__main__':
    if len(sys.argv) not in (3, 4):
        raise SystemExit('Give the folder of a model, the one to write, and a pattern if need be.')
    convert_vocabulary(*sys.argv[1:])
