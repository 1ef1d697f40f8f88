"""Output on a page is compared with what a command prints, without numbers, paths and run ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.outputs import outdated, outdated_lines

PRINTED = """\
     3.05 s trial 1 complete val_loss=0.2852 lr=0.007407
best    val_loss=0.05986  trial 0
report  /home/me/runs/mine-1clcpi5/report.html
"""


@pytest.mark.parametrize(
    ("shown", "is_found"),
    [
        ("     12 s trial 3 complete val_loss=0.1 lr=1e-3", False),
        ("...\nbest val_loss=0.1  trial 2\n...", False),
        ("     1 s trial 1 complete val_loss=0.2852 ...", False),
        ("$ workbench sweep mine.yaml", False),
        ("report  runs/mine-1clx000/report.html", False),
        ("     12 s trial 3 pruned", True),
        ("best    val_accuracy=0.9  trial 2", True),
    ],
)
def test_a_line_that_is_not_printed_is_found(shown: str, is_found: bool) -> None:
    assert bool(list(outdated(shown, PRINTED))) == is_found


def test_the_outputs_of_a_page_are_those_below_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint('loss', 3)\n```\n\n```text\nloss 4\nold 4\n```\n"
        "```text\nnot an output\n```\n",
        encoding="utf-8",
    )
    assert list(outdated_lines(page, tmp_path)) == ["old 4"]
