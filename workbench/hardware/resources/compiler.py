"""The C++ compiler of this machine, without which torch.compile makes no code."""

from __future__ import annotations

import os
import shutil
import sys

from workbench.foundation.errors import ExperimentError


def check_compiler(field: str) -> None:
    """Refuse to compile on a machine without a C++ compiler.

    Args:
        field: The dotted field in which compiling was requested.

    Raises:
        ExperimentError: If there is none.
    """
    usual = "clang++" if sys.platform == "darwin" else "g++"
    compiler = os.environ.get("CXX", usual)
    if shutil.which(compiler) is None:
        raise ExperimentError(
            f"torch.compile needs a C++ compiler, and there is no {compiler} here",
            field=field,
            allowed="none",
            next_step=(
                "Install one (on Debian: apt-get install g++), or name one in the variable CXX."
            ),
        )
