"""Parts of declarations that analyses share: functions of what a run gives."""

from bert_secrets_jax.analyses.common.models import has_own_layers
from bert_secrets_jax.runs.cost import HEAD, MANY, Costs


def needs_own_layers(given) -> str:
    """Return what a model lacks that is to be trained again without some of its heads."""
    own = given.fits('uses layers once', has_own_layers)
    return '' if own else 'a model that uses each of its layers once'


def seeds_of_gates(given, count: str) -> tuple[int, ...]:
    """Return as many seeds for a training of gates as a setting says."""
    return tuple(range(given['seed'], given['seed'] + given[count]))


def scored_cost(given) -> Costs:
    """Return the work of scoring heads by gradient, confidence, relevance and without each head."""
    each = HEAD + MANY * given['importance.permutations']
    work = given.over('measured', 24 + given.heads * each, 30, 5)
    return given.ablated() | {'scores of heads': work}
