"""What was changed in a form comes back when its cell runs again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.store.database import Store
from workbench.views.forms.draft import Draft
from workbench.views.forms.kept_draft import KeptDraft, key_of, read_draft

KEY = key_of("/home/me/a.ipynb", "cell-1")


class Net:
    """A class of a notebook."""


Net.__module__ = "__main__"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store.sqlite")) as opened:
        yield opened


def cell(store: Store, key: str = KEY, **settings: object) -> tuple[Draft, KeptDraft]:
    """Run the cell of a form."""
    draft = Draft(Experiment(**{**Draft().document, **settings}), namespace={"Net": Net})
    return draft, KeptDraft(draft, store, key)


def test_a_draft_comes_back_with_its_run_and_undo_returns_to_the_cell(store: Store) -> None:
    draft, keeper = cell(store)
    assert read_draft(store.artifacts, KEY) is None, "nothing has changed yet"
    draft.edit([("name", "mine")])
    keeper.keep_run("mine-1")

    again, kept = cell(store)
    assert (again.document["name"], kept.run_id) == ("mine", "mine-1")
    assert "are back" in again.notes[0]
    again.undo()
    assert again.experiment == Draft().experiment
    assert cell(store, key_of("/home/me/a.ipynb", "cell-2"))[0].document["name"] != "mine"
    keeper.close()
    kept.close()


def test_a_draft_that_is_as_in_the_cell_is_not_announced_as_changed(store: Store) -> None:
    draft, keeper = cell(store)
    draft.edit([("name", "mine")])
    draft.edit([("name", Draft().document["name"])])
    keeper.keep_run("run-1")

    again, kept = cell(store)
    assert (again.document, kept.run_id) == (Draft().document, "run-1")
    assert (again.notes, again.undo_label) == ([], None)
    keeper.close()
    kept.close()


def test_a_cell_that_names_another_experiment_begins_anew(store: Store) -> None:
    draft, _ = cell(store)
    draft.edit([("name", "mine")])
    assert cell(store, seed=3)[0].document["name"] == Draft().document["name"]


def test_changes_are_saved_while_the_form_is_open(store: Store) -> None:
    draft, keeper = cell(store)
    draft.edit([("search.width", {"low": 1, "high": 0})])
    assert draft.problems

    def saved() -> bool:
        found = read_draft(store.artifacts, KEY)
        return found is not None and "width" in found.document["search"]

    wait_until(saved)
    keeper.close()


def test_a_class_of_the_notebook_is_kept_by_its_name(store: Store) -> None:
    draft, keeper = cell(store)
    draft.edit([("model", "Net")])
    keeper.save()

    saved = read_draft(store.artifacts, KEY)
    assert saved is not None
    assert saved.document["model"] == "Net"
    assert cell(store)[0].document["model"] == draft.document["model"]


def test_what_cannot_be_read_is_no_draft(store: Store) -> None:
    store.artifacts.write(f".drafts/{KEY}.json", b"{}")
    assert read_draft(store.artifacts, KEY) is None
    assert cell(store)[0].document["name"] == Draft().document["name"]
