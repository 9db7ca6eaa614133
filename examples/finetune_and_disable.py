"""Fine-tune a model with two seeds, then ask which heads its score needs."""

import bert_secrets_jax as bs


def main(name: str = 'all-MiniLM-L6-v2', pairs: int = 120, epochs: int = 2) -> None:
    pretrained = bs.from_pretrained(name)
    train, dev = bs.read_corpus('train')[:pairs], bs.read_corpus('dev')[:pairs]
    tuned = bs.finetune(pretrained, train, dev, seeds=2, epochs=epochs, learning_rate=1e-4)
    print(tuned.scores)  # a dictionary of scores for each seed

    found = bs.analyses.ablation(tuned, dev, masks='layers')
    print(found)  # findings, in sentences
    layers = found.frames()['layers']
    print(layers[['disabled', 'metric', 'difference', 'p_holm']].to_string(index=False))


if __name__ == '__main__':
    main()
