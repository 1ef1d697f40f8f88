from __future__ import annotations

from pathlib import Path
from unittest.mock import create_autospec

import pytest

from workbench.forms import answers
from workbench.forms.answers import Desk, answer
from workbench.forms.draft import Draft
from workbench.forms.state import state_of
from workbench.run import SubmittedRun, submit

ADDRESS = "http://head:8265"


def test_what_is_meant_for_a_cluster_that_takes_jobs_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = create_autospec(submit, return_value=create_autospec(SubmittedRun, instance=True, run_id="mine-1"))
    monkeypatch.setattr(answers, "submit", sent)
    draft = Draft()
    draft.address = ADDRESS
    desk = Desk(draft, str(tmp_path / "store.sqlite"))
    said: list[str] = []
    found = answer(desk, "start", {}, said.append)
    sent.assert_called_once_with(draft.experiment, address=ADDRESS, store=None)
    assert (found["run_id"], desk.run_id) == ("", ""), "it is not in the store that the form looks into"
    assert f"workbench show mine-1 --address {ADDRESS}" in found["words"]
    assert said == [f"sending it to {ADDRESS}"]


@pytest.mark.parametrize(("address", "command"), [(ADDRESS, "submit"), ("head:6379", "sweep")])
def test_the_command_of_a_form_goes_where_the_form_would(address: str, command: str) -> None:
    draft = Draft()
    draft.address = address
    words = state_of(draft)["command"].split()
    assert (words[1], words[-2:]) == (command, ["--address", address])
