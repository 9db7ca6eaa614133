"""One run of the programs: the inputs that its settings name, and the results made from them.

Each is loaded or computed when it is first needed. Results that take long are kept in the folder of
the run, under a name made from everything that they depend on. So any setting may change, and only
the results that depend on it are computed again.
"""

import dataclasses
import functools
import hashlib
import json
import operator
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
from absl import logging
from ml_collections import ConfigDict

import bert_secrets_jax as bs
from bert_secrets_jax import processes
from bert_secrets_jax.analyses.ablation import assessed_metrics
from bert_secrets_jax.analyses.attention_change import for_reading
from bert_secrets_jax.analyses.gradients import loss_of
from bert_secrets_jax.analyses.models import labels_of, metrics_for
from bert_secrets_jax.analyses.texts import TextSettings
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.configs.ranges import numbers_in
from bert_secrets_jax.data.annotation import Annotation
from bert_secrets_jax.data.encoding import Encoded, bucket, mark, tokenize
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.data.questions import Question
from bert_secrets_jax.data.tagged import Tagged
from bert_secrets_jax.data.tasks import Example, draw
from bert_secrets_jax.data.treebank import Parse, read_treebank, treebank_sample
from bert_secrets_jax.devices import SEEDS, make_mesh, parse_axes
from bert_secrets_jax.files import read_record, sha256, write_record
from bert_secrets_jax.finetune.metrics import check_metrics
from bert_secrets_jax.finetune.outcome import OUTCOME
from bert_secrets_jax.finetune.train import Finetuned, finetune, remove_unknown
from bert_secrets_jax.measure.catalogue import (
    CATALOGUE,
    RELATIONS,
    Described,
    change,
    measure,
    measure_change,
    named,
)
from bert_secrets_jax.measure.links import (
    LinkScores,
    directions,
    link_scores,
    with_random_links,
)
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model import hub
from bert_secrets_jax.model.config import MASKED_LM, BertConfig
from bert_secrets_jax.model.weights import (
    Pretrained,
    fingerprint,
    from_pretrained,
    without_head,
)
from bert_secrets_jax.patterns.classifier import Classifier, load_classifier
from bert_secrets_jax.programs import inputs
from bert_secrets_jax.progress import progress
from bert_secrets_jax.pruning.gates import Gated, train_gates
from bert_secrets_jax.runs.result import Subject
from bert_secrets_jax.runs.run import NotKept, Run, digest, remove

