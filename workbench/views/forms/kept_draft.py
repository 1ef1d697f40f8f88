"""The draft of a form, kept next to the runs of a store, so that it comes back with its cell.

A draft belongs to a place, such as a cell of a notebook, and to the experiment that it started
with. A cell with another experiment starts a new draft. `draft` decides everything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench.foundation.artifacts import Artifacts
from workbench.foundation.errors import ArtifactsError, WorkbenchError

if TYPE_CHECKING:
    from workbench.store.database import Store
    from workbench.views.forms.draft import Draft

logger = logging.getLogger(__name__)

# The name of no run starts with a dot.
_FOLDER = ".drafts"
_PAUSE_S = 0.3
_RESTORED = "Your earlier changes are back. Undo returns to the experiment of the cell."


class DraftRecord(BaseModel):
    """A draft as it is stored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    began_with: str
    """The hash of the experiment that it began with."""
    document: dict[str, Any]
    yaml: str
    run_id: str = ""
    saved_unix_s: float = 0.0


def key_of(*place: str) -> str:
    """Return the key of the draft of a place.

    Args:
        *place: What distinguishes the place from others, such as the path of a notebook and the id
            of a cell.
    """
    return hashlib.sha256("\0".join(place).encode()).hexdigest()[:32]


def read_draft(artifacts: Artifacts, key: str) -> DraftRecord | None:
    """Return the draft of a place, or None if none is kept, or none that can be read.

    Args:
        artifacts: The artifacts of the store.
        key: As `key_of` returns it.
    """
    try:
        return DraftRecord.model_validate_json(artifacts.read(f"{_FOLDER}/{key}.json"))
    except (ArtifactsError, ValidationError):
        return None


_keepers: WeakValueDictionary[str, KeptDraft] = WeakValueDictionary()


class KeptDraft:
    """Keeps a draft in a store while it is edited. A store that cannot be written keeps nothing."""

    def __init__(self, draft: Draft, store: Store, key: str) -> None:
        """Restore what was kept of a draft that began with the same experiment, then keep it.

        Args:
            draft: The draft, as the cell has created it.
            store: The store of its runs.
            key: Its place, as `key_of` returns it.
        """
        self.key = key
        self.run_id = ""
        self._draft = draft
        self._artifacts = store.artifacts
        self._name = f"{_FOLDER}/{key}.json"
        self._began_with = draft.experiment.hash()
        self._changed, self._closing = threading.Event(), threading.Event()
        self._kept: DraftRecord | None = None
        self._saving = threading.Lock()
        if (before := _keepers.get(key)) is not None:
            before.save()
        _keepers[key] = self
        record = read_draft(self._artifacts, key)
        if record is not None and record.began_with == self._began_with:
            self.run_id = record.run_id
            self._restore(record)
        self._end = draft.listen(self._changed.set)
        self._thread = threading.Thread(
            target=self._save_changes, name="workbench-draft", daemon=True
        )
        self._thread.start()

    def keep_run(self, run_id: str) -> None:
        """Keep which run was started last.

        Args:
            run_id: Its id.
        """
        self.run_id = run_id
        self._changed.set()

    def close(self) -> None:
        """Save the last change and stop."""
        self._end()
        self._closing.set()
        self._changed.set()

    def _restore(self, record: DraftRecord) -> None:
        removed = [name for name in self._draft.document if name not in record.document]
        with contextlib.suppress(WorkbenchError):  # a newer version may know other settings
            self._draft.edit(
                list(record.document.items()), removals=removed, label="earlier changes"
            )
            if self._draft.undo_label is not None:
                self._draft.notes = [_RESTORED]

    def _save_changes(self) -> None:
        while not self._closing.is_set():
            self._changed.wait()
            self._closing.wait(_PAUSE_S)  # several changes in a row are saved once
            self._changed.clear()
            self.save()

    def save(self) -> None:
        """Save the draft now, if it has changed."""
        with self._saving:
            self._save()

    def _save(self) -> None:
        draft = self._draft
        record = DraftRecord(
            began_with=self._began_with,
            document=draft.notebook.named(draft.document),
            yaml=draft.yaml,
            run_id=self.run_id,
        )
        if record == self._kept:
            return
        self._kept = record
        saved = record.model_copy(update={"saved_unix_s": time.time()})
        try:
            self._artifacts.write(self._name, json.dumps(saved.model_dump()).encode())
        except (ArtifactsError, TypeError, ValueError) as error:
            logger.warning("the draft is not kept: %s", error)
