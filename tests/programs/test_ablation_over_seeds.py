"""The sweeps of all seeds in a run: each is kept by itself, and shown before the first one's."""

import re

import numpy as np
import pytest

from bert_secrets_jax.ablation import resumable
from bert_secrets_jax.analyses.ablation_over_seeds import ablation_over_seeds
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.programs.report import write_report
from bert_secrets_jax.programs.sections import SECTIONS, applicable
from bert_secrets_jax.programs.study import Study
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


@pytest.fixture
def swept(monkeypatch):
    """The parts of sweeps that were computed: each is of one model and one batch."""
    files = []
    complete = resumable._complete

    def counted(part, descent, batch, file):
        complete(part, descent, batch, file)
        files.append(file)

    monkeypatch.setattr(resumable, '_complete', counted)
    return files


def answer(study):
    return SECTIONS['ablate_seeds'].answer(study, {})


@pytest.mark.slow
def test_every_seed_is_swept_once(three, swept):
    write_report([three], ['ablate_seeds', 'ablate'])
    assert len(swept) == len(set(swept)) and len(swept) % 3 == 0
    page = (three.folder / 'report.html').read_text()
    titles = re.findall('<h2>(Disabling.*?)</h2>', page)
    assert titles == ['Disabling heads and layers, over fine-tunings', 'Disabling heads and layers']
    assert (three.folder / 'ablation_over_seeds_heads.csv').exists()
    # The library finds the same in the same models.
    reading = Study(three.config, three.folder, read_only=True)
    ours = answer(reading)
    theirs = ablation_over_seeds(
        three.finetuned('pretrained'), three.ablated_texts, subject=three.subject,
        compute=Compute(max_length=24),
    )  # fmt: skip
    assert str(ours) == str(theirs) and ours.seeds == (0, 1, 2)
    # The first seed is the plain section's, which is kept.
    done = len(swept)
    plain = SECTIONS['ablate'].answer(reading, {})
    np.testing.assert_array_equal(
        plain.sets['heads'].found.difference, ours.sets['heads'].found.seeds.difference[0]
    )
    assert len(swept) == done


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_next_seed(three, swept, monkeypatch):
    counted = resumable._complete

    def dies(*arguments):
        if len(swept) == 2:
            raise KeyboardInterrupt
        counted(*arguments)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(resumable, '_complete', dies)
        answer(three)
    assert len(swept) == 2
    again = answer(Study(three.config, three.folder))
    assert len(swept) == len(set(swept)) and len(swept) % 3 == 0
    assert again.seeds == (0, 1, 2) and not list(three.folder.glob('unfinished/*'))


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
