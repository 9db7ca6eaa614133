"""Which claims of the paper hold for this model.

    python -m experiments.claims --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

reads what the other programs have measured in the same folder, and measures nothing itself.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
from absl import logging

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.results import read_swept
from bert_secrets_jax.ablation.significance import Assessment
from bert_secrets_jax.paper import claims
from bert_secrets_jax.paper.claims import Verdict
from bert_secrets_jax.report import tables
from bert_secrets_jax.report.html import Section, Table
from experiments import ablate, finetune, frames, heads, links, relations
from experiments.study import Study, launch

# The paper's linguistic features; punctuation is not among them.
_FEATURES = tuple(name for name in heads.FEATURES if name != 'punctuation')


@dataclasses.dataclass(frozen=True)
class Ablated:
    """Masks of one kind against the intact model, on the task's own metric."""

    found: Assessment
    names: list[str]
    unseen: float


class Measured:
    """What other sections have left in the folder of a run; empty or None if they have not."""

    def __init__(self, study: Study):
        self.study = study

    @functools.cached_property
    def changes(self) -> dict[str, Mapping[str, bs.HeadTable]]:
        """By fine-tuned run, its attention and what has changed in it."""
        seeds = finetune.seeds(self.study)
        if not all(heads.changed_file(self.study, seed).exists() for seed in seeds):
            return {}
        return {
            f'Fine-tuned, seed {seed}': heads.measure_change(self.study, seed) for seed in seeds
        }

    @functools.cached_property
    def attention(self) -> dict[str, Mapping[str, bs.HeadTable]]:
        """By run, attention of the fine-tuned models, or else of the model as it is."""
        if self.changes or not heads.is_measured(self.study):
            return self.changes
        return {'The model as it is': heads.measure(self.study)}

    @functools.cached_property
    def relations(self) -> dict[str, links.LinkTest]:
        """By direction, attention along the relations of section 4.5."""
        if not (self.study.config.linguistics.pipeline and heads.is_measured(self.study)):
            return {}
        return relations.tests(self.study, heads.measure(self.study))

    @functools.cached_property
    def frames(self) -> links.LinkTest | None:
        """Attention from frame elements to their target."""
        if not frames.is_measured(self.study):
            return None
        return frames.tests(self.study, frames.measure(self.study)).get(frames.OF_FRAMES)

    @functools.cached_property
    def scores(self) -> dict[str, list[float]]:
        """By start of fine-tuning, the score of each run, on the task's own metric."""
        scores = {}
        for start in ('pretrained', 'random'):
            if finetune.outcome_file(self.study, start).exists():
                outcome = finetune.run(self.study, start)
                rows = finetune.dev_rows(outcome['history'])
                scores[start] = [row[outcome['metrics'][0]] for row in rows]
        return scores

    @functools.cached_property
    def heads(self) -> Ablated | None:
        """Single heads disabled."""
        return self._ablated('heads')

    @functools.cached_property
    def layers(self) -> Ablated | None:
        """Single layers disabled."""
        return self._ablated('layers')

    def _ablated(self, name: str) -> Ablated | None:
        file = ablate.swept_file(self.study, name)
        if not file.exists():
            return None
        swept = read_swept(file)
        metric, found = next(iter(ablate.assess(self.study, swept, name).items()))
        return Ablated(
            found,
            [bs.masks.describe(mask) for mask in swept.masks[1:]],
            claims.unseen_change(metric, swept.predictions[0], swept.labels),
        )


def verdicts(measured: Measured) -> list[Verdict]:
    """Test every claim on what is measured; the others are NOT_MEASURED."""
    return [
        test(measured) or Verdict(claim, claims.NOT_MEASURED, f'Needs the section {section}.')
        for claim, (test, section) in _TESTS.items()
    ]


def _in_runs(
    runs: Mapping[str, Mapping[str, bs.HeadTable]],
    test: Callable[[Mapping[str, bs.HeadTable]], Verdict],
) -> Verdict | None:
    return claims.in_all_runs({run: test(of) for run, of in runs.items()}) if runs else None


def _known(of: Mapping[str, bs.HeadTable], titles: Mapping[str, str]) -> dict[str, bs.HeadTable]:
    """Return tables by title, of what any two examples have."""
    return {title: of[name] for name, title in titles.items() if name in of and of[name].count > 1}


def _last_layers(measured: Measured) -> Verdict | None:
    return _in_runs(measured.changes, lambda of: claims.last_layers_change_most(of['cosine']))


def _pretraining(measured: Measured) -> Verdict | None:
    scores = measured.scores
    return claims.pretraining_helps(**scores) if len(scores) == 2 else None


def _cls_then_sep(measured: Measured) -> Verdict | None:
    return _in_runs(
        measured.attention,
        lambda of: claims.attention_moves_from_cls_to_sep(of['[CLS]'], of['[SEP]']),
    )


