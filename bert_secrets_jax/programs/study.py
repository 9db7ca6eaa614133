"""One run of the programs: the inputs that its settings name, and the results made from them.

Each is loaded or computed when it is first needed. Results that take long are kept under a name
made from all that they depend on: after a change of settings, only those are computed again.
"""

import contextlib
import dataclasses
import functools
import itertools
import operator
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
from absl import logging
from ml_collections import ConfigDict

import bert_secrets_jax as bs
from bert_secrets_jax import processes
from bert_secrets_jax.analyses.ablation import assessed_metrics
from bert_secrets_jax.analyses.gradients import loss_of
from bert_secrets_jax.analyses.models import labels_of
from bert_secrets_jax.analyses.texts import TextSettings
from bert_secrets_jax.brief import MENDABLE
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.configs.ranges import numbers_in, parse_axes
from bert_secrets_jax.data.annotation import Annotation
from bert_secrets_jax.data.corpus import search_sample, similarity_sample
from bert_secrets_jax.data.language import foreign_language, language_of
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.data.pairs import MinimalPair, pairs_sample, read_pairs, read_search
from bert_secrets_jax.data.questions import Question
from bert_secrets_jax.data.tagged import Tagged
from bert_secrets_jax.data.tasks import Example, draw, get_task
from bert_secrets_jax.data.treebank import Parse, read_treebank, treebank_sample
from bert_secrets_jax.devices import SEEDS, make_mesh
from bert_secrets_jax.files import sha256
from bert_secrets_jax.finetune.metrics import check_metrics
from bert_secrets_jax.finetune.outcome import OUTCOME, mend_tables
from bert_secrets_jax.finetune.train import Finetuned, finetune, remove_unknown
from bert_secrets_jax.measure.catalogue import CATALOGUE, Described, named
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained, from_pretrained, without_head
from bert_secrets_jax.patterns.classifier import Classifier, load_classifier
from bert_secrets_jax.programs import inputs, passes
from bert_secrets_jax.programs.digests import input_digest
from bert_secrets_jax.pruning.gates import Gated, train_gates
from bert_secrets_jax.runs.result import Subject
from bert_secrets_jax.runs.run import NotKept, Run, digest

