"""Results about embeddings without each head and layer: frames, figures, marks and costs.

Shapes: L layers, N heads.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from bert_secrets_jax.analyses.common import effects, marks
from bert_secrets_jax.runs.result import Result
from bert_secrets_jax.stats.effects import Effects


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class EmbeddingEffects(Result):
    """The effects of disabling heads and layers on what embeddings are good for.

    Attributes:
      baseline, sides: As in `similarity`.
      shape: The numbers of layers and heads.
      outcomes: By the name of the set of masks, the effects by outcome. The first is drawn.
    """

    source: ClassVar[str]

    baseline: str
    sides: str
    shape: tuple[int, int]
    outcomes: Mapping[str, Mapping[str, Effects]]

    def frames(self):
        return {name: effects.frame_of_outcomes(each, name) for name, each in self.outcomes.items()}

    def figures(self):
        return effects.drawn_sets(self, self.outcomes, effects=_draw_leading)

    def findings(self):
        found = []
        for name, outcomes in self.outcomes.items():
            found += effects.findings_of_outcomes(outcomes, name, source=self.source)
        for each in next(iter(self.outcomes.values())).values():
            # An outcome that grows is 0 for the intact model, by its definition.
            if not each.outcome.grows:
                found.append(effects.intact_of(each, source=self.source))
        return found

    def head_marks(self):
        if 'heads' not in self.outcomes:
            return []
        leading = next(iter(self.outcomes['heads'].values()))
        return marks.mark_effects(leading, self.shape, rank=marks.SIMILARITY)


def embedded_cost(given, *texts: Any) -> float:
    """Return the work of embeddings without each head and each layer; `texts` as in `tokens`."""
    return (given.HEAD * given.heads + given.MANY * given.layers) * given.tokens(*texts)


def _draw_leading(result: EmbeddingEffects, name: str):
    outcome, leading = next(iter(result.outcomes[name].items()))
    caption = f'Change of {effects.title_of(leading)} without {effects.WITHOUT[name]}.'
    return effects.draw_effects(name, leading, result.shape, caption, outcome)
