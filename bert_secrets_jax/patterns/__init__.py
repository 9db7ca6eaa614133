"""The five patterns of attention: annotated maps, a classifier, their share (section 4.1)."""
