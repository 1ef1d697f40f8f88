"""Tabular foundation models: TabICL and TabPFN, with weights in a local folder.

They are trained already. A fit only keeps the train samples, and each prediction reads all of them.
Nothing is ever downloaded: whoever wants such a model brings its weights, and accepts their
license.

Source: Qu et al., TabICL: A Tabular Foundation Model for In-Context Learning on Large Data (2025).
Hollmann et al., Accurate Predictions on Small Data with a Tabular Foundation Model (2025), TabPFN.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.foundation.errors import ArgumentError, MissingDependencyError, install_command

Package = Literal["tabicl", "tabpfn"]
_PACKAGES: dict[Package, str] = {"tabicl": "TabICL", "tabpfn": "TabPFN"}
_PARTS = {"classification": "classifier", "regression": "regressor"}
_LICENSES = ("licen[cs]e*", "LICEN[CS]E*", "Licen[cs]e*", "COPYING*")
_FIELD = "foundation_weights"


@dataclass(frozen=True)
class FoundationWeights:
    """The weights of a foundation model for one task.

    Attributes:
        path: The file.
        package: The package that reads it.
        license: The path of the file with its license, or None if there is none.
    """

    path: Path
    package: Package
    license: Path | None

    @property
    def note(self) -> str:
        """A note for the user about the model and its license."""
        model = f"{_PACKAGES[self.package]} is tried with the weights {self.path.name}"
        if self.license is None:
            return f"{model}. There is no license next to them: check that you may use them"
        title = _title_of(self.license)
        return f"{model}. Their license is in {self.license}: {title}"


def find_weights(
    folder: Path | str, task: Literal["classification", "regression"]
) -> FoundationWeights:
    """Find the weights for a task in a folder.

    Args:
        folder: The folder. The file is called as its publisher called it, such as
            tabicl-classifier-v2-20260212.ckpt.
        task: What is predicted.

    Raises:
        ArgumentError: If there is no such file.
        MissingDependencyError: If the package of the weights is not installed.
    """
    place = Path(folder).expanduser().resolve()
    if not place.is_dir():
        raise ArgumentError(
            f"{str(folder)!r} is not a folder",
            field=_FIELD,
            next_step="Pass the folder with the weights of TabICL or TabPFN.",
        )
    part = _PARTS[task]
    weights = [
        path
        for path in sorted(place.iterdir())
        if path.suffix == ".ckpt" and part in path.name.lower() and _package_in(path) is not None
    ]
    if not weights:
        raise ArgumentError(
            f"{place} has no weights for a {task}",
            field=_FIELD,
            allowed=[f"{package}-{part}*.ckpt" for package in _PACKAGES],
            next_step="Download them from the publisher, under the name that they have there.",
        )
    path = weights[-1]  # the newest version
    package = _package_in(path)
    assert package is not None
    check_installed(package)
    licenses = sorted({path for pattern in _LICENSES for path in place.glob(pattern)})
    return FoundationWeights(path, package, licenses[0] if licenses else None)


def check_installed(package: Package) -> None:
    """Raise an error if the package of some weights is not installed.

    Args:
        package: The package.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingDependencyError(
            f"{_PACKAGES[package]} is not installed",
            field=_FIELD,
            next_step=f"Install it with: {install_command('foundation')}",
        )


def make_estimator(
    path: str, *, num_classes: int | None, num_estimators: int, seed: int, num_threads: int
) -> Any:
    """Return an estimator like scikit-learn's that predicts with some weights.

    Args:
        path: The file with the weights.
        num_classes: Number of classes, or None for a regression.
        num_estimators: How many times it predicts, each with other orders of columns and classes.
        seed: Seed of these orders.
        num_threads: Number of threads.

    Raises:
        ArgumentError: If the file does not exist.
        MissingDependencyError: If the package is not installed.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # also if a package changes its mind
    package = _package_in(Path(path))
    if package is None or not Path(path).is_file():
        raise ArgumentError(
            f"there are no weights of a foundation model at {path}",
            field=_FIELD,
            next_step="Put them there again, on every machine of the run.",
        )
    check_installed(package)
    kind = "Regressor" if num_classes is None else "Classifier"
    options: dict[str, Any] = {
        "model_path": path,
        "n_estimators": num_estimators,
        "random_state": seed % 2**31,
        "device": "cpu",
    }
    if package == "tabicl":
        import tabicl  # pyright: ignore[reportMissingImports]

        made = getattr(tabicl, f"TabICL{kind}")
        return made(**options, allow_auto_download=False, n_jobs=num_threads)
    import tabpfn  # pyright: ignore[reportMissingImports]

    made = getattr(tabpfn, f"TabPFN{kind}")
    return made(**options, ignore_pretraining_limits=True)


def _package_in(path: Path) -> Package | None:
    name = path.name.lower()
    return next((package for package in _PACKAGES if package in name), None)


def _title_of(license: Path) -> str:
    """Return the first line of a license that says something."""
    lines = license.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in lines if line.strip()), "it is empty")[:100]
