# ruff: noqa: F401  (editors read the imports under TYPE_CHECKING; nothing runs them)
"""The five patterns of attention: labelled maps, a classifier, their shares (section 4.1)."""

from typing import TYPE_CHECKING

from bert_secrets_jax import lazy

if TYPE_CHECKING:
    from bert_secrets_jax.patterns.classifier import (
        load_classifier,
        pattern,
        pattern_change,
        pattern_comparisons,
        pattern_statistics,
        save_classifier,
    )
    from bert_secrets_jax.patterns.cnn import CLASSES, TITLES
    from bert_secrets_jax.patterns.page import serve
    from bert_secrets_jax.patterns.sample import draw_maps, read_annotated
    from bert_secrets_jax.patterns.train import fit

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    members={
        'classifier': (
            'load_classifier',
            'pattern',
            'pattern_change',
            'pattern_comparisons',
            'pattern_statistics',
            'save_classifier',
        ),
        'cnn': ('CLASSES', 'TITLES'),
        'page': ('serve',),
        'sample': ('draw_maps', 'read_annotated'),
        'train': ('fit',),
    },
)
