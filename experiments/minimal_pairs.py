"""Does a masked LM prefer the better of two texts, and which heads make it do so?

    python -m experiments.minimal_pairs --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --config.minimal_pairs.file=blimp.jsonl \\
        --config.minimal_pairs.good=sentence_good --config.minimal_pairs.bad=sentence_bad \\
        --config.minimal_pairs.phenomenon=UID --workdir=results/mrpc

Without a file, the pairs are the embedded ones. A classifier needs `minimal_pairs.label`.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('minimal_pairs')
