"""The packages that deploying needs and a plain installation lacks: the message of a missing one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from workbench.errors import MissingDependencyError

INSTALL = "Install it: pip install 'workbench[deploy]'"


@contextlib.contextmanager
def needs(package: str) -> Iterator[None]:
    """Name the command that installs a package, if importing it inside the `with` block fails.

    Args:
        package: The package that is imported.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"this needs {error.name or package}, which is not installed", next_step=INSTALL
        ) from error
