"""A run: its settings, its folder, and what it gives to analyses by name.

These are settings, inputs, results of others, and what takes how long. Looking up loads nothing. It
notes which settings were read, and which names the lines of Python of a page need.
"""

import dataclasses
import functools
import math
import operator
import os
import pathlib
import platform
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from bert_secrets_jax import processes
from bert_secrets_jax.analyses.declaration import ANALYSES, Analysis, nothing
from bert_secrets_jax.checks import MENDABLE
from bert_secrets_jax.compute import Compute, make_mesh
from bert_secrets_jax.configs.schema import numbers_in, parse_axes
from bert_secrets_jax.data.encoding import bucket, knows_words, tokenize
from bert_secrets_jax.data.language import foreign_language, language_of
from bert_secrets_jax.data.tasks import Example, draw, examples_of, get_task
from bert_secrets_jax.files import read_record, write_record
from bert_secrets_jax.finetune.outcome import OUTCOME
from bert_secrets_jax.measure.stream import learned_maps, maps_in
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.programs import inputs
from bert_secrets_jax.runs import store
from bert_secrets_jax.runs.call import INPUTS, Call
from bert_secrets_jax.runs.result import Result, Subject
from bert_secrets_jax.runs.run import Run, digest

# Counted where an estimate must not read every text to be made.
_SAMPLE = 200
# A part compiles about so many programs, in units of a pass with maps, and computes so many seconds
# without a model.
_PROGRAMS, _SECONDS = 10, 5.0
# So many seconds of work say little of how well an estimate fits.
_LITTLE = 30.0


class Study:
    """One model and its texts, as the settings name them; `run` keeps the results.

    Attributes:
      watched: The names of the sections whose statistics one pass measures together.
    """

    def __init__(self, config: ConfigDict, folder: pathlib.Path, *, writable: bool = True):
        self.config = config
        self.run = Run(folder, writable=writable)
        self.folder = self.run.folder
        self.watched: tuple[str, ...] = ()
        self._once: dict[Any, Any] = {}

    def release(self) -> None:
        """Free the memory of everything loaded and computed; kept results stay in the folder."""
        self._once.clear()
        self.run.forget()

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Compute a value, or raise its error, once; later calls have the same."""
        if key not in self._once:
            try:
                self._once[key] = compute()
            except Exception as error:
                self._once[key] = error
        value = self._once[key]
        if isinstance(value, Exception):
            raise value
        return value

    @property
    def model_name(self) -> str:
        """The name of the model: that of its folder, or that on the hub."""
        name = self.config.model.name
        is_folder = name.startswith(('/', '.', '~')) or pathlib.Path(name).is_dir()
        return pathlib.PurePath(name).name if is_folder else name

    @property
    def subject(self) -> Subject:
        """The names of the model, the texts and the task of GLUE, for sentences and captions."""
        data = self.config.data
        task = get_task(data.task).name if data.source == 'glue' else None
        return Subject(self.model_name, inputs.text_name(data, data.split), task)

    @property
    def corpus(self) -> str:
        """The name of the texts without that of their split: 'MRPC' of 'MRPC dev'."""
        return self.subject.texts.removesuffix(f' {self.config.data.split}').removesuffix(',')

    @property
    def has_trees(self) -> bool:
        """Whether the texts are sentences of a treebank, whose words they have."""
        return self.config.data.source == 'treebank'

    @property
    def has_pairs(self) -> bool:
        """Whether the texts are pairs of which one asks how alike they are."""
        data = self.config.data
        if data.source == 'glue':
            return get_task(data.task).is_regression
        return data.source == 'file' and data.text_b is not None

    @property
    def has_training(self) -> bool:
        """Whether there are texts to fine-tune on."""
        data = self.config.data
        match data.source:
            case 'segments' | 'treebank':
                return False
            case 'tags' | 'questions':
                return data.train_file is not None
            case 'file':
                return None not in (data.label, data.train_file)
        return True

    @property
    def as_it_is(self) -> bool:
        """Whether the model itself is ablated, and none that is fine-tuned here."""
        return self.config.ablation.checkpoint == 'model'

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of fine-tuning."""
        return tuple(self.config.seed + run for run in range(self.config.train.num_seeds))

    @property
    def ablated_seeds(self) -> tuple[int, ...]:
        """The seeds whose models are ablated; empty if a model is ablated as it is."""
        if self.as_it_is or not self.has_training:
            return ()
        return self.seeds[: self.config.ablation.seeds or None]

    def finetuning_folder(self, made: Call) -> pathlib.Path:
        """Return the folder with the checkpoints of a fine-tuning."""
        return self.folder / 'finetune' / f'{made.named["start"]}-{digest(made.key)}'

    def mesh_with(self, second: str) -> jax.sharding.Mesh | None:
        """Return the devices along `data`, and a second axis if the settings name it; None: one."""
        return make_mesh(parse_axes(self.config.mesh), second)

    def compute(self, folder: pathlib.Path | None = None, *, second: str = '') -> Compute:
        """Return how passes are computed, along a `second` axis, too, if the settings name it."""
        return Compute(
            max_length=self.config.encoding.max_length,
            tokens_per_batch=self.config.encoding.tokens_per_batch,
            chunk_tokens=self.config.ablation.chunk_tokens or None,
            mesh=self.mesh_with(second),
            folder=folder,
        )


