"""Whether Ray is loaded can be asked while another thread is loading it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys, threading
from workbench.hardware.resources import loaded_ray
assert loaded_ray() is None
loading = threading.Thread(target=lambda: __import__("ray"))
loading.start()
while "ray" not in sys.modules:
    pass
print(loaded_ray().is_initialized())
loading.join()
"""


@pytest.mark.slow
def test_a_ray_that_is_being_loaded_is_waited_for() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr
