"""Disable every head in turn: how far does the vector of each sentence move?"""

import numpy as np

import bert_secrets_jax as bs

TEXTS = ('The cat sat down.', 'A dog barked at the cat.', 'Rain is likely tomorrow.')


def main(name: str = 'all-MiniLM-L6-v2') -> None:
    pretrained = bs.from_pretrained(name)
    (batch,) = bs.encode(pretrained.tokenizer, list(TEXTS))
    masks = bs.masks.single_heads(pretrained.config)  # [mask, layer, head]

    def mean_vectors(mask):
        output = pretrained.bert.apply(
            {'params': pretrained.params}, **batch.inputs, head_mask=mask, baseline='zero'
        )
        real = batch.attention_mask[..., None]
        return np.asarray((output.hidden_states[:, -1] * real).sum(1) / real.sum(1))

    intact = mean_vectors(bs.masks.none(pretrained.config)[0])
    moved = [np.linalg.norm(mean_vectors(mask) - intact, axis=1).mean() for mask in masks]
    for index in np.argsort(moved)[:-4:-1]:
        layer, head = np.argwhere(masks[index] == 0)[0]
        print(f'without L{layer + 1}-H{head + 1} the vectors move by {moved[index]:.3f}')


if __name__ == '__main__':
    main()
