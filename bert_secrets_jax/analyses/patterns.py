"""The five patterns of attention and their shares (section 4.1, Figures 1 and 2)."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import marks
from bert_secrets_jax.analyses.common.inputs import Models, TextSettings, readable
from bert_secrets_jax.analyses.common.tables import (
    OF_SHARES,
    BeforeAndAfter,
    Tables,
    heads_frames,
    mean_finding,
    mean_over_runs,
    over_seeds,
    table,
)
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.contributions.attention_maps import attention_maps
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.files import sha256
from bert_secrets_jax.measure.catalogue import Described, named
from bert_secrets_jax.measure.token_maps import TokenMaps
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.patterns.classes import CLASSES, TITLES
from bert_secrets_jax.patterns.classifier import (
    FAR,
    Classifier,
    judge_maps,
    load_classifier,
    pattern_comparisons,
    pattern_statistics,
)
from bert_secrets_jax.patterns.correct import Corrected, corrected, f1_of
from bert_secrets_jax.runs.call import Call, an_input, call
from bert_secrets_jax.runs.result import how_many
from bert_secrets_jax.runs.run import digest
from bert_secrets_jax.stats.over_runs import REACH

NAMES = tuple(f'pattern: {name}' for name in CLASSES)
CHANGED, UNLIKE = 'pattern: changed', 'pattern: unlike'
# The finding of how many heads change.
CHANGED_HEADS = 'heads whose most frequent pattern changes'
# The classes that may hold what is specific to a task: block and heterogeneous.
UPPER = (3, 4)
ALL_SPECIAL = '[CLS] and all [SEP]'
# The number of examples in Figure 1, and the least number of tokens of one: in a map of few tokens,
# patterns look alike.
_EXAMPLES = 3
_LEGIBLE = 10
# The greatest number of maps shown of each class.
_SHOWN = 4

_MOST = '{estimate:.0%} of the maps of the {model} model are {where}.'
_UNLIKE = (
    '{estimate:.0%} of the maps of the {model} model are unlike all labelled ones, so that their '
    'classes are guesses (of labelled ones, {labelled:.0%}).'
)


class Patterns(BeforeAndAfter):
    """The patterns of each head's maps.

    Attributes:
      before, runs: As in `common.tables.BeforeAndAfter`: 'pattern: vertical' and so on, and '[CLS]
        and all [SEP]'. The mean of a pattern is the share of examples on which the head has it;
        'pattern: unlike' is the share on which its map is unlike all labelled ones, and, of
        fine-tuned models, 'pattern: changed' that of examples whose map changes its class.
      confusions: The number of labelled maps of each model by label (rows) and by the class that
        classifiers found which knew no map of the same model (columns) [G, C, C]; empty if unknown.
      examples: The maps [T, T] that are most clearly of a class, by the title of the class and the
        name of their head (Figure 1). Rows are queries.
    """

    title = 'Patterns of attention'
    unit = 'share of maps'
    source = 'Kovaleva et al. 2019, section 4.1'

    confusions: np.ndarray
    examples: Mapping[str, Mapping[str, np.ndarray]]

    @property
    def shares(self) -> dict[str, np.ndarray]:
        """The share of each head's maps in each class [L, N, C], by the name of the model."""
        return {
            model: np.stack([each.mean for each in over_seeds(runs, NAMES).values()], axis=-1)
            for model, runs in self.by_model.items()
        }

    def correct(self, runs: Sequence[Tables]) -> Corrected | None:
        """Return the corrected shares of all maps; None where no confusion is known."""
        found = [mean_over_runs(runs, [name]) for name in NAMES]
        wide = [(each.mean, each.half) for each in found if each.half > 0]
        # As many independent maps vary as much as the shares do, at their widest.
        sizes = [mean * (1 - mean) * (REACH / half) ** 2 for mean, half in wide]
        size = min(sizes, default=float(runs[0][NAMES[0]].count))
        return corrected(np.array([each.mean for each in found]), self.confusions, size=size)

    def verdicts(self):
        def few(runs: Sequence[Tables]) -> verdicts.Verdict:
            right = self.correct(runs)
            return verdicts.few_are_heterogeneous(
                {TITLES[index].lower(): verdicts.each_of(runs, NAMES[index]) for index in UPPER},
                corrected=right and right.together(UPPER),
            )

        def vertical(runs: Sequence[Tables]) -> verdicts.Verdict:
            return verdicts.vertical_patterns_are_special(
                [run[NAMES[0]].mean for run in runs], verdicts.each_of(runs, ALL_SPECIAL)
            )

        runs = verdicts.named_runs(self.runs, self.before)
        return [each for test in (few, vertical) for each in verdicts.on_runs(runs, test)]

    def frames(self):
        frames, published = super().frames(), paper.pattern_shares(self.subject.task)
        if published is not None:
            theirs = [round(100 * published[name], 4) for name in CLASSES]
            shares = frames['patterns']
            place = len(shares.columns) - bool(self.confusions.size)
            shares.insert(place, 'paper_bert_base_finetuned_percent', theirs)
        return frames

    def _draw_patterns(self):
        published = paper.pattern_shares(self.subject.task)
        bars = {model: grid.mean(axis=(0, 1)) for model, grid in self.shares.items()}
        if published is not None:
            theirs = np.array([published[name] for name in CLASSES])
            bars = {'paper: BERT-base, fine-tuned': theirs} | bars
        return plots.class_shares(bars, TITLES).captioned(
            'Share of maps of each class, over all heads and examples '
            f'({self.subject.as_in("Figure 2")}).'
        )

    def _draw_patterns_heads(self):
        sources: dict[str | tuple[str, str], plots.Source] = {
            (model, title): plots.Source(frame, 'mean', name)
            for model, frame in zip(self.shares, ('heads', 'heads_finetuned'), strict=False)
            for title, name in zip(TITLES, NAMES, strict=True)
        }
        caption = 'The most frequent class of every head, the paler the smaller its share.'
        return plots.class_grids(self.shares, TITLES).captioned(caption, sources)

    def _draw_patterns_examples(self):
        panels = {title: [*examples.items()] for title, examples in self.examples.items()}
        return plots.class_examples(panels).captioned(
            'The maps that are most clearly of each class, before fine-tuning '
            f'({self.subject.as_in("Figure 1")}). Each has a scale of its own.'
        )

    def findings(self):
        fields: dict[str, Any] = {'unit': self.unit, 'source': self.source, 'limits': OF_SHARES}
        found, shares = [], self.labelled['patterns'].columns
        for model, runs in self.by_model.items():
            most = int(shares[f'{model.replace("-", "")}_percent'].argmax())
            about = {
                f'most frequent pattern, {model}': (NAMES[most], TITLES[most], _MOST),
                f'maps like no labelled one, {model}': (UNLIKE, '', _UNLIKE),
            }
            for label, (name, where, said) in about.items():
                of = {'model': model, 'where': where, 'labelled': FAR, 'template': said}
                found.append(mean_finding(label, runs, [name], **fields, **of))
        if self.runs:
            others = np.not_equal(*(grid.argmax(axis=-1) for grid in self.shares.values()))
            said = 'After fine-tuning, {estimate} {unit} {estimate:|has|have} another main pattern.'
            sample = {'sample': int(self.before[NAMES[0]].count), 'source': self.source}
            found.append(how_many(CHANGED_HEADS, others, template=said, **sample))
        return found

    def notes(self):
        return ['How well the classifier of maps does is not known.'] * (not self.confusions.size)

    def gives(self):
        *_, (model, grid) = self.shares.items()
        return {'heterogeneous': (model, grid[..., CLASSES.index('heterogeneous')])}

    def head_marks(self):
        return marks.mark_classes(self.shares, TITLES)


