# ruff: noqa: F401  (the imports under TYPE_CHECKING are the public names; see lazy.py)
"""The five patterns of attention: a classifier of maps, and their shares (section 4.1)."""

from typing import TYPE_CHECKING

from bert_secrets_jax import lazy

if TYPE_CHECKING:
    from bert_secrets_jax.patterns.classes import CLASSES, TITLES
    from bert_secrets_jax.patterns.classifier import (
        load_classifier,
        pattern,
        pattern_change,
        pattern_comparisons,
        pattern_statistics,
        save_classifier,
    )

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
