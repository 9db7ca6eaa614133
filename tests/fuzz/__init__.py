"""Everything that the package reads, broken in all ways that Hypothesis finds.

The promise that these tests hold it to: hostile and broken input is never executed, never silently
read wrong, never a traceback, and never a hang.

    python -m pytest tests/fuzz --hypothesis-profile=fuzz --hypothesis-show-statistics

A kind of input is a `Format` (`broken.py`): a valid folder, the package's reader of it, and a plain
reader that shares no code with the package. Strategies (`damage.py`) say which files of the folder
have become what. The statistics say how many were read as they were, read as they are written,
told, or refused by name.
"""
