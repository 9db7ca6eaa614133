"""Which claims of the paper hold for a model, judged from the results of other analyses."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.analyses.verdicts import Verdict, several
from bert_secrets_jax.names import filled
from bert_secrets_jax.runs.call import Call
from bert_secrets_jax.runs.result import Badge, Finding, Result, framed

if TYPE_CHECKING:
    import pandas

_ORDER = (
    verdicts.HOLDS,
    verdicts.DOES_NOT_HOLD,
    verdicts.UNDECIDED,
    verdicts.TOO_FEW,
    verdicts.NOT_MEASURED,
)


# Claims of other papers are only listed where a result is about them.
_CLAIMS = (
    verdicts.PRETRAINING,
    verdicts.LAST_LAYERS,
    verdicts.CLS_THEN_SEP,
    verdicts.FEW_HETEROGENEOUS,
    verdicts.VERTICAL,
    verdicts.FEATURES,
    verdicts.LAST_CLS,
    verdicts.FRAMES,
    verdicts.VERB_SUBJECT,
    verdicts.NOUN_PRONOUN,
    verdicts.HEAD_HELPS,
    verdicts.RANDOM_HEAD_HELPS,
    verdicts.LAYER_HELPS,
    verdicts.FRAME_HEADS,
    verdicts.SEP_HALF,
    verdicts.SEP_TO_SEP,
    verdicts.BROAD_CLS,
    verdicts.SEP_NO_OP,
    verdicts.SEP_MOVES_LITTLE,
    verdicts.RELATION_HEADS,
    verdicts.NO_HEAD_FOR_ALL,
    verdicts.PROBE_BEYOND_WORDS,
    verdicts.ATTENTION_BEYOND_RANDOM,
    verdicts.HEADS_CAN_GO,
    verdicts.ORDER_TELLS,
    verdicts.OUTLIERS_NEEDED,
)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Claims(Result):
    """The verdicts on the claims of the paper, but for those about several tasks (`Comparison`).

    Attributes:
      decided: The verdict on each claim.
      unlearnt: The seeds whose fine-tuned model has learnt nothing, so that verdicts on it are
        noise.
      disabled_unlearnt: Whether the model whose heads were disabled has learnt nothing.
    """

    title: ClassVar[str] = 'Which claims of the paper hold for this model'
    FORMAT: ClassVar[int] = 5

    decided: tuple[Verdict, ...]
    unlearnt: tuple[int, ...] = ()
    disabled_unlearnt: bool = False

    def verdicts(self):
        return list(self.decided)

    def frames(self):
        return {'claims': verdicts_frame(self.decided)}

    def findings(self):
        counts = Counter(each.verdict for each in self.decided)
        said = {
            verdicts.HOLDS: '{n} {n:|holds|hold}',
            verdicts.DOES_NOT_HOLD: '{n} {n:|does|do} not',
            verdicts.TOO_FEW: '{n} with too small a sample',
        }
        parts = [
            filled(said.get(verdict, f'{{n}} {verdict}'), {'n': counts[verdict]})
            for verdict in _ORDER
            if counts[verdict]
        ]
        papers = list(dict.fromkeys(each.claim.paper for each in self.decided))
        return [
            Finding(
                name='claims that hold',
                estimate=counts[verdicts.HOLDS],
                unit='claims',
                sample=len(self.decided),
                sample_of='claims',
                source=', '.join(papers),
                template='{warning}{sample:claim|claims} of {papers}: {counts}.',
                numbers={
                    'counts': ', '.join(parts),
                    'papers': 'the paper' if len(papers) == 1 else 'papers',
                    'warning': self._warning(),
                },
            )
        ]

    def _warning(self) -> str:
        """Return the sentence that verdicts describe noise, where models have learnt nothing."""
        seeds = {'count': len(self.unlearnt), 'seeds': ' and '.join(map(str, self.unlearnt))}
        if self.unlearnt:
            return filled(
                'Not learnt: {count:|seed|seeds} {seeds}. '
                'Verdicts on fine-tuned models describe noise. ',
                seeds,
            )
        return self.disabled_unlearnt * (
            'The model whose heads were disabled has not learnt its task: verdicts on that '
            'describe noise. '
        )

    def badges(self):
        ordered = sorted(self.decided, key=lambda each: _ORDER.index(each.verdict))
        return [
            Badge(
                each.verdict,
                f'{each.claim.short} ({each.claim.paper})',
                each.evidence,
                f'{each.claim.text} Source: {each.claim.source}.',
            )
            for each in ordered
        ]

    def notes(self):
        return [
            'Holds: the data rule out the opposite. Does not hold: they rule out the claim. '
            'Undecided: they rule out neither.',
            'Tests are one-sided at 5 %: a 95 % interval may reach a little past the threshold.',
            'Several fine-tunings: the number is their median, as a few that fail move a mean.',
        ]


def verdicts_frame(found: Sequence[Verdict]) -> 'pandas.DataFrame':
    """Return a frame of verdicts, of which a person reads some of the columns."""
    rows = [
        (
            each.claim.text, each.claim.source, each.verdict, each.population, each.evidence,
            each.claim.limits, each.what, each.estimate, each.low, each.high, each.unit,
            each.threshold, each.claim.bound, each.p_if_false, each.p_if_true, each.p, each.sample,
            each.sample_of,
        )
        for each in found
    ]  # fmt: skip
    columns = (
        'claim', 'source', 'verdict', 'for', 'evidence', 'does not show', 'what', 'estimate', 'low',
        'high', 'unit', 'threshold', 'threshold_from', 'p_if_false', 'p_if_true', 'p', 'sample',
        'sample_of',
    )  # fmt: skip
    frame = framed(columns, rows, 'Each claim with its verdict and the number that decides.')
    # A person reads these columns; the file has all of them.
    frame.attrs['shown'] = [
        'claim', 'source', 'verdict', 'evidence', 'sample', 'sample_of', 'does not show',
    ]  # fmt: skip
    return frame


def _results(given) -> list[Call]:
    """Return the results of all other sections but the maps."""
    return [given.result(each) for each in given.results if each not in ('maps', 'claims')]


@analysis(
    question='which claims of the paper hold, from what the others found',
    group='What matters',
    report='always',
    inputs={'results': _results},
    kept=False,
)
def claims(*results: Result) -> Claims:
    """Test the claims of the papers on the results of other analyses.

    Args:
      *results: The results of any analyses of `bs.analyses` for one model, in any order; of several
        from one analysis, the first is used. A claim that none of them measured is 'not measured'.

    Raises:
      TypeError: An argument is not a result.
    """
    for result in results:
        if not isinstance(result, Result):
            raise TypeError(
                f'{type(result).__name__} is not a result: give what functions of `bs.analyses` '
                'return.'
            )
    found = several.verdicts_of(results)
    paper = verdicts.PRETRAINING.paper
    decided = tuple(
        found.get(claim) or verdicts.not_measured(claim)
        for claim in dict.fromkeys((*_CLAIMS, *found))
        if claim in found or claim.paper == paper
    )
    return Claims(decided, *several.unlearnt(results))
