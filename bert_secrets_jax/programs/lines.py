"""The line of Python and the command that make the result of a section again.

Both are written from the settings: a line of Python has those that differ from the defaults of what
it calls, a command those that differ from a config and that the line, or what it needs, looks at.
"""

import dataclasses
import inspect
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.masks import parse_heads
from bert_secrets_jax.ablation.seeds import METRICS as METRICS_OVER_SEEDS
from bert_secrets_jax.analyses.ablation import SETS
from bert_secrets_jax.configs import base, paper, quickstart
from bert_secrets_jax.configs.ranges import numbers_in
from bert_secrets_jax.finetune.metrics import metrics_for
from bert_secrets_jax.programs import inputs
from bert_secrets_jax.programs.cli import set_texts
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.runs.result import Result, Subject

# These say how something is computed, and change no result that a reader could tell.
_OF_NO_MATTER = (
    'ablation.chunk_tokens', 'encoding.tokens_per_batch', 'probe.cache_mb',
    'train.checkpoint_every', 'train.log_every', 'train.micro_batch',
)  # fmt: skip
# Flag of the command line to the setting that it is for, of a table of one's own.
_FLAGS = {
    'texts': 'data.file',
    'train': 'data.train_file',
    'text_a': 'data.text_a',
    'text_b': 'data.text_b',
    'label': 'data.label',
}


_PYTHON = 'Python (first the names at the end of the page)'


