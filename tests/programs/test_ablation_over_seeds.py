"""The sweeps of all seeds in a run: each is kept by itself, and shown before the first one's."""

import re

import numpy as np
import pytest

from bert_secrets_jax.ablation import resumable
from bert_secrets_jax.programs.given import Study
from bert_secrets_jax.programs.report import applicable, write_report
from bert_secrets_jax.programs.sources import Given
from bert_secrets_jax.runs.folder import open_folder


@pytest.fixture
def three(small):
    """Three seeds, which learn nothing in some steps."""
    config = small.config
    config.train.num_seeds, config.train.learning_rate = 3, 1e-3
    config.ablation.sets = ('heads',)
    config.frames.sample = ''
    open_folder(small.folder, config.to_dict())
    return small


@pytest.mark.slow
def test_every_seed_is_swept_once(three, monkeypatch):
    """A part of a sweep is of one model and one batch; the first seed is the plain section's."""
    swept, complete = [], resumable._complete

    def counted(part, *rest):
        complete(part, *rest)
        swept.append(rest[2])

    monkeypatch.setattr(resumable, '_complete', counted)
    write_report([three], ['ablate_seeds', 'ablate'])
    assert len(swept) == len(set(swept)) and len(swept) % 3 == 0
    titles = re.findall('<small>(Disabling.*?)</small>', (three.folder / 'report.html').read_text())
    assert titles == ['Disabling heads and layers, over fine-tunings', 'Disabling heads and layers']
    done, reading = len(swept), Given(Study(three.config, three.folder, writable=False))
    ours, plain = (reading.finished(name) for name in ('ablate_seeds', 'ablate'))
    of_seeds = ours.sets['heads'].found.seeds.difference
    np.testing.assert_array_equal(plain.sets['heads'].found.difference, of_seeds[0])
    assert ours.seeds == (0, 1, 2) and len(swept) == done


def test_fewer_seeds_are_chosen(three):
    config = three.config
    assert three.ablated_seeds == (0, 1, 2) and 'ablate_seeds' in applicable(three)
    config.ablation.seeds = 2
    assert three.ablated_seeds == (0, 1) and 'ablate_seeds' in applicable(three)
    config.ablation.seeds = 1
    assert 'ablate_seeds' not in applicable(three) and 'ablate' in applicable(three)
    with pytest.raises(ValueError, match=r'ablate_seeds needs several .*ablation\.seeds'):
        write_report([three], ['ablate_seeds'])
    config.ablation.seeds, config.ablation.checkpoint = 0, 'model'
    with pytest.raises(ValueError, match=r'ablation\.checkpoint=finetuned'):
        write_report([three], ['ablate_seeds'])
    config.ablation.checkpoint, config.train.num_seeds = 'finetuned', 1
    assert 'ablate_seeds' not in applicable(three)
