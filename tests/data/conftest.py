"""A tokenizer like XLM-RoBERTa's."""

import pytest
import tokenizers
import transformers


@pytest.fixture(scope='package')
def sentencepiece_of():
    """Return what makes a tokenizer of pieces in which a space is a letter."""

    def make(pieces):
        special = ['<s>', '<pad>', '</s>', '<unk>']
        model = tokenizers.models.Unigram(
            [(e, -1.0) for e in [*special, *pieces.split()]], unk_id=3
        )
        fast = tokenizers.Tokenizer(model)
        fast.add_special_tokens(special)
        fast.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
        fast.post_processor = tokenizers.processors.TemplateProcessing(
            '<s> $A </s>', '<s> $A </s> </s> $B </s>', special_tokens=[('<s>', 0), ('</s>', 2)]
        )
        roles = dict(
            zip(('cls_token', 'pad_token', 'sep_token', 'unk_token'), special, strict=True)
        )
        return transformers.PreTrainedTokenizerFast(tokenizer_object=fast, **roles)

    return make
