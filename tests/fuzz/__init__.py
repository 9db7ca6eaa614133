"""A seeded fuzzer of everything that the package reads.

The promise that it tests: hostile and broken input is never executed, never silently read wrong,
never a traceback, and never a hang.

    python -m tests.fuzz --count=20000 --jobs=2
    python -m tests.fuzz --repeat=config:1234 --keep=/tmp/mutants

A class of input is a `Target` (`target.py`): it makes pristine files, mutates them, reads them with
the package, and reads them once more with a plain reader that shares no code with the package. A
mutant depends on the name of its class and on its seed alone. Worker processes serve the mutants
(`worker.py`), and the parent kills those that hang (`pool.py`).
"""
