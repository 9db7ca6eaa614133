"""Which heads are positional, syntactic, or point to rare tokens? (Voita et al. 2019, section 5)

    python -m experiments.roles --config=configs/quickstart.py --workdir=results/quickstart

measures the model as it is. In a report that prunes (`python -m experiments.reproduce ...
--sections=finetune,prune,roles`) it also says whether heads with a role are the ones that stay.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('roles')
