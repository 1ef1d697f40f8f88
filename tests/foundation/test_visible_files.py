from __future__ import annotations

from workbench.foundation.files import visible_below


def test_hidden_files_and_those_in_hidden_folders_are_left_out(tmp_path):
    for name in (
        "b.txt",
        "deep/a.txt",
        ".c.txt",
        ".git/d.txt",
        "deep/.ipynb_checkpoints/a.txt",
        "e.csv",
    ):
        (tmp_path / ".home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ".home" / name).write_text("")
    visible = visible_below(tmp_path / ".home", "*.txt")
    assert [file.relative_to(tmp_path / ".home").as_posix() for file in visible] == [
        "b.txt",
        "deep/a.txt",
    ]
