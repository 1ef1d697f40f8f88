from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from tests.builders.frames import read_frame
from tests.builders.recorded_runs import EXPERIMENT, HOSTILE, SVG, append, attach, finish
from workbench.experiment import Experiment
from workbench.store.database import Store
from workbench.views.live_feed import analysis
from workbench.views.live_feed.analysis import OwnProcess


@pytest.fixture(scope="module")
def figure_pool() -> Iterator[ProcessPoolExecutor]:
    """A process that draws for all tests of this file: it loads for seconds."""
    with analysis._one_process() as pool:
        yield pool


@pytest.fixture(autouse=True)
def _drawn_in_one_process(
    figure_pool: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(process: OwnProcess, _: object) -> None:
        process._pool = None

    monkeypatch.setattr(analysis, "_one_process", lambda: figure_pool)
    monkeypatch.setattr(OwnProcess, "_end", leave)


def api_routes(jp_serverapp: Any) -> list[str]:
    """Return an address for every route of ours that the server knows."""
    routes = []
    for rule in (
        jp_serverapp.web_app.wildcard_router.rules + jp_serverapp.web_app.default_router.rules
    ):
        inner = getattr(rule.target, "rules", [])
        for route in [rule, *inner]:
            pattern = getattr(getattr(route, "matcher", None), "regex", None)
            if (
                pattern is not None
                and "/workbench" in pattern.pattern
                and "static" not in pattern.pattern
            ):
                routes.append(pattern.pattern)
    return routes


def example_of(pattern: str) -> str:
    path = re.sub(r"\(\?P<run_id>[^)]*\)", "last", pattern)
    path = re.sub(r"\(\?P<trial>[^)]*\)", "0", path)
    path = re.sub(r"\(\?P<figure>[^)]*\)", "timeline", path)
    path = re.sub(r"\(\?P<file>[^)]*\)", "0-00000-a.png", path)
    path = re.sub(r"\(\?P<key>[^)]*\)", "0" * 32, path)
    return path.removesuffix("$").replace("/?", "").replace(".*", "anything").replace("\\", "")


async def report_of(jp_fetch: Any, run_id: str) -> Any:
    """Ask for a report, with the patience that a busy machine needs."""
    return await jp_fetch("workbench", "api", "runs", run_id, "report", request_timeout=300)


async def when_drawn(jp_fetch: Any, *path: str, **options: Any) -> Any:
    """Ask until the answer is there, as a browser does: a figure may still be drawn."""
    while (answer := await jp_fetch(*path, **options)).code == 202:
        pass
    return answer


async def timeline_of(jp_fetch: Any, run_id: str, **params: str) -> Any:
    path = ("workbench", "api", "runs", run_id, "figures", "timeline")
    return json.loads((await when_drawn(jp_fetch, *path, params=params)).body)


class TestReading:
    async def test_the_list_of_runs_names_each_with_its_state(self, jp_fetch, run_id):
        found = json.loads((await jp_fetch("workbench", "api", "runs")).body)
        assert [(item["run_id"], item["state"]) for item in found["items"]] == [
            (run_id, "lost")
        ] or (found["items"][0]["run_id"] == run_id)

    async def test_a_run_is_what_show_prints_with_its_experiment(self, jp_fetch, run_id):
        found = json.loads((await jp_fetch("workbench", "api", "runs", run_id)).body)
        assert found["best"]["trial"] == 0
        assert found["experiment"]["name"] == "digits-small"

    async def test_the_kept_draft_of_a_form_is_its_yaml_and_its_run(self, jp_fetch, store):
        record = {"began_with": "", "document": {}, "yaml": "name: mine", "run_id": "mine-1"}
        store.artifacts.write(f".drafts/{'a' * 32}.json", json.dumps(record).encode())
        found = json.loads((await jp_fetch("workbench", "api", "drafts", "a" * 32)).body)
        assert (found["yaml"], found["run_id"]) == ("name: mine", "mine-1")
        with pytest.raises(HTTPClientError) as refused:
            await jp_fetch("workbench", "api", "drafts", "b" * 32)
        assert refused.value.code == 404

    async def test_events_come_after_a_cursor_and_without_gaps(self, jp_fetch, run_id, store):
        expected = [stored.seq for stored in store.events(run_id)]
        seqs, after = [], 0
        while True:
            answer = await jp_fetch(
                "workbench", "api", "runs", run_id, "events", params={"after": after, "limit": 3}
            )
            page = json.loads(answer.body)
            if not page["events"]:
                break
            seqs += [item["seq"] for item in page["events"]]
            after = page["last_seq"]
        assert seqs == expected

    async def test_one_trial_is_told_in_full(self, jp_fetch, run_id):
        found = json.loads((await jp_fetch("workbench", "api", "runs", run_id, "trials", "1")).body)
        assert (found["state"], found["reason"]) == ("failed", "oom")
        assert "32 x 2 accumulated x 1 worker, " in found["plan"]
        assert found["params"]["lr"] == 0.1

    async def test_logs_are_text_whole_and_for_each_worker(self, jp_fetch, run_id, store):
        path = store.folder(run_id) / "trials" / "00001" / "log-1.txt"
        path.parent.mkdir(parents=True)
        path.write_text("printed\n" * 300_000)
        answer = await jp_fetch(
            "workbench", "api", "runs", run_id, "trials", "1", "log", params={"rank": 1}
        )
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert answer.body == path.read_bytes()
        with pytest.raises(HTTPClientError) as refused:
            await jp_fetch("workbench", "api", "runs", run_id, "trials", "1", "log")
        assert (
            refused.value.code,
            b"worker 0 of trial 1 has no log" in refused.value.response.body,
        ) == (
            404,
            True,
        )
        lines = (
            (await jp_fetch("workbench", "api", "runs", run_id, "log")).body.decode().splitlines()
        )
        assert any(line.endswith("Z run running") for line in lines)
        assert any("trial 1 failed (oom): ValueError: too wide" in line for line in lines)

    async def test_what_a_trial_attached_is_a_file_that_runs_nothing(self, jp_fetch, run_id, store):
        files = attach(store, run_id, 1)
        address = ("workbench", "api", "runs", run_id, "trials", "1")
        attachments = json.loads((await jp_fetch(*address)).body)["attachments"]
        assert [(item["name"], item["kind"], item["file"]) for item in attachments] == [
            ("picture", "image", files["picture"]),
            ("words", "table", files["words"]),
            ("sample", "text", files["sample"]),
        ]
        kinds = {
            "picture": "image/svg+xml",
            "words": "application/json",
            "sample": "text/plain; charset=utf-8",
        }
        for name, file in files.items():
            answer = await jp_fetch(*address, "attachments", file)
            assert answer.headers["Content-Type"] == kinds[name]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Content-Security-Policy"].startswith(
                "sandbox; default-src 'none'"
            )
        assert (await jp_fetch(*address, "attachments", files["picture"])).body == SVG
        for wrong in ("0-00009-absent.png", "..", "%2e%2e%2flog.txt", "log.txt"):
            with pytest.raises(HTTPClientError) as refused:
                await jp_fetch(*address, "attachments", wrong)
            assert refused.value.code == 404
        page = (await report_of(jp_fetch, run_id)).body.decode()
        assert HOSTILE not in page

    async def test_figures_are_plotly_documents_of_the_trials_that_a_filter_leaves(
        self, jp_fetch, run_id
    ):
        async def get(**params):
            return await timeline_of(jp_fetch, run_id, **params)

        def trials(figure):
            return {item[0] for trace in figure["data"] for item in trace.get("customdata", ())}

        whole = await get()
        assert whole["layout"]["title"]["text"]
        figures = trials(whole)
        assert len(figures) > 1
        assert trials(await get(filter=f"trial = {min(figures)}", colour="lr")) == {min(figures)}
        for wrong in ({"filter": "nothing < 1"}, {"colour": "nothing"}):
            with pytest.raises(HTTPClientError) as caught:
                await get(**wrong)
            assert caught.value.code in (400, 404)

    async def test_the_report_is_a_page_in_a_sandbox(self, jp_fetch, run_id):
        answer = await report_of(jp_fetch, run_id)
        assert b"<!DOCTYPE html>" in answer.body
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "sandbox" in answer.headers["Content-Security-Policy"]
        assert "allow-same-origin" not in answer.headers["Content-Security-Policy"]

    async def test_what_is_not_there_is_refused_with_a_problem(self, jp_fetch, run_id):
        for path in (
            ("runs", "nothing"),
            ("runs", "last", "trials", "99"),
            ("runs", "last", "figures", "nothing"),
            ("runs", "..", "events"),
            ("runs", "%2e%2e%2fetc"),
            ("runs", "a'; drop table runs"),
            ("nothing",),
        ):
            with pytest.raises(HTTPClientError) as caught:
                await when_drawn(jp_fetch, "workbench", "api", *path)
            assert caught.value.code == 404, path
            assert b"Traceback" not in (
                caught.value.response.body if caught.value.response else b""
            )

    async def test_experiments_and_notebooks_below_the_folder_are_offered_and_examples_after_them(
        self, jp_fetch, jp_root_dir
    ):
        (jp_root_dir / "mine").mkdir()
        document = {"train": "a.b:c", "objectives": [{"metric": "loss", "goal": "minimize"}]}
        written = Experiment(**document).to_yaml()
        (jp_root_dir / "mine" / "sweep.yaml").write_text(f"# The first one.\n{written}")
        (jp_root_dir / "best").mkdir()
        for name in ("configuration.json", "environment.txt", "retrain.sh"):
            (jp_root_dir / "best" / name).touch()
        (jp_root_dir / "best" / "experiment.yaml").write_text(written)
        (jp_root_dir / "other.yaml").write_text("a: 1\n")
        (jp_root_dir / "a.ipynb").write_text('{"source": ["import workbench as wb"]}')
        (jp_root_dir / "b.ipynb").write_text('{"source": ["import numpy"]}')
        answer = json.loads((await jp_fetch("workbench", "api", "experiments")).body)
        assert answer[:2] == [
            {"path": "a.ipynb", "name": "a", "help": "", "kind": "notebook"},
            {
                "path": "mine/sweep.yaml",
                "name": "sweep",
                "help": "The first one.",
                "kind": "experiment",
            },
        ]
        assert answer.pop()["path"] == "best/experiment.yaml", (
            "that of a bundle is the last to be proposed"
        )
        assert {(file["name"], file["kind"]) for file in answer[2:]} == {
            (name, "example")
            for name in (
                "boxes",
                "breast_cancer",
                "digits",
                "digits_exits",
                "federated",
                "labelled_text",
                "masks",
                "policy",
                "series",
                "tagged_text",
                "text",
            )
        }
        assert all(Path(file["path"]).is_file() for file in answer[2:])


