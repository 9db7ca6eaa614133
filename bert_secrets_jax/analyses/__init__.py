# ruff: noqa: F401, I001  (every import is a public name; their order is that of running)
"""The questions of the paper, one function each, from models and texts to a `Result`.

    ablated = bs.analyses.ablation(tuned, dev)
    ablated.frames()['heads']     # score, difference, interval and p-values of every head
    ablated.figures()['heads']    # the figure, drawn
    print(ablated)                # the findings, in sentences

No analysis needs command-line flags or a folder. Those that share a core share a module. To add
one, import its function and its result here. A module with an `@analysis` (`declaration.py`) is in
reports, too: their sections run in the order of these imports.
"""

# Each import makes the name of a module, which is loaded by then, mean its function.
from bert_secrets_jax.analyses.special_tokens import SpecialTokens, special_tokens
from bert_secrets_jax.analyses.finetuning import Finetuning, finetuning
from bert_secrets_jax.analyses.ablation import Ablation, ablation
from bert_secrets_jax.analyses.relations import Relations, relations
from bert_secrets_jax.analyses.frames import Frames, frames
from bert_secrets_jax.analyses.patterns import Patterns, patterns
from bert_secrets_jax.analyses.attention_change import AttentionChange, attention_change
from bert_secrets_jax.analyses.features import ClsTokens, Features, cls_tokens, features
from bert_secrets_jax.analyses.look_at import LookAt, look_at
from bert_secrets_jax.analyses.clusters import Clusters, clusters
from bert_secrets_jax.analyses.syntax_heads import SyntaxHeads, syntax_heads
from bert_secrets_jax.analyses.probing import Probing, probing
from bert_secrets_jax.analyses.across import Across, Matching, across, matching
from bert_secrets_jax.analyses.masked_lm_ablation import MaskedLMAblation, masked_lm_ablation
from bert_secrets_jax.analyses.where_it_changes import WhereItChanges, where_it_changes
from bert_secrets_jax.analyses.outliers import Outliers, outliers
from bert_secrets_jax.analyses.ablation_over_seeds import AblationOverSeeds, ablation_over_seeds
from bert_secrets_jax.analyses.interactions import Interactions, interactions
from bert_secrets_jax.analyses.importance import Importance, importance
from bert_secrets_jax.analyses.pruning import Pruning, pruning
from bert_secrets_jax.analyses.subnetworks import Subnetworks, subnetworks
from bert_secrets_jax.analyses.gates import Gates, gates
from bert_secrets_jax.analyses.contributions import Contributions, contributions
from bert_secrets_jax.analyses.attribution import Attribution, attribution
from bert_secrets_jax.analyses.direct_effects import DirectEffects, direct_effects
from bert_secrets_jax.analyses.patching import Patching, patching
from bert_secrets_jax.analyses.head_gating import HeadGating, head_gating
from bert_secrets_jax.analyses.minimal_pairs import MinimalPairs, minimal_pairs
from bert_secrets_jax.analyses.token_pairs import TokenPairs, token_pairs
from bert_secrets_jax.analyses.similarity import Similarity, similarity
from bert_secrets_jax.analyses.retrieval import Retrieval, retrieval
from bert_secrets_jax.analyses.roles import Roles, roles
from bert_secrets_jax.analyses.example_maps import ExampleMaps, example_maps
from bert_secrets_jax.analyses.claims import Claims, Comparison, claims, comparison
from bert_secrets_jax.analyses.common.inputs import TextSettings
from bert_secrets_jax.lazy import door as _door
from bert_secrets_jax.runs.result import Subject

__all__ = [name for name in dir() if not name.startswith('_') and callable(globals()[name])]
globals().update({_name: _door(__name__, globals()[_name]) for _name in __all__})
