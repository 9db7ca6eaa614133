"""Sections of one study or several, computed one after the other and written after each."""

import dataclasses
import functools
import pathlib
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from absl import logging
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from bert_secrets_jax import processes
from bert_secrets_jax.analyses.attention_change import ON_AVERAGE
from bert_secrets_jax.analyses.claims import comparison
from bert_secrets_jax.analyses.common.effects import MATTER
from bert_secrets_jax.analyses.declaration import ANALYSES as SECTIONS
from bert_secrets_jax.analyses.patterns import CHANGED_HEADS
from bert_secrets_jax.checks import MENDABLE, TooFewTextsError, summary
from bert_secrets_jax.configs.declared import GROUPS, refuse_unknown
from bert_secrets_jax.extras import require
from bert_secrets_jax.files import read_json, write_text
from bert_secrets_jax.programs.given import Given, Pace, Study, in_words, machine, pace_of
from bert_secrets_jax.programs.inputs import is_own, question_of, runs_of, texts_in_words
from bert_secrets_jax.programs.lines import Names, Reproduction, command, lines_of
from bert_secrets_jax.programs.outputs import read_part, remove_parts, write_part
from bert_secrets_jax.programs.sources import mend_finetunings
from bert_secrets_jax.report.atlas import what_heads_do
from bert_secrets_jax.report.page import MADE, Offer, Part, is_made_of, write_page
from bert_secrets_jax.runs.folder import open_folder, read_manifest
from bert_secrets_jax.runs.result import Result, Subject
from bert_secrets_jax.runs.run import digest

# These sections are about the results of the others. So they come last, and are made again
# whenever another section is finished.
LAST = ('maps', 'claims')
PAGE = 'report.html'
# Beside whether heads tell texts apart, a page begins with these findings of disabling them.
_ALSO = (('layers', ', discrimination'), ('heads', ''))
# In the place of names of sections: all but those that take hours.
ALL = 'all'


def missing(study: Study, name: str) -> str:
    """Return what a run lacks for a section, as behind "needs"; empty if it has everything."""
    return SECTIONS[name].missing(Given(study))


def applicable(study: Study) -> list[str]:
    """Return the names of the sections whose inputs the run has."""
    return [name for name in SECTIONS if not missing(study, name)]


def chosen_of(study: Study, names: Sequence[str] | None) -> tuple[list[str], dict[str, str]]:
    """Return the names of the sections that somebody asked for, and what is left out.

    ['all'] takes all with inputs but those of hours, None those that answer the paper's questions.
    Of these, sections are left out because the texts are not English, with what they need.
    """
    if names is not None and list(names) != [ALL]:
        check(study, names)
        return list(names), {}
    asked = ('always', 'all') if names else ('always',)
    needed = {name: missing(study, name) for name, e in SECTIONS.items() if e.report in asked}
    foreign = Given(study).foreign()
    left = {name: lacking for name, lacking in needed.items() if foreign and foreign in lacking}
    return [name for name, lacking in needed.items() if not lacking], left


def check(study: Study, names: Sequence[str]) -> None:
    """Refuse sections that do not exist, or for which packages or something of the run lack."""
    refuse_unknown(names, SECTIONS)
    for name in names:
        require(*SECTIONS[name].packages)
        if lacking := missing(study, name):
            raise ValueError(f'{name} needs {lacking}.')


@dataclasses.dataclass
class Studied:
    """The answers of one study so far, by the names of sections.

    Attributes:
      group: The beginning of the headings, the name of the task; empty for a single study.
      offers: The sections that are not computed, with what they cost.
    """

    study: Study
    group: str
    parts: dict[str, Part] = dataclasses.field(default_factory=dict)
    lines: dict[str, Reproduction] = dataclasses.field(default_factory=dict)
    offers: Sequence[Offer] = ()

    @property
    def lead(self) -> str:
        """The beginning of what is said of this study among several."""
        return f'{self.group}: ' if self.group else ''

    @property
    def given(self) -> Given:
        """All that the run gives to a section now: not the results about other results."""
        return Given(self.study, self.results)

    @property
    def results(self) -> dict[str, Result]:
        """The results in the order of the sections, without those about other results."""
        return self.results_of(name for name in SECTIONS if name not in LAST)

    def results_of(self, names: Iterable[str]) -> dict[str, Result]:
        """Return the results that exist, by the names of their sections."""
        found = {name: self.parts[name].result for name in names if name in self.parts}
        return {name: result for name, result in found.items() if result is not None}

    def tell(self, name: str, message: str, why: str = 'failed', chapter: str = '') -> None:
        """Put on the page why a section has no result."""
        told = Part(name, message=message, group=self.group, chapter=chapter, why=why)
        self.parts[name] = told

    def in_order(self) -> list[Part]:
        """Return the parts in the order of the page, by their chapters."""
        names = ['inputs', *SECTIONS]
        if 'ablate_seeds' in self.parts:
            # Answered later, since it takes more time.
            names.remove('ablate_seeds')
            names.insert(names.index('ablate'), 'ablate_seeds')
        parts = [self.parts[name] for name in names if name in self.parts]
        order = ['', *GROUPS]
        parts.sort(key=lambda part: order.index(part.chapter))
        lines = [self.lines[name] for name in SECTIONS if name in self.parts and name in self.lines]
        names = Names({name: made for each in lines for name, made in each.names.items()})
        if names.names:
            made_by = (('Python', names.python),)
            parts.append(Part('names', names, group=self.group, chapter=MADE, made_by=made_by))
        return parts


