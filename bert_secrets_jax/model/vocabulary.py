"""Tokenizers made from a vocabulary: by a regular expression, by letters, or by a function.

Models of chemistry, proteins and DNA often come with a list of tokens and a rule that no file
states. What is made here is a fast tokenizer of `transformers`, like any other.
"""

import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_secrets_jax.files import read_text

# How vocabularies spell the special tokens.
_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    'pad_token': ('[PAD]', '<pad>'),
    'unk_token': ('[UNK]', '<unk>'),
    'cls_token': ('[CLS]', '<cls>', '<s>'),
    'sep_token': ('[SEP]', '<sep>', '</s>', '<eos>'),
    'mask_token': ('[MASK]', '<mask>'),
}
# A model is asked for nothing that is hidden unless it has a token for that.
_OPTIONAL = ('mask_token',)
_INPUTS = ['input_ids', 'token_type_ids', 'attention_mask']
# Numbers by token, tokens in the order of their numbers, or a file with one on each line.
Vocabulary = Mapping[str, int] | Sequence[str] | os.PathLike


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


def from_library(tokenizer: Any):
    """Return a tokenizer of `tokenizers` as one of `transformers`, if it has special tokens."""
    from transformers import PreTrainedTokenizerFast

    named = _special_tokens(tokenizer.get_vocab(), {})
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=_INPUTS, **named)


def _special_tokens(numbers: Mapping[str, int], special: Mapping[str, str]) -> dict[str, str]:
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


def _tokenizer(numbers: Mapping[str, int], before: Any, special: Mapping[str, str]):
    """Return a fast tokenizer of whole tokens, which are split by `before`."""
    from tokenizers import Tokenizer, models, processors
    from transformers import PreTrainedTokenizerFast

    named = _special_tokens(numbers, special)
    tokenizer = Tokenizer(models.WordLevel(dict(numbers), unk_token=named['unk_token']))
    first, last = named['cls_token'], named['sep_token']
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f'{first} $A {last}',
        pair=f'{first} $A {last} $B:1 {last}:1',
        special_tokens=[(token, numbers[token]) for token in (first, last)],
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=_INPUTS, **named)
    # Not before: what is made of a function of Python cannot be copied.
    fast.backend_tokenizer.pre_tokenizer = before
    return fast
