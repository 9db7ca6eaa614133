"""The instrument itself: what counts as a failure, and how many ways to break a file there are."""

import logging
import time

from tests.fuzz import broken, damage
from tests.fuzz.broken import FOLDER


def fails(error):
    def read(_):
        if (FOLDER / 'a.txt').read_text() != 'pristine':
            raise error

    return read


def is_told(_):
    logging.getLogger('absl').warning('a.txt is short')


def is_slow(_):
    if (FOLDER / 'a.txt').read_text() != 'pristine':
        time.sleep(5)


def takes_much(_):
    return len(bytes(2**32)) if (FOLDER / 'a.txt').read_text() != 'pristine' else 0


def executes(_):
    if (FOLDER / 'a.txt').read_text() != 'pristine':
        damage.os.system(f'touch {broken.MARKER}')
        raise ValueError('a.txt is damaged')
