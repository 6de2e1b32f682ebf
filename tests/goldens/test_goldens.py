"""What the lab computed before it was rebuilt is what it computes now."""

import json
import re

import pytest

import goldens
from adadecay.lab.files import read_state


def golden(name):
    return (goldens.HERE / name).read_text()


def test_every_trial_of_every_built_in_study_has_its_id():
    assert goldens.trial_ids() == golden("trial_ids.json")


def test_every_value_of_the_snapshots_is_read_as_it_was_written():
    assert goldens.exported_tables() == golden("exported_tables.json")


def split_numbers(text):
    """Return what is around the numbers with a fraction, and these numbers."""
    parts = re.split(r"(-?\d+\.\d+(?:e-?\d+)?)", text)
    return parts[::2], list(map(float, parts[1::2]))


@pytest.mark.parametrize("name", goldens.SNAPSHOTS)
def test_a_snapshot_has_its_settings_comparisons_and_claims(name):
    stem = goldens.SNAPSHOTS[name]
    texts, numbers = split_numbers(goldens.analysed_tables(name))
    expected_texts, expected = split_numbers(golden(f"{stem}.csv"))
    assert texts == expected_texts
    # NumPy sums in an order that depends on the CPU, which the last digits show.
    assert numbers == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("name", goldens.SNAPSHOTS)
def test_the_page_of_a_snapshot_has_its_table_cells(name):
    assert goldens.page_cells(name) == golden(f"{goldens.SNAPSHOTS[name]}.txt")


def test_every_network_with_every_optimizer_to_the_bit(tmp_path):
    study, outcome = goldens.run_smoke(tmp_path)
    assert (outcome.done, outcome.diverged, outcome.failed) == (80, 0, {})
    table = study.results()
    assert table["network"].n_unique() == 8
    assert table["optimizer"].n_unique() == 10
    found = goldens.smoke_epochs(study, tmp_path)
    recorded = json.loads(golden("smoke.json"))
    same = [r for r in recorded if r["environment"] == found["environment"]]
    if not same:
        pytest.skip(f"the bits were never recorded with {found['environment']}")
    assert found["epochs"] == same[0]["epochs"]


def test_a_results_folder_of_format_1_is_read_and_finished():
    study = goldens.old_study()
    states = [read_state(study.folder, trial.id) for trial in study.plan.trials]
    assert [state.status for state in states] == ["done"] * 6
    assert goldens.old_results() == golden("format1.csv")
