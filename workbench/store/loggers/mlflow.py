"""MLflow: a run for each trial, in the MLflow experiment with the experiment's name."""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.foundation.attachments import Attachment
from workbench.store.loggers.logger import LoggedRun, TrialLogger

_TAG = "workbench.trial"
_STATES = {"complete": "FINISHED", "failed": "FAILED"}


class MLflow(TrialLogger):
    """Logs to the server or folder in MLflow's own variables, such as `MLFLOW_TRACKING_URI`."""

    package = "mlflow"

    def __init__(self, run: LoggedRun) -> None:
        """See TrialLogger."""
        super().__init__(run)
        from mlflow.tracking import MlflowClient  # pyright: ignore[reportMissingImports]

        self._client: Any = MlflowClient()
        experiment = self._client.get_experiment_by_name(run.name)
        if experiment is None:
            self._experiment_id = self._client.create_experiment(run.name)
        else:
            self._experiment_id = experiment.experiment_id
        self._run_ids: dict[int, str] = {}

    def begin(self, trial: int, params: Mapping[str, Any]) -> None:
        """Start an MLflow run, or find the one of an earlier attempt. See TrialLogger."""
        if trial in self._run_ids:
            return
        tag = f"{self.run.run_id}/{trial}"
        # An earlier driver may have created it.
        mlflow_runs = self._client.search_runs([self._experiment_id], f"tags.`{_TAG}` = '{tag}'")
        if mlflow_runs:
            self._run_ids[trial] = mlflow_runs[0].info.run_id
            return
        created = self._client.create_run(
            self._experiment_id, tags={_TAG: tag}, run_name=f"{self.run.run_id} trial {trial}"
        )
        self._run_ids[trial] = created.info.run_id
        for name, value in params.items():
            self._client.log_param(created.info.run_id, name, value)

    def report(self, trial: int, step: int, values: Mapping[str, float]) -> None:
        """Log metrics. See TrialLogger."""
        run_id = self._run_ids.get(trial)
        if run_id is None:
            return
        time_ms = int(time.time() * 1000)
        for name, value in values.items():
            if math.isfinite(value):  # not every store of MLflow accepts NaN and infinity
                self._client.log_metric(run_id, name, value, timestamp=time_ms, step=step)

    def attach(self, trial: int, step: int, attachment: Attachment) -> None:
        """Store the file among the artifacts of the MLflow run. See TrialLogger."""
        run_id = self._run_ids.get(trial)
        if run_id is None:
            return
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", attachment.name)
        with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
            path = Path(folder) / f"{step:08d}.{attachment.suffix}"
            path.write_bytes(attachment.content)
            self._client.log_artifact(run_id, str(path), name)

    def end(self, trial: int, state: str) -> None:
        """End the MLflow run. See TrialLogger."""
        run_id = self._run_ids.pop(trial, None)
        if run_id is not None:
            self._client.set_tag(run_id, "workbench.state", state)
            self._client.set_terminated(run_id, status=_STATES.get(state, "KILLED"))
