"""Programs within this process: no cache of compiled programs, no loggers that others would see."""

import pytest

from bert_secrets_jax.analyses.declaration import ANALYSES, Analysis, with_subject
from bert_secrets_jax.configs import base
from bert_secrets_jax.programs import api, conversation, report
from bert_secrets_jax.programs.given import Study
from bert_secrets_jax.programs.sources import Given
from bert_secrets_jax.runs.call import INPUTS, Call, Input
from bert_secrets_jax.runs.folder import open_folder


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Leave the settings of JAX and of logging as they are."""
    monkeypatch.setattr(conversation, 'enable_cache', str)
    monkeypatch.setattr(api, 'enable_cache', str)
    monkeypatch.setattr(conversation, 'set_up_logging', str)


@pytest.fixture
def study(checkpoint, glue_dir, tmp_path):
    config = base.paper('mrpc')
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
def give(monkeypatch):
    """Return what gives a value in the place of an input."""

    def give(name, value):
        made = Call(str, name=name, make=lambda: value, content=lambda: f'given {name}')
        monkeypatch.setitem(INPUTS, name, Input(make=lambda given: made))

    return give


def fake(function, **about):
    """Return a section that is answered by a function, whose arguments are inputs and settings."""
    about = {'question': '', 'report': 'always'} | about
    return Analysis(function=with_subject(function), **about)


@pytest.fixture
def use(monkeypatch):
    """Return what puts others in the place of the sections; model and texts are not looked at."""
    monkeypatch.setattr(Given, 'digest', lambda given, name: f'digest of {name}')
    former = dict(ANALYSES)

    def use(known):
        ANALYSES.clear()
        ANALYSES.update(known)

    yield use
    use(former)


@pytest.fixture
def answer(tmp_path, use):
    """Return what answers sections in a folder, or in one for each of several tasks."""

    def answer(known, chosen=None, *, folder='run', tasks=('mrpc',), **settings):
        use(known)
        studies = []
        for task in tasks:
            config = base.get_config()
            config.update_from_flattened_dict({'data.task': task} | settings)
            own = tmp_path / folder / (task if len(tasks) > 1 else '')
            studies.append(Study(config, open_folder(own, config.to_dict())))
        return report.write_report(studies, chosen)

    return answer