def _vertical(measured: Measured) -> Verdict | None:
    return _in_runs(
        measured.attention,
        lambda of: claims.vertical_patterns_are_special(
            of[heads.PATTERNS[0]].mean, of[heads.ALL_SPECIAL]
        ),
    )


def _features(measured: Measured) -> Verdict | None:
    titles = {name: name for name in _FEATURES}
    runs = {run: of for run, of in measured.attention.items() if _known(of, titles)}
    return _in_runs(
        runs,
        lambda of: claims.features_are_negligible(of['[CLS]'], of['[SEP]'], _known(of, titles)),
    )


def _last_cls(measured: Measured) -> Verdict | None:
    titles = {heads.from_cls(name): name for name in ('[SEP]', '[CLS]', *heads.FEATURES)}
    runs = {run: of for run, of in measured.attention.items() if len(_known(of, titles)) > 1}
    return _in_runs(runs, lambda of: claims.cls_attends_most_to_sep(_known(of, titles)))


def _frames(measured: Measured) -> Verdict | None:
    test = measured.frames
    return claims.heads_follow_links(test.table, test.nulls, test.excess) if test else None


def _frame_heads(measured: Measured) -> Verdict | None:
    test, ablated = measured.frames, measured.heads
    if not (test and ablated):
        return None
    best = np.argsort(-test.table.mean, axis=None, kind='stable')[:2].tolist()
    return claims.heads_are_not_needed(ablated.found, best, ablated.names, unseen=ablated.unseen)


def _relation(claim: claims.Claim, relation: str, measured: Measured) -> Verdict | None:
    found = {
        title: (test.table, test.excess[links.MOVED])
        for title, test in measured.relations.items()
        if title in links.directions([relation])
    }
    return claims.position_explains(claim, found) if found else None


def _ablation(claim: claims.Claim, ablated: Ablated | None) -> Verdict | None:
    if ablated is None:
        return None
    return claims.some_mask_helps(claim, ablated.found, ablated.names, unseen=ablated.unseen)


_VERB_SUBJECT, _NOUN_PRONOUN = heads.RELATIONS
# Of each claim, its test and the section that measures what it is about.
_TESTS: dict[claims.Claim, tuple[Callable[[Measured], Verdict | None], str]] = {
    claims.PRETRAINING: (
        _pretraining,
        'finetune from both starts, in a new --workdir: '
        "\"--config.train.starts=('pretrained', 'random')\"",
    ),
    claims.LAST_LAYERS: (_last_layers, 'attention_change'),
    claims.CLS_THEN_SEP: (_cls_then_sep, 'special_tokens or features'),
    claims.VERTICAL: (_vertical, 'patterns'),
    claims.FEATURES: (_features, 'features'),
    claims.LAST_CLS: (_last_cls, 'cls_tokens'),
    claims.FRAMES: (_frames, 'frames'),
    claims.VERB_SUBJECT: (
        functools.partial(_relation, claims.VERB_SUBJECT, _VERB_SUBJECT),
        'relations',
    ),
    claims.NOUN_PRONOUN: (
        functools.partial(_relation, claims.NOUN_PRONOUN, _NOUN_PRONOUN),
        'relations',
    ),
    claims.HEAD_HELPS: (
        lambda of: _ablation(claims.HEAD_HELPS, of.heads),
        'ablate (ablation.sets: heads)',
    ),
    claims.LAYER_HELPS: (
        lambda of: _ablation(claims.LAYER_HELPS, of.layers),
        'ablate (ablation.sets: layers)',
    ),
    claims.FRAME_HEADS: (_frame_heads, 'frames, and ablate (ablation.sets: heads)'),
}


def section(study: Study) -> Section:
    """Test all claims, and return the section of the report."""
    found = verdicts(Measured(study))
    rows = [(each.claim.text, each.claim.source, each.verdict, each.evidence) for each in found]
    tables.write_csv(study.workdir / 'claims.csv', ('claim', 'source', 'verdict', 'evidence'), rows)
    counts = Counter(each.verdict for each in found)
    if counts[claims.NOT_MEASURED] == len(found):
        logging.warning('Nothing is measured in %s yet.', study.workdir)
    order = (claims.HOLDS, claims.DOES_NOT_HOLD, claims.UNDECIDED, claims.NOT_MEASURED)
    words = [
        f'{len(found)} claims: '
        + ', '.join(f'{counts[verdict]} x "{verdict}"' for verdict in order if counts[verdict])
        + '.',
        'A claim holds where its contrary is refuted at 5 %, does not hold where it is refuted '
        'itself at 5 %, and is undecided at this sample size otherwise. The sample is the '
        'examples: another fine-tuned model may differ by more. Intervals are 95 % or wider.',
    ]
    return Section(
        'Which claims of the paper hold for this model',
        words,
        [Table('', ('claim', 'in the paper', 'here', 'evidence'), rows)],
    )


if __name__ == '__main__':
    launch(section)
