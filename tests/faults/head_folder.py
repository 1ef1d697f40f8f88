"""A head whose folder in the temporary directory is cleaned: `python -m tests.faults head_folder`.

Programs that clean the temporary directory delete what a living head needs. In every round a head
is started by a sweep, and a part of its folder is removed: all of it, Ray's part, the sockets, one
socket, or the files beside the sockets. In every other round a run lives in the head meanwhile.
`doctor` may not call the head fine, and the next sweep either completes, on a new head where one is
needed, or is refused in words where a run lives in the old head. That run has to complete, if need
be on a new head. Nothing may end in C++.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.house import DEADLINE_S, House, finish, write_experiment
from tests.faults.rounds import play_rounds
from tests.services.waiting import try_until
from workbench.runs import Run

NUM_TRIALS = 4
FROM_C = re.compile(
    r"Check failed|\*\*\* SIG|core_worker|raylet_client|\[20\d\d-\d\d-\d\d .*\.cc:\d+|Traceback"
)
"""What Ray's C++ part, or an error that nobody has worded, writes."""
REPLACED, REFUSED = "A new head replaces it.", "and a run lives in it"
DELETED = "something deleted its folder"
"""What `doctor` says of a head that was cleaned."""


def make_fields(name: str, pause_s: float) -> dict[str, Any]:
    """The experiment of a round."""
    return {
        "name": name,
        "train": {"name": "trained_function:descend", "steps": 4, "pause_s": pause_s},
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 1, "high": 9}},
        "sampler": "random",
        "budget": {"trials": NUM_TRIALS},
        "resources": {"concurrency": 1, "max_retries": 5},
    }


def _sockets(folder: Path) -> Path:
    return folder / "ray" / "session_latest" / "sockets"


def _remove_socket(folder: Path, name: str) -> None:
    for path in _sockets(folder).glob(f"{name}*"):
        path.unlink()


def _remove_files(folder: Path) -> None:
    """Remove plain files, as what cleans by age does, which leaves sockets, links and folders."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.unlink()


CLEANED: dict[str, tuple[Callable[[Path], None], bool]] = {
    "all": (shutil.rmtree, True),
    "Ray's part": (lambda folder: shutil.rmtree(folder / "ray"), True),
    "sockets": (lambda folder: shutil.rmtree(_sockets(folder)), True),
    "the raylet's socket": (lambda folder: _remove_socket(folder, "raylet"), True),
    "the object store's socket": (lambda folder: _remove_socket(folder, "plasma_store"), True),
    "plain files": (_remove_files, False),
}
"""How each part is removed, and whether nothing can attach to the head without it."""


def head_of(house: House) -> tuple[int, Path]:
    """The keeper of the house's own head, and the folder of that head."""
    record = json.loads((house.home / "head" / "head.json").read_text())
    folder = Path(record["temp_dir"])
    command_lines = [" ".join(process.cmdline()) for process in house.processes()]
    if not folder.name.startswith("workbench-") or not any(
        str(folder) in line for line in command_lines
    ):
        raise RuntimeError(f"{folder} is not the folder of this house's head")
    return record["pid"], folder


def play(house: House, number: int) -> tuple[list[str], str]:
    """Play one round; return what is wrong, and what was cleaned."""
    what, is_used = list(CLEANED)[number // 2 % len(CLEANED)], number % 2 == 1
    wrong = _play(house, what, is_used=is_used)
    house.command("shutdown")  # the next round has a head of its own
    return wrong, f"{what}{' in use' if is_used else ''}, "


def _play(house: House, what: str, *, is_used: bool) -> list[str]:
    clean, is_needed = CLEANED[what]
    wrong: list[str] = []
    living = _start(house, "lives", pause_s=2.0) if is_used else None
    if living is None:
        code, said = _sweep(house, "first")
        if wrong := _expect(code == 0, "the first sweep", code, said):
            return wrong
    else:
        try_until(
            lambda: any(trial.reports for trial in living.history.trials.values()), DEADLINE_S
        )
    keeper, folder = head_of(house)
    clean(folder)

    code, said = house.command("doctor")
    is_said = DELETED in " ".join(said.split())
    wrong += _expect(is_said or not is_needed, "doctor", code, said)
    code, said = _sweep(house, "next")
    if living is not None and is_needed and living.state == "running":
        wrong += _expect(code != 0 and REFUSED in said, "the refused sweep", code, said)
    elif REPLACED in said or not is_needed:
        wrong += _expect(code == 0, "the next sweep", code, said)
    else:
        wrong += _expect(False, "the next sweep", code, said)
    if living is not None:
        wrong += _finish(house, living)
    elif is_needed and head_of(house)[0] == keeper:
        wrong.append("the cleaned head was not replaced")
    return wrong


def _finish(house: House, run: Run) -> list[str]:
    """Wait for a run that lives in a cleaned head.

    Where that cannot go on, resume it on a new one.
    """
    try_until(lambda: run.state in ("complete", "failed", "stopped", "lost"), DEADLINE_S)
    if run.state == "complete":
        return []
    house.command("shutdown")
    code, said = house.command("resume", run.run_id)
    return _expect(code == 0 and run.state == "complete", f"resume, {run.state}", code, said)


def _start(house: House, name: str, *, pause_s: float) -> Run:
    """Start a run and leave it."""
    path = write_experiment(house, make_fields(name, pause_s))
    known = {row.run_id for row in house.store.runs()}
    code, said = finish(house.begin("sweep", str(path), "--detach"))
    if code != 0:
        raise RuntimeError(f"the run did not start: {said}")
    return Run(
        house.store, next(row.run_id for row in house.store.runs() if row.run_id not in known)
    )


def _sweep(house: House, name: str) -> tuple[int, str]:
    """Follow a sweep to its end; return its exit code and all that it printed."""
    path = write_experiment(house, make_fields(name, 0.05))
    return finish(house.begin("sweep", str(path)))


def _expect(is_right: bool, what: str, code: int, said: str) -> list[str]:
    """Return what is wrong with what a command did; no output may come from C++."""
    wrong = [] if is_right else [f"{what}: {code}: {said.strip()[-600:]}"]
    if FROM_C.search(said):
        wrong.append(f"{what} wrote what no user should read: {said.strip()[-600:]}")
    return wrong


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults head_folder", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2 * len(CLEANED))
    parser.add_argument("--first", type=int, default=0, help="Begin with this round.")
    given = parser.parse_args(words)
    return play_rounds("head-folder", given.rounds, play, first=given.first)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
