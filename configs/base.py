"""What can be set, with the defaults that all settings share."""

from ml_collections import ConfigDict, config_dict


def get_config() -> ConfigDict:
    """Return the defaults; the other files of this folder change them."""
    return ConfigDict(
        {
            'model': {
                # A directory, a name on the Hugging Face hub, or 'all-MiniLM-L6-v2'.
                'name': 'bert-base-uncased',
                'revision': config_dict.placeholder(str),
                # 'float32', or 'bfloat16' for speed on GPU and TPU.
                'dtype': 'float32',
            },
            'data': {
                # 'glue' (the original TSV files in glue_dir, or else what tensorflow-datasets
                # has prepared in tfds_dir), 'corpus' (embedded), or 'file' (your own table).
                'source': 'glue',
                'task': 'mrpc',
                'split': 'dev',
                'glue_dir': config_dict.placeholder(str),
                'tfds_dir': config_dict.placeholder(str),
                # For 'file': a .tsv, .csv or .jsonl, and the names of its columns.
                'file': config_dict.placeholder(str),
                'text_a': 'text_a',
                'text_b': config_dict.placeholder(str),
                # 'error' refuses a file with malformed rows, 'skip' leaves them out.
                'bad_rows': 'error',
                # The paper analyses at most 1,000 examples of a task, drawn at random.
                'max_examples': 1000,
            },
            'encoding': {
                'max_length': 128,
                # Rows times padded length of a batch. 2,048 suits a CPU's cache; give a GPU 65,536.
                'tokens_per_batch': 2048,
            },
            # How many examples have their maps drawn.
            'maps': {'examples': 3},
            'seed': 0,
        }
    )


def shrink(config: ConfigDict) -> ConfigDict:
    """Make a run of seconds: the same path on a handful of examples."""
    config.data.max_examples = 12
    config.maps.examples = 1
    return config
