"""The studies are short, and proof that public names are enough."""

import re

from tests.conftest import ROOT


def test_studies_are_short_and_take_public_names_alone():
    scripts = sorted((ROOT / 'studies').glob('[a-z]*.py'))
    assert len(scripts) == 2
    for script in scripts:
        text = script.read_text('utf-8')
        assert text.count('\n') <= 150 and f'python -m studies.{script.stem} ' in text
        imported = re.findall(r'^(?:from|import) (bert_secrets_jax.*)$', text, re.M)
        assert imported == ['bert_secrets_jax as bs'] and 'bs._' not in text
