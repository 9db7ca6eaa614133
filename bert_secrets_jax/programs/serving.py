"""A page on which one types sentences and sees their maps, until it is stopped."""

import threading

from absl import logging

from bert_secrets_jax.analyses.example_maps import maps_of
from bert_secrets_jax.data.encoding import BUCKETS, Losses, tokenize_part
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.local import serve_until_stopped
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.programs.sources import Given
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.report.typed import serve


def serve_maps(study: Study, *, port: int = 0) -> None:
    """Serve the page for the model of a study, on a port of 127.0.0.1; 0 takes any free one."""
    model, longest = Given(study).value('pretrained'), study.config.encoding.max_length
    server = serve({study.model_name: model}, max_length=longest, port=port)
    # Compiling takes seconds for each length: it begins before anybody has typed a sentence.
    threading.Thread(target=prepare, args=(model, longest), daemon=True).start()
    serve_until_stopped(server)


def prepare(model: Pretrained, longest: int) -> None:
    """Compile what shows a sentence, for each padded length, and say how far it is."""
    longest = min(longest, model.config.max_length)
    for length in sorted({min(bucket, longest) for bucket in BUCKETS}):
        logging.info(
            'Compiling for sentences of at most %d tokens; until then such a sentence waits.',
            length,
        )
        try:
            # As many tokens, whatever a word is to this tokenizer: what is more would be cut.
            text = 'a ' * length
            part = tokenize_part([Example(text)], Losses(model.tokenizer, length))
            maps_of(model, [text[: part.offsets.max()]], max_length=length)
        except ValueError as error:
            # Such as of a tokenizer of molecules: the first sentence of each length waits.
            logging.info('Nothing is compiled ahead: %s', error)
            return
    logging.info('Compiled for all lengths.')
