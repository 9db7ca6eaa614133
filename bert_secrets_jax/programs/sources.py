"""The inputs that analyses share, each declared once, and the passes of a run over its texts.

An input says how it is loaded, called, and lacks. A pass measures what all sections want of it.
"""

import contextlib
import dataclasses
import operator
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from absl import logging

from bert_secrets_jax import processes
from bert_secrets_jax.analyses.attention_change import for_reading
from bert_secrets_jax.analyses.common.inputs import (
    TextSettings,
    batches_of,
    encoded_of,
    in_one_pass,
    with_progress,
)
from bert_secrets_jax.analyses.declaration import ANALYSES
from bert_secrets_jax.checks import MENDABLE, check_rules
from bert_secrets_jax.compute import SEEDS, Compute, make_mesh
from bert_secrets_jax.data.corpus import similarity_sample
from bert_secrets_jax.data.language import language_of
from bert_secrets_jax.data.linguistics import annotate, annotations_file
from bert_secrets_jax.data.masking import Masking
from bert_secrets_jax.data.tasks import examples_of, joined, unseen
from bert_secrets_jax.data.treebank import read_treebank, treebank_sample
from bert_secrets_jax.files import sha256
from bert_secrets_jax.finetune.config import FinetuneConfig
from bert_secrets_jax.finetune.outcome import OUTCOME, Finetuned, mend_tables
from bert_secrets_jax.finetune.train import finetune, remove_unknown
from bert_secrets_jax.measure.catalogue import (
    CATALOGUE,
    RELATIONS,
    Described,
    change,
    measure_change,
    named,
)
from bert_secrets_jax.measure.links import LinkScores, directions, link_scores, with_random_links
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model import hub
from bert_secrets_jax.model.config import MASKED_LM, BertConfig
from bert_secrets_jax.model.weights import Pretrained, fingerprint, from_pretrained
from bert_secrets_jax.programs import inputs
from bert_secrets_jax.programs.given import Given, Study
from bert_secrets_jax.runs.call import Call, an_input, call
from bert_secrets_jax.runs.run import digest