class TestLooking:
    async def test_a_subscription_by_post_is_answered_with_a_whole_frame(self, post, run_id):
        subscription = {
            "run": run_id,
            "chart": {},
            "table": {},
            "log_after": 0,
            "resources": True,
            "runs": {},
        }
        message = {"type": "subscribe", "number": 7, "subscription": subscription}
        frame = read_frame((await post("update", body=message)).body)
        assert frame.head["subscription"] == 7
        assert frame.head["run"]["counts"] == {"running": 1, "complete": 1, "failed": 1}
        curves = {
            curve["trial"]: frame.column(curve["y"]) for curve in frame.head["chart"]["curves"]
        }
        assert set(curves) >= {0, 2}
        assert max(curves[0]) == pytest.approx(0.9)
        assert [row["number"] for row in frame.head["table"]["rows"]] == [0, 1, 2]
        assert any("failed (oom)" in line["text"] for line in frame.head["log"]["lines"])
        assert frame.head["resources"]["nodes"][0]["num_cpus"] >= 1

    async def test_a_look_that_is_none_is_refused_by_its_field(self, post, run_id):
        for body in (
            "{",
            "[]",
            {"type": "subscribe", "number": 1, "subscription": {"nothing": 1}},
            {"type": "subscribe", "number": 1, "subscription": {"table": {"limit": 100_000}}},
            {
                "type": "subscribe",
                "number": 1,
                "subscription": {"chart": {"chosen": list(range(1000))}},
            },
            {"type": "subscribe", "number": -1, "subscription": {}},
            json.dumps({"type": "subscribe", "number": 1, "subscription": {"run": "x" * 300}}),
            "x" * 100_000,
        ):
            with pytest.raises(HTTPClientError) as caught:
                await post("update", body=body)
            assert caught.value.code == 400, body
            assert json.loads(caught.value.response.body)["problem"]


