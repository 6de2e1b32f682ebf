"""The digits that scikit-learn carries: real data with no download at all.

Nothing flows in; out come 1797 images of 8×8 with values 0…16. The first 1437 train and
the last 360 test. Cutting in the order of collection, rather than at random, keeps the
writers of the two parts mostly apart.
"""

import numpy as np

from adadecay.lab.datasets.dataset import Dataset, Split, standardized
from adadecay.lab.datasets.fetch import Wanted
from adadecay.lab.datasets.parts import Part, check_part, joint

__all__ = ["PARTS", "TRAIN", "load_digits"]

TRAIN = 1437
PARTS = {
    "images": Part(
        (1797, 8, 8),
        "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3",
    ),
    "labels": Part(
        (1797,),
        "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0",
    ),
}


def load_digits(
    name: str = "digits",
    wanted: Wanted | None = None,
    *,
    rows: int | None = None,
    enlarge: int = 1,
    standardize: bool = False,
) -> Dataset:
    """Return the digits, checked like every other dataset.

    Args:
        name: how the dataset calls itself.
        wanted: has no bearing here, since nothing is fetched.
        rows: how many rows each split keeps, from its start; None keeps all.
        enlarge: how often each pixel is repeated, along both sides.
        standardize: whether to bring the training pixels to mean 0 and deviation 1.
    """
    from sklearn import datasets

    bunch = datasets.load_digits()
    images = bunch.images.astype(np.uint8)
    labels = bunch.target.astype(np.uint8)
    check_part("images", images, PARTS["images"])
    check_part("labels", labels, PARTS["labels"])
    inputs = images[:, None].repeat(enlarge, axis=2).repeat(enlarge, axis=3)
    ends = slice(0, rows)
    dataset = Dataset(
        name=name,
        train=Split(inputs[:TRAIN][ends], labels[:TRAIN][ends]),
        test=Split(inputs[TRAIN:][ends], labels[TRAIN:][ends]),
        classes=tuple("0123456789"),
        mean=None,
        std=None,
        scale=16.0,
        augment=None,
        digest=joint(PARTS),
        input_shape=inputs.shape[1:],
    )
    return standardized(dataset) if standardize else dataset
