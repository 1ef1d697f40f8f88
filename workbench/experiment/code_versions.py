"""A version of the code as a value of a parameter: its name, and where it comes from.

With `search: {code: {versions: [{git: main}, {patch: wider.diff}, {folder: ./other}]}}`, each trial
runs one of them. Copying the code of a version is left to `workbench.cluster.remote.version_trees`.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from typing_extensions import Self

from workbench.foundation.errors import ExperimentError
from workbench.foundation.validation_errors import Checked

CODE = "code"
"""The name of the parameter whose values are versions of the code."""
_MAX_NAME_CHARS = 80


class CodeVersion(Checked):
    """One version of the code of a run.

    Example:
        >>> from workbench.experiment.code_versions import CodeVersion
        >>> CodeVersion(git="main").label
        'main'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    git: str | None = Field(
        None, min_length=1, description="A branch, tag or commit of the repository."
    )
    patch: str | None = Field(
        None,
        min_length=1,
        description=(
            "The path of a unified diff. It is applied to the working folder, or to the commit "
            "or folder that is named with it."
        ),
    )
    folder: str | None = Field(
        None, min_length=1, description="A folder with all code. The working folder itself is `.`."
    )
    name: str | None = Field(
        None,
        min_length=1,
        description="What the version is called. By default its branch, file or folder.",
    )

    @model_validator(mode="before")
    @classmethod
    def _accept_mapping_only(cls, given: Any) -> Any:
        if isinstance(given, str):
            raise ExperimentError(
                f"{given!r} does not say what it is",
                allowed="{git: BRANCH}, {patch: FILE} or {folder: PATH}",
            )
        return given

    @model_validator(mode="after")
    def _check(self) -> Self:
        kinds = [key for key in ("git", "patch", "folder") if getattr(self, key) is not None]
        if not kinds or {"git", "folder"} <= {*kinds}:
            raise ExperimentError(
                f"a version cannot be {' and '.join(kinds)}" if kinds else "it names no code",
                allowed="{git: BRANCH}, {folder: PATH}, {patch: FILE}, or a patch with one of them",
            )
        if self.git is not None and (self.git.startswith("-") or not self.git.isprintable()):
            raise ExperimentError(
                f"{self.git!r} is not the name of a commit",
                field="git",
                allowed="a branch, a tag or a commit",
            )
        if not self.label.isprintable() or len(self.label) > _MAX_NAME_CHARS:
            raise ExperimentError(
                "this is not a name that can be shown",
                field="name",
                allowed=f"up to {_MAX_NAME_CHARS} printable characters",
            )
        return self

    @model_serializer(mode="wrap")
    def _write_only_what_was_set(self, handler: SerializerFunctionWrapHandler) -> Any:
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if value is not None}

    @property
    def label(self) -> str:
        """What the version is called."""
        if self.name is not None:
            return self.name
        if self.patch is not None:
            return PurePath(self.patch).name
        if self.git is not None:
            return self.git
        return PurePath(self.folder or ".").name or "current"

    def describe(self) -> str:
        """Describe where the code comes from, such as `git main with the patch wider.diff`."""
        sources = (("git", self.git), ("folder", self.folder))
        parts = [f"{kind} {value}" for kind, value in sources if value is not None]
        if self.patch is not None:
            parts.append(f"patch {self.patch}")
        return " with ".join(parts)
