"""Which claims of the paper hold for a model, judged from the results of other analyses."""

from collections import Counter

from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import claims as several
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.analyses.verdicts import Verdict
from bert_secrets_jax.names import filled
from bert_secrets_jax.runs.call import Call
from bert_secrets_jax.runs.result import Badge, Result, given_by, measured

# How many claims have each verdict, in the order of a page.
_COUNTS = {
    verdicts.HOLDS: '{n} {n:|holds|hold}',
    verdicts.DOES_NOT_HOLD: '{n} {n:|does|do} not',
    verdicts.UNDECIDED: f'{{n}} {verdicts.UNDECIDED}',
    verdicts.TOO_FEW: '{n} with too small a sample',
    verdicts.NOT_MEASURED: f'{{n}} {verdicts.NOT_MEASURED}',
}


class Claims(Result):
    """The verdicts on the claims of the paper, but for those about several tasks (`Comparison`).

    Attributes:
      decided: The verdict on each claim.
      unlearnt: The seeds whose fine-tuned model has learnt nothing, so that verdicts on it are
        noise.
      disabled_unlearnt: Whether the model whose heads were disabled has learnt nothing.
    """

    title = 'Which claims of the paper hold for this model'

    decided: tuple[Verdict, ...]
    unlearnt: tuple[int, ...] = ()
    disabled_unlearnt: bool = False

    def verdicts(self):
        return list(self.decided)

    def frames(self):
        return {'claims': several.verdicts_frame(self.decided)}

    def findings(self):
        found = Counter(each.verdict for each in self.decided)
        parts = [filled(said, {'n': found[each]}) for each, said in _COUNTS.items() if found[each]]
        papers = dict.fromkeys(each.claim.paper for each in self.decided)
        doubt = self.disabled_unlearnt * (
            'The model whose heads were disabled has not learnt its task: verdicts on that '
            'describe noise. '
        )
        if self.unlearnt:
            seeds = ' and '.join(map(str, self.unlearnt))
            doubt = f'Not learnt: {"seeds" if len(self.unlearnt) > 1 else "seed"} {seeds}. '
            doubt += 'Verdicts on fine-tuned models describe noise. '
        return [
            measured(
                'claims that hold',
                found[verdicts.HOLDS],
                unit='claims',
                sample=len(self.decided),
                sample_of='claims',
                source=', '.join(papers),
                template='{doubt}{sample:claim|claims} of {papers}: {counts}.',
                counts=', '.join(parts),
                papers='the paper' if len(papers) == 1 else 'papers',
                doubt=doubt,
            )
        ]

    def badges(self):
        ordered = sorted(self.decided, key=lambda each: [*_COUNTS].index(each.verdict))
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
    seeds, disabled = (given_by(results, name) for name in ('unlearnt', 'disabled'))
    disabled_unlearnt = bool(disabled) and not disabled[0].learnt
    return Claims(several.decided(results), seeds[0] if seeds else (), disabled_unlearnt)
