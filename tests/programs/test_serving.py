"""The page on which one types: it is compiled for every length before anybody asks."""

import dataclasses
import http.server

import pytest

from bert_secrets_jax import local
from bert_secrets_jax.measure import token_maps
from bert_secrets_jax.programs import serving
from tools.convert.vocabulary import regex_tokenizer


def test_all_lengths_are_compiled_before_a_sentence_comes(model, caplog):
    token_maps._all_kinds.clear_cache()
    with caplog.at_level('INFO'):
        serving.prepare(model, 24)
    assert 'Compiled for all lengths' in caplog.text and 'were cut' not in caplog.text
    compiled = token_maps._all_kinds._cache_size()
    assert compiled == 2
    for words in (1, 5, 13, 14, 20, 40):
        serving.maps_of(model, ['the cat ' * words], max_length=24)
    assert token_maps._all_kinds._cache_size() == compiled


def test_a_tokenizer_that_reads_no_letters_is_no_error(model):
    tokenizer = regex_tokenizer(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'C'], 'C')
    serving.prepare(dataclasses.replace(model, tokenizer=tokenizer), 24)


def test_a_page_is_served_until_it_is_stopped(capsys):
    class Stopped(http.server.ThreadingHTTPServer):
        closed = False

        def __init__(self):
            self.server_address = ('127.0.0.1', 8888)

        def serve_forever(self):
            raise KeyboardInterrupt

        def server_close(self):
            self.closed = True

    server = Stopped()
    with pytest.raises(KeyboardInterrupt):
        local.serve_until_stopped(server)
    assert server.closed
    assert capsys.readouterr().out == 'http://127.0.0.1:8888/  (Ctrl-C stops)\n'
