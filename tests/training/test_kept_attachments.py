"""What a trial attaches to its reports: which of it is kept, and that it never harms the trial."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.test_programs import Trial
from workbench.experiment import Experiment
from workbench.foundation.attachments import Attachment, read_table
from workbench.foundation.events import AttachmentSaved, Event, Noted, TrialReported
from workbench.training import kept_attachments as kept
from workbench.training.kept_attachments import KeptAttachments
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

OBJECTIVES = [{"metric": "score", "goal": "maximize"}]


def order(folder: Path, train: Any = "tests.training.program:good", **task: Any) -> TrialTask:
    experiment = Experiment(train=train, objectives=OBJECTIVES)
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)
    for name, payload in experiment.payloads().items():
        (objects / name).write_bytes(payload)
    return TrialTask(
        "r", 0, 0, experiment.model_dump_json(), objects=str(objects), folder=str(folder), **task
    )


class Recorder:
    """Takes events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> bool:
        self.events.append(event)
        return False

    @property
    def saved(self) -> list[AttachmentSaved]:
        return [event for event in self.events if isinstance(event, AttachmentSaved)]

    @property
    def notes(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Noted)]


def text(name: str, content: str = "x") -> Attachment:
    return Attachment(name, "text", "txt", content.encode())


def test_a_function_attaches_pictures_tables_and_texts(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> dict[str, Any]:
        report(step=1, score=0.5, image=np.zeros((2, 2)), table=[{"word": "a"}])
        report(sample="once upon a time")
        return {"score": 0.7, "last": "the end"}

    take = Recorder()
    ended = run_trial(order(tmp_path, train), take)
    assert (ended.state, ended.values) == ("complete", {"score": 0.7}), ended.traceback
    saved = [(item.step, item.name, item.kind) for item in take.saved]
    assert saved == [
        (1, "image", "image"),
        (1, "table", "table"),
        (1, "sample", "text"),
        (1, "last", "text"),
    ]
    reports = [event for event in take.events if isinstance(event, TrialReported)]
    assert [report.values for report in reports] == [{"score": 0.5}, {"score": 0.7}]
    contents = {item.name: (tmp_path / item.file).read_bytes() for item in take.saved}
    assert contents["image"].startswith(b"\x89PNG")
    assert read_table(contents["table"]).rows == [["a"]]
    assert contents["sample"] == b"once upon a time"


def test_an_objective_that_is_no_number_is_refused_as_before(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        report(step=1, score="high")

    ended = run_trial(order(tmp_path, train), Recorder())
    assert (ended.state, ended.reason) == ("failed", "error")
    assert "report.score: str is not a number" in (ended.message or "")


def test_what_cannot_be_shown_and_what_is_nothing_at_all_is_left_out_with_a_note_each(
    tmp_path: Path,
) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        for step in (1, 2):
            report(step=step, score=0.5, image="absent.png")
            report(step=step, score=0.5, other=object())

    take = Recorder()
    ended = run_trial(order(tmp_path, train), take)
    assert ended.state == "complete", ended.message
    image, other = take.notes
    assert "'image' is not kept" in image
    assert "absent.png cannot be read" in image
    assert (
        other == "'other' is not kept: object is neither a number nor a picture, a table or a text"
    )


@pytest.mark.slow
def test_of_many_the_newest_and_some_over_the_whole_training_are_kept(tmp_path: Path) -> None:
    now_s = 0.0
    take = Recorder()
    keeper = KeptAttachments(order(tmp_path), take, lambda: now_s)
    for step in range(1000):
        now_s += kept.INTERVAL_S
        keeper.take(step, text("sample", str(step)))
    keeper.close()
    left = sorted(int(path.read_text()) for path in (tmp_path / kept.FOLDER).iterdir())
    assert len(left) <= kept.MAX_KEPT + 1
    assert (left[0], left[-1]) == (0, 999)
    gaps = np.diff(left[:-1])
    assert gaps.min() == gaps.max()
    gone = {file for item in take.saved for file in item.replaces}
    assert {item.file for item in take.saved} - gone == {
        f"{kept.FOLDER}/{path.name}" for path in (tmp_path / kept.FOLDER).iterdir()
    }


def test_those_that_arrive_fast_wait_and_the_last_is_written_at_the_end(tmp_path: Path) -> None:
    take = Recorder()
    keeper = KeptAttachments(order(tmp_path), take, lambda: 0.0)
    for step in range(10_000):
        keeper.take(step, text("sample", str(step)))
    assert len(take.saved) == kept.MAX_KEPT
    keeper.close()
    assert take.saved[-1].step == 9_999
    assert (tmp_path / take.saved[-1].file).read_text() == "9999"


def test_what_a_function_attached_last_is_there_although_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        for step in range(100):
            report(step=step, sample=f"step {step}")
        raise RuntimeError("broken")

    monkeypatch.setattr(kept, "INTERVAL_S", 1e9)
    take = Recorder()
    ended = run_trial(order(tmp_path, train), take)
    assert ended.message == "RuntimeError: broken"
    assert (tmp_path / take.saved[-1].file).read_text() == "step 99"


def test_too_many_names_and_too_many_bytes_are_left_out_with_one_note_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MAX_BYTES", 100)
    take = Recorder()
    keeper = KeptAttachments(order(tmp_path), take)
    for number in range(3 * kept.MAX_NAMES):
        keeper.take(1, text(f"name/../{number}", "x" * 10))
    assert len(take.saved) == 10
    assert len(take.notes) == 2
    assert all(Path(one.file).parent.name == kept.FOLDER for one in take.saved)
    assert len(list((tmp_path / kept.FOLDER).iterdir())) == 10


def test_of_several_workers_only_the_first_keeps_any(tmp_path: Path) -> None:
    take = Recorder()
    KeptAttachments(order(tmp_path, rank=1, num_workers=2), take).take(1, text("sample"))
    assert take.events == []
    assert not (tmp_path / kept.FOLDER).exists()


def test_a_program_attaches_through_report(tmp_path: Path) -> None:
    trial = Trial("attaches", tmp_path, step="epoch")
    assert trial.ended.state == "complete", trial.ended.message
    saved = [event for event in trial.events if isinstance(event, AttachmentSaved)]
    assert [(item.step, item.name, item.kind) for item in saved] == [
        (1, "image", "image"),
        (1, "sample", "text"),
        (2, "image", "image"),
        (2, "sample", "text"),
    ]
    assert (tmp_path / saved[-1].file).read_text() == "epoch 2 <b>"
    assert [report.values for report in trial.reports] == [{"loss": 0.5}, {"loss": 0.25}]
    [note] = trial.notes
    assert "object is neither a number nor a picture, a table or a text" in note
