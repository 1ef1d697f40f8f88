"""Notebooks that were never run."""

from __future__ import annotations

import json
from pathlib import Path


def write_notebook(folder: Path, name: str, *cells: str) -> None:
    """Write a notebook with code cells."""
    document = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{index}",
                "metadata": {},
                "source": cell,
                "outputs": [],
                "execution_count": None,
            }
            for index, cell in enumerate(cells)
        ],
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (folder / name).write_text(json.dumps(document))
