"""The purpose of each program in a line, without loading the modules that it is made of."""

import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from bert_secrets_jax.brief import meant

if TYPE_CHECKING:
    from bert_secrets_jax.analyses.declaration import Declaration

# Sections that a report has only if asked, with the time that each took for the quickstart on two
# cores: `python -m benchmarks.report --only='all sections'`.
PRICES: Mapping[str, str] = {
    'look_at': '10 s', 'cluster': '5 s', 'syntax_heads': '15 s', 'probe': '10 s', 'masked_lm': '',
    'outliers': '30 s', 'ablate_seeds': '', 'interactions': '*', 'importance': '1 min',
    'prune': '2 min', 'replacements': '*', 'subnetworks': '*',
    'gates': '*', 'contributions': '15 s', 'attribution': '20 s', 'roles': '5 s',
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
PROGRAMS: Mapping[str, str] = {
    name: what for programs in GROUPS.values() for name, what in programs.items()
}
# The programs that are no section of a report; analyses may declare more sections.
COMMANDS = GROUPS['Everything else']
SECTIONS = tuple(name for name in PROGRAMS if name not in COMMANDS)
# The beginnings of the settings of a section, where these are not those of the same name.
OWN_SETTINGS: Mapping[str, tuple[str, ...]] = {
    'special_tokens': ('statistics',),
    **dict.fromkeys(('features', 'cls_tokens'), ('linguistics.',)),
    'relations': ('links.', 'linguistics.'),
    'frames': ('frames.', 'links.'),
    'syntax_heads': ('treebank.', 'links.'),
    'probe': ('probe.', 'treebank.'),
    'finetune': ('train.',),
    'attention_change': ('change.', 'train.'),
    **dict.fromkeys(('ablate', 'ablate_seeds', 'interactions'), ('ablation.',)),
}
_ANALYSES = pathlib.Path(__file__).parents[1] / 'analyses'


def declared() -> 'dict[str, Declaration]':
    """Return the sections that analyses declare, by their names."""
    if not any(b'\nSECTION = ' in file.read_bytes() for file in _ANALYSES.glob('*.py')):
        # Loading the analyses takes seconds.
        return {}
    from bert_secrets_jax.programs.sections import declarations

    return {each.name: each for each in declarations()}


def groups() -> dict[str, dict[str, str]]:
    """Return the purposes of all programs by groups, with those that analyses declare."""
    own = declared().values()
    return {
        group: {**programs, **{each.name: each.title for each in own if each.group == group}}
        for group, programs in GROUPS.items()
    }


def refuse_unknown(names: Sequence[str], known: Collection[str]) -> None:
    """Refuse names that are no sections, and an empty list of them."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = f'There is no section {unknown[0]!r}.' if unknown else 'No section is named.'
        near = meant(unknown[0], known) if unknown else ''
        listed = f'Sections are {", ".join(known)}, or all.'
        raise ValueError(f'{wrong} {near or listed}')