# The settings `train` that `Study.training` leaves out, because they are handed on in other ways.
_NOT_OF_TRAINING = ('starts', 'num_seeds', 'max_examples', 'max_dev_examples')
# Newer settings, which a fine-tuning of a former version is found again without.
_NEWER = {
    'schedule': 'linear', 'layer_decay': 1.0, 'freeze': '', 'reinit': 0, 'one_class': False,
    'maps_every': 0,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Fact:
    """Whether something is so of a model, as a file keeps it."""

    holds: bool


def _once(load: Callable[['Study'], Any]) -> property:
    """Return a property that is loaded when it is first needed, as by `Study.once`."""

    @functools.wraps(load)
    def get(study: 'Study') -> Any:
        return study.once(load.__name__, lambda: load(study))

    return property(get)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shared(TextSettings):
    """The settings of a study, by which sections share the passes over its texts."""

    study: 'Study'

    def tables(self, pretrained, texts, statistics):
        return passes.tables_before(self.study, statistics)

    def changes(self, pretrained, tuned, texts, statistics):
        if tuned is None:
            return {}
        study = self.study
        return {str(seed): passes.tables_after(study, seed, statistics) for seed in study.seeds}

    def links(self, pretrained, texts, relations, statistics, *, draws, seed):
        return self.tables(pretrained, texts, statistics), passes.relation_scores(self.study)


class Study:
    """One model and its texts, as the settings name them; `run` keeps the results.

    Attributes:
      wanted: Returns the statistics of the model as it is that all sections want.
      compared: Returns those that they want of that model and a fine-tuned one together.
    """

    def __init__(self, config: ConfigDict, folder: pathlib.Path, *, read_only: bool = False):
        self.config = config
        self.run = Run(folder, read_only=read_only)
        self.folder = self.run.folder
        self.wanted: Callable[[Study], Iterable[Described]] = lambda study: ()
        self.compared: Callable[[Study], Iterable[Described]] = lambda study: ()
        self._once: dict[Any, Any] = {}

    def reading(self) -> 'Study':
        """Return a study of the same inputs that only reads (`runs.run.NotKept`)."""
        reading = Study(self.config, self.folder, read_only=True)
        reading._once = self._once
        return reading

    def release(self) -> None:
        """Free the memory of everything loaded and computed; kept results stay in the folder."""
        self._once.clear()
        self.run.forget()

    @property
    def model_name(self) -> str:
        """The name of the model: that of its folder, or that on the hub."""
        name = self.config.model.name
        is_folder = name.startswith(('/', '.', '~')) or pathlib.Path(name).is_dir()
        return pathlib.PurePath(name).name if is_folder else name

    @property
    def task(self) -> str | None:
        """The name of the task of GLUE; None for other texts."""
        data = self.config.data
        return get_task(data.task).name if data.source == 'glue' else None

    def metrics(self, classes: int) -> tuple[str, ...]:
        """Return the names of the metrics for so many classes: those chosen, or the task's."""
        chosen = inputs.metrics(self.config.data)
        if chosen:
            check_metrics(chosen, classes)
        return chosen or assessed_metrics(classes, self.dev)

    @property
    def subject(self) -> Subject:
        """The names of the model and the texts, for sentences and captions."""
        texts = inputs.text_name(self.config.data, self.config.data.split)
        return Subject(self.model_name, texts, self.task)

    @property
    def subject_of_ablated(self) -> Subject:
        """The same with the texts that ablation scores."""
        more = self.config.ablation.left_out_examples
        if not more:
            return self.subject
        texts = f'{self.subject.texts} and {more:,} texts that training left out'
        return dataclasses.replace(self.subject, texts=texts)

    @property
    def corpus(self) -> str:
        """The name of the texts without that of their split: 'MRPC' of 'MRPC dev'."""
        return self.subject.texts.removesuffix(f' {self.config.data.split}').removesuffix(',')

    @_once
    def pretrained(self) -> Pretrained:
        """The model that is studied, without any head."""
        try:
            return without_head(self.with_own_head)
        except ValueError:
            # A head that is not implemented; other faults show again.
            return from_pretrained(**self.config.model.to_dict(), label_names=())

    @_once
    def with_own_head(self) -> Pretrained:
        """The model with the head that it came with, such as a classifier or a masked LM."""
        return from_pretrained(**self.config.model.to_dict())

    @property
    def has_own_loss(self) -> bool:
        """Whether the model has a loss on the texts with the head that it came with."""

        def find() -> bool:
            try:
                theirs = [name.lower() for name in self.with_own_head.config.label_names]
                ours = [name.lower() for name in self.config.data.labels]
                # The same classes in another order would have another loss.
                same = theirs == ours or sorted(theirs) != sorted(ours)
                return same and bool(loss_of(self.with_own_head, self.texts))
            except ValueError:
                return False

        return self._fact('has a loss', find, unknown=False, others=('texts',))

    def holds(self, name: str, find: Callable[[], bool], *, unknown: bool) -> bool:
        """Return whether something is so of the model; a finished run need not load it.

        Where it cannot be loaded, the answer is `unknown`: whoever needs the model will say why.
        """
        try:
            return self._fact(name, find, unknown=unknown)
        except NotKept:
            return bool(find())

    def _fact(
        self, name: str, find: Callable[[], bool], *, unknown: bool, others: Sequence[str] = ()
    ) -> bool:
        """Find or read a fact of the model and of the other inputs that are named."""
        try:
            depends_on = {'weights': self.input('weights'), 'model': self.config.model.to_dict()}
            depends_on |= {other: self.input(other) for other in others}
            return self.run.keep(
                f'fact: {name}', Fact, depends_on, lambda: Fact(bool(find()))
            ).holds
        except (ValueError, OSError, TypeError) as error:
            logging.debug('%s is not known: %s', name, error)
            return unknown

    @_once
    def texts(self) -> list[Example]:
        """The texts that are analysed: `data.max_examples` of `dev`."""
        # Tags and answers are for learning alone.
        return [each if isinstance(each, Example) else each.example for each in self.drawn_dev]

    @_once
    def drawn_dev(self) -> list[Any]:
        """The same with what they come with, such as the trees of a treebank."""
        return self._drawn(self.dev, 'data.max_examples')

    @_once
    def dev(self) -> list[Example] | list[Tagged] | list[Question] | list[Parse]:
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
        """The training texts on which the best to lose is chosen: none is trained on or ablated."""
        return self._left_out('ablation.choose_examples', self.ablated_texts)

    @_once
    def ablated_texts(self) -> list[Example]:
        """The examples that ablation scores: `ablation.max_examples` of `dev`.

        Behind them come `ablation.left_out_examples` training texts that no model is trained on.
        """
        drawn = self._drawn(self.dev, 'ablation.max_examples')
        if not self.config.ablation.left_out_examples:
            return drawn
        return [*drawn, *self._left_out('ablation.left_out_examples', self.dev)]

    def _left_out(self, setting: str, others: list[Any]) -> list[Any]:
        """Draw as many training texts as a setting says, neither trained on nor among others."""
        wanted = operator.attrgetter(setting)(self.config)
        if self.config.ablation.checkpoint == 'model':
            raise ValueError(
                f'{setting}={wanted} takes training texts that this run leaves out, '
                'and ablation.checkpoint=model trains nothing: it is not known which texts its '
                'model has seen. Set one of them otherwise.'
            )
        known = {example.texts for example in (*self.train, *others)}
        left = [example for example in self._all_train if example.texts not in known]
        if len(left) < wanted:
            raise ValueError(
                f'{setting}={wanted} takes training texts that no model is trained '
                f'on, and of {len(self._all_train)} only {len(left)} are neither trained on '
                f'(train.max_examples={self.config.train.max_examples}, 0 for all) nor ablated: '
                'train on fewer.'
            )
        return draw(left, wanted, self.config.seed, setting=setting)

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
        """The features and relations that spaCy finds in the texts, or that a treebank has."""
        if self.has_trees:
            return annotate(self.drawn_dev)
        cache = self.folder / 'linguistics'
        if not processes.exists(cache):
            self.run.check_may_compute('What spaCy finds')
        pipeline = self.config.linguistics.pipeline
        known = language_of(pipeline)
        return annotate(self.texts, pipeline=pipeline, cache=cache, language=known)

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

    @_once
    def parallel(self) -> dict[str, list[Parse]]:
        """The sentences of parallel treebanks, by the names of their files."""
        how = {'bad_rows': self.config.data.bad_rows}
        return {name: read_treebank(file, **how) for name, file in self.parallel_files.items()}

    @property
    def parallel_files(self) -> dict[str, str]:
        """The files of parallel treebanks by their names, with folders if two are alike."""
        files = self.config.across.files
        stems = [pathlib.PurePath(file).stem for file in files]
        return dict(zip(stems if len({*stems}) == len(files) else files, files, strict=True))

    @property
    def frames_subject(self) -> Subject:
        """The names of the model, the sample of frames (as texts) and the task."""
        sample = self.config.frames.sample
        names = {'': 'the example frames', 'framenet': 'FrameNet'}
        return dataclasses.replace(self.subject, texts=names.get(sample, sample.rpartition('/')[2]))

    @property
    def has_pairs(self) -> bool:
        """Whether the texts are pairs of which one asks how alike they are."""
        data = self.config.data
        if data.source == 'glue':
            return get_task(data.task).is_regression
        return data.source == 'file' and data.text_b is not None

    @_once
    def pairs(self) -> list[Example]:
        """The pairs of texts that are compared: those of the run, or the embedded ones."""
        return self.texts if self.has_pairs else similarity_sample()

    @property
    def subject_of_embedded_pairs(self) -> Subject:
        """The names of the model, the embedded pairs (as texts) and the task."""
        return dataclasses.replace(self.subject, texts='the example pairs')

    @_once
    def search(self) -> tuple[Any, ...]:
        """The queries, documents and judgements of the settings, or the embedded ones."""
        own = self.config.retrieval
        how = {'columns': own.columns, 'bad_rows': self.config.data.bad_rows}
        return read_search(*own.files, **how) if own.files else search_sample()

    @_once
    def searched(self) -> list[Example]:
        """The queries and the documents."""
        return [Example(text) for each in self.search[:2] for text in each.values()]

    @property
    def subject_of_search(self) -> Subject:
        """The names of the model and the search, for sentences and captions."""
        return self._subject_of(next(iter(self.config.retrieval.files), ''), 'the example pairs')

    @_once
    def minimal_pairs(self) -> list[MinimalPair]:
        """The minimal pairs of the settings, or the embedded ones."""
        names = self.config.minimal_pairs.to_dict()
        file, _ = names.pop('file'), names.pop('label')
        names['anchor'] = names['anchor'] or None
        named = names | {'bad_rows': self.config.data.bad_rows}
        return read_pairs(file, **named) if file else pairs_sample()

    @_once
    def good_texts(self) -> list[Example]:
        """The good texts of the minimal pairs."""
        return [Example(each.good) for each in self.minimal_pairs]

    @property
    def subject_of_minimal_pairs(self) -> Subject:
        """The names of the model and the minimal pairs, for sentences and captions."""
        return self._subject_of(self.config.minimal_pairs.file, 'the example minimal pairs')

    @property
    def subject_of_parallel(self) -> Subject:
        """The names of the model and the treebanks that are compared."""
        return Subject(self.model_name, ', '.join(self.parallel_files))

    @property
    def treebank_subject(self) -> Subject:
        """The names of the model and the treebank, for sentences and captions."""
        return self._subject_of(self.config.treebank.dev, 'the example treebank')

    def _subject_of(self, file: str, otherwise: str) -> Subject:
        return Subject(self.model_name, pathlib.PurePath(file).stem if file else otherwise)

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh | None:
        """The devices along an axis `data`; None if there is only one."""
        return self._mesh_with('')

    def _mesh_with(self, second: str) -> jax.sharding.Mesh | None:
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
        """Whether nouns, subjects and so on are known, from a treebank or for a spaCy pipeline."""
        pipeline = self.config.linguistics.pipeline
        return self.has_trees or bool(pipeline and not self.foreign_to(language_of(pipeline)))

    @property
    def has_trees(self) -> bool:
        """Whether the texts are sentences of a treebank, whose words they have."""
        return self.config.data.source == 'treebank'

    @property
    def foreign(self) -> str:
        """The language of the texts, such as 'German (de)'; '' if they may be English."""
        return self.foreign_to('en')

    def foreign_to(self, known: str) -> str:
        """Return the language of the texts; '' if they may be in a known one."""

        def find() -> str:
            texts = [text for each in self.texts for text in each.texts if text]
            return foreign_language(texts, self.config.data.language, to=known)

        try:
            return self.once(('foreign', known), find)
        except MENDABLE:
            # Whoever needs the texts will say what is wrong.
            return ''

    @property
    def has_training(self) -> bool:
        """Whether there are texts to fine-tune on."""
        data = self.config.data
        if data.source in ('tags', 'questions'):
            return data.train_file is not None
        if data.source in ('segments', 'treebank'):
            return False
        return data.source != 'file' or (data.label is not None and data.train_file is not None)

    @_once
    def classifier(self) -> Classifier:
        """The classifier of patterns: the user's, or else the one that comes with the package."""
        return load_classifier(self.config.patterns.classifier or None)

    def input(self, name: str) -> str:
        """Return the digest of the content of an input, by a name of `digests`.

        A finished run can still be read after its model or its texts have moved away: then the
        digest is the one that the run noted for the same settings.
        """
        return self.once(('input', name), lambda: input_digest(self, name))

    def on_texts(self) -> dict[str, Any]:
        """Return everything that each statistic of the model as it is depends on."""
        return {
            'weights': self.input('weights'),
            'texts': self.input('texts'),
            'max_length': self.config.encoding.max_length,
        }

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Compute a value, or raise its error (but `NotKept`), once; later calls have the same."""
        if key not in self._once:
            try:
                self._once[key] = compute()
            except NotKept:
                raise
            except Exception as error:
                self._once[key] = error
        value = self._once[key]
        if isinstance(value, Exception):
            raise value
        return value

    def _key(self, described: Described) -> dict[str, Any]:
        key = {'statistic': described.name} | self.on_texts()
        if self.has_words and (described.annotated or self.has_trees):
            key['annotations'] = self.input('annotations')
        if described.classifier is not None:
            key['classifier'] = self.input('classifier')
        if described.name in self.own_code:
            key['code'] = self.own_code[described.name]
        return key

    @_once
    def own_code(self) -> dict[str, str]:
        """Name of each statistic of one's own to the digest of the file that has it."""
        digests = {}
        for name in self.config.statistics:
            module, colon, _ = name.partition(':')
            if colon and name not in CATALOGUE:
                own = named(name).name
                digests[own] = sha256(sys.modules[module].__file__)
        return digests

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of fine-tuning."""
        return tuple(self.config.seed + run for run in range(self.config.train.num_seeds))

    @property
    def training(self) -> dict[str, Any]:
        """The settings of fine-tuning that are passed on to `finetune`."""
        every = self.config.train.to_dict()
        return {name: every[name] for name in every if name not in _NOT_OF_TRAINING}

    @_once
    def schedules(self) -> dict[str, dict[str, Any]]:
        """The settings of fine-tuning that each schedule changes, by its name."""
        settings = self.config.where_it_changes
        for name in ('layer_decay', 'schedule'):
            if self.config.train[name] != _NEWER[name]:
                logging.warning(
                    'train.%s=%s does not count under the schedules of where_it_changes: give '
                    'where_it_changes.%ss.', name, self.config.train[name], name,
                )  # fmt: skip
        kinds = map(str.strip, settings.schedules.split(','))
        each = itertools.product(kinds, map(float, numbers_in(settings.layer_decays)))
        return {f'decay {d:.15g} ({k})': {'layer_decay': d, 'schedule': k} for k, d in each}

    def finetuning_digest(self, start: str, **others: Any) -> str:
        """Return the digest of everything that a fine-tuning from some weights depends on.

        In all these functions, `others` are settings in place of those of the study.
        """
        # How often checkpoints are written changes no result.
        usual = {**_NEWER, 'checkpoint_every': self.config.train.checkpoint_every}
        settings = {
            k: v for k, v in (self.training | others).items() if (k, v) not in usual.items()
        }
        metrics = self.config.data.metrics
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
            | ({'metrics': metrics} if metrics else {})
        )

    def finetuned(self, start: str, **others: Any) -> Finetuned:
        """Return the fine-tuning from 'pretrained' or 'random' weights, computed or read."""
        key = 'finetuned', start, *sorted(others.items())
        tuned = self.once(key, lambda: self._finetuned(start, **others))
        self.run.used.add(self.finetuning_folder(start, **others).name)
        return tuned

    def finetuning_folder(self, start: str, **others: Any) -> pathlib.Path:
        """Return the folder with the checkpoints of a fine-tuning."""
        return self.folder / 'finetune' / f'{start}-{self.finetuning_digest(start, **others)}'

    def mend_finetunings(self) -> None:
        """Write the tables of finished fine-tunings again where somebody changed them."""
        for file in sorted((self.folder / 'finetune').glob(f'*/{OUTCOME}')):
            # A damaged one is told when it is used.
            with contextlib.suppress(ValueError):
                mend_tables(Finetuned.load(file.parent, check_models=False))

    def _finetuned(self, start: str, **others: Any) -> Finetuned:
        folder = self.finetuning_folder(start, **others)
        if processes.exists(folder / OUTCOME):
            try:
                return Finetuned.load(folder)
            except ValueError as error:
                logging.warning('%s', error)
        self.run.check_may_compute('Fine-tuning')
        with self.run.alone(folder):
            processes.on_first(lambda: remove_unknown(folder))
            # If another process has finished it in the meantime, this only reads it.
            mesh, settings = self._mesh_with(SEEDS), self.finetune_settings(start) | others
            return finetune(
                self.pretrained, self.train, self.dev, folder=folder, mesh=mesh, **settings
            )

    def finetune_settings(self, start: str) -> dict[str, Any]:
        """Return the settings of a fine-tuning, by the names of the arguments of `finetune`."""
        return {
            'seeds': self.seeds,
            'start': start,
            'metrics': inputs.metrics(self.config.data) or None,
            'label_names': inputs.label_names(self.config.data),
            'max_dev_examples': self.config.train.max_dev_examples,
            **self.training,
            'max_length': self.config.encoding.max_length,
        }

    @property
    def ablated_seeds(self) -> tuple[int, ...]:
        """The seeds whose models are ablated; empty if a model is ablated as it is."""
        if self.config.ablation.checkpoint == 'model' or not self.has_training:
            return ()
        return self.seeds[: self.config.ablation.seeds or None]

    def ablated_model(self) -> Pretrained:
        """Return the model that is ablated, of several the first."""
        if self.config.ablation.checkpoint == 'finetuned':
            return self.finetuned('pretrained').models[0]
        model = self.with_own_head
        self._check_classes(model.config)
        return model

    def digest_of_ablated(self) -> list[Any]:
        """Return what tells the model that is ablated from others."""
        if self.config.ablation.checkpoint == 'model':
            return [self.input('weights'), 'as it is']
        return [self.finetuning_digest('pretrained'), self.seeds[0]]

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
            'settings': self.gate_settings,
        }

    def compute(self, folder: pathlib.Path | None = None, *, second: str = '') -> Compute:
        """Return how passes are computed, along a `second` axis, too, if the settings name it."""
        return Compute(
            max_length=self.config.encoding.max_length,
            tokens_per_batch=self.config.encoding.tokens_per_batch,
            chunk_tokens=self.config.ablation.chunk_tokens or None,
            mesh=self._mesh_with(second),
            folder=folder,
        )

    def gated(self) -> Gated:
        """Return the gates of the model that is ablated, trained or read."""

        def compute(folder: pathlib.Path) -> Gated:
            model = self.ablated_model()
            # A label that the model does not know shows before anything is trained.
            labels_of(self.ablated_texts, model.config)
            gated = train_gates(
                model, self.train, self.ablated_texts, **self.gate_settings,
                checkpoint_every=self.config.train.checkpoint_every, folder=folder,
                mesh=self._mesh_with(SEEDS),
            )  # fmt: skip
            # Models with weights of their own are many, and large.
            return dataclasses.replace(gated, models=())

        return self.kept_whole('trained gates', Gated, self.on_gated(), compute)

    def kept_whole(
        self, title: str, kind: type, depends_on: Mapping[str, Any], compute: Callable
    ) -> Any:
        """Keep a result like `Run.keep`; `compute` has a folder of parts, which is removed then."""
        parts = self.run.folder_for(f'unfinished/{title}', depends_on)
        result = self.run.keep(title, kind, depends_on, lambda: compute(parts))
        if not self.run.read_only and processes.is_first():
            shutil.rmtree(parts, ignore_errors=True)
        return result

    def _check_classes(self, config: BertConfig) -> None:
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
