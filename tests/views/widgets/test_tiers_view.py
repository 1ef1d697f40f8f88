from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.trained import experiment, exported
from workbench.foundation.errors import ExperimentError, WorkbenchError
from workbench.views.widgets import tiers, tiers_view
from workbench.views.widgets.tiers_view import TiersView

FILE = """
tiers:
  end: {count: 500, arrivals: 0.1/s}
  cloud: {count: 2, batch: 4}
links: {end-cloud: {bandwidth: 8Mbit, rtt: 20ms}}
place:
  from: bundle
  scheduler: end-cloud
  threshold: 0.7
  labels: {low: [0, 1, 2, 3, 4], high: [5, 6, 7, 8, 9]}
"""


@pytest.fixture(autouse=True)
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tiers.js"
    path.write_text("export default { render() {} }")
    monkeypatch.setattr(tiers_view, "_VIEW", path)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiers")
    exported(folder / "bundle", "convnet", "digits", exits=1, width=4)
    (folder / "bundle" / "experiment.yaml").write_text(experiment("convnet", "digits").to_yaml())
    (folder / "tiers.yaml").write_text(FILE)
    return folder / "tiers.yaml"


class View:
    """A view of a file of tiers, and what it is sent."""

    def __init__(self, shown: TiersView) -> None:
        self.shown = shown
        self.sent: queue.Queue[dict[str, Any]] = queue.Queue()
        shown.send = self.sent.put  # pyright: ignore

    def say(self, **content: Any) -> None:
        self.shown._handle_custom_msg(content, [])

    def until(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            answer = self.sent.get(timeout=120)
            if is_wanted(answer):
                return answer


def is_idle(message: dict[str, Any]) -> bool:
    return message["type"] == "run" and message["state"] in ("idle", "done")


@pytest.mark.slow
def test_a_view_plans_runs_and_compares(file: Path) -> None:
    view = View(tiers(file))
    view.shown._session.work.join()  # pyright: ignore
    view.say(type="hello")
    picture = view.until(lambda one: one["type"] == "picture")
    assert (picture["tiers"], picture["counts"], picture["threshold"]) == (
        ["end", "cloud"],
        [500, 2],
        0.7,
    )
    planned = picture["points"][0]["schedulers"]
    assert {plan["scheduler"] for plan in planned} >= set(picture["runnable"]) > {"cut"}
    assert all(one["accuracy"] <= one["group_accuracy"] <= 1 for one in planned)
    assert view.until(is_idle)["problem"] is None

    view.say(type="run", scheduler="end-cloud", threshold=1.0, rate_per_s=30, time_s=2)
    view.until(lambda one: one.get("state") == "starting")
    status = view.until(lambda one: one["type"] == "status")
    assert len(status["tiers"]) == 2
    assert all(0 <= one["load"] <= 1 and one["num_waiting"] >= 0 for one in status["tiers"])
    done = view.until(is_idle)
    assert (done["problem"], done["num_unanswered"]) == (None, 0)
    # At a threshold of 1 nothing leaves early, so all goes over the link of 20 ms.
    assert done["measured"]["p50_s"] > 0.02
    assert done["expected"]["p50_s"] > 0.02
    assert done["measured"]["bytes_per_sample"] == pytest.approx(
        done["expected"]["bytes_per_sample"]
    )
    assert view.shown.measured.num_requests == done["num_requests"] >= 30
    assert done["measured"]["group_accuracy"] >= done["measured"]["accuracy"]

    view.say(type="run", scheduler="cut", threshold=0.7, rate_per_s=20, time_s=2)
    view.until(lambda one: one.get("state") == "starting")
    done = view.until(is_idle)
    assert (done["problem"], done["measured"]["scheduler"]) == (None, "cut")

    view.say(type="run", scheduler="end", threshold=0.7, rate_per_s=5, time_s=600)
    view.until(lambda one: one["type"] == "status")
    view.say(type="stop")
    assert view.until(is_idle)["problem"]["problem"] == "the measurement was stopped"
    view.shown.close()


def test_what_is_wrong_with_a_bundle_is_shown_in_words(tmp_path: Path) -> None:
    path = tmp_path / "tiers.yaml"
    path.write_text(FILE)
    view = View(tiers(path))
    view.shown._session.work.join()  # pyright: ignore
    view.say(type="hello")
    problem = view.until(is_idle)["problem"]
    assert problem["field"] == "place.from"
    assert "is not the folder of a bundle: it does not exist" in problem["problem"]
    view.sent.queue.clear()  # it may have been stated before the hello, too
    view.say(type="run", scheduler="end", threshold=0.5, rate_per_s=5, time_s=5)
    assert view.sent.empty(), "nothing runs without a picture"
    forms, _ = view.shown._repr_mimebundle_()  # pyright: ignore
    assert "bandwidth: 8Mbit" in forms["text/html"]
    view.shown.close()


@pytest.mark.slow
def test_what_is_wrong_with_a_file_is_an_error(tmp_path: Path, built: Path) -> None:
    path = tmp_path / "tiers.yaml"
    path.write_text(FILE.replace("0.7", "7"))
    with pytest.raises(ExperimentError, match=r"place\.threshold"):
        tiers(path)
    path.write_text(FILE)
    built.unlink()
    with pytest.raises(WorkbenchError, match=r"not built.*make front-end"):
        tiers(path)
