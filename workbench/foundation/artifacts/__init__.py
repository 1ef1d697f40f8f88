"""Files that must outlive the process that writes them, on any path or URL that pyarrow's
filesystems open.

A file is there whole or not at all. On a path of this machine that takes a rename and nothing is
loaded for it; on a URL (s3, gs, hdfs, abfs, ...) pyarrow is, on first use. What is appended to
while it happens lies in a working folder of this machine. What the files mean is left to those who
write them; what a URL holds besides a place (keys, passwords, options) is never shown.
"""

from __future__ import annotations

from workbench.foundation.artifacts.opening import is_url, open_artifacts
from workbench.foundation.artifacts.place import Artifacts, disk_fault

__all__ = ["Artifacts", "disk_fault", "is_url", "open_artifacts"]
