"""The classes of attention maps (Kovaleva et al. 2019, section 4.1)."""

CLASSES = ('vertical', 'diagonal', 'vertical_diagonal', 'block', 'heterogeneous')
# As they are called in what a person reads.
TITLES = tuple(name.replace('_', ' + ') for name in CLASSES)