def open_studies(config: ConfigDict, workdir: pathlib.Path) -> list[Study]:
    """Return a study for each task that `data.task` names, each in a folder of its own, opened."""
    studies = []
    for own, folder in runs_of(config, workdir):
        processes.on_first(functools.partial(open_folder, folder, own.to_dict()))
        # Says so if this process has another folder of that name.
        processes.exists(folder / 'config.json')
        studies.append(Study(own, folder))
    return studies


def write_report(studies: Sequence[Study], chosen: Sequence[str] | None = None) -> list[Studied]:
    """Answer sections of one study, or one for each task; write files and the page after each.

    Finished sections stay on the page, whether chosen (`chosen_of`) or not. One that fails
    does not stop the others; at the end, a SystemExit has one line for each error. ValueError if a
    section is unknown, or a study lacks something that it needs.
    """
    several, folder = len(studies) > 1, studies[0].folder
    path = (folder.parent if several else folder) / PAGE
    failures: dict[str, list[str]] = {}
    every, shown = [], False

    def write(to_come: Sequence[str]) -> None:
        nonlocal shown
        processes.on_first(lambda: _write(path, every, to_come))
        if to_come and not shown and processes.exists(path):
            shown = True
            logging.info('First figures: %s', path)

    for study in studies:
        answers = Studied(study, study.corpus if several else '')
        every.append(answers)
        names, left = chosen_of(study, chosen)
        # A fault of the model or of the texts is told once.
        message, read = '', functools.partial(_read_inputs, answers.given)
        if several:
            message = _attempt(f'{answers.group}: inputs', read, path.parent, failures)
        else:
            read()
        if message:
            answers.tell('inputs', message)
        else:
            for name, lacking in left.items():
                told = f'Left out: {name} needs {lacking}.'
                logging.warning('%s%s', answers.lead, told)
                answers.tell(name, told, 'left out')
            _answer(answers, names, write, failures)
        # The inputs of one task are freed before the next one begins.
        study.release()
    write([])
    if several:
        _attempt(
            'side by side',
            lambda: processes.on_first(lambda: write_part(path.parent, _side_by_side(every), '')),
            path.parent,
            failures,
        )
    if failures:
        lines = [f'error: {error} ({", ".join(names)})' for error, names in failures.items()]
        raise SystemExit('\n'.join(lines))
    return every


def _read_inputs(given: Given) -> None:
    given.digest('pretrained')
    given.digest('texts')


def _answer(
    answers: Studied,
    names: Sequence[str],
    write: Callable[[Sequence[str]], None],
    failures: dict[str, list[str]],
) -> None:
    """Answer the sections of a study that are not finished."""
    study = answers.study

    def answer(name: str) -> None:
        try:
            _put(answers, name, answers.given.answer(name))
        except TooFewTextsError as error:
            logging.warning('%s%s: %s', answers.lead, name, error)
            answers.tell(name, str(error), 'too few texts', SECTIONS[name].group)

    processes.on_first(functools.partial(mend_finetunings, study))
    _read_finished(answers)
    known = answers.parts.keys() - LAST
    pending = [name for name in SECTIONS if name in names and name not in known]
    study.watched = tuple(names)
    left, start = _tell_costs(answers, pending), time.monotonic()
    # A page of which nothing has changed is written once, at the end.
    grows = any(name not in LAST for name in pending)
    for number, name in enumerate(pending, 1):
        if grows:
            write(pending[number - 1 :])
        title, rest = f'{answers.lead}{name}', ''
        if left is not None:
            seconds = in_words(left(number - 1, time.monotonic() - start))
            rest = f'. About {seconds} left{f" for {answers.group}" * bool(answers.group)}.'
        logging.info('Section %d of %d: %s%s', number, len(pending), title, rest)
        message = _attempt(title, functools.partial(answer, name), study.folder, failures)
        if message:
            answers.tell(name, message, chapter=SECTIONS[name].group)
            # A statistic that it wants may be the one that failed: the others go on without it.
            study.watched = tuple(pending[number:])
    # Something computed for these, such as a fine-tuning, may be all that another section needs.
    _read_finished(answers)


