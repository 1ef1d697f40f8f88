from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench.runs.written_file import linked


def test_a_written_file_is_a_path_that_a_notebook_shows_as_a_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    page = tmp_path / "a & b.html"
    page.write_text("a page")
    written = linked(page)
    assert written == page
    assert written.read_text() == "a page"
    assert repr(written) == str(page)
    assert 'href="a%20%26%20b.html"' in written._repr_html_()
    assert ">" + str(page).replace("&", "&amp;") + "</a>" in written._repr_html_()
    for unlinked in (
        linked(tmp_path),
        linked(tmp_path.parent / "elsewhere.html"),
        linked(page, "a-run").parent,
    ):
        assert "href" not in unlinked._repr_html_()


def test_the_report_of_a_run_is_linked_on_the_server_of_the_notebook_wherever_it_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JPY_PARENT_PID", "4711")
    (tmp_path / "jpserver-4711.json").write_text(json.dumps({"base_url": "/user/ann/"}))
    written = linked(tmp_path / "kept" / "report.html", "calm-owl-1")
    assert 'href="/user/ann/workbench/api/runs/calm-owl-1/report"' in written._repr_html_()
