"""All sections for one model and one set of texts, and the report on them.

    python -m experiments.reproduce --config=configs/quickstart.py --workdir=results/quickstart
    python -m experiments.reproduce --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

import json

from bert_secrets_jax.report.html import write_report
from bert_secrets_jax.workdir import flatten
from experiments import (
    ablate,
    attention_change,
    cls_tokens,
    features,
    finetune,
    frames,
    maps,
    relations,
    special_tokens,
)
from experiments.study import Study, launch


def main(study: Study) -> None:
    """Run what is not finished yet and write `report.html`."""
    sections = [
        special_tokens.section(study),
        relations.section(study),
        frames.section(study),
        finetune.section(study),
        attention_change.section(study),
        features.section(study),
        cls_tokens.section(study),
        ablate.section(study),
        maps.section(study),  # shows of each head what the others have found
    ]
    path = study.workdir / 'report.html'
    write_report(
        path,
        title=f'What the heads of {study.model_name} attend to',
        lead=f'Texts: {study.text_name(study.config.data.split)}. Layers and heads count from 1.',
        sections=sections,
        details={
            'Settings of this run': flatten(study.config.to_dict()),
            'Versions': json.loads((study.workdir / 'versions.json').read_text()),
        },
    )
    print(f'Report: {path.resolve()}')


if __name__ == '__main__':
    launch(main)
