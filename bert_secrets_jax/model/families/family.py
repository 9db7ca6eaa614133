"""The record of a family of encoders: its arithmetic, its config.json, its tensors."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from bert_secrets_jax.model.families.arithmetic import Arithmetic
from bert_secrets_jax.model.families.tensors import Tensors

# Removed heads in config.json where `transformers` cannot remove any.
OURS = 'bert_secrets_jax_pruned_heads'
_empty = functools.partial(dataclasses.field, default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How the config.json of a family says what a model is.

    Attributes:
      pruned_key: The key in config.json of the heads that each layer has lost: that of
        `transformers` before release 5 where that could remove heads, or one that is ours alone.
      reads, always: The fields that its config.json has and BERT's lacks, and values of others that
        it never has.
      keys: Our fields that have another name in config.json, and that name.
      former: Keys of older files, and those of today.
      modernise: The function that brings older and odd values up to date. It changes the settings
        of a file, and adds what is wrong with them to a list.
      values: Fields of which config.json has but some values, or names them otherwise: its names,
        and ours.
      defaults: Defaults of fields that config.json may omit; None is not allowed for them.
      must_be: Keys of config.json that would change the arithmetic with any other value.
      ignored: Keys of config.json that no layer reads.
      known_by: The settings that tell such a model in a repository with code of its own, where it
        has the `model_type` of another family.
      code: The `auto_map` of that repository if `transformers` lacks such models, so that models
        are written as the repository reads them.
    """

    pruned_key: str = 'pruned_heads'
    reads: tuple[str, ...] = ()
    keys: Mapping[str, str] = _empty()
    former: Mapping[str, str] = _empty()
    modernise: Callable[[dict[str, Any], list[str]], None] | None = None
    values: Mapping[str, Mapping[Any, Any]] = _empty()
    defaults: Mapping[str, Any] = _empty()
    always: Mapping[str, Any] = _empty()
    must_be: Mapping[str, tuple[Any, ...]] = _empty()
    ignored: tuple[str, ...] = ()
    known_by: Mapping[str, Any] = _empty()
    code: Mapping[str, str] = _empty()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family(Tensors, Settings):
    """How the models of one `model_type` differ from BERT.

    Attributes:
      model_type: The name of the family in config.json.
      name: The prefix of their classes in `transformers`, as in `{name}ForSequenceClassification`.
      tiny: The fields of a tiny model for tests that are unlike BERT's, besides `always`.
    """

    model_type: str
    name: str
    tiny: Mapping[str, Any] = _empty()

    def differs_in_name(self, other: 'Family') -> bool:
        """Return whether another family has the same arithmetic and the same settings."""
        kinds = (Arithmetic, Settings)
        names = [field.name for kind in kinds for field in dataclasses.fields(kind)]
        return all(getattr(self, name) == getattr(other, name) for name in names)