# This needs maps that are padded as in the authors' notebook, so it has a pass of its own.
_PADDED = 'cosine (padded)'
_Keys = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedSettings(TextSettings):
    """The settings of a run, by which sections share the passes over its texts."""

    given: Given

    def tables(self, pretrained, texts, statistics):
        return measured_before(self.given, statistics)[0]

    def changes(self, pretrained, tuned, texts, statistics):
        if tuned is None:
            return {}
        seeds = self.given.study.seeds
        return {str(seed): tables_after(self.given, seed, statistics) for seed in seeds}

    def links(self, pretrained, texts, relations, statistics, *, draws, seed):
        return measured_before(self.given, statistics, list(directions(RELATIONS)))


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The outcome of one pass for one statistic, or for random links: the parts of their tests."""

    table: HeadTable | None = None
    scores: LinkScores | None = None


def measured_before(
    given: Given, described: Sequence[Described], titles: Sequence[str] = ()
) -> tuple[dict[str, HeadTable], dict[str, LinkScores]]:
    """Return tables of statistics of the model as it is, by name, and parts of tests of relations.

    The relations are those of section 4.5, by the titles of their directions.
    """
    classified = any(each.classifier is not None for each in described)
    # Classes of patterns take longer to compile than all else, and have a pass of their own: the
    # first picture does not wait for them.
    others = [
        each
        for each in _wanted_by_others(given, 'wants')
        if (each.classifier is not None) == classified
    ]
    of_each = {each.name: each for each in (*described, *others)}
    keys = {name: statistic_key(given, each) for name, each in of_each.items()}
    if titles or any(each.relations for each in others):
        key = _on_texts(given) | {
            'annotations': given.digest('annotations'),
            'links': [given['links.draws'], given['seed']],
        }
        keys |= {_random(title): key for title in directions(RELATIONS)}

    def compute(missing: Sequence[str]) -> dict[str, Measured]:
        wanted = [each for name, each in of_each.items() if name in missing]
        links = [title for title in directions(RELATIONS) if _random(title) in missing]
        settings = _settings(given, bool(links) or any(each.annotated for each in wanted))
        model, random, scores = given.value('pretrained'), {}, {}
        encoded = with_random = encoded_of(model, given.value('texts'), settings, annotated=False)
        if links:
            how = {'draws': given['links.draws'], 'seed': given['seed']}
            with_random, random = with_random_links(encoded, RELATIONS, **how)
        tables = in_one_pass(model, with_random, wanted, settings, 'Attention', also=random)
        if links:
            scores = link_scores(encoded, RELATIONS, tables)
        measured = {each.name: Measured(table=tables[each.name]) for each in wanted}
        return measured | {_random(title): Measured(scores=scores[title]) for title in links}

    names = [each.name for each in described]
    kept = _kept(given, keys, compute, [*names, *map(_random, titles)])
    scores = {title: kept[_random(title)].scores for title in titles}
    return {name: kept[name].table for name in names}, scores


def tables_after(given: Given, seed: int, described: Sequence[Described]) -> dict[str, HeadTable]:
    """Return tables of the model of a seed, of its changes, and of comparisons, by name."""
    tuned = {'finetuned': given.input('tuned').key, 'seed': seed}
    asked = {each.name for each in described}
    padded = _PADDED in asked
    others = [] if padded else _wanted_by_others(given, 'compares')
    of_each = {
        name: each
        for each in (*described, *others)
        for name in [each.name, *[change(each.name)] * (not each.pairwise)]
    }
    keys = {
        name: statistic_key(given, each) | tuned | {'of': name} for name, each in of_each.items()
    }

    def compute(missing: Sequence[str]) -> dict[str, Measured]:
        wanted = list({of_each[name].name: of_each[name] for name in missing}.values())
        settings = _settings(given, any(each.annotated for each in wanted))
        settings = for_reading('notebook', settings) if padded else settings
        model, texts = given.value('pretrained'), given.value('texts')
        tables = measure_change(
            model,
            given.value('tuned').models[given.study.seeds.index(seed)],
            with_progress(
                batches_of(model, texts, settings, annotated=False), f'Change (seed {seed})'
            ),
            wanted,
            mesh=settings.mesh,
        )
        return {name: Measured(table=table) for name, table in tables.items()}

    wanted = [name for name, each in of_each.items() if each.name in asked]
    kept = _kept(given, keys, compute, wanted)
    return {name: measured.table for name, measured in kept.items()}


def _kept(
    given: Given,
    keys: _Keys,
    compute: Callable[[Sequence[str]], Mapping[str, Measured]],
    asked: Sequence[str],
) -> dict[str, Measured]:
    """Measure what is missing in one pass; what others want, only if all of it can be."""
    try:
        return given.study.run.keep_each(Measured, keys, compute, wanted=asked)
    except Exception as error:
        own = {name: keys[name] for name in asked}
        if own.keys() == keys.keys():
            raise
        # The section that wants what failed will say so.
        logging.debug('Not measured together with others: %s', error)
        return given.study.run.keep_each(Measured, own, compute)


def _wanted_by_others(given: Given, wanted: Literal['wants', 'compares']) -> Iterator[Described]:
    """Yield statistics that others want, of which it is known what they depend on."""
    try:
        sections = [ANALYSES[name] for name in given.study.watched]
        described = [each for section in sections for each in getattr(section, wanted)(given)]
    except MENDABLE as error:
        # The section that wants it will say so.
        logging.debug('Not measured now: %s', error)
        return
    for each in described:
        try:
            statistic_key(given, each)
            yield each
        except MENDABLE as error:
            logging.debug('%s is not measured now: %s', each.name, error)


def _settings(given: Given, annotated: bool) -> TextSettings:
    """Return how texts are read; with annotations if words are wanted, and known."""
    wanted = given.has_words and (annotated or given.study.has_trees)
    annotations = given.value('annotations') if wanted else None
    return TextSettings(**vars(given.study.compute()), annotations=annotations)


def _on_texts(given: Given) -> dict[str, Any]:
    """Return everything that each statistic of the model as it is depends on."""
    digests = {'weights': given.digest('pretrained'), 'texts': given.digest('texts')}
    return digests | {'max_length': given['encoding.max_length']}


def statistic_key(given: Given, described: Described) -> dict[str, Any]:
    """Return everything that a statistic depends on."""
    key = {'statistic': described.name} | _on_texts(given)
    if given.has_words and (described.annotated or given.study.has_trees):
        key['annotations'] = given.digest('annotations')
    if described.classifier is not None:
        key['classifier'] = given.digest('classifier')
    own = own_code(given)
    if described.name in own:
        key['code'] = own[described.name]
    return key


def own_code(given: Given) -> dict[str, str]:
    """Return the digest of the file of each statistic of one's own, by the statistic's name."""

    def find() -> dict[str, str]:
        digests = {}
        for name in given['statistics']:
            module, colon, _ = name.partition(':')
            if colon and name not in CATALOGUE:
                own = named(name).name
                digests[own] = sha256(sys.modules[module].__file__)
        return digests

    return given.study.once('own code', find)


def _random(title: str) -> str:
    return f'random links from {title}'


# The settings `train` that are handed on to `finetune` in other ways.
_NOT_OF_TRAINING = ('starts', 'num_seeds', 'max_examples', 'max_dev_examples', 'checkpoint_every')


def _weights(given: Given, _) -> str:
    model = given.study.config.model
    weights = fingerprint(model.name, revision=model.revision)
    # Loading also reads config and tokenizer.
    small = {
        file.name: sha256(file)
        for file in sorted(hub.locate(model.name, revision=model.revision).iterdir())
        if file.suffix in ('.json', '.txt') and file.is_file()
    }
    return digest([weights, small, model.dtype, list(model.ignore_config)])


def _load_pretrained(_: Given, made: Call) -> Pretrained:
    try:
        return made.value()
    except ValueError:
        # A head that is not implemented; other faults show again.
        return from_pretrained(*made.given, **made.named, label_names=())


@an_input(load=_load_pretrained, content=_weights)
def pretrained(given: Given) -> Call:
    """Return the model with the head that it came with."""
    return call(from_pretrained, given['model.name'], **given.group('model', without=['name']))


def _is_masked_lm(given: Given) -> str:
    is_one = given.fits('predicts wordpieces', lambda c: c.head == MASKED_LM, unknown=False)
    return '' if is_one else 'a model with the head of a masked LM'


@an_input(missing=_is_masked_lm)
def masked_lm(given: Given) -> Call:
    """Return the model, which predicts wordpieces."""
    return given.input('pretrained')


def _pools(given: Given) -> str:
    pools = lambda config: config.pooling is not None and not config.pooling.refused  # noqa: E731
    if given.fits('says how it pools', pools, unknown=False):
        return ''
    return 'a model that says how it pools, such as a folder of sentence-transformers'


@an_input(missing=_pools)
def embedder(given: Given) -> Call:
    """Return the model, which embeds texts."""
    return given.input('pretrained')


def _training(given: Given) -> str:
    if given.study.has_training:
        return ''
    return (
        'a fine-tuned model: give labelled texts to train on (settings data.train_file and '
        'data.label)'
    )


def _tuning(given: Given, start: str) -> Call:
    """Return a fine-tuning from 'pretrained' or 'random' weights."""
    named = {
        'seeds': given.seeds('train.num_seeds'),
        'start': start,
        'metrics': metrics(given),
        'label_names': inputs.label_names(given.study.config.data),
        'max_dev_examples': given['train.max_dev_examples'],
        **given.group('train', without=_NOT_OF_TRAINING),
        'max_length': given['encoding.max_length'],
    }
    texts = tuple(given.input(name) for name in ('pretrained', 'train', 'dev'))
    aside = {'checkpoint_every': given['train.checkpoint_every']}
    return Call(finetune, texts, named, aside, FinetuneConfig)


def _finetuned(given: Given, made: Call) -> Finetuned:
    """Return a fine-tuning, computed or read from its folder."""
    folder = given.study.finetuning_folder(made)

    def load() -> Finetuned:
        if processes.exists(folder / OUTCOME):
            try:
                return Finetuned.load(folder)
            except ValueError as error:
                logging.warning('%s', error)
        with given.study.run.alone(folder):
            processes.on_first(lambda: remove_unknown(folder))
            # If another process has finished it in the meantime, this only reads it.
            place = {'folder': folder, 'mesh': given.study.mesh_with(SEEDS)}
            return dataclasses.replace(made, aside=made.aside | place).value()

    return given.study.once(('finetuned', folder), load)


def mend_finetunings(study: Study) -> None:
    """Write the tables of finished fine-tunings again where somebody changed them."""
    for file in sorted((study.folder / 'finetune').glob(f'*/{OUTCOME}')):
        # A damaged one is told when it is used.
        with contextlib.suppress(ValueError):
            mend_tables(Finetuned.load(file.parent, check_models=False))


@an_input(missing=_training, load=_finetuned, content=None)
def tuned(given: Given) -> Call:
    """Return the fine-tunings of the model."""
    return _tuning(given, 'pretrained')


@an_input(missing=_training, load=_finetuned, content=None)
def tuned_random(given: Given) -> Call:
    """Return the fine-tunings of the same model with random weights."""
    return _tuning(given, 'random')


@an_input(content=None)
def tuned_if_any(given: Given) -> Call | None:
    """Return the fine-tunings, if there are texts to train on."""
    return given.input('tuned') if given.study.has_training else None


@an_input(content=None)
def tuned_already(given: Given) -> Call | None:
    """Return the fine-tunings for what does not tune for itself, if another section has."""
    if 'finetune' not in given.results:
        return None
    given.result('finetune')
    return given.input('tuned_if_any')


def _classifier(given: Given) -> str:
    data = given.study.config.data
    if data.source in ('tags', 'questions'):
        return 'one label of each text (settings data.source=file and data.label)'
    if not given.study.as_it_is:
        return _training(given)
    if data.source in ('file', 'segments', 'treebank') and data.label is None:
        return 'labels: name their column (setting data.label)'
    return ''


@an_input(missing=_classifier, content=None)
def model(given: Given) -> Call:
    """Return the model that is ablated; in Python, several, of which it is the first one."""
    if given['ablation.checkpoint'] == 'model':
        whole = given.input('pretrained')

        def load() -> Pretrained:
            found = whole.value()
            if not found.config.has_head:
                # The fault of a head that was left out shows.
                found = from_pretrained(**given.study.config.model.to_dict())
            _check_classes(given, found.config)
            return found

        return dataclasses.replace(whole, make=load, content=lambda: [whole.key, 'as it is'])
    every, seed = given.input('tuned'), given.study.seeds[0]
    return dataclasses.replace(
        every, make=lambda: every.value().models[0], content=lambda: [every.key, seed]
    )


def _check_classes(given: Given, config: BertConfig) -> None:
    data, name = given.study.config.data, given.study.model_name
    texts = inputs.text_name(data, data.split)
    if data.source == 'file':
        if given.value('dev')[0].label is None:
            raise ValueError('Ablation needs labels: name their column (setting data.label).')
        # The names of its classes are the model's own; `labels_of` compares their number.
        return
    ours = inputs.label_names(data)
    theirs = [name.lower() for name in config.label_names]
    wanted = [name.lower() for name in ours]
    check_rules(
        (
            config.num_labels != len(ours),
            f'{name} has {config.num_labels} classes and {texts} {len(ours)}: give '
            'a checkpoint that was fine-tuned on it, or let this run fine-tune one '
            '(ablation.checkpoint=finetuned).',
        ),
        (
            theirs != wanted and sorted(theirs) == sorted(wanted),
            f'{name} numbers its classes {", ".join(theirs)}, and the labels are '
            f'numbered {", ".join(wanted)}: reorder its classifier and id2label.',
        ),
    )


@an_input(missing=_classifier, content=None)
def models(given: Given) -> Call:
    """Return the models that are ablated."""
    count = given['ablation.seeds']
    if given['ablation.checkpoint'] == 'model':
        return given.input('model')
    every = given.input('tuned')
    if not 0 < count < given['train.num_seeds']:
        return every
    return Call(Finetuned.first, (every, count), name=f'tuned.first({count})')


@an_input(
    missing=lambda given: (
        'models that this run fine-tunes (setting ablation.checkpoint=finetuned)'
        if given.study.as_it_is
        else _classifier(given) or _training(given)
    ),
    content=None,
)
def tuned_here(given: Given) -> Call:
    """Return the fine-tunings for what compares them with others that are trained in this run."""
    return given.input('tuned')


@an_input()
def dev(given: Given) -> Call:
    """Return all examples of `data.split`, with what is to be learnt from them."""
    return _reading(given, given['data.split'])


@an_input()
def texts(given: Given) -> Call:
    """Return the texts that are analysed: `data.max_examples` of `dev`."""
    drawn = given.drawn('dev', 'data.max_examples')
    # Tags, answers and trees are for learning alone.
    parts = given['data.source'] in ('tags', 'questions', 'treebank')
    return call(examples_of, drawn) if parts else drawn


@an_input()
def all_train(given: Given) -> Call:
    """Return all training examples."""
    return _reading(given, 'train')


@an_input(missing=_training)
def train(given: Given) -> Call:
    """Return the training examples: `train.max_examples` of them."""
    every = _reading(given, 'train')
    every = dataclasses.replace(every, make=lambda: given.value('all_train'))
    return given.drawn(every, 'train.max_examples') if given['train.max_examples'] else every


def _name_of_ablated(given: Given) -> str:
    more, own = given['ablation.left_out_examples'], given.study.subject.texts
    return f'{own} and {more:,} texts that training left out' if more else ''


@an_input(label=_name_of_ablated)
def ablated(given: Given) -> Call:
    """Return the examples that ablation scores: `ablation.max_examples` of `dev`.

    Behind them come `ablation.left_out_examples` training texts that no model is trained on.
    """
    drawn, more = given.drawn('dev', 'ablation.max_examples'), 'ablation.left_out_examples'
    return call(joined, drawn, _left_out(given, more, 'dev')) if given[more] else drawn


@an_input()
def choosing(given: Given) -> Call | None:
    """Return the training texts on which the best to lose is chosen: none is trained on."""
    if not given['ablation.choose_examples']:
        return None
    return _left_out(given, 'ablation.choose_examples', 'ablated')


def _left_out(given: Given, setting: str, others: str) -> Call:
    """Return as many training texts as a setting says, neither trained on nor among others."""
    wanted, every = given[setting], given.input('all_train')
    left = call(unseen, every, given.input('train'), given.input(others))
    drawn = given.drawn(left, setting)

    def load() -> Any:
        if given.study.as_it_is:
            raise ValueError(
                f'{setting}={wanted} takes training texts that this run leaves out, '
                'and ablation.checkpoint=model trains nothing: it is not known which texts its '
                'model has seen. Set one of them otherwise.'
            )
        count = len(left.value())
        if count < wanted:
            raise ValueError(
                f'{setting}={wanted} takes training texts that no model is trained '
                f'on, and of {len(every.value())} only {count} are neither trained on '
                f'(train.max_examples={given["train.max_examples"]}, 0 for all) nor ablated: '
                'train on fewer.'
            )
        return dataclasses.replace(drawn, make=None).value()

    return dataclasses.replace(drawn, make=load)


@an_input(missing=_training)
def measured(given: Given) -> Call:
    """Return the training examples that heads are scored on: `importance.max_examples`."""
    return given.drawn('train', 'importance.max_examples')


def _reading(given: Given, split: str) -> Call:
    given.group('data', without=['max_examples', 'metrics'])
    made = inputs.reading(given.study.config.data, split)
    if given['data.source'] == 'segments':
        tokenizer = Call(operator.attrgetter('tokenizer'), (given.input('pretrained'),))
        length = {'max_length': given['encoding.max_length']}
        return dataclasses.replace(made, given=(*made.given, tokenizer), named=made.named | length)
    if given['data.source'] != 'glue':
        return made

    def load() -> Any:
        try:
            return made.value()
        except FileNotFoundError as error:
            if given['data.glue_dir'] is not None:
                raise
            raise FileNotFoundError(
                'Name the folder of the original TSV files (setting data.glue_dir), or prepare '
                f'them: {error}'
            ) from error

    return dataclasses.replace(made, make=load)


def _pairs(given: Given) -> str:
    if missing := _pools(given):
        return missing
    if given.study.has_pairs:
        return ''
    return given.lacks('pairs of texts', 'pairs', similarity_sample)


@an_input(missing=_pairs, label=lambda given: '' if given.study.has_pairs else 'the example pairs')
def pairs(given: Given) -> Call:
    """Return the pairs of texts that are compared: those of the run, or the embedded ones."""
    return given.input('texts') if given.study.has_pairs else call(similarity_sample)


def _treebank(given: Given) -> str:
    settings = 'settings treebank.train and treebank.dev'
    train, dev = given['treebank.train'], given['treebank.dev']
    if bool(train) != bool(dev):
        return f'both parts of a treebank ({settings})'
    if dev:
        return ''
    return given.lacks(
        'a treebank', 'treebank', lambda: examples_of(treebank_sample('dev')), settings
    )


def _name_of_treebank(given: Given) -> str:
    return given.named_by('treebank.dev', 'the example treebank')


def _trees(given: Given, part: str) -> Call:
    path, read = given[f'treebank.{part}'], call(treebank_sample, part)
    if path:
        read = call(read_treebank, path, bad_rows=given['data.bad_rows'])
    return given.drawn(read, f'treebank.max_{part}')


@an_input(missing=_treebank, label=_name_of_treebank)
def trees(given: Given) -> Call:
    """Return the sentences with trees to learn from: `treebank.max_train` of them."""
    return _trees(given, 'train')


@an_input(missing=_treebank, label=_name_of_treebank)
def dev_trees(given: Given) -> Call:
    """Return the sentences with trees to score on: `treebank.max_dev` of them."""
    return _trees(given, 'dev')


def _words(given: Given) -> str:
    if given.has_words:
        return ''
    language = given.foreign(language_of(given['linguistics.pipeline']))
    of = f' for {language}, or data.language if that is wrong' * bool(language)
    return f'a spaCy pipeline (setting linguistics.pipeline){of}, or data.source=treebank'


def _cache(given: Given) -> pathlib.Path:
    return given.study.folder / 'linguistics'


def _are_annotated(given: Given) -> bool:
    if given.study.has_trees:
        return True
    pipeline = given['linguistics.pipeline']
    try:
        return processes.exists(annotations_file(given.value('texts'), pipeline, _cache(given)))
    except FileNotFoundError:
        # Texts that have moved away have been annotated if the run noted it.
        return True


@an_input(missing=_words, ready=_are_annotated)
def annotations(given: Given) -> Call:
    """Return the features and relations that spaCy finds in the texts, or that a treebank has."""
    if given.study.has_trees:
        return call(annotate, given.drawn('dev', 'data.max_examples'))
    pipeline = given['linguistics.pipeline']
    aside = {'cache': _cache(given), 'language': language_of(pipeline)}
    return Call(annotate, (given.input('texts'),), {'pipeline': pipeline}, aside)


@an_input(content=None)
def settings(given: Given) -> Call:
    """Return the settings for encoding and annotating texts; sections share passes by them."""
    named = {'max_length': given['encoding.max_length']}
    if given.study.has_trees:
        named['annotations'] = given.input('annotations')
    elif given.has_words:
        named['pipeline'] = given['linguistics.pipeline']
        named['language'] = given['data.language']

    def load() -> TextSettings:
        return SharedSettings(
            **vars(given.study.compute(given.folder)),
            pipeline=given['linguistics.pipeline'],
            cache=_cache(given),
            given=given,
        )

    def key() -> Any:
        return [given['encoding.max_length'], given['linguistics.pipeline']]

    return Call(TextSettings, (), named, make=load, content=key)


@an_input(content=None)
def compute(given: Given) -> Call:
    """Return how passes are computed."""
    length = {'max_length': given['encoding.max_length']}
    load = lambda: given.study.compute(given.folder, second=given.axis)  # noqa: E731
    return Call(Compute, (), length, make=load, content=lambda: length)


@an_input(content=None)
def folder(given: Given) -> Call:
    """Return the folder of unfinished work."""
    return Call(pathlib.Path, name='folder', make=lambda: given.folder)


@an_input(content=None)
def mesh(given: Given) -> Call:
    """Return the devices, along an axis of seeds, too, if the settings name it."""
    return Call(make_mesh, name='mesh', make=lambda: given.study.mesh_with(SEEDS))


@an_input()
def statistics(given: Given) -> tuple[str, ...] | Call:
    """Return the statistics of the settings; the code of one's own is part of what they are."""
    names = given['statistics']
    if not any(':' in name for name in names):
        return names
    content = lambda: [names, own_code(given)]  # noqa: E731
    return Call(tuple, name=repr(names), make=lambda: names, content=content)


@an_input()
def max_length(given: Given) -> int:
    """Return the greatest number of tokens of a text."""
    return given['encoding.max_length']


@an_input()
def metrics(given: Given) -> tuple[str, ...] | None:
    """Return the metrics that the settings name; None for those of the task."""
    names = given['data.metrics']
    return tuple(name.strip() for name in names.split(',')) if names else None


@an_input()
def metric(given: Given) -> str | None:
    """Return the first of the metrics that the settings name."""
    found = metrics(given)
    return found[0] if found else None


@an_input()
def masking(given: Given) -> Call | None:
    """Return which wordpieces a masked LM is asked for, if they are not the usual ones."""
    made = call(Masking, **given.group('masked_lm'), seed=given['seed'])
    return made if made.chosen else None