def _statistics(of: Callable[..., Sequence[Described]], classifier: Classifier) -> list[Described]:
    """Return the statistics of patterns, of one model or of two, and that of special tokens."""
    return [*of(classifier), named(ALL_SPECIAL)]


def _content(given, _) -> str:
    # Read first: a file that is none is refused as such.
    found, path = given.value('classifier'), given['patterns.classifier']
    return sha256(path) if path else digest(['shipped', found.confusions.tolist(), found.far])


@an_input(content=_content)
def classifier(given) -> Call:
    """Return the classifier of patterns: the user's, or else that of the package."""
    path = given['patterns.classifier']
    return call(load_classifier, path) if path else call(load_classifier)


@analysis(
    question='the five patterns of attention and their shares',
    report='always',
    reads=('patterns.classifier',),
    inputs={'tuned': 'tuned_if_any'},
    wants=lambda given: _statistics(pattern_statistics, given.value('classifier')),
    compares=lambda given: _statistics(pattern_comparisons, given.value('classifier')),
    cost=lambda given: 2 * given.tokens('texts'),
)
def patterns(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Models | None = None,
    classifier: Classifier | None = None,
    settings: TextSettings = TextSettings(),
) -> Patterns:
    """Classify the maps of all heads into the five patterns, before and after fine-tuning.

    Args:
      tuned: `pretrained` fine-tuned, or several such models; None measures only `pretrained`.
      classifier: The classifier of maps; None takes the one that comes with the package.
      pretrained, texts, settings: As in `special_tokens`.
    """
    classifier = classifier or load_classifier()
    examples = as_examples(texts)
    before = settings.tables(pretrained, examples, _statistics(pattern_statistics, classifier))
    compared = _statistics(pattern_comparisons, classifier)
    runs = settings.changes(pretrained, tuned, examples, compared)
    chosen = readable(pretrained, examples, count=_EXAMPLES, max_length=settings.max_length)
    maps = attention_maps(pretrained, chosen, max_length=settings.max_length)
    found = Patterns(before, runs, classifier.confusions, clearest(classifier, maps))
    unlike = [np.mean([run[UNLIKE].mean for run in each]) for each in found.by_model.values()]
    guessed = table(
        'Maps unlike every labelled one, whose classes are guesses.',
        model=[*found.by_model],
        unlike_percent=100 * np.array(unlike, np.float64),
        of_labelled_percent=np.array(100 * FAR),
    )
    frames = {'patterns': _summary(found), 'unlike': guessed}
    return found.with_frames(frames | heads_frames(found, (*NAMES, CHANGED)))


