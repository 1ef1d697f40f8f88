from __future__ import annotations

import json
import re
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from workbench.runs import SubmittedRun, submit
from workbench.views.forms import answers
from workbench.views.forms.answers import QueryContext, answer
from workbench.views.forms.draft import Draft
from workbench.views.forms.fields import state_of
from workbench.views.forms.results import StartedRun

ADDRESS = "http://head:8265"


def test_what_is_meant_for_a_cluster_that_takes_jobs_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = create_autospec(
        submit, return_value=create_autospec(SubmittedRun, instance=True, run_id="mine-1")
    )
    monkeypatch.setattr(answers, "submit", sent)
    draft = Draft()
    draft.address = ADDRESS
    context = QueryContext(draft, str(tmp_path / "store.sqlite"))
    said: list[str] = []
    told = answer(context, "start", {}, said.append)
    assert isinstance(told, StartedRun)
    sent.assert_called_once_with(draft.experiment, address=ADDRESS, store=None)
    assert (told.run_id, context.run_id) == ("", ""), "it is not in the store of the form"
    assert f"workbench show mine-1 --address {ADDRESS}" in told.message
    assert said[-1] == f"submitting it to {ADDRESS}", "after a word about torch, if it is loaded"


@pytest.mark.parametrize(("address", "command"), [(ADDRESS, "submit"), ("head:6379", "sweep")])
def test_the_command_of_a_form_goes_where_the_form_would(address: str, command: str) -> None:
    draft = Draft()
    draft.address = address
    words = state_of(draft).command.split()
    assert (words[1], words[-2:]) == (command, ["--address", address])


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("head", "'head' is not an address of a cluster; allowed: http://HOST:8265"),
        (
            "head:8265",
            "'head:8265' is the port for jobs.* Write http://head:8265 to submit the run",
        ),
        ("ray://head:10001", "is not an address of a cluster"),
        ("http://", "is not an address that takes jobs"),
        ("http://head:many", "is not an address that takes jobs"),
        ("http://[head", "is not an address that takes jobs"),
        ("http://me:secret@head:8265", "must not contain a user name or a password"),
        ("me:secret@head:6379", "must not contain a user name or a password"),
    ],
)
def test_an_address_that_is_none_is_told_at_its_field_and_its_password_nowhere(
    address: str, said: str
) -> None:
    draft = Draft()
    was = draft.hash
    draft.address = address
    (problem,) = draft.problems
    assert problem.field == "address"
    assert re.search(said, str(problem))
    assert draft.hash is None, "nothing can be started"
    state = state_of(draft).model_dump()
    assert state["address"] == address, "what was typed stays in its field"
    assert "--address" not in state["command"]
    assert "secret" not in json.dumps({**state, "address": None})
    draft.address = None
    assert (draft.problems, draft.hash) == ([], was)