def _tell_costs(answers: Studied, pending: Sequence[str]) -> Callable[[int, float], float] | None:
    """Log what will be computed and how long it takes, and note the price of what will not be.

    Returns how many seconds are left (`Pace.left`); None where that is not known.
    """
    study, given = answers.study, answers.given
    known = {'weights': given.digest('pretrained'), **machine()}
    pace = functools.cache(lambda: study.run.keep('pace', Pace, known, lambda: pace_of(given)))
    there = {*answers.parts, *pending, *LAST}
    others = [name for name in applicable(study) if name not in there]

    def offered(wanted: Collection[str]) -> tuple[Offer, ...]:
        found = []
        for name in others:
            left = [cost for part, cost in given.work(name).items() if part not in wanted]
            seconds = pace().seconds(left) if left else 0.0
            line = command(study.config, [name], out=str(study.folder))
            found.append(Offer(name, SECTIONS[name].question, in_words(seconds), line))
        return tuple(found)

    try:
        computed = [name for name in pending if name not in LAST]
        parts = {name: given.work(name) for name in pending} if computed else {}
        wanted = {part: cost for name in computed for part, cost in parts[name].items()}
        if wanted:
            seconds = in_words(pace().seconds(wanted.values()))
            told = answers.lead, ', '.join(computed), seconds
            logging.info('%sTo compute: %s. About %s on this machine.', *told)
        depends_on = {'others': others, 'config': study.config.to_dict(), **known}
        kept = study.run.keep('offers', tuple, depends_on, lambda: offered(wanted))
        # A file keeps them as lists.
        answers.offers = [Offer(*each) for each in kept]
        return functools.partial(pace().left, list(parts.values())) if wanted else None
    except MENDABLE as error:
        # The section that meets it will say so.
        logging.debug('Costs are not known: %s', error)
        return None


def _read_finished(answers: Studied) -> None:
    """Read what is finished with these settings; what other settings led to is removed."""
    stale = []
    for name, section in SECTIONS.items():
        if name in answers.parts and name not in LAST:
            continue
        result = None
        try:
            if answers.results or name != 'claims':
                result = answers.given.finished(name)
        except MENDABLE as error:
            if processes.may_differ(error):
                raise
            # It cannot be computed: then answering says why.
            logging.debug('%s is not finished: %s', name, error)
        if result is not None:
            _put(answers, name, result)
            continue
        stale.append(section.files)
        if name in answers.parts and answers.parts[name].result is not None:
            # It was finished before another result that it is about was computed.
            del answers.parts[name]
    processes.on_first(lambda: remove_parts(answers.study.folder, stale))


def _put(answers: Studied, name: str, result: Result) -> None:
    """Write the files of a result, if they are not written yet, and put it on the page."""
    study = answers.study
    others = {each: found for each, found in answers.results_of(SECTIONS).items() if each != name}
    state = Given(study, others).state(name)
    texts, main = _texts(result, study.subject, own=is_own(study.config.data))
    answers.lines[name] = line = lines_of(Given(study, others), name)
    part = Part(
        SECTIONS[name].files,
        result,
        group=answers.group,
        chapter=SECTIONS[name].group,
        about=texts,
        main=main,
        folder=f'{quote(study.folder.name)}/' if answers.group else '',
        made_by=(('Python', line.python), ('Shell', line.shell)),
    )
    answers.parts[name] = processes.on_first(lambda: read_part(study.folder, part, state)) or part


