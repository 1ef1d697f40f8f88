from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import numpy
import threadpoolctl
from workbench.cluster.workers.caller_environment import CallerEnvironment
from workbench.cluster.workers.worker import Worker

def num_threads():
    found = threadpoolctl.threadpool_info()
    return {library["num_threads"] for library in found if library["user_api"] == "blas"}

before = num_threads()
Worker(cpus=1, gpus=0.0, preload=(), environment=CallerEnvironment("elsewhere", {}))
print(before, num_threads())
"""


@pytest.mark.slow
def test_a_worker_in_a_process_that_has_loaded_numpy_computes_on_its_own_cores_only() -> None:
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=variables | {"OPENBLAS_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[0] == "{2} {1}"
