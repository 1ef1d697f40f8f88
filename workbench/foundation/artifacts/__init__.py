"""Files that must outlive the process that writes them, on any path or URL that pyarrow can open.

A file is either complete or absent. On a local path that takes a rename, and nothing is loaded. For
a URL (s3, gs, hdfs, abfs, ...) pyarrow is loaded on first use. Files that grow are kept in a local
working folder. The keys, passwords and options in a URL are never shown.
"""

from __future__ import annotations

from workbench.foundation.artifacts.opening import is_url, open_artifacts
from workbench.foundation.artifacts.place import Artifacts, disk_fault

__all__ = ["Artifacts", "disk_fault", "is_url", "open_artifacts"]
