"""The five patterns of attention: annotated maps, a classifier, their share (section 4.1)."""

from bert_secrets_jax.patterns.classifier import load_classifier, pattern, pattern_change
from bert_secrets_jax.patterns.cnn import CLASSES

__all__ = ['CLASSES', 'load_classifier', 'pattern', 'pattern_change']
