"""What the tests with other people's packages share."""

import warnings

import pytest


@pytest.fixture
def quiet(monkeypatch):
    """Leave trainers alone: no network, and no warning is an error."""
    # Their own deprecations and advice are no concern of these tests.
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
