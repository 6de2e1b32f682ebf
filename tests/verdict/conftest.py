"""Chromium for the tests of the page: Debian's, driven by playwright."""

import os
import shutil

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium():
    """A started Chromium; skips where there is none, except in CI, which has one."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI has no chromium: tools/chromium.sh installs it")
        pytest.skip("no chromium here: tools/chromium.sh installs Debian's")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # launch() uses a fresh profile folder of its own.
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
