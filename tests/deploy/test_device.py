from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.deploy.trained import exported, write_table
from workbench.cli.entry import group
from workbench.deploy.card import read_card
from workbench.deploy.device import measure
from workbench.errors import ArgumentError, RunError

# Stands for the other machine: runs there are runs here, in another folder.
SSH = """#!/bin/sh
echo "ssh $@" >> {log}
while [ "$1" = -o ] || [ "$1" = -p ]; do shift 2; done
[ "$1" = board ] || [ "$1" = me@board ] || {{ echo "ssh: Could not resolve hostname" >&2; exit 255; }}
shift
cd {home} && exec sh -c "$*"
"""
SCP = """#!/bin/sh
echo "scp $@" >> {log}
while [ "$1" = -q ] || [ "$1" = -r ]; do shift; done
while [ "$1" = -o ] || [ "$1" = -P ]; do shift 2; done
exec cp -r "$1" "${{2#*:}}"
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_table(tmp_path / "houses.csv", 60)
    table = {"name": "table", "path": str(tmp_path / "houses.csv"), "target": "price"}
    exported(tmp_path / "bundle", "boosted_trees", table, num_trees=5)
    return tmp_path / "bundle"


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs in the place of ssh and scp, which reach a machine named board; returns their log."""
    programs, home, log = tmp_path / "programs", tmp_path / "board", tmp_path / "log"
    for folder in (programs, home):
        folder.mkdir()
    for name, text in (("ssh", SSH), ("scp", SCP)):
        (programs / name).write_text(text.format(log=log, home=home))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(home))
    return log


def folders_on(board: Path) -> list[Path]:
    return [path for path in (board.parent / "board").iterdir() if path.is_dir()]


def test_a_model_is_timed_on_several_machines_and_the_card_keeps_each(bundle: Path, board: Path) -> None:
    words = ["measure", str(bundle), "--device", "here", "--device", "ssh://me@board:2222"]
    words += ["--python", sys.executable, "--json"]

    done = CliRunner().invoke(group, words, standalone_mode=False)

    timings = json.loads(done.output)["timings"]
    assert [one["threads"] for one in timings] == [1, 1]
    assert all(0 < one["p50_s"] <= one["p95_s"] and one["num_calls"] > 0 for one in timings)
    assert all(one["memory_bytes"] > 1_000_000 for one in timings)
    assert timings[1]["machine"].endswith("(ssh://me@board:2222)")
    assert [one.p50_s for one in read_card(bundle).timings] == [one["p50_s"] for one in timings]
    assert folders_on(board) == [], "nothing is left behind"
    assert "-p 2222 me@board" in board.read_text()

    measure(bundle, threads=1)
    assert len(read_card(bundle).timings) == 2, "a machine that is measured again is replaced"


def test_a_machine_that_cannot_be_used_is_refused_in_words(bundle: Path, board: Path) -> None:
    with pytest.raises(
        RunError, match=r"nowhere: ssh: Could not resolve hostname\. Check that `ssh .* nowhere`"
    ):
        measure(bundle, "ssh://nowhere")
    with pytest.raises(
        ArgumentError, match=r"device: 'http://board' is not a device; allowed: here, or ssh://"
    ):
        measure(bundle, "http://board")
    with pytest.raises(ArgumentError, match="is not a device"):
        measure(bundle, "ssh://-oProxyCommand=true")
    with pytest.raises(RunError, match=r"board: .*no-python"):
        measure(bundle, "ssh://board", python="no-python")
    assert read_card(bundle).timings == ()
    assert folders_on(board) == []
