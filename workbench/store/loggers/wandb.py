"""Weights & Biases: a W&B run for each trial, grouped by the run of the workbench."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.foundation.attachments import Attachment, read_table
from workbench.store.loggers.logger import LoggedRun, TrialLogger


class WeightsAndBiases(TrialLogger):
    """Logs to the account that W&B is set up for, or to files with `WANDB_MODE=offline`."""

    package = "wandb"

    def __init__(self, run: LoggedRun) -> None:
        """See TrialLogger."""
        super().__init__(run)
        self._runs: dict[int, Any] = {}

    def begin(self, trial: int, params: Mapping[str, Any]) -> None:
        """Start a W&B run, or continue the one of an earlier attempt. See TrialLogger."""
        wandb: Any = importlib.import_module("wandb")
        if trial in self._runs:
            return
        self.run.folder.mkdir(parents=True, exist_ok=True)
        self._runs[trial] = wandb.init(
            project=self.run.name,
            group=self.run.run_id,
            name=f"trial {trial}",
            id=f"{self.run.run_id}-{trial}",
            resume="allow",
            reinit="create_new",
            config=dict(params),
            dir=str(self.run.folder),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def report(self, trial: int, step: int, values: Mapping[str, float]) -> None:
        """Log metrics. See TrialLogger."""
        if trial in self._runs:
            self._runs[trial].log(dict(values), step=step)

    def attach(self, trial: int, step: int, attachment: Attachment) -> None:
        """Log a picture as an image, and other attachments as a table. See TrialLogger."""
        if trial not in self._runs:
            return
        wandb: Any = importlib.import_module("wandb")
        if attachment.kind == "image":
            with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
                path = Path(folder) / f"picture.{attachment.suffix}"
                path.write_bytes(attachment.content)
                self._runs[trial].log({attachment.name: wandb.Image(str(path))}, step=step)
            return
        columns, rows = ["text"], [[attachment.content.decode()]]
        if attachment.kind == "table":
            table = read_table(attachment.content)
            columns, rows = table.columns, [[str(cell) for cell in row] for row in table.rows]
        self._runs[trial].log({attachment.name: wandb.Table(columns=columns, data=rows)}, step=step)

    def end(self, trial: int, state: str) -> None:
        """Finish the W&B run. See TrialLogger."""
        run = self._runs.pop(trial, None)
        if run is not None:
            run.summary["state"] = state
            run.finish(exit_code=1 if state == "failed" else 0)

    def close(self) -> None:
        """Finish all W&B runs, which another driver may continue. See TrialLogger."""
        while self._runs:
            self._runs.popitem()[1].finish()