@dataclasses.dataclass(frozen=True)
class Lines:
    """What makes a result again.

    Attributes:
      python: A statement that gives the result the name of its section; empty if there is no such
        call.
      shell: A command.
      names: What the statement needs: names to the expressions that make them, in an order in which
        each needs only those before.
    """

    python: str
    shell: str
    names: Mapping[str, str]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a language and a line, as a part of the page has them."""
        return tuple(
            (language, line)
            for language, line in ((_PYTHON, self.python), ('Shell', self.shell))
            if line
        )


def lines_of(study: Study, section: str, result: Result, answered: Collection[str]) -> Lines:
    """Return the lines that make the result of a section again.

    Args:
      study: The study, of which only names and settings are looked at.
      section: The name of the section.
      result: Its result.
      answered: The names of the sections that are answered, whose results others are made from.
    """
    writer = _Writer(study, getattr(result, 'subject', Subject()), answered)
    call = _call(writer, section)
    python = f'{section} = {call}' if call else ''
    sections = list(dict.fromkeys([*writer.others, section]))
    return Lines(python, command(study.config, sections, writer.read), writer.names)


@dataclasses.dataclass(frozen=True, eq=False)
class Names(Result):
    """What the lines of Python of a page need.

    Attributes:
      names: Names to the expressions that make them, as in `Lines`.
    """

    names: Mapping[str, str]

    @property
    def title(self) -> str:
        return 'The names in the lines of Python'

    def notes(self) -> list[str]:
        return [
            'Run this first. A line that has the name of another section, such as that of the '
            "claims, needs that section's line, too."
        ]

    @property
    def python(self) -> str:
        """The statements that make the names."""
        made = [f'{name} = {expression}' for name, expression in self.names.items()]
        return '; '.join(['import bert_secrets_jax as bs', *made])


class _Code(str):
    """An expression, where a string would be a value."""


class _Writer:
    """Writes calls, and notes which settings they look at and which names they need.

    Attributes:
      read: The settings that were looked at, by their dotted names.
      names: Names to the expressions that make them, in the order in which they must be run.
      others: The names of the sections whose results are needed.
    """

    def __init__(self, study: Study, subject: Subject, answered: Collection[str]):
        self.study, self.subject, self.answered = study, subject, answered
        self._settings = flatten_dict(study.config.to_dict(), sep='.')
        self.read: set[str] = {'model.name'}
        self.names: dict[str, str] = {}
        self.others: list[str] = []

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._settings[name]

    def group(self, group: str, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the settings of a group, by their last names."""
        names = [name for name in self._settings if name.startswith(f'{group}.')]
        of_group = {name.partition('.')[2]: name for name in names}
        return {last: self[name] for last, name in of_group.items() if last not in without}

    def name(self, name: str) -> _Code:
        """Return a name, and note what makes it."""
        if name not in self.names:
            # What it needs is noted first.
            self.names[name] = _NAMES[name](self)
        return _Code(name)

    def result(self, section: str) -> _Code:
        """Return the name of the result of another section, and note that it is needed."""
        self.others.append(section)
        # Its settings matter here, too.
        _call(self, section)
        return _Code(section)

    def call(self, function: str, *given: str, like: Callable | None = None, **named: Any) -> _Code:
        """Return a call, without the arguments that are as they are by default.

        Args:
          function: The function, without 'bs.'.
          given: What stands first: names of this page, or expressions.
          like: A function that has the defaults of further arguments.
          named: Arguments by their names: values, or expressions that are `_Code`.
        """
        called = bs
        for part in function.split('.'):
            called = getattr(called, part)
        defaults = {
            name: parameter.default
            for each in (like, called)
            if each is not None
            for name, parameter in inspect.signature(each).parameters.items()
        }
        words = [self.name(each) if each in _NAMES else each for each in given]
        for name, value in named.items():
            if isinstance(value, _Code):
                words.append(f'{name}={value}')
            elif _plain(value) != _plain(defaults[name]):
                words.append(f'{name}={value!r}')
        return _Code(f'bs.{function}({", ".join(words)})')

    def analysis(self, analysis: str, *given: str, **named: Any) -> _Code:
        """Return the call of an analysis about the subject of this section."""
        if self.subject == self.study.subject:
            named['subject'] = self.name('subject')
        else:
            named['subject'] = _Code(f'bs.analyses.{self.subject!r}')
        return self.call(f'analyses.{analysis}', *given, **named)

    @property
    def text(self) -> dict[str, Any]:
        """The argument of analyses that encode texts as `TextSettings` say; none for defaults."""
        own = _text_settings(self)
        return {} if own == 'bs.analyses.TextSettings()' else {'settings': self.name('settings')}

    @property
    def compute(self) -> dict[str, Any]:
        """The argument of analyses that compute as `Compute` says; none for defaults."""
        own = self.call('Compute', **self.length)
        return {} if own == 'bs.Compute()' else {'compute': self.name('compute')}

    @property
    def length(self) -> dict[str, Any]:
        return {'max_length': self['encoding.max_length']}

    @property
    def seed(self) -> dict[str, Any]:
        return {'seed': self['seed']}

    @property
    def tuned(self) -> dict[str, Any]:
        """The argument of analyses that compare a model with its fine-tunings, if there are any."""
        return {'tuned': self.name('tuned')} if self.study.has_training else {}

    @property
    def tuned_already(self) -> dict[str, Any]:
        """The same of sections for which nothing is fine-tuned, if another one has done that."""
        if 'finetune' not in self.answered:
            return {}
        self.result('finetune')
        return self.tuned

    @property
    def model(self) -> str:
        """The name of the model that is ablated, or of several, of which the first one is."""
        return 'pretrained' if self['ablation.checkpoint'] == 'model' else 'tuned'

    @property
    def models(self) -> str:
        """The models that are ablated."""
        count = self['ablation.seeds']
        if self.model == 'pretrained' or not 0 < count < self['train.num_seeds']:
            return self.model
        return f'{self.name(self.model)}.first({count})'

    @property
    def metrics(self) -> tuple[str, ...] | None:
        self['data.metrics']
        return inputs.metrics(self.study.config.data) or None

    @property
    def metric(self) -> str | None:
        return self.metrics[0] if self.metrics else None

    @property
    def masking(self) -> dict[str, Any]:
        settings = {
            'share': self['masked_lm.share'],
            'one_at_a_time': self['masked_lm.one_at_a_time'],
            **self.seed,
        }
        call = self.call('Masking', **settings)
        return {} if call == 'bs.Masking()' else {'masking': call}

    def drawn(self, examples: str, setting: str) -> _Code:
        """Return an expression for the examples of a name that a setting draws."""
        wanted = self[setting]
        seed = self['seed']
        name = self.name(examples)
        return _Code(f'bs.draw({name}, {wanted}, {seed})') if wanted else name


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _pretrained(w: _Writer) -> str:
    settings = w.group('model', without=['name'])
    return w.call('from_pretrained', repr(w['model.name']), **settings)


