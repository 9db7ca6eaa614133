"""Programs within this process: no cache of compiled programs, no loggers that others would see."""

import pytest

from bert_secrets_jax.configs import paper
from bert_secrets_jax.programs import api, comparing, conversation, report, sections
from bert_secrets_jax.programs.study import Study


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Leave the settings of JAX and of logging as they are."""
    monkeypatch.setattr(conversation, 'enable_cache', str)
    monkeypatch.setattr(api, 'enable_cache', str)
    monkeypatch.setattr(conversation, 'set_up_logging', str)


@pytest.fixture
def study(checkpoint, glue_dir, tmp_path):
    config = paper.get_config('mrpc')
    config.model.name, config.data.glue_dir = str(checkpoint), str(glue_dir)
    config.encoding.max_length = 24
    config.linguistics.pipeline = ''
    config.model.allow_unknown = True
    return Study(config, tmp_path / 'run')


@pytest.fixture
def small(study):
    """The study, with one fine-tuning of one epoch."""
    train = study.config.train
    train.starts, train.num_seeds = ('pretrained',), 1
    train.epochs, train.batch_size = 1, 8
    return study


@pytest.fixture
def use(monkeypatch):
    """Return what puts others in the place of the sections; model and texts are not looked at."""
    monkeypatch.setattr(Study, 'input', lambda study, name: f'digest of {name}')

    def use(known):
        for module in (sections, report, comparing):
            monkeypatch.setattr(module, 'SECTIONS', known)

    return use
