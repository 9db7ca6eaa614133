"""All settings: each with its default, what it may be, and what it is for."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from bert_secrets_jax.ranges import Range


@dataclasses.dataclass(frozen=True)
class Words:
    """Words of which a setting is one; of a setting that is a tuple, each item is one."""

    allowed: tuple[str, ...]

    def __init__(self, *allowed: str):
        object.__setattr__(self, 'allowed', allowed)


class Listed(Words):
    """Words of which a setting has any number, with commas between them."""


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Different numbers in a range, with commas between them; at least one if it is `needed`."""

    each: Range
    needed: bool = False


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting, by its dotted name; a default of None is a text that may be left out.

    Attributes:
      allowed: The values that it may have; None leaves that to the type of the default.
      smoke: The value for a run of seconds; None is that of other runs.
      help: Its purpose; empty where the name says it.
    """

    name: str
    default: Any
    allowed: Range | Words | Numbers | None = None
    smoke: Any = None
    help: str = ''


# Wide enough for any use, and narrow enough that what is in them can be tried.
_COUNT = Range(1, 10_000_000)
_COUNT_OR_ALL = Range(0, 10_000_000)

_METRICS = (
    'accuracy f1 f1_macro f1_micro matthews pearson spearman span_f1 word_accuracy exact_match '
    'answer_f1'
).split()

# Each is behind its help, as `bert-secrets settings` prints them.
_SCHEMA: tuple[str | Setting, ...] = (
    "A directory, a name on the Hugging Face hub, or 'all-MiniLM-L6-v2'.",
    Setting('model.name', 'bert-base-uncased'),
    Setting('model.revision', None),
    'Settings of its config.json to disregard, when loading refused them as unknown.',
    Setting('model.ignore_config', ()),
    'Whether texts are read even if half of their wordpieces or more become [UNK].',
    Setting('model.allow_unknown', False),
    "'float32'; for speed 'bfloat16' on GPU and TPU, or 'tf32x3' on NVIDIA GPUs.",
    Setting('model.dtype', 'float32', Words('float32', 'tf32x3', 'bfloat16')),
    "'glue' (the original TSV files in glue_dir, or else what tensorflow-datasets has prepared in "
    "tfds_dir), 'corpus' (embedded), 'file' (your own table), 'tags' (words with tags, .conllu or "
    ".jsonl), 'questions' (SQuAD's layout or .jsonl), or 'segments' (pairs of running text, as "
    "Clark et al. took them, from the text file that you name or from the package's own prose).",
    Setting(
        'data.source', 'glue', Words('glue', 'corpus', 'file', 'tags', 'questions', 'segments')
    ),
    "The language of the texts, such as 'de'; '' finds it out. Words are found in 'en' alone.",
    Setting('data.language', ''),
    'One task, or several with commas between them.',
    Setting('data.task', 'mrpc'),
    Setting('data.split', 'dev'),
    Setting('data.glue_dir', None),
    Setting('data.tfds_dir', None),
    "For 'file': a .tsv, .csv or .jsonl, and the names of its columns. For 'tags', text_a is the "
    "list of words ('tokens'), and label that of tags ('tags', 'upos').",
    Setting('data.file', None),
    'The name of the texts in sentences and captions, if it is not that of their file.',
    Setting('data.name', None),
    'The names of all columns, if the file has no header.',
    Setting('data.columns', ()),
    Setting('data.text_a', 'text_a'),
    Setting('data.text_b', None),
    'Its label, and the names of the classes in the order of their ids: as the file spells them, '
    'or for labels that are 0, 1, and so on. Decimal numbers make it a regression.',
    Setting('data.label', None),
    Setting('data.labels', ()),
    'The metrics of models, the most important first, with commas between them. They are '
    "'accuracy', 'f1' (of class 1), 'f1_macro', 'f1_micro', 'matthews', 'pearson' or 'spearman'. "
    "Those of tags are 'span_f1', 'word_accuracy' or 'f1_macro'; those of answers are "
    "'exact_match' or 'answer_f1'. '' takes those of the task.",
    Setting('data.metrics', '', Listed(*_METRICS)),
    "For 'file': the table to train on.",
    Setting('data.train_file', None),
    "'error' refuses a file with malformed rows, 'skip' leaves them out; also of the treebank and "
    'of word vectors.',
    Setting('data.bad_rows', 'error', Words('error', 'skip')),
    'The paper analyses at most 1,000 examples of a task, drawn at random; 0 is all.',
    Setting('data.max_examples', 1000, _COUNT_OR_ALL, smoke=12),
    Setting('encoding.max_length', 128, Range(5, 100_000)),
    "Rows times padded length of a batch. 2,048 suits a CPU's cache; give a GPU 65,536.",
    Setting('encoding.tokens_per_batch', 2048, Range(1, 100_000_000)),
    'The statistics of every head that are shown with the special tokens: names of the catalogue '
    "(bs.catalogue.CATALOGUE), or 'package.module:name' of your own.",
    Setting(
        'statistics',
        (
            '[CLS]',
            '[SEP]',
            '[CLS] and all [SEP]',
            'self',
            'previous token',
            'next token',
            'entropy (nats)',
        ),
    ),
    "spaCy's English pipeline that finds nouns, subjects and so on; '' does without.",
    Setting('linguistics.pipeline', 'en_core_web_sm'),
    'Places of each kind that each link of relations and frames is compared with.',
    Setting('links.draws', 100, Range(1, 100_000)),
    "A sample of frames: '' (embedded), a prepared .jsonl, or 'framenet' (FrameNet itself, in "
    '`folder` or as NLTK has downloaded it).',
    Setting('frames.sample', ''),
    Setting('frames.folder', None),
    "How FrameNet is sampled: 'paper' or 'notebook', and at most so many sentences of a lexical "
    'unit (0: all).',
    Setting('frames.reading', 'paper', Words('paper', 'notebook')),
    Setting('frames.per_unit', 0, _COUNT_OR_ALL),
    'Sentences with dependency trees, two files in CoNLL-U: heads are chosen, and probes trained, '
    "on the one, and measured on the other. '' is the embedded sample.",
    Setting('treebank.train', ''),
    Setting('treebank.dev', ''),
    'Draws so many sentences of each; 0 is all.',
    Setting('treebank.max_train', 0, _COUNT_OR_ALL, smoke=12),
    Setting('treebank.max_dev', 0, _COUNT_OR_ALL, smoke=12),
    "Word vectors in the format of GloVe (.txt, .gz or .xz); '' trains only the probe that reads "
    'no words.',
    Setting('probe.vectors', ''),
    Setting('probe.num_seeds', 3, Range(1, 1000), smoke=2),
    'Passes over the training sentences; the paper makes one, over 36,000. 0 makes as many as '
    'give 2,000 updates, and one at least.',
    Setting('probe.epochs', 0, Range(0, 10_000), smoke=1),
    'Whether the same model with random weights is probed, too.',
    Setting('probe.random_weights', True),
    'The most megabytes of maps that are kept for further epochs.',
    Setting('probe.cache_mb', 1024, Range(0, 1_000_000)),
    'How many examples have their maps drawn.',
    Setting('maps.examples', 3, Range(0, 1000), smoke=1),
    "'pretrained', and 'random' (normal(0, 0.02), as in Table 1).",
    Setting('train.starts', ('pretrained',), Words('pretrained', 'random')),
    'Seeds are seed, seed + 1, ...',
    Setting('train.num_seeds', 3, Range(1, 1000), smoke=2),
    'Draws this many training examples; 0 is all.',
    Setting('train.max_examples', 0, _COUNT_OR_ALL, smoke=16),
    'Evaluates on this many dev examples, before training and after each epoch; 0 is all.',
    Setting('train.max_dev_examples', 0, _COUNT_OR_ALL, smoke=64),
    Setting('train.epochs', 3, Range(1, 10_000), smoke=1),
    Setting('train.batch_size', 32, Range(1, 100_000), smoke=8),
    'Examples per forward and backward pass; on an accelerator take batch_size.',
    Setting('train.micro_batch', 8, Range(1, 100_000)),
    Setting('train.learning_rate', 5e-05, Range(0.0, 10.0, whole=False, without=0.0)),
    Setting('train.warmup', 0.1, Range(0.0, 1.0, whole=False, without=1.0)),
    Setting('train.weight_decay', 0.01, Range(0.0, 10.0, whole=False)),
    Setting('train.clip', 1.0, Range(0.0, 1e9, whole=False, without=0.0)),
    "'adamw', or 'bert_adam' as the authors used.",
    Setting('train.optimizer', 'adamw', Words('adamw', 'bert_adam')),
    Setting('train.log_every', 20, _COUNT),
    Setting('train.checkpoint_every', 500, _COUNT),
    "Readings of the cosine similarity: 'paper' (real tokens) and 'notebook' (maps padded to 200, "
    'as published).',
    Setting('change.readings', ('paper',), Words('paper', 'notebook')),
    'The share of the wordpieces of each text that are hidden from a masked LM, or all of them '
    'one at a time (pseudo-log-likelihood).',
    Setting('masked_lm.share', 0.15, Range(0.01, 0.99, whole=False)),
    Setting('masked_lm.one_at_a_time', False),
    'Outlier dimensions are disabled on so many examples (0 is all); beside them, so many random '
    'sets of dimensions, at least 19.',
    Setting('outliers.draws', 39, Range(19, 100_000), smoke=19),
    Setting('outliers.max_examples', 100, _COUNT_OR_ALL, smoke=12),
    "The models to ablate. 'finetuned' takes the last checkpoints of this run, the first seed's "
    "in full. 'model' takes model.name as it is, with the classifier it came with.",
    Setting('ablation.checkpoint', 'finetuned', Words('finetuned', 'model')),
    "'heads' (one at a time, Figure 8), 'layers' (Figure 9), 'one_head_left' (all heads of a "
    "layer but one, Michel et al.), which takes as long as 'heads'.",
    Setting('ablation.sets', ('heads', 'layers'), Words('heads', 'layers', 'one_head_left')),
    "Heads to disable together, such as 'L1-H2,L7-H6'.",
    Setting('ablation.together', ''),
    "The behaviour of a disabled head: 'uniform' (the paper), 'zero' (Michel et al., Voita et "
    "al.), 'mean' or 'resample'. 'mean' gives its mean output over the ablated examples. "
    "'resample' gives its output on another one of like length, drawn by seed.",
    Setting('ablation.baseline', 'uniform', Words('uniform', 'zero', 'mean', 'resample')),
    'Draws this many examples of the split; 0 is all.',
    Setting('ablation.max_examples', 0, _COUNT_OR_ALL, smoke=12),
    'The best to lose is also chosen on this many training texts that train.max_examples left '
    'out, and then measured; 0 chooses on the ablated texts alone.',
    Setting('ablation.choose_examples', 0, _COUNT_OR_ALL),
    'How many of the fine-tuned models are ablated; 0 is all, and 1 the first alone.',
    Setting('ablation.seeds', 0, Range(0, 1000)),
    'Tokens per call; 0 chooses for the device.',
    Setting('ablation.chunk_tokens', 0, Range(0, 100_000_000)),
    'Pairs whose joint effect the program `interactions` measures: of these heads, such as '
    "'L1-H2,L7-H6,L7-H7', or of all.",
    Setting('ablation.pairs_of', 'all'),
    'How much heads are needed is measured on so many training examples; 0 is all.',
    Setting('importance.max_examples', 200, _COUNT_OR_ALL, smoke=12),
    'Permutations for Shapley values of heads: even, at least 4. Each takes as long as a pass '
    'over these examples for every head, so that 0 leaves them out.',
    Setting('importance.permutations', 0, Range(0, 100_000)),
    'The tokens of so many of the ablated texts are scored by all methods, and deleted one by '
    'one; 0 is all. On a CPU, a text takes seconds.',
    Setting('attribution.max_examples', 25, _COUNT_OR_ALL, smoke=6),
    'Random orders to compare with; of fewer than 19, none is rarer than one in twenty.',
    Setting('prune.draws', 20, Range(0, 1000), smoke=2),
    'As good as the full model is one whose score is at most so much lower; 0.01 is a point.',
    Setting('prune.tolerance', 0.01, Range(0.0, 1.0, whole=False, without=1.0)),
    'The sparsest such model is timed with so many examples at once, numbers with commas between '
    "them; '' does not time it. Published are 1, 4, 16 and 64: each size takes 64 passes over as "
    'many examples, so that large ones take long on a CPU.',
    Setting('prune.batch_sizes', '1,16', Numbers(Range(1, 100_000)), smoke=''),
    'The constants that best replace heads come from so many training examples (0 is all), in so '
    'many passes, and up to four times as many where these do not suffice: each takes a gradient '
    'of each example for every head, so that five take most of an hour for 72 heads on a CPU.',
    Setting('replacements.max_examples', 64, _COUNT_OR_ALL, smoke=8),
    Setting('replacements.passes', 5, Range(1, 10_000), smoke=1),
    'The good one has the fewest heads that reach this share of the full score.',
    Setting('subnetworks.share', 0.9, Range(0.01, 0.99, whole=False)),
    'The price of an open head, in nats of the loss of an example. The program `gates` tries '
    'several prices at the same time; put commas between them.',
    Setting(
        'gates.coefficients',
        '0.001,0.003,0.01,0.03',
        Numbers(Range(0.0, 1e6, whole=False), needed=True),
    ),
    'Seeds are seed, seed + 1, ...',
    Setting('gates.num_seeds', 1, Range(1, 1000)),
    'Whether only the gates are learnt, and the weights of the model stay.',
    Setting('gates.frozen', True),
    Setting('gates.epochs', 10, Range(1, 10_000), smoke=1),
    'The learning rate of the gates; their log alpha changes by about this much in a step.',
    Setting('gates.learning_rate', 0.1, Range(0.0, 100.0, whole=False, without=0.0)),
    'The learning rate of the weights, unless they are frozen. Their other settings are those of '
    '`train`.',
    Setting('gates.model_learning_rate', 2e-05, Range(0.0, 10.0, whole=False, without=0.0)),
    'Maps that the program `annotate` draws to be labelled by eye.',
    Setting('patterns.count', 100, Range(1, 100_000)),
    "The maps that the program `train_patterns` learns from: '' (the 1,546 that ship), or a "
    'folder that `annotate` wrote.',
    Setting('patterns.annotated', ''),
    "A convolutional network like the paper's, to compare the classifier with: epochs of its "
    'training (100 take hours on a CPU, 0 leaves it out), pixels of its images (32 or more), and '
    'tokens that fill them: 0 stretches all.',
    Setting('patterns.epochs', 0, Range(0, 100_000)),
    Setting('patterns.side', 32, Range(32, 1024)),
    Setting('patterns.longest', 0, Range(0, 100_000)),
    'The number of folds, of texts and of heads.',
    Setting('patterns.folds', 5, Range(2, 1000)),
    "The classifier of the patterns section: '' (the one that ships), or one that "
    '`train_patterns` wrote.',
    Setting('patterns.classifier', ''),
    "The devices that share the work: '' is all of them, along 'data', where they share the "
    "examples. 'data:4,masks:2' has two groups of four that share the masks of a sweep, and "
    "'data:4,seeds:2' the seeds of a fine-tuning.",
    Setting('mesh', ''),
    Setting('seed', 0, Range(0, 2**31 - 1)),
)


def _with_help() -> Iterator[tuple[str, Setting]]:
    text = ''
    for each in _SCHEMA:
        if isinstance(each, Setting):
            yield each.name, dataclasses.replace(each, help=text)
        text = each if isinstance(each, str) else ''


SETTINGS: Mapping[str, Setting] = dict(_with_help())
