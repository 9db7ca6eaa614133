"""Label attention maps of your own model by eye, on a local page (the paper, section 4.1).

    python -m experiments.annotate --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --config.model.name=... --workdir=results/labels

draws `patterns.count` maps at random into `maps_to_label.npz` and writes every decision into
`labels.csv` at once; stopped (Ctrl-C) and started again, it goes on. `--shipped` takes the 648 maps
that ship instead; `--port` fixes the address of the page.
"""

from absl import flags

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.patterns import page
from bert_secrets_jax.patterns.sample import (
    ANNOTATED,
    LABELS_FILE,
    MAPS_FILE,
    Maps,
    draw_maps,
    read_maps,
    write_maps,
)
from experiments.study import Study, launch

_PORT = flags.DEFINE_integer('port', 0, 'Of the page on 127.0.0.1; 0 takes any that is free.')
_SHIPPED = flags.DEFINE_bool('shipped', False, 'Label the maps that ship, without their labels.')


def choose(study: Study, *, shipped: bool) -> Maps:
    """Return the maps to label: those of a former run, or else shipped or drawn ones, kept."""
    file = study.workdir / MAPS_FILE
    if shipped:
        content = (ANNOTATED / MAPS_FILE).read_bytes()
        if file.exists() and file.read_bytes() != content:
            raise ValueError(f'{file} has other maps than those that ship: choose a new --workdir.')
        write_atomically(file, content)
    elif not file.exists():
        maps = draw_maps(
            study.pretrained,
            study.dev,
            source=f'{study.model_name}, {study.text_name(study.config.data.split)}',
            count=study.config.patterns.count,
            max_length=study.config.encoding.max_length,
            seed=study.config.seed,
        )
        write_maps(file, maps)
    return read_maps(file)


def main(study: Study) -> None:
    """Serve the page until it is stopped."""
    maps = choose(study, shipped=_SHIPPED.value)
    server = page.serve(maps, study.workdir / LABELS_FILE, port=_PORT.value)
    print(
        f'http://127.0.0.1:{server.server_address[1]}/  (Ctrl-C stops; nothing is lost)', flush=True
    )
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print(f'Labels: {study.workdir / LABELS_FILE}')
    finally:
        server.server_close()


if __name__ == '__main__':
    launch(main)
