"""Settings that are refused before any input is loaded or anything is trained."""

from bert_secrets_jax.ablation.interactions import single_and_pair_masks
from bert_secrets_jax.ablation.masks import disable, parse_heads
from bert_secrets_jax.analyses.models import check_several
from bert_secrets_jax.analyses.pruning import check_pruning
from bert_secrets_jax.programs import inputs
from bert_secrets_jax.programs.study import Study


def disabling(study: Study) -> None:
    """Refuse masks and too few texts."""
    config = study.config.ablation
    heads = parse_heads(config.together)
    if not (config.sets or heads):
        raise ValueError('Nothing to ablate: give ablation.sets, or heads in ablation.together.')
    if heads:
        disable(study.pretrained.config, [heads])
    if config.choose_examples and set(config.sets) <= {'one_head_left'}:
        raise ValueError(
            f'ablation.choose_examples={config.choose_examples} chooses the best head or layer to '
            'lose, and neither is disabled here: set it to 0, or give ablation.sets more.'
        )
    donors(study)


def donors(study: Study) -> None:
    """Refuse too few texts: intervals need two, and so do outputs on other texts."""
    check_several(study.ablated_texts)


def pairs(study: Study) -> None:
    """Refuse heads that make no pairs, and too few texts."""
    wanted = study.config.ablation.pairs_of
    if wanted != 'all':
        single_and_pair_masks(study.pretrained.config, sorted(set(parse_heads(wanted))))
    donors(study)


def pruned(study: Study) -> None:
    """Refuse a metric that is not offered for pruning."""
    settings = study.config.prune
    for metric in inputs.metrics(study.config.data)[:1]:
        check_pruning(metric, draws=settings.draws, tolerance=settings.tolerance)


def shown(study: Study) -> None:
    """Refuse to show the maps of no sentence."""
    if study.config.maps.examples < 1:
        raise ValueError(
            'maps.examples must be at least 1; to do without, leave out the section maps.'
        )
