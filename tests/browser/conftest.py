"""A browser, a Jupyter server and pages for those of the live view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.form_page import EXPERIMENT, FormKernel, leave_form
from tests.services.jupyter_lab import BUILT, CHROMIUM, Jupyter, chromium, new_page
from workbench.experiment import Experiment
from workbench.views.forms.draft import Draft


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """One browser for the tests of this folder.

    While it is driven, no other test may have a loop.
    """
    if CHROMIUM is None:
        pytest.skip("no browser: apt-get install chromium")
    pytest.importorskip("playwright.sync_api")
    with chromium() as running:
        yield running


@pytest.fixture(scope="package")
def live_browser(browser: Any) -> Any:
    """The browser, where there is a front end for it."""
    if not BUILT.exists():
        pytest.skip("the front end is not built: make front-end")
    return browser


@pytest.fixture(scope="module")
def shared_jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    server = Jupyter(tmp_path_factory.mktemp("jupyter"))
    yield server
    server.stop()


@pytest.fixture
def jupyter(shared_jupyter: Jupyter) -> Jupyter:
    """A JupyterLab that the tests of a file share, with the runs of all of them.

    Up, whoever killed it.
    """
    return shared_jupyter.start()


@pytest.fixture(scope="module")
def form_page(live_browser: Any) -> Iterator[Any]:
    """A page for the forms of a file, one after another.

    On a new one each takes three times as long.
    """
    made = new_page(live_browser)
    yield made
    made.context.close()


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page of a person who was here never before; no script on it may fail."""
    has_form = "kernel" in request.fixturenames
    name = "form_page" if has_form else "live_browser"
    made = request.getfixturevalue(name) if has_form else new_page(request.getfixturevalue(name))
    yield made
    complaints = list(made.complaints)
    if has_form:
        leave_form(made)
    else:
        made.context.close()
    assert complaints == []


@pytest.fixture
def kernel() -> FormKernel:
    """The kernel of a form on a page."""
    return FormKernel(Draft(Experiment.from_yaml(EXPERIMENT)))