def _summary(found: Patterns):
    """Return the table of the share of each class before and after, and how well it is found."""
    columns = {}
    for model, runs in found.by_model.items():
        name, means = model.replace('-', ''), [mean_over_runs(runs, [each]) for each in NAMES]
        columns[f'{name}_percent'] = [100 * each.mean for each in means]
        columns[f'{name}_half_interval_percent'] = [100 * each.half for each in means]
        right = found.correct(runs)
        if right is not None:
            ends = 100 * np.transpose([right.together([index]) for index in range(len(NAMES))])
            names = [f'{name}_corrected_{part}percent' for part in ('', 'low_', 'high_')]
            columns |= dict(zip(names, ends, strict=True))
    if found.confusions.size:
        columns['f1_of_classifier'] = f1_of(found.confusions.sum(axis=0))
    return table(
        'Share of all maps with half of its 95 % interval, and corrected for mistakes.',
        **{'class': TITLES},
        **{name: np.round(column, 4) for name, column in columns.items()},
    )


def clearest(classifier: Classifier, maps: Sequence[TokenMaps]) -> dict[str, dict[str, np.ndarray]]:
    """Return the maps most clearly of each class, at most one per head, by its title (Figure 1).

    Maps of fewer than 10 tokens are left out if there are longer ones.
    """
    shown = [each for each in maps if len(each.tokens) >= _LEGIBLE] or list(maps)
    judge, logits, heads = jax.jit(functools.partial(judge_maps, classifier)), [], []
    for each in shown:
        # Few sizes, so few compilations.
        padding = 0, -len(each.tokens) % 64
        # The last token separates, and the same one stands between two texts.
        sep = [token == each.tokens[-1] for token in each.tokens]
        marks_of = {'token': np.pad([True] * len(sep), padding), 'sep': np.pad(sep, padding)}
        judged = judge(np.pad(each.attentions, [(0, 0), (0, 0), padding, padding]), marks_of)
        logits += [*np.asarray(judged, np.float64)[..., :-1].reshape(-1, len(CLASSES))]
        places = np.ndindex(judged.shape[:2])
        heads += [(head_name(*place), each.attentions[place]) for place in places]
    odds = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    panels = {}
    for index, title in enumerate(TITLES):
        order, members = np.argsort(-odds[:, index], kind='stable'), {}
        for number in order[odds[order].argmax(axis=1) == index]:
            members.setdefault(*heads[number])
        panels[title] = dict(itertools.islice(members.items(), _SHOWN))
    return panels
