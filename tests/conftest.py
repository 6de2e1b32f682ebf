"""What every test shares: one thread, seeded, hypothesis without a clock."""

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile(
    "seeded", derandomize=True, deadline=None, print_blob=True
)
hypothesis.settings.load_profile("seeded")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20190721)