# Errors that a user can mend.
MENDABLE = (ValueError, OSError, ImportError, FloatingPointError)
# This needs maps that are padded as in the authors' notebook, so it has a pass of its own.
PADDED = 'cosine (padded)'
# The settings `train` that `Study.training` leaves out, because they are handed on in other ways.
_NOT_OF_TRAINING = ('starts', 'num_seeds', 'max_examples', 'max_dev_examples')


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The outcome of one pass for one statistic.

    Attributes:
      table: The table of the statistic; None for random links.
      scores: The parts of the tests along random links; None for other statistics.
    """

    FORMAT: ClassVar[int] = 2

    table: HeadTable | None = None
    scores: LinkScores | None = None


@dataclasses.dataclass(frozen=True)
class Fact:
    """Whether something is so of a model, as a file keeps it."""

    holds: bool


# The settings that say where an input is; those of any other input are the same as of the texts.
_TEXTS = ('data', 'seed')
_SETTINGS = {
    'weights': ('model',),
    'train': (*_TEXTS, 'train.max_examples'),
    'ablated texts': (*_TEXTS, 'ablation.max_examples'),
    'choosing texts': (
        *_TEXTS, 'train.max_examples', 'ablation.max_examples', 'ablation.choose_examples',
    ),
    'measured texts': (*_TEXTS, 'train.max_examples', 'importance.max_examples'),
    'annotations': (*_TEXTS, 'linguistics'),
    'classifier': ('patterns.classifier',),
    'frames': ('frames',),
    'treebank': ('treebank', 'seed'),
    'vectors': ('probe.vectors',),
}  # fmt: skip


def _once(load: Callable[['Study'], Any]) -> property:
    """Return a property that is loaded when it is first needed, as by `Study.once`."""

    @functools.wraps(load)
    def get(study: 'Study') -> Any:
        return study.once(load.__name__, lambda: load(study))

    return property(get)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shared(TextSettings):
    """The settings of a study, by which sections share the passes over its texts.

    Attributes:
      study: The study.
    """

    study: 'Study'

    def tables(self, pretrained, texts, statistics):
        return self.study.before(statistics)

    def changes(self, pretrained, tuned, texts, statistics):
        if tuned is None:
            return {}
        seeds = self.study.tuned_seeds
        return {str(seed): self.study.after(seed, statistics) for seed in seeds}

    def links(self, pretrained, texts, relations, statistics, *, draws, seed):
        return self.study.before(statistics), self.study.relation_scores()


class Study:
    """One model and its texts, as the settings name them.

    Attributes:
      config: All settings.
      run: The folder in which results are kept.
      wanted: A function that returns the statistics of the model as it is that all sections want,
        so that one pass measures them all.
      compared: A function that returns the statistics that all sections want of that model and a
        fine-tuned one together.
    """

    def __init__(self, config: ConfigDict, folder: pathlib.Path, *, read_only: bool = False):
        self.config = config
        self.run = Run(folder, read_only=read_only)
        self.wanted: Callable[[Study], Iterable[Described]] = lambda study: ()
        self.compared: Callable[[Study], Iterable[Described]] = lambda study: ()
        self._once: dict[Any, Any] = {}

    def reading(self) -> 'Study':
        """Return a study of the same inputs that only reads (`runs.run.NotKept`)."""
        reading = Study(self.config, self.run.folder, read_only=True)
        reading._once = self._once
        return reading

    def release(self) -> None:
        """Free the memory of everything loaded and computed; kept results stay in the folder."""
        self._once.clear()
        self.run.forget()

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the results."""
        return self.run.folder

    # Names of things.

    @property
    def model_name(self) -> str:
        """The name of the model: that of its folder, or that on the hub."""
        name = self.config.model.name
        is_folder = name.startswith(('/', '.', '~')) or pathlib.Path(name).is_dir()
        return pathlib.PurePath(name).name if is_folder else name

    @property
    def task(self) -> str | None:
        """The name of the task of GLUE; None for other texts."""
        task = inputs.glue_task(self.config.data)
        return None if task is None else task.name

    def metrics(self, classes: int) -> tuple[str, ...]:
        """Return the names of the metrics that heads are judged by: those chosen, or the task's.

        Args:
          classes: The number of classes; 1 means regression.

        Raises:
          ValueError: A metric of the settings is not for so many classes.
        """
        chosen = inputs.metrics(self.config.data)
        if chosen:
            check_metrics(chosen, classes)
        return chosen or assessed_metrics(classes, self.task)

    @property
    def subject(self) -> Subject:
        """The names of the model and the texts, for sentences and captions."""
        texts = inputs.text_name(self.config.data, self.config.data.split)
        return Subject(self.model_name, texts, self.task)

    @property
    def corpus(self) -> str:
        """The name of the texts without that of their split: 'MRPC' of 'MRPC dev'."""
        return self.subject.texts.removesuffix(f' {self.config.data.split}').removesuffix(',')

    # Model and texts.

    @_once
    def pretrained(self) -> Pretrained:
        """The model that is studied, without any head."""
        try:
            return without_head(self.with_own_head)
        except ValueError:
            # A head that is not implemented; other faults show again.
            return self._load(label_names=())

    @_once
    def with_own_head(self) -> Pretrained:
        """The model with the head that it came with, such as a classifier or a masked LM.

        Raises:
          ValueError: The head is none that is implemented.
        """
        return self._load()

    @property
    def is_masked_lm(self) -> bool:
        """Whether the model came with a head that predicts wordpieces."""
        return self.holds(
            'predicts wordpieces',
            lambda: self.with_own_head.config.head == MASKED_LM,
            unknown=False,
        )

    @property
    def has_own_loss(self) -> bool:
        """Whether the model has a loss on the texts with the head that it came with.

        Raises:
          NotKept: It is not found yet, and the study only reads.
        """

        def find() -> bool:
            try:
                return bool(loss_of(self.with_own_head, self.texts))
            except ValueError:
                return False

        return self._fact('has a loss', find, unknown=False, beside=('texts',))

    def holds(self, name: str, find: Callable[[], bool], *, unknown: bool) -> bool:
        """Return whether something is so of the model, found or read.

        A finished run that is read need not load the model.

        Args:
          name: The name of the fact.
          find: A function that finds it.
          unknown: The answer where the model cannot be loaded: whoever needs it will say why.
        """
        try:
            return self._fact(name, find, unknown=unknown)
        except NotKept:
            return bool(find())

    def _fact(
        self, name: str, find: Callable[[], bool], *, unknown: bool, beside: Sequence[str] = ()
    ) -> bool:
        """Find or read a fact of the model and of the inputs that are named beside it."""
        try:
            depends_on = {'weights': self.input('weights'), 'model': self.config.model.to_dict()}
            depends_on |= {other: self.input(other) for other in beside}
            return self.run.keep(name, Fact, depends_on, lambda: Fact(bool(find()))).holds
        except (ValueError, OSError, TypeError) as error:
            logging.debug('%s is not known: %s', name, error)
            return unknown

    def _load(self, **changes) -> Pretrained:
        return from_pretrained(**self.config.model.to_dict(), **changes)

    @_once
    def texts(self) -> list[Example]:
        """The texts that are analysed: `data.max_examples` of `dev`."""
        drawn = self._drawn(self.dev, 'data.max_examples')
        # Tags and answers are for learning alone.
        return [each if isinstance(each, Example) else each.example for each in drawn]

    @_once
    def dev(self) -> list[Example] | list[Tagged] | list[Question]:
        """All examples of `data.split`, with what is to be learnt from them."""
        return self._read(self.config.data.split)

    @_once
    def train(self) -> list[Example] | list[Tagged] | list[Question]:
        """The training examples: `train.max_examples` of them."""
        return self._drawn(self._all_train, 'train.max_examples')

    @_once
    def _all_train(self) -> list[Any]:
        return self._read('train')

    @_once
    def choosing_texts(self) -> list[Example]:
        """The examples on which the best to lose is chosen: training texts that train no model.

        Raises:
          ValueError: Fewer than `ablation.choose_examples` neither train the model nor have the
            words of a text that does or is ablated, or the run trains no model.
        """
        wanted = self.config.ablation.choose_examples
        if self.config.ablation.checkpoint == 'model':
            raise ValueError(
                f'ablation.choose_examples={wanted} takes training texts that this run leaves out, '
                'and ablation.checkpoint=model trains nothing: it is not known which texts its '
                'model has seen. Set one of them otherwise.'
            )
        known = {example.texts for example in (*self.train, *self.ablated_texts)}
        left = [example for example in self._all_train if example.texts not in known]
        if len(left) < wanted:
            raise ValueError(
                f'ablation.choose_examples={wanted} takes training texts that no model is trained '
                f'on, and of {len(self._all_train)} only {len(left)} are neither trained on '
                f'(train.max_examples={self.config.train.max_examples}, 0 for all) nor ablated: '
                'train on fewer.'
            )
        return draw(left, wanted, self.config.seed, setting='ablation.choose_examples')

    @_once
    def ablated_texts(self) -> list[Example]:
        """The examples that ablation scores: `ablation.max_examples` of `dev`."""
        return self._drawn(self.dev, 'ablation.max_examples')

    @_once
    def measured_texts(self) -> list[Example]:
        """The training examples that heads are scored on: `importance.max_examples` of `train`."""
        return self._drawn(self.train, 'importance.max_examples')

    def _read(self, split: str) -> list[Any]:
        reading = inputs.reading(self.config.data, split)
        given, named = reading.given, reading.named
        if reading.function == 'read_segments':
            given = (*given, self.pretrained.tokenizer)
            named = {**named, 'max_length': self.config.encoding.max_length}
        try:
            return getattr(bs, reading.function)(*given, **named)
        except FileNotFoundError as error:
            if reading.function != 'read_tfds':
                raise
            raise FileNotFoundError(
                'Name the folder of the original TSV files (setting data.glue_dir), or prepare '
                f'them: {error}'
            ) from error

    def _drawn(self, examples: list[Any], setting: str) -> list[Any]:
        wanted = operator.attrgetter(setting)(self.config)
        return draw(examples, wanted, self.config.seed, setting=setting)

    @_once
    def annotations(self) -> list[Annotation]:
        """The features and relations that spaCy finds in the texts."""
        cache = self.folder / 'linguistics'
        if not processes.exists(cache):
            self.run.check_may_compute('What spaCy finds')
        return annotate(self.texts, pipeline=self.config.linguistics.pipeline, cache=cache)

    @_once
    def train_trees(self) -> list[Parse]:
        """The sentences with trees to learn from: `treebank.max_train` of them."""
        return self._trees('train')

    @_once
    def dev_trees(self) -> list[Parse]:
        """The sentences with trees to score on: `treebank.max_dev` of them."""
        return self._trees('dev')

    def _trees(self, part: str) -> list[Parse]:
        path = self.config.treebank[part]
        bad_rows = self.config.data.bad_rows
        read = read_treebank(path, bad_rows=bad_rows) if path else treebank_sample(part)
        return self._drawn(read, f'treebank.max_{part}')

    @property
    def frames_subject(self) -> Subject:
        """The names of the model, the sample of frames (as texts) and the task."""
        sample = self.config.frames.sample
        names = {'': 'the embedded sample', 'framenet': 'FrameNet'}
        return dataclasses.replace(self.subject, texts=names.get(sample, sample.rpartition('/')[2]))

    @property
    def treebank_subject(self) -> Subject:
        """The names of the model and the treebank, for sentences and captions."""
        path = self.config.treebank.dev
        texts = pathlib.PurePath(path).stem if path else 'the embedded treebank'
        return Subject(self.model_name, texts)

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh | None:
        """The devices along an axis `data`; None if there is only one."""
        return self._mesh_beside('')

    def _mesh_beside(self, second: str) -> jax.sharding.Mesh | None:
        """Return the devices of `mesh`, along a second axis, too, if the settings name it."""
        return make_mesh(parse_axes(self.config.mesh), second)

    @property
    def settings(self) -> TextSettings:
        """The settings for encoding and annotating texts."""
        return _Shared(
            **vars(self.compute()),
            pipeline=self.config.linguistics.pipeline,
            cache=self.folder / 'linguistics',
            study=self,
        )

    @property
    def has_words(self) -> bool:
        """Whether there is a spaCy pipeline to find nouns, subjects and so on."""
        return bool(self.config.linguistics.pipeline)

    @property
    def has_training(self) -> bool:
        """Whether there are texts to fine-tune on."""
        data = self.config.data
        if data.source in ('tags', 'questions'):
            return data.train_file is not None
        if data.source == 'segments':
            return False
        return data.source != 'file' or (data.label is not None and data.train_file is not None)

    @_once
    def classifier(self) -> Classifier:
        """The classifier of patterns: the user's, or else the one that comes with the package."""
        return load_classifier(self.config.patterns.classifier or None)

    # Inputs that results depend on.

    def input(self, name: str) -> str:
        """Return the digest of the content of an input.

        A finished run can still be read after its model or its texts have moved away: then the
        digest is the one that the run noted for the same settings.

        Args:
          name: The name of the input: 'weights', 'texts' (those that are analysed), 'dev', 'train',
            'ablated texts', 'choosing texts', 'measured texts', 'annotations', 'classifier',
            'frames', 'treebank' or 'vectors'.

        Raises:
          FileNotFoundError: The input is not there, and the run has noted no digest of it.
        """
        return self.once(('input', name), lambda: self._input(name))

    def _input(self, name: str) -> str:
        where = digest({name: _plain(self._settings_of(name))})
        file = self.folder / 'inputs.json'
        noted = _noted(file)
        try:
            found = self._digest(name)
        except FileNotFoundError as error:
            if where not in noted:
                raise
            what = {'train': 'training texts', 'dev': 'dev texts'}.get(name, name)
            logging.warning(
                'Not found any more: %s (%s) Shown is what was computed from it.',
                what, str(error).splitlines()[0],
            )  # fmt: skip
            return noted[where]
        if noted.get(where) != found and processes.is_first():
            write_record(file, noted | {where: found})
        return found

    def _settings_of(self, name: str) -> Any:
        """Return the settings that say where an input is."""
        names = _SETTINGS.get(name, _TEXTS)
        if names[:2] == _TEXTS and self.config.data.source == 'segments':
            # They are cut to the tokens that fit.
            names = (*_TEXTS, 'model', 'encoding.max_length', *names[2:])
        settings = [operator.attrgetter(each)(self.config) for each in names]
        found = [each.to_dict() if isinstance(each, ConfigDict) else each for each in settings]
        return found if len(found) > 1 else found[0]

    def _digest(self, name: str) -> str:
        config = self.config
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
                confusions = self.classifier.confusions.tolist()
                path = config.patterns.classifier
                shipped = ['shipped', confusions, self.classifier.far]
                return sha256(path) if path else digest(shipped)
            case 'frames':
                sample = config.frames.sample
                # FrameNet itself is large, and has versions: its folder stands for it.
                own = sample and sample != 'framenet'
                return sha256(sample) if own else digest(config.frames.to_dict())
            case 'vectors':
                return sha256(config.probe.vectors) if config.probe.vectors else ''
            case 'treebank':
                return _digest_of([*self.train_trees, *self.dev_trees])
        return _digest_of(getattr(self, name.replace(' ', '_')))

    def on_texts(self) -> dict[str, Any]:
        """Return everything that each statistic of the model as it is depends on."""
        return {
            'weights': self.input('weights'),
            'texts': self.input('texts'),
            'max_length': self.config.encoding.max_length,
        }

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Compute a value at the first call, and return the same value at later calls.

        An error is kept in the same way, and raised again; only `NotKept` is not.

        Args:
          key: The key of the value.
          compute: A function that returns the value.
        """
        if key not in self._once:
            try:
                self._once[key] = compute()
            except NotKept:
                raise
            except Exception as error:
                self._once[key] = error
                raise
        if isinstance(self._once[key], Exception):
            raise self._once[key]
        return self._once[key]

    # One pass over the model as it is, and one over it and each fine-tuned one.

    def before(self, described: Sequence[Described]) -> dict[str, HeadTable]:
        """Return tables of statistics of the model as it is, by name.

        Args:
          described: The statistics.
        """
        found = self._before(described, ())
        return {each.name: found[each.name].table for each in described}

    def relation_scores(self) -> dict[str, LinkScores]:
        """Return the parts of the tests of section 4.5's relations, by the directions' titles."""
        titles = list(directions(RELATIONS))
        found = self._before((), titles)
        return {title: found[_random(title)].scores for title in titles}

    def _before(self, described: Sequence[Described], titles: Sequence[str]) -> dict[str, Measured]:
        statistics = {each.name: each for each in described}
        keys = {name: self._key(each) for name, each in statistics.items()}
        if titles:
            keys |= self._keys_of_links()
        if not self.run.read_only:
            classified = any(each.classifier is not None for each in described)
            for each, key in self._wanted_by_others(self.wanted):
                # Classes of patterns take longer to compile than all else, and have a pass of
                # their own: the first picture does not wait for them.
                if (each.classifier is not None) != classified:
                    continue
                statistics[each.name] = each
                keys[each.name] = key
                if each.relations:
                    keys |= self._keys_of_links()

        def compute(missing: Sequence[str]) -> dict[str, Measured]:
            wanted = [each for name, each in statistics.items() if name in missing]
            links = [title for title in directions(RELATIONS) if _random(title) in missing]
            return self._measure(wanted, links)

        return self._kept(
            keys, compute, [*(each.name for each in described), *map(_random, titles)]
        )

    def _wanted_by_others(
        self, wanted: Callable[['Study'], Iterable[Described]]
    ) -> Iterator[tuple[Described, dict[str, Any]]]:
        """Yield statistics that others want, with what they depend on, of which that is known."""
        try:
            described = list(wanted(self))
        except MENDABLE as error:
            # The section that wants it will say so.
            logging.debug('Not measured now: %s', error)
            return
        for each in described:
            try:
                yield each, self._key(each)
            except MENDABLE as error:
                logging.debug('%s is not measured now: %s', each.name, error)

    def _keys_of_links(self) -> dict[str, dict[str, Any]]:
        key = self.on_texts() | {
            'annotations': self.input('annotations'),
            'links': [self.config.links.draws, self.config.seed],
        }
        return {_random(title): key for title in directions(RELATIONS)}

    def _measure(self, wanted: Sequence[Described], links: Sequence[str]) -> dict[str, Measured]:
        model, random = self.pretrained, {}
        encoded = self._encoded(annotated=bool(links) or any(each.annotated for each in wanted))
        with_random = encoded
        if links:
            with_random, random = with_random_links(
                encoded,
                RELATIONS,
                draws=self.config.links.draws,
                seed=self.config.seed,
            )
        batches = bucket(with_random, **self.settings.bucketing)
        tables = measure(model, _shown(batches, 'Attention'), wanted, also=random, mesh=self.mesh)
        found = {each.name: Measured(table=tables[each.name]) for each in wanted}
        if links:
            scores = link_scores(encoded, RELATIONS, tables)
            found |= {_random(title): Measured(scores=scores[title]) for title in links}
        return found

    def after(self, seed: int, described: Sequence[Described]) -> dict[str, HeadTable]:
        """Return tables of a fine-tuned model, of its changes, and of comparisons, by name.

        Args:
          seed: The seed of the fine-tuning.
          described: The statistics, as in `measure.catalogue.measure_change`.
        """
        tuned = {'finetuned': self.finetuning_digest('pretrained'), 'seed': seed}
        of_each = {each.name: (each, self._key(each)) for each in described}
        padded = PADDED in of_each
        if not (self.run.read_only or padded):
            of_each |= {
                each.name: (each, key) for each, key in self._wanted_by_others(self.compared)
            }
        names, keys = {}, {}
        for each, key in of_each.values():
            for name in [each.name] if each.pairwise else [each.name, change(each.name)]:
                names[name], keys[name] = each, key | tuned | {'of': name}

        def compute(missing: Sequence[str]) -> dict[str, Measured]:
            wanted = list({names[name].name: names[name] for name in missing}.values())
            settings = for_reading('notebook', self.settings) if padded else self.settings
            encoded = self._encoded(
                annotated=any(each.annotated for each in wanted), max_length=settings.max_length
            )
            index = self.seeds.index(seed)
            tables = measure_change(
                self.pretrained,
                self.finetuned('pretrained').models[index],
                _shown(bucket(encoded, **settings.bucketing), f'Change (seed {seed})'),
                wanted,
                mesh=self.mesh,
            )
            return {name: Measured(table=table) for name, table in tables.items()}

        asked = {each.name for each in described}
        wanted = [name for name, each in names.items() if each.name in asked]
        found = self._kept(keys, compute, wanted)
        return {name: measured.table for name, measured in found.items()}

    def _kept(
        self,
        keys: Mapping[str, Mapping[str, Any]],
        compute: Callable[[Sequence[str]], Mapping[str, Measured]],
        asked: Sequence[str],
    ) -> dict[str, Measured]:
        """Measure what is missing in one pass; what others want, only if all of it can be."""
        try:
            return self.run.keep_each(Measured, keys, compute, wanted=asked)
        except NotKept:
            raise
        except Exception as error:
            own = {name: keys[name] for name in asked}
            if own.keys() == keys.keys():
                raise
            # The section that wants what failed will say so.
            logging.debug('Not measured together with others: %s', error)
            return self.run.keep_each(Measured, own, compute)

    def _key(self, described: Described) -> dict[str, Any]:
        key = {'statistic': described.name} | self.on_texts()
        if described.annotated and self.has_words:
            key['annotations'] = self.input('annotations')
        if described.classifier is not None:
            key['classifier'] = self.input('classifier')
        if described.name in self.own_code:
            key['code'] = self.own_code[described.name]
        return key

    @_once
    def own_code(self) -> dict[str, str]:
        """Name of each statistic of one's own to the digest of the file that has it."""
        found = {}
        for name in self.config.statistics:
            module, colon, _ = name.partition(':')
            if not colon or name in CATALOGUE:
                continue
            try:
                own = named(name).name
            except Exception as error:
                # Code of the user's; the section that wants it will say what is wrong.
                logging.debug('%s cannot be measured: %s', name, error)
                continue
            found[own] = sha256(sys.modules[module].__file__)
        return found

    def _encoded(self, *, annotated: bool, max_length: int | None = None) -> Encoded:
        examples = self.texts
        max_length = max_length or self.config.encoding.max_length
        encoded = tokenize(self.pretrained.tokenizer, examples, max_length=max_length)
        return mark(encoded, self.annotations) if annotated and self.has_words else encoded

    # Fine-tuning and ablation.

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of fine-tuning."""
        train = self.config.train
        return tuple(self.config.seed + run for run in range(train.num_seeds))

    @property
    def tuned_seeds(self) -> tuple[int, ...]:
        """The seeds of fine-tuning; empty if there are no texts to fine-tune on."""
        return self.seeds if self.has_training else ()

    @property
    def training(self) -> dict[str, Any]:
        """The settings of fine-tuning that are passed on to `finetune`."""
        every = self.config.train.to_dict()
        return {name: every[name] for name in every if name not in _NOT_OF_TRAINING}

    def finetuning_digest(self, start: str) -> str:
        """Return the digest of everything that a fine-tuning depends on.

        Args:
          start: The weights to start from, 'pretrained' or 'random'.
        """
        # How often checkpoints are written changes no result.
        settings = {k: value for k, value in self.training.items() if k != 'checkpoint_every'}
        return digest(
            {
                'weights': self.input('weights'),
                'train': self.input('train'),
                'dev': self.input('dev'),
                'settings': settings,
                'dev_examples': self.config.train.max_dev_examples,
                'max_length': self.config.encoding.max_length,
                'seeds': self.seeds,
                'start': start,
                'task': self.task,
                'labels': inputs.label_names(self.config.data),
            }
            | ({'metrics': self.config.data.metrics} if self.config.data.metrics else {})
        )

    def finetuned(self, start: str) -> Finetuned:
        """Return a fine-tuning; it is computed, continued after an interruption, or read.

        Args:
          start: The weights to start from, 'pretrained' or 'random'.
        """
        found = self.once(('finetuned', start), lambda: self._finetuned(start))
        self.run.used.add(self.finetuning_folder(start).name)
        return found

    def finetuning_folder(self, start: str) -> pathlib.Path:
        """Return the folder with the checkpoints of a fine-tuning.

        Args:
          start: The weights to start from, 'pretrained' or 'random'.
        """
        return self.folder / 'finetune' / f'{start}-{self.finetuning_digest(start)}'

    def _finetuned(self, start: str) -> Finetuned:
        folder = self.finetuning_folder(start)
        if processes.exists(folder / OUTCOME):
            try:
                return Finetuned.load(folder)
            except ValueError as error:
                logging.warning('%s', error)
        self.run.check_may_compute('Fine-tuning')
        with self.run.alone(folder):
            processes.on_first(lambda: remove_unknown(folder))
            # If another process has finished it in the meantime, this only reads it.
            return finetune(
                self.pretrained,
                self.train,
                self.dev,
                folder=folder,
                mesh=self._mesh_beside(SEEDS),
                **self.finetune_settings(start),
            )

    def finetune_settings(self, start: str) -> dict[str, Any]:
        """Return the settings of a fine-tuning, by the names of the arguments of `finetune`.

        Args:
          start: The weights to start from, 'pretrained' or 'random'.
        """
        of_task = None if self.task is None else metrics_for(0, self.task)
        return {
            'seeds': self.seeds,
            'start': start,
            'metrics': inputs.metrics(self.config.data) or of_task,
            'label_names': inputs.label_names(self.config.data),
            'max_dev_examples': self.config.train.max_dev_examples,
            **self.training,
            'max_length': self.config.encoding.max_length,
        }

    @property
    def ablated_seeds(self) -> tuple[int, ...]:
        """The seeds whose models are ablated; empty if a model is ablated as it is."""
        if self.config.ablation.checkpoint == 'model':
            return ()
        return self.tuned_seeds[: self.config.ablation.seeds or None]

    def ablated_model(self, seed: int | None = None) -> Pretrained:
        """Return the model that is ablated.

        Args:
          seed: The seed of its fine-tuning; None takes the first.
        """
        if self.config.ablation.checkpoint == 'finetuned':
            place = 0 if seed is None else self.seeds.index(seed)
            return self.finetuned('pretrained').models[place]
        model = self.with_own_head
        self._check_classes(model.config)
        return model

    def digest_of_ablated(self) -> list[Any]:
        """Return what tells the model that is ablated from others.

        Raises:
          ValueError: The setting `ablation.checkpoint` is unknown.
        """
        match self.config.ablation.checkpoint:
            case 'finetuned':
                return [self.finetuning_digest('pretrained'), self.seeds[0]]
            case 'model':
                return [self.input('weights'), 'as it is']
            case other:
                raise ValueError(f"ablation.checkpoint is 'finetuned' or 'model', not {other!r}.")

    @property
    def gate_settings(self) -> dict[str, Any]:
        """The settings of the training of gates, by the names of `train_gates`."""
        gates, train = self.config.gates, self.config.train
        shared = ('batch_size', 'micro_batch', 'warmup', 'weight_decay', 'clip', 'optimizer')
        return {
            'coefficients': tuple(map(float, numbers_in(gates.coefficients))),
            'seeds': tuple(self.config.seed + run for run in range(gates.num_seeds)),
            'frozen': gates.frozen,
            'epochs': gates.epochs,
            'gate_learning_rate': gates.learning_rate,
            'learning_rate': gates.model_learning_rate,
            'max_length': self.config.encoding.max_length,
        } | {name: train[name] for name in shared}

    def on_gated(self) -> dict[str, Any]:
        """Return everything that gates depend on: a removed head puts out nothing."""
        return {
            'model': self.digest_of_ablated(),
            'texts': self.input('ablated texts'),
            'train': self.input('train'),
            'settings': _plain(self.gate_settings),
        }

    def compute(self, folder: pathlib.Path | None = None, *, second: str = '') -> Compute:
        """Return how passes over texts are computed.

        Args:
          folder: The folder for unfinished work.
          second: A second axis of the devices, which is used if the settings name it.
        """
        return Compute(
            max_length=self.config.encoding.max_length,
            tokens_per_batch=self.config.encoding.tokens_per_batch,
            chunk_tokens=self.config.ablation.chunk_tokens or None,
            mesh=self._mesh_beside(second),
            folder=folder,
        )

    def gated(self) -> Gated:
        """Return the gates of the model that is ablated, trained or read."""

        def compute(folder: pathlib.Path) -> Gated:
            model = self.ablated_model()
            # A label that the model does not know shows before anything is trained.
            labels_of(self.ablated_texts, model.config)
            found = train_gates(
                model, self.train, self.ablated_texts, **self.gate_settings,
                checkpoint_every=self.config.train.checkpoint_every, folder=folder,
                mesh=self._mesh_beside(SEEDS),
            )  # fmt: skip
            # Models with weights of their own are many, and large.
            return dataclasses.replace(found, models=())

        return self.kept_whole('trained gates', Gated, self.on_gated(), compute)

    def kept_whole(
        self,
        title: str,
        kind: type,
        depends_on: Mapping[str, Any],
        compute: Callable[[pathlib.Path], Any],
    ) -> Any:
        """Return a result that is computed in parts, which are removed when it is whole.

        Args:
          title: The name under which the result and the folder of its parts are kept.
          kind: The class of the result.
          depends_on: Everything that it depends on.
          compute: A function of the folder of the parts that computes it.
        """
        parts = self.run.folder_for(f'unfinished/{title}', depends_on)
        found = self.run.keep(title, kind, depends_on, lambda: compute(parts))
        if not self.run.read_only:
            remove(parts)
        return found

    def _check_classes(self, config: BertConfig) -> None:
        """Refuse a checkpoint whose classes are not those of the labels."""
        data = self.config.data
        texts = inputs.text_name(data, data.split)
        if data.source == 'file':
            if self.dev[0].label is None:
                raise ValueError('Ablation needs labels: name their column (setting data.label).')
            # The names of its classes are the model's own; `labels_of` compares their number.
            return
        ours = inputs.label_names(data)
        if config.num_labels != len(ours):
            raise ValueError(
                f'{self.model_name} has {config.num_labels} classes and {texts} {len(ours)}: give '
                'a checkpoint that was fine-tuned on it, or let this run fine-tune one '
                '(ablation.checkpoint=finetuned).'
            )
        theirs = [name.lower() for name in config.label_names]
        wanted = [name.lower() for name in ours]
        if theirs != wanted and sorted(theirs) == sorted(wanted):
            raise ValueError(
                f'{self.model_name} numbers its classes {", ".join(theirs)}, and the labels are '
                f'numbered {", ".join(wanted)}: reorder its classifier and id2label.'
            )


def _noted(file: pathlib.Path) -> dict[str, str]:
    """Return the digests that a run has noted; none if they cannot be read."""
    try:
        return read_record(file)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        logging.warning('Noted anew: %s', error)
        return {}


def _random(title: str) -> str:
    """Return the name under which random links of a direction are kept."""
    return f'random links from {title}'


def _shown(batches, what: str):
    return progress(batches, what, size=lambda batch: batch.size)


def _digest_of(content: Any) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return settings as JSON values."""
    return json.loads(json.dumps(value))