@dataclasses.dataclass(frozen=True)
class Fact:
    """Whether something is so of a model, as a file keeps it."""

    holds: bool


class Given:
    """The inputs and settings of the calls of a run, and the results that were made before.

    Attributes:
      read: The settings that were looked at.
      names: The expressions that make the names in lines of Python, in the order to run them.
      others: The sections whose results are needed.
      folder: The folder of unfinished work of what is computed now.
      axis: The second axis of devices of what is computed now.
      TRAINED: A step of training in passes over its examples: forward, backward, the optimiser.
      HEAD, MANY: A mask that leaves out one head, or many, in passes (`ablation.sweep`).
    """

    TRAINED, HEAD, MANY = 5.0, 0.4, 0.9

    def __init__(self, study: Study, results: Mapping[str, Result] | None = None):
        self.study, self.results = study, results or {}
        self.settings: dict[str, Any] = flatten_dict(study.config.to_dict(), sep='.')
        self.read: set[str] = set()
        self.names: dict[str, str] = {}
        self.others: list[str] = []
        self.folder: pathlib.Path | None = None
        self.axis = ''

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self.settings[name]

    def group(self, group: str, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the settings of a group, by their last names."""
        parts = [name.partition('.') for name in self.settings]
        of_group = [last for first, _, last in parts if first == group and last not in without]
        return {last: self[f'{group}.{last}'] for last in of_group}

    def numbers(self, setting: str) -> tuple[Any, ...]:
        """Return the numbers of a setting that has several; none if it is empty."""
        return numbers_in(self[setting]) if self[setting] else ()

    def find(self, source: str | tuple[str, int] | Callable[['Given'], Any]) -> Any:
        """Return an input, a part of one, a setting, or what a function looks up."""
        if isinstance(source, tuple):
            name, place = source
            return Call(operator.itemgetter(place), (self.input(name),))
        if not isinstance(source, str):
            return source(self)
        return self.input(source) if source in INPUTS else self[source]

    def input(self, name: str) -> Any:
        """Return an input, and note what makes it; None if the run has none."""
        declared = INPUTS[name]
        # The inputs that it is made of are noted first.
        made = declared.make(self)
        if not isinstance(made, Call) or made.name:
            return made
        self.names.setdefault(name, made.python)
        load, content = functools.partial(declared.load, self, made), made.content
        if declared.content is not None:
            # Else loading it again is free, or depends on what is computed now.
            load = functools.partial(self.study.once, ('value', name), load)
            content = functools.partial(self.digest, name)
        return dataclasses.replace(made, name=name, make=load, content=content)

    def value(self, name: str) -> Any:
        """Return an input, loaded or computed when it is first needed."""
        found = self.input(name)
        return found.value() if isinstance(found, Call) else found

    def variant(self, name: str, **others: Any) -> Call:
        """Return the call of an input with other arguments in the place of some."""
        made = INPUTS[name].make(self)
        made = dataclasses.replace(made, named=made.named | others)
        return dataclasses.replace(made, make=lambda: INPUTS[name].load(self, made))

    def drawn(self, every: str | Call, setting: str) -> Call:
        """Return as many examples, of an input for one, as a setting says; 0 is all of them."""
        wanted, seed = self[setting], self['seed']
        every = self.input(every) if isinstance(every, str) else every
        return Call(draw, (every, wanted, seed), aside={'setting': setting}) if wanted else every

    def named_by(self, setting: str, otherwise: str) -> str:
        """Return the name of the file, or the first file, of a setting; for none, another name."""
        files = self[setting]
        first = files if isinstance(files, str) else next(iter(files), '')
        return pathlib.PurePath(first).stem if first else otherwise

    def seeds(self, count: str) -> tuple[int, ...]:
        """Return as many seeds as a setting says."""
        return tuple(range(self['seed'], self['seed'] + self[count]))

    def subject_about(self, texts: str) -> Call:
        """Return the names of the model and of texts, by default of those of the run."""
        subject = self.study.subject
        task = subject.task if texts.startswith(subject.texts) else None
        own = Subject(subject.model, texts, task) if texts else subject
        # The task says which metrics are the default.
        named = {'task': own.task}
        made = Call(Subject, (own.model, own.texts), named, content=lambda: own.task)
        if texts:
            return made
        self.names.setdefault('subject', made.python)
        return dataclasses.replace(made, name='subject')

    def result(self, section: str) -> Call:
        """Return the result of another section, which is made for this one if it is not there."""
        # Its settings and inputs matter here, too.
        made, result = ANALYSES[section].call(self), self.results.get(section)
        if result is None:
            answer = functools.partial(Given(self.study).answer, section)
            return dataclasses.replace(made, make=answer)
        self.others.append(section)
        return dataclasses.replace(
            made, name=section, make=lambda: result, content=lambda: store.content(result)
        )

    def answer(self, section: str) -> Result:
        """Return the result of a section, computed or read."""
        declared = ANALYSES[section]
        made = declared.call(self)
        if not declared.kept:
            return made.value()
        place = self._place(declared, made)
        unfinished = self.study.run.folder_for(f'unfinished/{place[0]}', place[2])
        self.axis = declared.axis
        self.folder = self.study.folder / 'parts' if declared.shares else unfinished

        def compute() -> Result:
            declared.check(self)
            return made.value()

        result = self.study.run.keep(*place, compute)
        if processes.is_first():
            shutil.rmtree(unfinished, ignore_errors=True)
        if declared.also is not None:
            name, write = declared.also
            folder = self.study.run.folder_for(name, place[2])
            if not processes.exists(folder):
                write(self, result, folder)
        # This run may have other names for its texts.
        return dataclasses.replace(result, subject=made.named['subject'].value())

    def finished(self, section: str) -> Result | None:
        """Return the result of a section if nothing must be computed for it."""
        declared = ANALYSES[section]
        if declared.missing(self):
            return None
        if declared.words and self.has_words and not INPUTS['annotations'].ready(self):
            return None
        made = declared.call(self)
        if not declared.kept:
            return made.value()
        found = self.study.run.kept(*self._place(declared, made))
        subject = made.named['subject'].value()
        return None if found is None else dataclasses.replace(found, subject=subject)

    def state(self, section: str) -> str:
        """Return the digest of everything that the result of a section depends on."""
        return digest(self._place(ANALYSES[section], ANALYSES[section].call(self))[2])

    def _place(self, declared: Analysis, made: Call) -> tuple[str, type[Result], dict[str, Any]]:
        """Return the name of a kept result, its class, and what it depends on."""
        key: dict[str, Any] = {'call': made.key}
        if declared.words and self.has_words:
            key['annotations'] = self.digest('annotations')
        title = declared.title or declared.function.__name__.replace('_', ' ')
        return title, declared.kind, key

    def digest(self, name: str) -> str:
        """Return the digest of the content of an input.

        A finished run can still be read after its model or its texts have moved away: then the
        digest is the one that the run noted for the same settings.
        """
        return self.study.once(('digest', name), lambda: self._digest(name))

    def _digest(self, name: str) -> str:
        declared, own = INPUTS[name], Given(self.study)
        declared.make(own)
        where = digest({name: {each: self.settings[each] for each in sorted(own.read)}})
        file = self.study.folder / 'inputs.json'
        try:
            noted = read_record(file)
        except (FileNotFoundError, ValueError) as error:
            noted = {}
            if isinstance(error, ValueError):
                logging.warning('Noted anew: %s', error)
        try:
            content = declared.content(self, name) if declared.content else ''
        except FileNotFoundError as error:
            if where not in noted:
                raise
            what = {'train': 'training texts', 'dev': 'dev texts', 'pretrained': 'weights'}
            gone = what.get(name, name.replace('_', ' ')), str(error).splitlines()[0]
            logging.warning(
                'Not found any more: %s (%s) Shown is what was computed from it.', *gone
            )
            return noted[where]
        if noted.get(where) != content and self.study.run.writable and processes.is_first():
            write_record(file, noted | {where: content})
        return content

    def holds(
        self, name: str, find: Callable[[], bool], *, unknown: bool, others: Sequence[str] = ()
    ) -> bool:
        """Return whether something is so of the model; a finished run need not load it.

        Where that cannot be found out, the answer is `unknown`: whoever needs the model, or one of
        the other inputs that are named, will say why.
        """
        try:
            depends_on = {other: self.digest(other) for other in ('pretrained', *others)}
            depends_on['model'] = self.study.config.model.to_dict()
            return self.study.run.keep(
                f'fact: {name}', Fact, depends_on, lambda: Fact(bool(find()))
            ).holds
        except (ValueError, OSError, TypeError) as error:
            logging.debug('%s is not known: %s', name, error)
            return unknown

    def fits(self, name: str, rule: Callable[[BertConfig], bool], *, unknown: bool = True) -> bool:
        """Return whether a rule holds for the configuration of the model, as `holds` does."""
        return self.holds(name, lambda: rule(self.value('pretrained').config), unknown=unknown)

    def knows(self, name: str, read: Callable[[], Sequence[Example]]) -> bool:
        """Return whether the tokenizer knows the words of texts that come with the package."""

        def find() -> bool:
            tokenizer = self.value('pretrained').tokenizer
            return knows_words(tokenizer, [each.text_a for each in read()])

        return self.holds(f'knows the words of the {name}', find, unknown=True)

    def lacks(
        self, what: str, name: str, read: Callable[[], Sequence[Example]], setting: str = ''
    ) -> str:
        """Return what is missing where embedded texts, which are English, do not suit the model."""
        named = f' ({setting})' * bool(setting)
        if foreign := self.foreign():
            return f'{what} in {foreign}{named}, for the embedded are English'
        if self.knows(name, read):
            return ''
        return f'{what} that the tokenizer knows{named}, or model.allow_unknown'

    def foreign(self, known: str = 'en') -> str:
        """Return the language of the texts, such as 'German (de)'; '' if it may be a known one."""

        def find() -> str:
            texts = [text for each in self.value('texts') for text in each.texts if text]
            return foreign_language(texts, self['data.language'], to=known)

        try:
            return self.study.once(('foreign', known), find)
        except MENDABLE:
            # Whoever needs the texts will say what is wrong.
            return ''

    @property
    def has_words(self) -> bool:
        """Whether nouns, subjects and so on are known, from a treebank or for a spaCy pipeline."""
        pipeline = self['linguistics.pipeline']
        known = pipeline and not self.foreign(language_of(pipeline))
        return self.study.has_trees or bool(known)

    @property
    def heads(self) -> int:
        """The number of heads of the model."""
        config = self.value('pretrained').config
        return config.num_hidden_layers * config.num_attention_heads

    @property
    def layers(self) -> int:
        """The number of layers of the model."""
        return self.value('pretrained').config.num_hidden_layers

    def tokens(self, name: str, of: Callable[[Any], Sequence[Any]] = examples_of) -> float:
        """Return about how many tokens one pass over the examples of an input has, with padding.

        `of` returns the examples of an input that is something else.
        """

        def measured() -> float:
            examples = of(self.value(name))
            tokenizer, length = self.value('pretrained').tokenizer, self['encoding.max_length']
            lengths = tokenize(tokenizer, some(examples), max_length=length).lengths
            return len(examples) * float(lengths.mean() + lengths.max()) / 2

        return self.study.once(('tokens', name), measured)

    def share(self, name: str, wanted: int) -> float:
        """Return the share of the examples of an input that a number of them is; 0 is all."""
        count = len(self.value(name))
        return min((wanted or count) / count, 1.0)

    def work(self, section: str) -> dict[str, float | int]:
        """Return the parts of the work of a section, by names that sections share, in tokens."""
        declared, looked = ANALYSES[section], Given(self.study, self.results)
        # It notes the inputs that it looks up.
        declared.call(looked)
        own, seeds, parts = declared.cost(self), len(self.study.seeds), {}
        if declared.wants is not nothing:
            parts['first pass'] = 2.6 * self.tokens('texts')
        if declared.compares is not nothing and self.study.has_training:
            parts['second pass'] = 4 * seeds * self.tokens('texts')
        if 'measured' in looked.names:
            # By gradient, confidence, relevance and without each head.
            each = self.HEAD + self.MANY * self['importance.permutations']
            parts['scores of heads'] = (24 + self.heads * each) * self.tokens('measured')
        if 'tuned' in looked.names:
            folder = self.study.finetuning_folder(self.input('tuned'))
            if not processes.exists(folder / OUTCOME):
                runs = seeds * len(self['train.starts'])
                parts['fine-tuning'] = runs * self.tokens_of_training()
        return parts | ({section: own} if own else {})

    def tokens_of_training(self) -> float:
        """Return the work of fine-tuning with one seed."""
        train = self.study.config.train
        steps = -(-len(self.value('train')) // train.batch_size) * train.epochs
        # Where maps are compared, both models read the dev examples.
        passes = train.epochs + 1 + (4 * (steps // train.maps_every) if train.maps_every else 0)
        dev = self.share('dev', train.max_dev_examples) * self.tokens('dev')
        return self.TRAINED * train.epochs * self.tokens('train') + passes * dev


def some(examples: list[Example]) -> list[Example]:
    """Return some of the examples, evenly spread, from which costs are estimated."""
    return examples[:: max(len(examples) // _SAMPLE, 1)]


@dataclasses.dataclass(frozen=True)
class Pace:
    """How fast this machine runs a model: seconds of a token, and of all else of a part."""

    token: float
    part: float

    def seconds(self, tokens: Iterable[float | int]) -> float:
        """Return how many seconds parts take, by their tokens."""
        return math.fsum(each * self.token + self.part for each in tokens)

    def left(
        self, sections: Sequence[Mapping[str, float | int]], done: int, passed: float
    ) -> float:
        """Return about how many seconds sections take, of which so many took the time `passed`."""
        before, every = (
            self.seconds({k: v for parts in some for k, v in parts.items()}.values())
            for some in (sections[:done], sections)
        )
        return (every - before) * (passed + _LITTLE) / (before + _LITTLE)


def in_words(seconds: float | int) -> str:
    """Return a duration as a person says it.

    >>> in_words(0), in_words(54), in_words(228), in_words(40000)
    ('5 s', '55 s', '4 min', '11 h')
    """
    if seconds < 55:
        return f'{max(round(seconds / 5) * 5, 5)} s'
    return f'{max(round(seconds / 60), 1)} min' if seconds < 5400 else f'{round(seconds / 3600)} h'


def pace_of(given: Given) -> Pace:
    """Measure how fast the model of a run runs here, on one batch of its texts."""
    model, compute = given.value('pretrained'), given.study.compute()
    some_texts = some(given.value('texts'))
    encoded = tokenize(model.tokenizer, some_texts, max_length=compute.max_length)
    batch = bucket(encoded, **compute.encoding)[0]
    batch = jax.device_put(dataclasses.replace(batch, marks={}))

    def seconds() -> float:
        start = time.perf_counter()
        # The program of every pass over these texts. Where JAX has kept it, it is read, as are then
        # most of the others.
        maps = maps_in(learned_maps, model.bert, 'uniform', model.params, batch, None)
        jax.block_until_ready(maps)
        return time.perf_counter() - start

    first, second = seconds(), min(seconds() for _ in range(2))
    part = _SECONDS + _PROGRAMS * max(first - second, 0.0)
    return Pace(second / np.size(batch.input_ids), part)


def machine() -> dict[str, Any]:
    """Return by which names a machine is known whose pace was measured."""
    return {'host': platform.node(), 'devices': str(jax.devices()), 'cores': os.cpu_count()}