def _read(w: _Writer, split: str) -> str:
    data = w.group('data', without=['max_examples', 'metrics'])
    bad_rows = {'bad_rows': data['bad_rows']}
    file = repr(data['train_file' if split == 'train' else 'file'])
    match data['source']:
        case 'corpus':
            return w.call('read_corpus', repr(split))
        case 'glue' if data['glue_dir'] is None:
            given = {'split': split, 'data_dir': data['tfds_dir']}
            return w.call('read_tfds', repr(data['task']), **given)
        case 'glue':
            words = (repr(data['glue_dir']), repr(data['task']))
            return w.call('read_glue', *words, split=split, **bad_rows)
        case 'segments':
            tokenizer = f'{w.name("pretrained")}.tokenizer'
            return w.call('read_segments', file, tokenizer, count=0, **w.length)
        case 'questions':
            return w.call('read_questions', file, **bad_rows)
        case 'tags' if file.endswith(".conllu'"):
            return w.call('read_conllu', file, column=data['label'] or 'upos', **bad_rows)
        case 'tags':
            words = 'tokens' if data['text_a'] == 'text_a' else data['text_a']
            names = {'tags': data['label'] or 'tags', 'names': tuple(data['labels']) or None}
            return w.call('read_tagged', file, words=words, **names, **bad_rows)
    columns = {name: data[name] for name in ('text_a', 'text_b', 'label')}
    given = {name: tuple(data[name]) or None for name in ('labels', 'columns')}
    return w.call('read_table', file, **columns, **given, **bad_rows)


def _texts(w: _Writer) -> str:
    drawn = w.drawn('dev', 'data.max_examples')
    return f'[each.example for each in {drawn}]' if w['data.source'] in _OF_TOKENS else drawn


# Their texts are parts of what is learnt.
_OF_TOKENS = ('tags', 'questions')


def _tuned(w: _Writer, start: str = 'pretrained') -> str:
    study, training = w.study, w.study.training
    w.group('train', without=['starts'])
    names = inputs.label_names(study.config.data)
    metrics = w.metrics or (None if study.task is None else bs.get_task(study.task).metrics)
    if names and metrics == metrics_for(len(names)):
        metrics = None
    return w.call(
        'finetune', 'pretrained', 'train', 'dev', seeds=study.seeds, start=start, metrics=metrics,
        label_names=names, max_dev_examples=w['train.max_dev_examples'], **training, **w.length,
    )  # fmt: skip


def _known(w: _Writer) -> str:
    train, ablated = w.name('train'), w.name('ablated')
    return f'{{each.texts for each in (*{train}, *{ablated})}}'


def _choosing(w: _Writer) -> str:
    known = w.name('known')
    left = f'[each for each in {_read(w, "train")} if each.texts not in {known}]'
    return f'bs.draw({left}, {w["ablation.choose_examples"]}, {w["seed"]})'


def _treebank(w: _Writer, part: str) -> str:
    path = w[f'treebank.{part}']
    if path:
        read = w.call('read_treebank', repr(path), bad_rows=w['data.bad_rows'])
    else:
        read = w.call('treebank_sample', repr(part))
    wanted = w[f'treebank.max_{part}']
    return f'bs.draw({read}, {wanted}, {w["seed"]})' if wanted else read


def _text_settings(w: _Writer) -> str:
    given = {'pipeline': w['linguistics.pipeline']} if w.study.has_words else {}
    return w.call('analyses.TextSettings', **w.length, **given)


def _drawn_train(w: _Writer) -> str:
    wanted, seed, read = w['train.max_examples'], w['seed'], _read(w, 'train')
    return f'bs.draw({read}, {wanted}, {seed})' if wanted else read


