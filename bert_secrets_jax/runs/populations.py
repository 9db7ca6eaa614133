"""For whom a number speaks: the words for the population of an interval, a test or a claim."""

from bert_secrets_jax.ablation.effects import ANY_FINETUNING as ANY_FINETUNING
from bert_secrets_jax.ablation.effects import THIS_MODEL as THIS_MODEL

# Several models were measured, and not enough of them for an interval over seeds.
THESE_MODELS = 'these models, on examples like these'
# Several probes were trained on one model: their seeds and sentences are samples.
ANY_PROBE = 'any such probe of this model, on sentences like these'
# Too few probes were trained for an interval over seeds.
THESE_PROBES = 'these probes of this model, on sentences like these'


def population(models: int) -> str:
    """Return for what a number speaks that has an interval over fine-tunings of one recipe."""
    return THIS_MODEL if models < 2 else ANY_FINETUNING
