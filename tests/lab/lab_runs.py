"""Small studies, and how to compare what they leave behind."""

from pathlib import Path

from adadecay.lab.files import read_trial
from adadecay.lab.study import Study


def read_epochs(root, trial_id):
    """Return the recorded epochs of a trial."""
    return read_trial(root, trial_id)[1]


TIMES = ("seconds", "evaluation_seconds")
EVERY_OPTIMIZER = (
    "sgd",
    "rmsprop",
    "adam",
    "entropy-sgd",
    "accelerated-sgd",
    "randomized",
    "adadecay",
    "matched",
    "unit-mean",
    "shuffled",
)


def small_study(folder, *optimizers, **keys) -> Study:
    """A study on a network with dropout and batch norm that takes milliseconds."""
    values = {
        "name": "small",
        "dataset": "lab_own:small_dataset",
        "network": "lab_own:small_network",
        "optimizers": list(optimizers) or ["sgd", "adadecay"],
        "trials": 1,
        "epochs": 4,
        "batch_size": 16,
        "device": "cpu",
        **keys,
    }
    return Study(results=folder, **values)


def trainer_study(folder, trainer, **keys) -> Study:
    values = {
        "name": "own-loop",
        "trainer": trainer,
        "score": "accuracy",
        "optimizers": ["sgd"],
        "trials": 2,
        "epochs": 3,
        "device": "cpu",
        **keys,
    }
    return Study(results=folder, **values)


def numbers(study: Study, folder: Path | None = None) -> dict:
    """Every recorded number of every trial, without the times."""
    return {
        trial.id: [
            {key: value for key, value in row.items() if key not in TIMES}
            for row in read_epochs(folder or study.folder, trial.id)
        ]
        for trial in study.plan.unique
    }