# Name to what writes the expression that makes it.
_NAMES: Mapping[str, Callable[[_Writer], str]] = {
    'pretrained': _pretrained,
    'train': _drawn_train,
    'dev': lambda w: _read(w, w['data.split']),
    'texts': _texts,
    'ablated': lambda w: w.drawn('dev', 'ablation.max_examples'),
    'measured': lambda w: w.drawn('train', 'importance.max_examples'),
    'known': _known,
    'choosing': _choosing,
    'trees': lambda w: _treebank(w, 'train'),
    'dev_trees': lambda w: _treebank(w, 'dev'),
    'tuned': _tuned,
    'tuned_random': lambda w: _tuned(w, 'random'),
    'settings': _text_settings,
    'compute': lambda w: w.call('Compute', **w.length),
    'subject': lambda w: f'bs.analyses.{w.study.subject!r}',
}


def _call(w: _Writer, section: str) -> str:
    """Return the call of the analysis of a section; nothing for one that has none."""
    match section:
        case 'special_tokens':
            statistics = {'statistics': w['statistics']}
            return w.analysis('special_tokens', 'pretrained', 'texts', **statistics, **w.text)
        case 'relations':
            draws = {'draws': w['links.draws']}
            return w.analysis('relations', 'pretrained', 'texts', **draws, **w.seed, **w.text)
        case 'frames':
            return _frames(w)
        case 'finetune':
            names = {'pretrained': 'tuned', 'random': 'tuned_random'}
            found = [names[start] for start in w['train.starts']]
            texts = inputs.text_name(w.study.config.data, 'train')
            return w.analysis('finetuning', *found, train_texts=texts)
        case 'patterns':
            path = w['patterns.classifier']
            own = {'classifier': _Code(f'bs.patterns.load_classifier({path!r})')} if path else {}
            return w.analysis('patterns', 'pretrained', 'texts', **w.tuned, **own, **w.text)
        case 'attention_change':
            given = {'readings': w['change.readings'], 'statistics': w['statistics']}
            words = ('pretrained', 'tuned', 'texts')
            return w.analysis('attention_change', *words, **given, **w.text)
        case 'features' | 'cls_tokens':
            return w.analysis(section, 'pretrained', 'texts', **w.tuned, **w.text)
        case 'look_at':
            given = w.masking | w.tuned_already
            return w.analysis('look_at', 'pretrained', 'texts', **given, **w.text)
        case 'cluster':
            return w.analysis('clusters', 'pretrained', 'texts', **w.seed, **w.text)
        case 'syntax_heads':
            words, given = ('pretrained', 'trees', 'dev_trees'), {'draws': w['links.draws']}
            return w.analysis('syntax_heads', *words, **given, **w.seed, **w.text)
        case 'probe':
            return _probe(w)
        case 'masked_lm':
            given = {'baseline': w['ablation.baseline'], **w.masking, **w.tuned_already}
            words = ('pretrained', 'texts')
            return w.analysis('masked_lm_ablation', *words, **given, **w.seed, **w.compute)
        case 'outliers':
            return _outliers(w)
        case 'ablate' | 'ablate_seeds':
            return _ablate(w, section)
        case 'interactions':
            pairs = w['ablation.pairs_of']
            given = {
                'heads': None if pairs == 'all' else sorted(set(parse_heads(pairs))),
                'baseline': w['ablation.baseline'],
                'metric': w.metric,
            }
            return w.analysis('interactions', w.model, 'ablated', **given, **w.seed, **w.compute)
        case 'importance':
            given = {
                'measured_on': w.name('measured'),
                'permutations': w['importance.permutations'],
                'metric': w.metric,
            }
            return w.analysis('importance', w.model, 'ablated', **given, **w.seed, **w.compute)
        case 'prune':
            sizes = w['prune.batch_sizes']
            given = {
                'measured_on': w.name('measured'),
                'permutations': w['importance.permutations'],
                'draws': w['prune.draws'],
                'tolerance': w['prune.tolerance'],
                'batch_sizes': tuple(numbers_in(sizes)) if sizes else (),
                'metric': w.metric,
            }
            return w.analysis('pruning', w.models, 'ablated', **given, **w.seed, **w.compute)
        case 'replacements':
            given = {
                'fit_on': w.drawn('train', 'replacements.max_examples'),
                'passes': w['replacements.passes'],
            }
            return w.analysis('replacements', w.model, 'ablated', **given, **w.seed, **w.compute)
        case 'subnetworks':
            return _subnetworks(w)
        case 'gates':
            of_training = {k: v for k, v in w.study.gate_settings.items() if k != 'max_length'}
            w.group('gates')
            given = {'metrics': w.metrics, **of_training, 'like': bs.train_gates}
            words = (w.model, 'train', 'ablated')
            return w.analysis('gates', *words, **given, **w.seed, **w.length)
        case 'contributions':
            ablation = {'ablation': w.result('ablate')} if 'ablate' in w.answered else {}
            return w.analysis('contributions', 'pretrained', 'texts', **ablation, **w.text)
        case 'attribution':
            drawn = w.drawn('ablated', 'attribution.max_examples')
            return w.analysis('attribution', w.model, drawn, **w.seed, **w.compute)
        case 'roles':
            return _roles(w)
        case 'maps':
            return _maps(w)
        case 'claims':
            others = [each for each in w.answered if each not in ('maps', 'claims')]
            return w.analysis('claims', *map(w.result, others))
    return ''


