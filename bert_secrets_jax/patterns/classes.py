"""The classes of attention maps (Kovaleva et al. 2019, section 4.1)."""

CLASSES = ('vertical', 'diagonal', 'vertical_diagonal', 'block', 'heterogeneous')
TITLES = tuple(name.replace('_', ' + ') for name in CLASSES)  # as a person reads them
