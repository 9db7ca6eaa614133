"""Published numbers of Prasanna et al. (2020): subnetworks of BERT-base that were trained again.

Scores are means over five seeds, on GLUE's dev sets, times one. Their subnetworks also lose
feed-forward layers.
"""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class PublishedSubnetworks:
    """The scores of one task.

    They are those of the full model, and of the good, random and bad subnetworks, which are
    trained again from pre-trained weights.
    """

    full: float
    good: float
    random: float
    bad: float


SUBNETWORKS: Mapping[str, PublishedSubnetworks] = {
    'mnli': PublishedSubnetworks(0.84, 0.80, 0.79, 0.80),
    'mrpc': PublishedSubnetworks(0.84, 0.77, 0.68, 0.68),
    'qnli': PublishedSubnetworks(0.92, 0.89, 0.84, 0.77),
    'qqp': PublishedSubnetworks(0.91, 0.89, 0.88, 0.82),
    'rte': PublishedSubnetworks(0.63, 0.58, 0.56, 0.59),
    'sst-2': PublishedSubnetworks(0.93, 0.87, 0.89, 0.86),
    'sts-b': PublishedSubnetworks(0.89, 0.75, 0.79, 0.61),
    'cola': PublishedSubnetworks(0.56, 0.50, 0.42, 0.41),
}
# Fleiss' kappa of the heads that survive, over five seeds: the least and the greatest of the tasks.
KAPPA = (0.18, 0.32)