def _frames(w: _Writer) -> str:
    sample, words = w['frames.sample'], ['pretrained']
    if sample == 'framenet':
        given = {'reading': w['frames.reading'], 'per_unit': w['frames.per_unit'] or None}
        folder = repr(w['frames.folder'])
        words.append(w.call('read_framenet', folder, **given, **w.seed))
    elif sample:
        words.append(f'bs.read_framenet_sample({sample!r})')
    given = {'draws': w['links.draws'], 'shown': w['maps.examples']}
    return w.analysis('frames', *words, **given, **w.seed, **w.text)


def _probe(w: _Writer) -> str:
    path, trees = w['probe.vectors'], w.name('trees')
    given = {
        'seeds': w['probe.num_seeds'],
        'epochs': w['probe.epochs'] or _Code(f'-(-2000 // len({trees}))'),
        'random_weights': w['probe.random_weights'],
    }
    if path:
        words = f'{{word for each in (*{trees}, *{w.name("dev_trees")}) for word in each.forms}}'
        given['vectors'] = _Code(f'bs.read_vectors({path!r}, {words})')
    return w.analysis('probing', 'pretrained', 'trees', 'dev_trees', **given, **w.length)


def _outliers(w: _Writer) -> str:
    of_model = w['ablation.checkpoint'] == 'model' and w.study.config.data.label is not None
    tuned = {'tuned': w.name('pretrained')} if of_model else w.tuned_already
    # The score is that on what is ablated, the loss that on what is analysed.
    drawn = w.drawn('ablated' if tuned else 'texts', 'outliers.max_examples')
    given = {'draws': w['outliers.draws'], **tuned, **w.masking}
    if tuned:
        given['metrics'] = w.metrics
    return w.analysis('outliers', 'pretrained', drawn, **given, **w.seed, **w.compute)


def _ablate(w: _Writer, section: str) -> str:
    models = w.model if section == 'ablate' else w.models
    sets, heads = list(w['ablation.sets']), parse_heads(w['ablation.together'])
    masks: Any = sets[0] if len(sets) == 1 else tuple(sets)
    if heads:
        config = f'{w.name("pretrained")}.config'
        ways = {name: f'bs.masks.{SETS[name].__name__}({config})' for name in sets}
        ways['together'] = f'bs.masks.disable({config}, [{heads}])'
        masks = _Code(f'{{{", ".join(f"{name!r}: {way}" for name, way in ways.items())}}}')
    given = {'masks': masks, 'baseline': w['ablation.baseline']}
    metrics = w.metrics
    if section == 'ablate':
        if w['ablation.choose_examples']:
            given['choose_on'] = w.name('choosing')
        return w.analysis(
            'ablation', models, 'ablated', **given, metrics=metrics, **w.seed, **w.compute
        )
    if metrics:
        metrics = tuple(name for name in metrics if name in METRICS_OVER_SEEDS)
    return w.analysis(
        'ablation_over_seeds', models, 'ablated', **given, metrics=metrics, **w.seed, **w.compute
    )


