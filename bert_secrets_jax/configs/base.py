"""All settings, with the defaults that all configs share."""

from ml_collections import ConfigDict, config_dict


def get_config(arg: str = '') -> ConfigDict:
    """Return the defaults; the other files of this folder change them.

    Args:
      arg: '', or 'smoke' for a run of seconds.

    Raises:
      ValueError: The argument is something else.
    """
    if arg not in ('', 'smoke'):
        raise ValueError(f"The config 'base' takes no argument but ':smoke', got {arg!r}.")
    config = ConfigDict(
        {
            'model': {
                # A directory, a name on the Hugging Face hub, or 'all-MiniLM-L6-v2'.
                'name': 'bert-base-uncased',
                'revision': config_dict.placeholder(str),
                # Settings of its config.json to disregard, when loading refused them as unknown.
                'ignore_config': (),
                # Whether texts are read even if half of their wordpieces or more become [UNK].
                'allow_unknown': False,
                # 'float32'; for speed 'bfloat16' on GPU and TPU, or 'tf32x3' on NVIDIA GPUs.
                'dtype': 'float32',
            },
            'data': {
                # 'glue' (the original TSV files in glue_dir, or else what tensorflow-datasets
                # has prepared in tfds_dir), 'corpus' (embedded), 'file' (your own table), 'tags'
                # (words with tags, .conllu or .jsonl), 'questions' (SQuAD's layout or .jsonl), or
                # 'segments' (pairs of running text, as Clark et al. took them, from the text file
                # that you name or from the package's own prose).
                'source': 'glue',
                # One task, or several with commas between them.
                'task': 'mrpc',
                'split': 'dev',
                'glue_dir': config_dict.placeholder(str),
                'tfds_dir': config_dict.placeholder(str),
                # For 'file': a .tsv, .csv or .jsonl, and the names of its columns. For 'tags',
                # text_a is the list of words ('tokens'), and label that of tags ('tags', 'upos').
                'file': config_dict.placeholder(str),
                # The name of the texts in sentences and captions, if it is not that of their file.
                'name': config_dict.placeholder(str),
                # The names of all columns, if the file has no header.
                'columns': (),
                'text_a': 'text_a',
                'text_b': config_dict.placeholder(str),
                # Its label, and the names of the classes in the order of their ids: as the file
                # spells them, or for labels that are 0, 1, and so on. Decimal numbers make it a
                # regression.
                'label': config_dict.placeholder(str),
                'labels': (),
                # The metrics of models, the most important first, with commas between them. They
                # are 'accuracy', 'f1' (of class 1), 'f1_macro', 'f1_micro', 'matthews', 'pearson'
                # or 'spearman'. Those of tags are 'span_f1', 'word_accuracy' or 'f1_macro'; those
                # of answers are 'exact_match' or 'answer_f1'. '' takes those of the task.
                'metrics': '',
                # For 'file': the table to train on.
                'train_file': config_dict.placeholder(str),
                # 'error' refuses a file with malformed rows, 'skip' leaves them out; also of the
                # treebank and of word vectors.
                'bad_rows': 'error',
                # The paper analyses at most 1,000 examples of a task, drawn at random; 0 is all.
                'max_examples': 1000,
            },
            'encoding': {
                'max_length': 128,
                # Rows times padded length of a batch. 2,048 suits a CPU's cache; give a GPU 65,536.
                'tokens_per_batch': 2048,
            },
            # The statistics of every head that are shown with the special tokens: names of the
            # catalogue (bs.catalogue.CATALOGUE), or 'package.module:name' of your own.
            'statistics': (
                '[CLS]',
                '[SEP]',
                '[CLS] and all [SEP]',
                'self',
                'previous token',
                'next token',
                'entropy (nats)',
            ),
            'linguistics': {
                # spaCy's English pipeline that finds nouns, subjects and so on; '' does without.
                'pipeline': 'en_core_web_sm',
            },
            # Places of each kind that each link of relations and frames is compared with.
            'links': {'draws': 100},
            # A sample of frames: '' (embedded), a prepared .jsonl, or 'framenet' (FrameNet itself,
            # in `folder` or as NLTK has downloaded it).
            'frames': {
                'sample': '',
                'folder': config_dict.placeholder(str),
                # How FrameNet is sampled: 'paper' or 'notebook', and at most so many sentences of
                # a lexical unit (0: all).
                'reading': 'paper',
                'per_unit': 0,
            },
            # Sentences with dependency trees, two files in CoNLL-U: heads are chosen, and probes
            # trained, on the one, and measured on the other. '' is the embedded sample.
            'treebank': {
                'train': '',
                'dev': '',
                # Draws so many sentences of each; 0 is all.
                'max_train': 0,
                'max_dev': 0,
            },
            'probe': {
                # Word vectors in the format of GloVe (.txt, .gz or .xz); '' trains only the probe
                # that reads no words.
                'vectors': '',
                'num_seeds': 3,
                # Passes over the training sentences; the paper makes one, over 36,000. 0 makes as
                # many as give 2,000 updates, and one at least.
                'epochs': 0,
                # Whether the same model with random weights is probed, too.
                'random_weights': True,
                # The most megabytes of maps that are kept for further epochs.
                'cache_mb': 1024,
            },
            # How many examples have their maps drawn.
            'maps': {'examples': 3},
            'train': {
                # 'pretrained', and 'random' (normal(0, 0.02), as in Table 1).
                'starts': ('pretrained',),
                # Seeds are seed, seed + 1, ...
                'num_seeds': 3,
                # Draws this many training examples; 0 is all.
                'max_examples': 0,
                # Evaluates on this many dev examples, before training and after each epoch; 0
                # is all.
                'max_dev_examples': 0,
                'epochs': 3,
                'batch_size': 32,
                # Examples per forward and backward pass; on an accelerator take batch_size.
                'micro_batch': 8,
                'learning_rate': 5e-5,
                'warmup': 0.1,
                'weight_decay': 0.01,
                'clip': 1.0,
                # 'adamw', or 'bert_adam' as the authors used.
                'optimizer': 'adamw',
                'log_every': 20,
                'checkpoint_every': 500,
            },
            # Readings of the cosine similarity: 'paper' (real tokens) and 'notebook' (maps padded
            # to 200, as published).
            'change': {'readings': ('paper',)},
            'masked_lm': {
                # The share of the wordpieces of each text that are hidden from a masked LM, or all
                # of them one at a time (pseudo-log-likelihood).
                'share': 0.15,
                'one_at_a_time': False,
            },
            # Outlier dimensions are disabled on so many examples (0 is all); beside them, so many
            # random sets of dimensions, at least 19.
            'outliers': {'draws': 39, 'max_examples': 100},
            'ablation': {
                # The models to ablate. 'finetuned' takes the last checkpoints of this run, the
                # first seed's in full. 'model' takes model.name as it is, with the classifier it
                # came with.
                'checkpoint': 'finetuned',
                # 'heads' (one at a time, Figure 8), 'layers' (Figure 9), 'one_head_left' (all heads
                # of a layer but one, Michel et al.), which takes as long as 'heads'.
                'sets': ('heads', 'layers'),
                # Heads to disable together, such as 'L1-H2,L7-H6'.
                'together': '',
                # The behaviour of a disabled head: 'uniform' (the paper), 'zero' (Michel et al.,
                # Voita et al.), 'mean' or 'resample'. 'mean' gives its mean output over the ablated
                # examples. 'resample' gives its output on another one of like length, drawn by
                # seed.
                'baseline': 'uniform',
                # Draws this many examples of the split; 0 is all.
                'max_examples': 0,
                # The best to lose is also chosen on this many training texts that
                # train.max_examples left out, and then measured; 0 chooses on the ablated texts
                # alone.
                'choose_examples': 0,
                # How many of the fine-tuned models are ablated; 0 is all, and 1 the first alone.
                'seeds': 0,
                # Tokens per call; 0 chooses for the device.
                'chunk_tokens': 0,
                # Pairs whose joint effect the program `interactions` measures: of these heads, such
                # as 'L1-H2,L7-H6,L7-H7', or of all.
                'pairs_of': 'all',
            },
            'importance': {
                # How much heads are needed is measured on so many training examples; 0 is all.
                'max_examples': 200,
                # Permutations for Shapley values of heads: even, at least 4. Each takes as long as
                # a pass over these examples for every head, so that 0 leaves them out.
                'permutations': 0,
            },
            # The tokens of so many of the ablated texts are scored by all methods, and deleted one
            # by one; 0 is all. On a CPU, a text takes seconds.
            'attribution': {'max_examples': 25},
            'prune': {
                # Random orders to compare with; of fewer than 19, none is rarer than one in twenty.
                'draws': 20,
                # As good as the full model is one whose score is at most so much lower; 0.01 is a
                # point.
                'tolerance': 0.01,
                # The sparsest such model is timed with so many examples at once, numbers with
                # commas between them; '' does not time it. Published are 1, 4, 16 and 64: each size
                # takes 64 passes over as many examples, so that large ones take long on a CPU.
                'batch_sizes': '1,16',
            },
            'replacements': {
                # The constants that best replace heads come from so many training examples (0 is
                # all), in so many passes, and up to four times as many where these do not suffice:
                # each takes a gradient of each example for every head, so that five take most of
                # an hour for 72 heads on a CPU.
                'max_examples': 64,
                'passes': 5,
            },
            'subnetworks': {
                # The good one has the fewest heads that reach this share of the full score.
                'share': 0.9,
            },
            'gates': {
                # The price of an open head, in nats of the loss of an example. The program `gates`
                # tries several prices at the same time; put commas between them.
                'coefficients': '0.001,0.003,0.01,0.03',
                # Seeds are seed, seed + 1, ...
                'num_seeds': 1,
                # Whether only the gates are learnt, and the weights of the model stay.
                'frozen': True,
                'epochs': 10,
                # The learning rate of the gates; their log alpha changes by about this much in a
                # step.
                'learning_rate': 0.1,
                # The learning rate of the weights, unless they are frozen. Their other settings are
                # those of `train`.
                'model_learning_rate': 2e-5,
            },
            'patterns': {
                # Maps that the program `annotate` draws to be labelled by eye.
                'count': 100,
                # The maps that the program `train_patterns` learns from: '' (the 1,546 that ship),
                # or a folder that `annotate` wrote.
                'annotated': '',
                # A convolutional network like the paper's, to compare the classifier with: epochs
                # of its training (100 take hours on a CPU, 0 leaves it out), pixels of its images
                # (32 or more), and tokens that fill them: 0 stretches all.
                'epochs': 0,
                'side': 32,
                'longest': 0,
                # The number of folds, of texts and of heads.
                'folds': 5,
                # The classifier of the patterns section: '' (the one that ships), or one that
                # `train_patterns` wrote.
                'classifier': '',
            },
            # The devices that share the work: '' is all of them, along 'data', where they share the
            # examples. 'data:4,masks:2' has two groups of four that share the masks of a sweep, and
            # 'data:4,seeds:2' the seeds of a fine-tuning.
            'mesh': '',
            'seed': 0,
        }
    )
    return shrink(config) if arg else config


def shrink(config: ConfigDict) -> ConfigDict:
    """Make a run of seconds: the same path on a handful of examples."""
    config.data.max_examples = 12
    config.maps.examples = 1
    config.ablation.max_examples = 12
    config.outliers.max_examples = 12
    config.outliers.draws = 19
    config.treebank.max_train = 12
    config.treebank.max_dev = 12
    config.probe.num_seeds = 2
    config.probe.epochs = 1
    config.gates.epochs = 1
    config.importance.max_examples = 12
    config.attribution.max_examples = 6
    config.prune.draws = 2
    config.prune.batch_sizes = ''
    config.replacements.max_examples = 8
    config.replacements.passes = 1
    config.train.max_examples = 16
    config.train.max_dev_examples = 64
    config.train.epochs = 1
    config.train.num_seeds = 2
    config.train.batch_size = 8
    return config
