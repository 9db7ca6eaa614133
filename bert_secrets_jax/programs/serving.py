"""A page on which one types sentences and sees their maps, until it is stopped."""

from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.report.typed import serve


def serve_maps(study: Study, *, port: int = 0) -> None:
    """Serve the page for the model of a study.

    Args:
      study: The study, of which only the model and `encoding.max_length` are used.
      port: The port of the page on 127.0.0.1; 0 takes any free port.

    Raises:
      ValueError: The model cannot be read, or the port cannot be had.
    """
    models = {study.model_name: study.pretrained}
    server = serve(models, max_length=study.config.encoding.max_length, port=port)
    print(f'http://127.0.0.1:{server.server_address[1]}/  (Ctrl-C stops)', flush=True)
    try:
        server.serve_forever()
    finally:
        server.server_close()