def _subnetworks(w: _Writer) -> str:
    defaults = inspect.signature(bs.finetune).parameters
    training = {
        name: value
        for name, value in w.study.training.items()
        if value != defaults[name].default and f'train.{name}' not in _OF_NO_MATTER
    }
    given = {
        'measured_on': w.name('measured'),
        'share': w['subnetworks.share'],
        'training': training or None,
    }
    words = ('pretrained', 'tuned', 'train', 'ablated')
    return w.analysis('subnetworks', *words, **given, **w.compute)


def _roles(w: _Writer) -> str:
    known = ('syntax_heads', 'patterns', 'prune', 'gates')
    others = [w.result(each) for each in known if each in w.answered]
    given = {'results': _Code(f'[{", ".join(others)}]')} if others else {}
    return w.analysis('roles', 'pretrained', 'texts', **given, **w.seed, **w.text)


def _maps(w: _Writer) -> str:
    given = {'count': w['maps.examples'], **w.tuned_already}
    if 'special_tokens' in w.answered:
        given['tables'] = _Code(f'{w.result("special_tokens")}.tables')
    return w.analysis('example_maps', 'pretrained', 'texts', **given, **w.length)


def command(
    config: ConfigDict, sections: Sequence[str], read: Collection[str] | None = None
) -> str:
    """Return the shortest command that answers sections with these settings.

    Args:
      config: All settings.
      sections: The names of the sections.
      read: The names of the settings that matter to them; None is all.
    """
    program = ['report', f'--sections={",".join(sections)}'] if len(sections) > 1 else sections
    own = flatten_dict(config.to_dict(), sep='.')
    commands = []
    for flags, start in _starts(config):
        usual = flatten_dict(start.to_dict(), sep='.')
        words = ['bert-secrets', *program, f'--model={own["model.name"]}', *flags]
        words += [
            f'--set={name}={own[name]}'
            for name in own
            if (read is None or name in read) and name != 'model.name' and name not in _OF_NO_MATTER
            if _plain(own[name]) != _plain(usual[name])
        ]
        commands.append(words)
    return ' '.join(map(quoted, min(commands, key=len)))


def _starts(config: ConfigDict) -> list[tuple[list[str], ConfigDict]]:
    """Return the settings that a command can start from, each with the flags that ask for them."""
    data = config.data
    if data.source == 'file':
        given = {flag: config.data[name.partition('.')[2]] for flag, name in _FLAGS.items()}
        # Names with commas are a setting, since the flag would divide them.
        labels = () if any(',' in name for name in data.labels) else data.labels
        start = base.get_config()
        set_texts(start, **given, labels=labels)
        flags = [f'--{flag.replace("_", "-")}={value}' for flag, value in given.items() if value]
        if labels:
            flags.append(f'--labels={",".join(labels)}')
        return [(flags, start)]
    starts = [([], quickstart.get_config())]
    named = [('quickstart:smoke', quickstart.get_config('smoke'))]
    named += [('base', base.get_config()), ('base:smoke', base.get_config('smoke'))]
    if data.source == 'glue':
        tasks = [data.task, f'{data.task}:smoke']
        named += [(f'paper:{task}', paper.get_config(task)) for task in tasks]
    return starts + [([f'--config={name}'], start) for name, start in named]


def quoted(word: str) -> str:
    """Return a word for a shell, in double quotes where it has single ones, as Python writes.

    Args:
      word: The word.
    """
    plain = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if plain else shlex.quote(word)
