"""Trials reach the loggers that an experiment names, and no logger delays or fails a run."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.attachments import Attachment, attachment_of
from workbench.foundation.errors import ArtifactsError, ExperimentError
from workbench.store.loggers import LOGGERS, Forwarding, LoggedRun, TrialLogger
from workbench.sweeps.preflight import find_problems

RUN = {"run_id": "digits-1", "name": "digits", "experiment": {"objectives": [{"metric": "loss"}]}}


def _attached(name: str, value: Any) -> Attachment:
    attachment = attachment_of(name, value)
    assert attachment is not None
    return attachment


ATTACHED = (
    _attached("picture", np.zeros((4, 6), np.uint8)),
    _attached("words", [{"word": "a|b", "share": 0.5}, {"word": "c", "share": None}]),
    _attached("sample", "once upon a time"),
)


class Kept(TrialLogger):
    """A logger that keeps what it receives, and fails or waits on request."""

    package = "workbench"
    calls: ClassVar[list[tuple[Any, ...]]] = []
    may_go_on = threading.Event()

    def begin(self, trial: int, params: Mapping[str, Any]) -> None:
        if "breaks" in params:
            raise ConnectionError("password: secret")
        if "hangs" in params:
            self.may_go_on.wait(120)
        self.calls.append(("begin", trial, params))

    def report(self, trial: int, step: int, values: Mapping[str, float]) -> None:
        self.calls.append(("report", trial, step, values))

    def attach(self, trial: int, step: int, attachment: Attachment) -> None:
        self.calls.append(("attach", trial, step, attachment.name))

    def end(self, trial: int, state: str) -> None:
        self.calls.append(("end", trial, state))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> type[Kept]:
    monkeypatch.setitem(LOGGERS._table, "kept", f"{__name__}:Kept")
    monkeypatch.setattr(Kept, "calls", [])
    monkeypatch.setattr(Kept, "may_go_on", threading.Event())
    return Kept


def forward(
    folder: Path, *names: str, params: Mapping[str, Any] | None = None, **options: Any
) -> Forwarding:
    forwarding = Forwarding(names, LoggedRun(folder=folder, **RUN), **options)
    forwarding.put("begin", 3, params or {"lr": 0.1, "kind": "sgd", "layers": [1, 2]})
    for step in (1, 2):
        forwarding.put("report", 3, step, {"loss": 1.0 / step, "speed": float("nan")})
    for attachment in ATTACHED:
        forwarding.attach(3, 2, partial(lambda found: found, attachment))
    forwarding.attach(3, 2, _is_gone)
    forwarding.put("end", 3, "pruned")
    return forwarding


def _is_gone() -> Attachment:
    raise ArtifactsError("its file was deleted in favour of others")


def test_a_logger_receives_what_happens_in_its_order(kept: type[Kept], tmp_path: Path) -> None:
    forwarding = forward(tmp_path, "kept", params={"lr": 0.1})
    forwarding.close(30)
    assert [call[0] for call in kept.calls] == ["begin", *["report"] * 2, *["attach"] * 3, "end"]
    assert kept.calls[3] == ("attach", 3, 2, "picture")
    assert kept.calls[0] == ("begin", 3, {"lr": 0.1})
    assert kept.calls[-1] == ("end", 3, "pruned")
    assert forwarding.problems() == []


def test_a_logger_that_fails_is_left_out_and_the_note_holds_no_secret(
    kept: type[Kept], tmp_path: Path
) -> None:
    forwarding = forward(tmp_path, "kept", "tensorboard", params={"breaks": 1})
    forwarding.close(30)
    [problem] = forwarding.problems()
    assert problem.startswith("kept receives no more trials of this run, because it failed with")
    assert "ConnectionError" in problem
    assert "secret" not in problem
    assert kept.calls == []
    assert list((tmp_path / "tensorboard" / "trial-3").iterdir())


def test_a_logger_that_hangs_delays_nobody_and_loses_what_is_too_much(
    kept: type[Kept], tmp_path: Path
) -> None:
    forwarding = forward(tmp_path, "kept", params={"hangs": 1}, max_waiting=1)
    forwarding.close(0.0)
    assert forwarding.problems() == ["kept had not written everything when the run ended"]
    kept.may_go_on.set()
    wait_until(lambda: kept.calls)


def test_tensorboard_reads_scalars_and_configuration(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    forwarding = forward(tmp_path, "tensorboard")
    forwarding.close(30)
    assert forwarding.problems() == []
    event_accumulator = accumulators.EventAccumulator(str(tmp_path / "tensorboard" / "trial-3"))
    event_accumulator.Reload()
    assert [(Scalar.step, Scalar.value) for Scalar in event_accumulator.Scalars("loss")] == [
        (1, 1.0),
        (2, 0.5),
    ]
    [picture] = event_accumulator.Images("picture")
    assert (picture.step, picture.encoded_image_string) == (2, ATTACHED[0].content)
    texts = {
        tag: event_accumulator.Tensors(tag)[0].tensor_proto.string_val[0].decode()
        for tag in event_accumulator.Tags()["tensors"]
        if "text" in tag
    }
    assert texts["sample/text_summary"] == "once upon a time"
    assert "| a/b | 0.5 |" in texts["words/text_summary"]
    started = event_accumulator.SummaryMetadata("_hparams_/session_start_info")
    assert started.plugin_data.plugin_name == "hparams"


def test_mlflow_has_a_run_for_each_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    forwarding = forward(tmp_path, "mlflow")
    forwarding.close(60)
    assert forwarding.problems() == []
    client = mlflow.tracking.MlflowClient()
    [run] = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    assert run.data.params == {"lr": "0.1", "kind": "sgd", "layers": "[1, 2]"}
    assert run.data.metrics == {"loss": 0.5}
    files = [
        artifact.path
        for folder in ("picture", "words", "sample")
        for artifact in client.list_artifacts(run.info.run_id, folder)
    ]
    assert files == ["picture/00000002.png", "words/00000002.json", "sample/00000002.txt"]
    assert (run.info.run_name, run.info.status) == ("digits-1 trial 3", "KILLED")


def test_wandb_writes_a_run_for_each_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    forwarding = forward(tmp_path, "wandb")
    forwarding.close(120)
    assert forwarding.problems() == []
    assert list(tmp_path.glob("wandb/offline-run-*-digits-1-3/*.wandb"))
    [picture] = tmp_path.glob("wandb/offline-run-*-digits-1-3/files/media/images/*.png")
    assert picture.read_bytes() == ATTACHED[0].content
    assert len(list(tmp_path.glob("wandb/offline-run-*-digits-1-3/files/media/table/*.json"))) == 2


def experiment(*names: str) -> Experiment:
    return Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        report_to=names,
    )


def test_a_logger_that_is_unknown_or_not_installed_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [unknown] = find_problems(experiment("tensorboard", "notebook"))
    assert (unknown.field, type(unknown).__base__) == ("report_to.1", ExperimentError)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mlflow" else find_spec(name)
    )
    [absent] = find_problems(experiment("mlflow"))
    assert absent.field == "report_to.0"
    assert "pip install mlflow" in str(absent)
    assert list(find_problems(experiment("mlflow"), on_this_machine=False)) == []


def test_an_experiment_without_loggers_keeps_its_hash() -> None:
    assert "report_to" not in experiment().to_yaml()
    assert Experiment.from_yaml(experiment("wandb").to_yaml()).report_to == ("wandb",)
