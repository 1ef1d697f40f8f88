"""The error for missing packages that deployment needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from workbench.foundation.errors import MissingDependencyError, install_command


@contextlib.contextmanager
def needs(package: str, *, part: str = "deploy") -> Iterator[None]:
    """Raise an error with the install command if an import inside the `with` block fails.

    Args:
        package: The package that is imported.
        part: The extra of the workbench that has it.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"this needs {error.name or package}, which is not installed",
            next_step=f"Install it: {install_command(part)}",
        ) from error
