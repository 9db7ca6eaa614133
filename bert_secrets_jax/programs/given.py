"""The things that a run gives to analyses, by name: settings, inputs, results of others.

Looking up loads nothing. It notes which settings were read, and which names the lines of Python of
a page need.
"""

import dataclasses
import functools
import operator
import pathlib
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from absl import logging
from flax.traverse_util import flatten_dict

from bert_secrets_jax import processes
from bert_secrets_jax.analyses.declaration import ANALYSES, Analysis
from bert_secrets_jax.brief import MENDABLE
from bert_secrets_jax.configs.ranges import numbers_in
from bert_secrets_jax.data.encoding import knows_words, tokenize
from bert_secrets_jax.data.language import foreign_language, language_of
from bert_secrets_jax.data.tasks import Example, draw, examples_of
from bert_secrets_jax.files import read_record, write_record
from bert_secrets_jax.finetune.outcome import OUTCOME
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.runs import store
from bert_secrets_jax.runs.call import Call
from bert_secrets_jax.runs.input import INPUTS
from bert_secrets_jax.runs.result import Result, Subject
from bert_secrets_jax.runs.run import digest

# Counted where an estimate must not read every text to be made.
_SAMPLE = 200


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

    def drawn(self, name: str, setting: str) -> Call:
        """Return the examples of an input that a setting draws."""
        return self.draw(self.input(name), setting)

    def draw(self, every: Call, setting: str) -> Call:
        """Return as many of some examples as a setting says; 0 is all of them."""
        wanted, seed = self[setting], self['seed']
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
        """Return the result of another section, and note that it is needed."""
        self.others.append(section)
        # Its settings and inputs matter here, too.
        made, result = ANALYSES[section].call(self), self.results[section]
        return dataclasses.replace(
            made, name=section, make=lambda: result, content=lambda: store.content(result)
        )

    def made(self, section: str) -> Call:
        """Return the result of another section, which is made for this one if it is not there."""
        if section in self.results:
            return self.result(section)
        answer = functools.partial(Given(self.study).answer, section)
        return dataclasses.replace(ANALYSES[section].call(self), make=answer)

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
        return self._named(made, result)

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
        return None if found is None else self._named(made, found)

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

    @staticmethod
    def _named(made: Call, result: Result) -> Result:
        """Return a result with the names of this run, which may have others for its texts."""
        return dataclasses.replace(result, subject=made.named['subject'].value())

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
        if self.foreign:
            return f'{what} in {self.foreign}{named}, for the embedded are English'
        if self.knows(name, read):
            return ''
        return f'{what} that the tokenizer knows{named}, or model.allow_unknown'

    @property
    def foreign(self) -> str:
        """The language of the texts, such as 'German (de)'; '' if they may be English."""
        return self.foreign_to('en')

    def foreign_to(self, known: str) -> str:
        """Return the language of the texts; '' if they may be in a known one."""

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
        known = pipeline and not self.foreign_to(language_of(pipeline))
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

    def over(self, name: str, passes: float | int, **of: Any) -> float:
        """Return the work of passes over the examples of an input; `of` as in `tokens`."""
        return passes * self.tokens(name, **of)

    def share(self, name: str, wanted: int) -> float:
        """Return the share of the examples of an input that a number of them is; 0 is all."""
        count = len(self.value(name))
        return min((wanted or count) / count, 1.0)

    def one_pass(self, name: str = '', passes: float | int = 0) -> dict[str, float]:
        """Return the pass over the model as it is, which sections share, and one's own work."""
        own = {name: self.over('texts', passes)} if name else {}
        return {'first pass': self.over('texts', 2.6)} | own

    def compared(self) -> dict[str, float]:
        """Return the pass over the model and each fine-tuned one, which sections share."""
        if not self.study.has_training:
            return {}
        second = self.over('texts', 4 * len(self.study.seeds))
        return self.finetuned() | {'second pass': second}

    def finetuned(self) -> dict[str, float]:
        """Return fine-tuning, unless it is done or there is nothing to train on."""
        if not self.study.has_training:
            return {}
        if processes.exists(self.study.finetuning_folder(self.input('tuned')) / OUTCOME):
            return {}
        runs = len(self.study.seeds) * len(self['train.starts'])
        return {'fine-tuning': runs * self.tokens_of_training()}

    def tokens_of_training(self) -> float:
        """Return the work of fine-tuning with one seed."""
        train = self.study.config.train
        steps = -(-len(self.value('train')) // train.batch_size) * train.epochs
        # Where maps are compared, both models read the dev examples.
        passes = train.epochs + 1 + (4 * (steps // train.maps_every) if train.maps_every else 0)
        dev = self.share('dev', train.max_dev_examples) * self.tokens('dev')
        return self.TRAINED * train.epochs * self.tokens('train') + passes * dev

    def ablated(self) -> dict[str, float]:
        """Return fine-tuning, unless a model is ablated as it is."""
        return {} if self.study.as_it_is else self.finetuned()

    def scored(self) -> dict[str, float]:
        """Return the scores of heads, by gradient, confidence, relevance and without each head."""
        each = self.HEAD + self.MANY * self['importance.permutations']
        return self.ablated() | {'scores of heads': self.over('measured', 24 + self.heads * each)}


def some(examples: list[Example]) -> list[Example]:
    """Return some of the examples, evenly spread, from which costs are estimated."""
    return examples[:: max(len(examples) // _SAMPLE, 1)]
