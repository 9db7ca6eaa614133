"""The purpose of each program in a line, without loading the modules that it is made of."""

from collections.abc import Mapping

# Sections that a report has only if asked, with the time that each took for the quickstart on two
# cores: `python -m benchmarks.report --only='all sections'`.
PRICES: Mapping[str, str] = {
    'look_at': '10 s', 'cluster': '5 s', 'syntax_heads': '15 s', 'probe': '10 s', 'masked_lm': '',
    'outliers': '30 s', 'ablate_seeds': '', 'interactions': 'by name only', 'importance': '1 min',
    'prune': '2 min', 'replacements': 'by name only', 'subnetworks': 'by name only',
    'gates': 'by name only', 'contributions': '15 s', 'attribution': '20 s', 'roles': '5 s',
}  # fmt: skip
# The purpose of each program, by the group that it belongs to and its name.
GROUPS: Mapping[str, Mapping[str, str]] = {
    'What heads do': {
        'special_tokens': 'attention to [CLS], [SEP], neighbours, its entropy, your own statistics',
        'patterns': 'the five patterns of attention and their shares',
        'cls_tokens': 'what [CLS] attends to in the last layer',
        'look_at': 'attention to [SEP], neighbours and punctuation, entropies, gradients',
        'cluster': 'which heads do alike, and whether those of one layer do',
        'contributions': 'what heads move beside what they look at, and inactive heads',
        'roles': 'positional, syntactic and rare-token heads, and whether they stay',
        'maps': 'maps of example sentences, and an explorer of all heads',
    },
    'Syntax and meaning': {
        'relations': 'verb and subject, noun and pronoun, and what distance alone explains',
        'frames': 'frame elements and their target, or links of your own',
        'features': 'attention to nouns, verbs, negation, before and after fine-tuning',
        'syntax_heads': 'heads that find dependency relations, on a treebank',
        'probe': 'dependency heads from attention alone, by a trained probe',
    },
    'What training changed': {
        'finetune': 'fine-tuning pre-trained and random weights, several seeds',
        'attention_change': 'what fine-tuning changes in attention',
    },
    'What matters': {
        'ablate': 'disabling heads and layers, and what of it is real',
        'ablate_seeds': 'the same in several fine-tunings: what holds for any of them',
        'interactions': 'pairs of heads: the effect beyond the sum of two',
        'masked_lm': 'which heads a masked LM needs as it is, without fine-tuning',
        'outliers': 'dimensions whose LayerNorm stands out, and the model without them',
        'importance': 'which heads matter, by several scores, and which of the scores tell',
        'prune': 'how many heads can go, in which order, and what that saves',
        'replacements': 'what replaces a head: nothing, a mean, the best constant',
        'subnetworks': 'heads that survive pruning, trained again, beside others',
        'gates': 'gates that learn to close: how many heads are needed at which price',
        'attribution': 'which tokens a prediction comes from, and which method explains it best',
        'claims': 'which claims of the paper hold, from what the others found',
    },
    'Everything else': {
        'report': 'all sections, on one HTML page',
        'compare': 'finished runs side by side: models or tasks (compare RUN RUN... --out=FOLDER)',
        'serve': 'type sentences on a local page and see the maps of all heads',
        'settings': 'list all settings with their defaults',
    },
}


def group_of(program: str) -> str:
    """Return the group of a program; empty for one that is in none."""
    return next((group for group, programs in GROUPS.items() if program in programs), '')


PROGRAMS: Mapping[str, str] = {
    name: what for programs in GROUPS.values() for name, what in programs.items()
}
