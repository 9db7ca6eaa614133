"""Attention maps of one sentence: an array for each head, and a figure of one head."""

import numpy as np

import bert_secrets_jax as bs


def main(name: str = 'all-MiniLM-L6-v2', figure: str = 'map.svg') -> None:
    pretrained = bs.from_pretrained(name)
    (batch,) = bs.encode(pretrained.tokenizer, ['The cat that I saw was asleep.'])
    output = pretrained.bert.apply({'params': pretrained.params}, **batch.inputs)
    length = int(batch.lengths[0])
    maps = np.asarray(output.attentions)[0, :, :, :length, :length]  # [layer, head, query, key]
    tokens = pretrained.tokenizer.convert_ids_to_tokens(batch.input_ids[0, :length])

    to_next = np.einsum('LNTT->LN', maps[:, :, :-1, 1:]) / (length - 1)
    layer, head = np.unravel_index(to_next.argmax(), to_next.shape)
    print(f'L{layer + 1}-H{head + 1} attends most to the next token: {to_next.max():.2f}')
    drawn = bs.plots.head_maps({f'L{layer + 1}-H{head + 1}': maps[layer, head]}, tokens)
    drawn.savefig(figure)


if __name__ == '__main__':
    main()