def _write(path: pathlib.Path, every: Sequence[Studied], to_come: Sequence[str]) -> None:
    details: dict[str, Mapping[str, Any]] = {}
    for answers in every:
        study, lead = answers.study, answers.lead
        versions = read_json(study.folder / 'versions.json').items()
        details[f'{lead}Settings of this run'] = flatten_dict(study.config.to_dict(), sep='.')
        details[f'{lead}Versions'] = {k: each for k, each in versions if each != 'not installed'}
    parts = [part for answers in every for part in answers.in_order()]
    if all(part.result is None for part in parts):
        # Nothing to show yet; a page with other results would not be about these settings.
        path.unlink(missing_ok=True)
        return
    said = []
    if len(every) > 1:
        said.append(f'Texts: {", ".join(each.study.subject.texts for each in every)}.')
    else:
        data = every[0].study.config.data
        if 'finetune' in every[0].results:
            # How well the model answers a question.
            said += [question_of(data), every[0].results['finetune'].score]
        said.append(texts_in_words(data))
    said.append('Layers and heads count from 1. “The paper” is Kovaleva et al. 2019.')
    lead = ' '.join(filter(None, said))
    offers = [offer for answers in every for offer in answers.offers]
    made = [[part.name, part.group, part.message, part.made_by] for part in parts]
    written = [read_manifest(answers.study.folder) for answers in every]
    made_of = digest([made, written, offers, details, list(to_come), lead])
    if is_made_of(path, made_of):
        return
    tasks = [part for part in [_side_by_side(every)] if part is not None]
    write_page(
        path,
        title=f'What the heads of {every[0].study.model_name} attend to',
        lead=lead,
        told={one.group: headlines(one.results_of(SECTIONS), one.study.corpus) for one in every},
        parts=[*tasks, *parts],
        details=details,
        to_come=to_come,
        offers=offers,
        made_of=made_of,
    )


def _texts(result: Result, subject: Subject, *, own: bool) -> tuple[str, bool]:
    """Return the texts that a result is about, and whether the first line has said so."""
    texts = result.subject.texts
    main, texts = texts == subject.texts, texts.removeprefix('the ')
    return (f'your texts: {texts}' if main and own else texts), main


def headlines(results: Mapping[str, Result], texts: str) -> list[str]:
    """Return what results say of these texts: which heads matter, what they do, what changed."""

    own = {k: result for k, result in results.items() if result.subject.texts.startswith(texts)}

    def first(*names: str, also: Sequence[str] = ()) -> list[str]:
        found = next((own[name].findings() for name in names if name in own), [])
        said = [each for each in found if not each.warning]
        return [each.sentence for each in said if each is said[0] or each.name in also]

    marks = {name: result.head_marks() for name, result in results.items()}
    # Heads are counted as all results colour them, and only kinds of these texts are named.
    every, of_own = ([each for name in names for each in marks[name]] for names in (marks, own))
    patterns = own['patterns'].findings() if 'patterns' in own else []
    said = (
        first(
            'ablate_seeds',
            'ablate',
            'masked_lm',
            'importance',
            also=[
                MATTER.format(f'{name}{over}{outcome}')
                for over in ('', ' over seeds')
                for name, outcome in _ALSO
            ],
        ),
        [what_heads_do(every, of_own)],
        first('attention_change', also=[ON_AVERAGE])
        + [each.sentence for each in patterns if each.name == CHANGED_HEADS],
        first('claims'),
    )
    return list(filter(None, map(' '.join, said)))


def _side_by_side(every: Sequence[Studied]) -> Part | None:
    if len(every) < 2:
        return None
    found = comparison({each.group: list(each.results.values()) for each in every})
    return Part('tasks', found)


def _attempt(
    name: str, make: Callable[[], None], folder: pathlib.Path, failures: dict[str, list[str]]
) -> str:
    """Call something; returns why it failed, in one line, and `failures` learns of it."""
    try:
        make()
    except Exception as error:
        if processes.may_differ(error):
            raise
        if isinstance(error, MENDABLE):
            logging.debug('%s', traceback.format_exc())
            message = one_line(error, folder)
        else:
            logging.error('%s', traceback.format_exc())
            unexpected = 'unexpected; log.txt has where'
            message = f'{type(error).__name__}: {summary(error)} ({unexpected})'
        names = failures.setdefault(message, [])
        names.append(name)
        logging.warning('%s failed: %s', name, message)
        return f'It failed: {message}' if len(names) == 1 else f'It failed as {names[0]} did.'
    return ''


def one_line(error: Exception, folder: pathlib.Path) -> str:
    """Return the first line of an error; `error.txt` in the folder has all of several lines."""
    line, details = summary(error), folder / 'error.txt'
    if len(str(error).strip().splitlines()) < 2 or not processes.is_first():
        return line
    former = details.read_text(errors='replace') if details.exists() else ''
    if f'{error}\n' not in former:
        write_text(details, f'{former}{error}\n')
    return f'{line} All of them: {details}'
