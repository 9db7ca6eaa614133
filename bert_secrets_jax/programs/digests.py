"""The digests of inputs, which results depend on; a run notes them in `inputs.json`."""

import hashlib
import operator
import pathlib
from typing import TYPE_CHECKING, Any

from absl import logging
from ml_collections import ConfigDict

from bert_secrets_jax import processes
from bert_secrets_jax.files import read_record, sha256, write_record
from bert_secrets_jax.model import hub
from bert_secrets_jax.model.weights import fingerprint
from bert_secrets_jax.runs.run import digest

if TYPE_CHECKING:
    from bert_secrets_jax.programs.study import Study

# The settings that say where an input is; those of any other input are the same as of the texts.
_TEXTS = ('data', 'seed')
_ABLATED = (
    *_TEXTS, 'train.max_examples', 'ablation.max_examples', 'ablation.left_out_examples',
)  # fmt: skip
_SETTINGS = {
    'weights': ('model',),
    'train': (*_TEXTS, 'train.max_examples'),
    'ablated texts': _ABLATED,
    'choosing texts': (*_ABLATED, 'ablation.choose_examples'),
    'measured texts': (*_TEXTS, 'train.max_examples', 'importance.max_examples'),
    'annotations': (*_TEXTS, 'linguistics'),
    'classifier': ('patterns.classifier',),
    'frames': ('frames',),
    'parallel': ('across', 'data.bad_rows'),
    'treebank': ('treebank', 'seed'),
    'vectors': ('probe.vectors',),
    'minimal pairs': ('minimal_pairs', 'data.bad_rows'),
    'search': ('retrieval', 'data.bad_rows'),
}  # fmt: skip


def input_digest(study: 'Study', name: str) -> str:
    """Return the digest of an input, as `Study.input` describes it."""
    where = digest({name: _settings_of(study.config, name)})
    file = study.folder / 'inputs.json'
    noted = _noted(file)
    try:
        content = _content(study, name)
    except FileNotFoundError as error:
        if where not in noted:
            raise
        what = {'train': 'training texts', 'dev': 'dev texts'}.get(name, name)
        logging.warning(
            'Not found any more: %s (%s) Shown is what was computed from it.',
            what, str(error).splitlines()[0],
        )  # fmt: skip
        return noted[where]
    if noted.get(where) != content and processes.is_first():
        write_record(file, noted | {where: content})
    return content


def _settings_of(config: ConfigDict, name: str) -> Any:
    names = _SETTINGS.get(name, _TEXTS)
    if names[:2] == _TEXTS and config.data.source == 'segments':
        # They are cut to the tokens that fit.
        names = (*_TEXTS, 'model', 'encoding.max_length', *names[2:])
    settings = [operator.attrgetter(each)(config) for each in names]
    values = [each.to_dict() if isinstance(each, ConfigDict) else each for each in settings]
    return values if len(values) > 1 else values[0]


def _content(study: 'Study', name: str) -> str:
    config = study.config
    match name:
        case 'weights':
            model = config.model
            weights = fingerprint(model.name, revision=model.revision)
            folder = hub.locate(model.name, revision=model.revision)
            # Whatever else loading reads: config and tokenizer.
            small = {
                file.name: sha256(file)
                for file in sorted(folder.iterdir())
                if file.suffix in ('.json', '.txt') and file.is_file()
            }
            return digest([weights, small, model.dtype, list(model.ignore_config)])
        case 'classifier':
            # Read first: a file that is none is refused as such.
            confusions = study.classifier.confusions.tolist()
            path = config.patterns.classifier
            return sha256(path) if path else digest(['shipped', confusions, study.classifier.far])
        case 'frames':
            sample = config.frames.sample
            # FrameNet itself is large, and has versions: its folder stands for it.
            own = sample and sample != 'framenet'
            return sha256(sample) if own else digest(config.frames.to_dict())
        case 'vectors':
            return sha256(config.probe.vectors) if config.probe.vectors else ''
        case 'treebank':
            content = [*study.train_trees, *study.dev_trees]
        case _:
            content = getattr(study, name.replace(' ', '_'))
    return hashlib.sha256(repr(content).encode()).hexdigest()


def _noted(file: pathlib.Path) -> dict[str, str]:
    """Return the digests that a run has noted; none if they cannot be read."""
    try:
        return read_record(file)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        logging.warning('Noted anew: %s', error)
        return {}