class TestWhoMay:
    async def test_no_route_answers_somebody_who_is_not_logged_in(
        self, jp_serverapp, http_server_client, jp_base_url, run_id
    ):
        patterns = api_routes(jp_serverapp)
        assert len(patterns) >= 12
        for pattern in patterns:
            path = example_of(pattern)
            for method in ("GET", "POST"):
                with pytest.raises(HTTPClientError) as caught:
                    await http_server_client.fetch(
                        path if path.startswith(jp_base_url) else jp_base_url.rstrip("/") + path,
                        method=method,
                        body="{}" if method == "POST" else None,
                        follow_redirects=False,
                    )
                # 401: the page leads to the login; 405: there is no such method, whoever asks.
                assert caught.value.code in (401, 403, 405), (method, path)

    async def test_a_browser_without_the_cross_site_token_changes_nothing(
        self, *, jp_serverapp, http_server_client, jp_base_url, run_id, store
    ):
        token = jp_serverapp.identity_provider.token
        page = await http_server_client.fetch(
            f"{jp_base_url}workbench?token={token}", follow_redirects=False, raise_error=False
        )
        cookies = "; ".join(
            value.split(";")[0]
            for value in page.headers.get_list("Set-Cookie")
            if "_xsrf" not in value
        )
        assert cookies
        with pytest.raises(HTTPClientError) as caught:
            await http_server_client.fetch(
                f"{jp_base_url}workbench/api/actions",
                method="POST",
                headers={"Cookie": cookies},
                body=json.dumps({"kind": "stop", "run": run_id}),
            )
        assert caught.value.code == 403
        assert store.commands(run_id) == []

    async def test_a_page_of_another_site_reads_and_changes_nothing(
        self, post, run_id, store: Store
    ):
        with pytest.raises(HTTPClientError) as caught:
            await post(
                "actions",
                body={"kind": "stop", "run": run_id},
                headers={"Origin": "https://elsewhere.example", "Authorization": ""},
            )
        assert caught.value.code in (403, 404)  # by the version of Jupyter Server
        assert store.commands(run_id) == []

    async def test_a_body_of_a_hundred_megabytes_is_refused(self, post, run_id, store: Store):
        with pytest.raises(HTTPClientError) as caught:
            await post("actions", body=b"[" * 100_000_000)
        assert (caught.value.code, store.commands(run_id)) == (400, [])


