"""TensorBoard: a folder of event files for each trial, with its hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.foundation.attachments import Attachment, Table, read_table
from workbench.store.loggers.logger import LoggedRun, TrialLogger


class TensorBoard(TrialLogger):
    """Writes event files below the folder of the run, without TensorFlow."""

    package = "tensorboardX"

    def __init__(self, run: LoggedRun) -> None:
        """See TrialLogger."""
        super().__init__(run)
        self._writers: dict[int, Any] = {}

    def begin(self, trial: int, params: Mapping[str, Any]) -> None:
        """Open the event file of a trial, and write its configuration. See TrialLogger."""
        from tensorboardX import SummaryWriter
        from tensorboardX.summary import hparams

        if trial in self._writers:
            return
        folder = self.run.folder / "tensorboard" / f"trial-{trial}"
        writer: Any = SummaryWriter(str(folder), flush_secs=5)
        self._writers[trial] = writer
        plain = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in params.items()
        }
        objectives = self.run.experiment.get("objectives", [])
        metrics = {objective["metric"]: 0.0 for objective in objectives}
        for summary in hparams(plain, metrics):
            writer.file_writer.add_summary(summary)

    def report(self, trial: int, step: int, values: Mapping[str, float]) -> None:
        """Write scalars. See TrialLogger."""
        writer = self._writers.get(trial)
        if writer is not None:
            for name, value in values.items():
                writer.add_scalar(name, value, step)

    def attach(self, trial: int, step: int, attachment: Attachment) -> None:
        """Write a picture as an image, and other attachments as text. See TrialLogger."""
        from tensorboardX.proto import summary_pb2

        # Its generated module declares its classes only while it runs.
        messages: Any = summary_pb2
        writer = self._writers.get(trial)
        if writer is None:
            return
        if attachment.kind == "image" and attachment.suffix in ("png", "jpg", "gif"):
            image = messages.Summary.Image(encoded_image_string=attachment.content, colorspace=3)
            summary = messages.Summary(
                value=[messages.Summary.Value(tag=attachment.name, image=image)]
            )
            writer.file_writer.add_summary(summary, step)
        elif attachment.kind == "table":
            writer.add_text(attachment.name, _markdown(read_table(attachment.content)), step)
        elif attachment.kind == "text":
            writer.add_text(attachment.name, attachment.content.decode(), step)

    def end(self, trial: int, state: str) -> None:
        """Close the event file. See TrialLogger."""
        writer = self._writers.pop(trial, None)
        if writer is not None:
            writer.add_text("state", state)
            writer.close()

    def close(self) -> None:
        """Close all event files. See TrialLogger."""
        while self._writers:
            self._writers.popitem()[1].close()


def _markdown(table: Table) -> str:
    """Return a table as TensorBoard shows it."""
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in rows
    )
