"""The function that the campaign's sweeps of functions run as a trial."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def descend(config: dict[str, Any], report: Any, folder: Path) -> None:
    """Walk down step by step.

    Each value follows from the one before, so a wrong resume ends elsewhere. After a report it
    waits for the file `gate`, if there is such an option.
    """
    saved, unfinished = folder / "state.json", folder / "state.unfinished"
    state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "loss": 1.0}
    while state["step"] < config["steps"]:
        time.sleep(config["pause_s"])
        step = state["step"] + 1
        state = {"step": step, "loss": 0.7 * state["loss"] + config["x"] / (step + config["y"])}
        stop = report(**state)
        unfinished.write_text(json.dumps(state))
        os.replace(unfinished, saved)
        if stop:
            return
        while "gate" in config and not os.path.exists(config["gate"]):
            time.sleep(0.05)