class TestSnippets:
    async def test_the_snippet_of_an_action_is_answered_and_nothing_is_done(
        self, post, run_id, store: Store
    ):
        body = {"kind": "extend", "run": run_id, "arguments": {"trials": 4}}
        found = json.loads((await post("snippets", body=body)).body)
        assert found == {
            "command": f"workbench extend {run_id} --more-trials 4",
            "python": f'wb.attach("{run_id}").extend(trials=4)',
        }
        assert store.commands(run_id) == []

    async def test_an_unknown_action_is_refused(self, post):
        with pytest.raises(HTTPClientError) as caught:
            await post("snippets", body={"kind": "format_disk"})
        assert caught.value.code == 400
        assert json.loads(caught.value.response.body)["field"] == "kind"


class TestAsking:
    @pytest.mark.slow
    async def test_stopping_leaves_a_command_for_the_driver(self, post, run_id, store: Store):
        answer = json.loads((await post("actions", body={"kind": "stop", "run": run_id})).body)
        assert [command.kind for command in store.commands(run_id)] == ["stop"]
        assert answer["command"] == f"workbench stop {run_id}"
        assert answer["answer"] is None

    async def test_a_trial_that_has_ended_cannot_be_stopped(self, post, run_id, store: Store):
        with pytest.raises(HTTPClientError) as caught:
            await post(
                "actions", body={"kind": "stop_trial", "run": run_id, "arguments": {"trial": 0}}
            )
        problem = json.loads(caught.value.response.body)
        assert caught.value.code == 409
        assert "already complete" in problem["problem"]
        assert store.commands(run_id) == []

    async def test_a_note_is_written_and_emptied_and_a_run_under_way_is_not_deleted(
        self, post, jp_fetch, run_id, store: Store
    ):
        for text in ("Two\nlines.", ""):
            body = {"kind": "note", "run": run_id, "arguments": {"text": text}}
            done = json.loads((await post("actions", body=body)).body)
            assert store.run(run_id).notes == text
        assert done["command"] == f"workbench note {run_id} ''"
        size = json.loads((await jp_fetch("workbench", "api", "runs", run_id, "size")).body)
        assert size["num_events"] == store.run(run_id).last_seq
        assert size["text"].startswith("0 files of 0 B, and ")
        with pytest.raises(HTTPClientError) as caught:
            await post("actions", body={"kind": "delete", "run": run_id})
        assert (
            json.loads(caught.value.response.body)["next_step"]
            == "Stop it, and wait until it has ended."
        )
        append(store, run_id, finish(9))
        done = json.loads((await post("actions", body={"kind": "delete", "run": run_id})).body)
        assert done["answer"].startswith("freed ")
        assert store.runs() == []

    async def test_a_report_is_saved_once_and_never_over_another_file(
        self, post, run_id, jp_root_dir
    ):
        body = {"kind": "save_report", "run": run_id, "arguments": {"to": "mine.html"}}
        done = json.loads((await post("actions", body=body)).body)
        assert "<!DOCTYPE html>" in (jp_root_dir / "mine.html").read_text()
        assert done["command"] == f"workbench report {run_id} --to mine.html"
        assert done["python"] == f'wb.attach("{run_id}").report("mine.html")'
        (jp_root_dir / "mine.html").write_text("a person's own")
        with pytest.raises(HTTPClientError) as caught:
            await post("actions", body=body)
        assert json.loads(caught.value.response.body)["field"] == "to"
        assert (jp_root_dir / "mine.html").read_text() == "a person's own"

    async def test_an_export_without_a_folder_goes_where_its_command_says(
        self, post, run_id, jp_root_dir
    ):
        body = {"kind": "export", "run": run_id, "arguments": {"to": ""}}
        done = json.loads((await post("actions", body=body)).body)
        assert done["command"] == f"workbench export {run_id} --to best"
        assert (jp_root_dir / "best" / "experiment.yaml").exists()

    async def test_what_cannot_be_asked_is_refused_by_its_field(self, post, run_id):
        refused: list[tuple[dict[str, Any], str]] = [
            ({"kind": "format_disk"}, "kind"),
            ({"kind": "stop"}, "run"),
            ({"kind": "set", "run": "last", "arguments": {"lr": 1}}, "lr"),
            ({"kind": "stop_trial", "run": "last", "arguments": {"trial": "0; rm"}}, "trial"),
            ({"kind": "enqueue", "run": "last", "arguments": {"params": 3}}, "params"),
            ({"kind": "clone", "run": "last", "arguments": {"set": {"lr": 1}}}, "trial"),
            ({"kind": "clone", "run": "last", "arguments": {"trial": 0, "from_": "end"}}, "from_"),
            ({"kind": "start", "arguments": {"path": "../../../etc/passwd"}}, "path"),
            ({"kind": "start", "arguments": {"path": "/etc/passwd"}}, "path"),
            ({"kind": "start", "arguments": {"path": "a\u0000b"}}, "path"),
            ({"kind": "export", "run": "last", "arguments": {"to": "../outside"}}, "path"),
            ({"kind": "export", "run": "last", "arguments": {"to": ["x"]}}, "to"),
            ({"kind": "start", "arguments": {"path": "a" * 5000}}, "arguments"),
            ({"kind": "start", "arguments": {"path": "a.yaml", "name": {"a": 1}}}, "name"),
        ]
        for body, field in refused:
            with pytest.raises(HTTPClientError) as caught:
                await post("actions", body=body)
            assert caught.value.code == 400, body
            assert json.loads(caught.value.response.body)["field"] == field

    async def test_a_cluster_that_is_none_is_told_at_its_field(self, post, jp_root_dir, run_id):
        (jp_root_dir / "right.yaml").write_text(Experiment(**EXPERIMENT).to_yaml())
        for address, problem in (
            ("head", "'head' is not an address of a cluster"),
            ("http://me:secret@head:8265", "must not contain a user name or a password"),
            ("127.0.0.1:1", "nothing answers at 127.0.0.1:1"),
        ):
            arguments = {"path": "right.yaml", "address": address}
            with pytest.raises(HTTPClientError) as caught:
                await post("actions", body={"kind": "start", "arguments": arguments})
            told = json.loads(caught.value.response.body)
            assert told["field"] == "address"
            assert problem in told["problem"]
            assert "secret" not in json.dumps(told)

    async def test_a_wrong_experiment_is_refused_as_on_the_command_line(
        self, post, jp_root_dir, run_id
    ):
        (jp_root_dir / "wrong.yaml").write_text(
            "train: a.b:c\nobjectives: [{metric: x, goal: upwards}]\n"
        )
        with pytest.raises(HTTPClientError) as caught:
            await post("actions", body={"kind": "start", "arguments": {"path": "wrong.yaml"}})
        assert json.loads(caught.value.response.body)["field"] == "objectives.0.goal"
