"""What a trial changed in its process is as before, and what is not makes the worker unfit."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from workbench.workers.process_state import ProcessState

CHANGES = {
    "the working directory": "os.chdir('/')",
    "environment variables": "os.environ['LEFT'] = '1'; del os.environ['GIVEN']; os.environ['HOME'] = '/x'",
    "sys.path": "sys.path.insert(0, '/x')",
    "sys.argv": "sys.argv.append('--x')",
    "the recursion limit": "sys.setrecursionlimit(5000)",
    "sys.excepthook": "sys.excepthook = print",
    "sys.stdout": "sys.stdout = io.StringIO()",
    "built-in functions": "builtins.print = str; builtins.added = 1",
    "warning filters": "warnings.simplefilter('error')",
    "loggers": "logging.basicConfig(level=1); logging.getLogger('mine').addHandler(logging.NullHandler())",
    "logging.disable": "logging.disable(50)",
    "the alarm timer": "signal.setitimer(signal.ITIMER_REAL, 500)",
    "garbage collection": "gc.disable()",
    "the socket timeout": "socket.setdefaulttimeout(1)",
    "the start method of processes": "multiprocessing.set_start_method('spawn', force=True)",
    "signal handlers": "signal.signal(signal.SIGUSR1, print)",
    "torch's default device": "torch.set_default_device('meta')",
    "torch's default dtype": "torch.set_default_dtype(torch.float64)",
    "torch's deterministic algorithms": "torch.use_deterministic_algorithms(True, warn_only=True)",
    "anomaly detection": "torch.autograd.set_detect_anomaly(True)",
    "torch.backends.cudnn.benchmark": "torch.backends.cudnn.benchmark = True",
    "torch.backends.cudnn.deterministic": "torch.backends.cudnn.deterministic = True",
    "the precision of products of float32 matrices": "torch.set_float32_matmul_precision('high')",
    "torch.backends.cuda.matmul.fp32_precision": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cudnn.conv.fp32_precision": "torch.backends.cudnn.allow_tf32 = False",
    "flash_sdp": "torch.backends.cuda.enable_flash_sdp(False)",
    "torch's print options": "torch.set_printoptions(precision=2)",
    "numpy's print options": "numpy.set_printoptions(precision=2)",
    "torch.nn.modules.module._global_forward_hooks": (
        "torch.nn.modules.module.register_module_forward_hook(lambda *given: None)"
    ),
    "torch.optim.optimizer._global_optimizer_post_hooks": (
        "from torch.optim.optimizer import register_optimizer_step_post_hook as hook; hook(print)"
    ),
}
SCRIPT = """
import builtins, gc, io, json, logging, multiprocessing, os, signal, socket, sys, warnings
import numpy
changes, out = json.loads(sys.argv[1]), sys.stdout
from workbench.workers.process_state import ProcessState
os.environ["GIVEN"] = "1"
for torch_is_loaded in ("by the trial", "before"):
    assert ("torch" in sys.modules) == (torch_is_loaded == "before")
    before = ProcessState()
    import torch
    before.restore()
    found = {}
    for name, change in changes.items():
        exec(change)
        difference = before.restore()
        found[name] = (name in difference.changed, difference.lost, before.restore().changed)
    others = str(torch.get_default_dtype()), os.environ["GIVEN"], print is not str
    print(json.dumps([found, *others]), file=out)
os._exit(out.flush() or 0)
"""


def test_everything_that_a_trial_changes_is_restored_whether_it_loads_torch_or_finds_it_loaded() -> None:
    command = [sys.executable, "-c", SCRIPT, json.dumps(CHANGES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == 2
    for found, dtype, given, prints in rounds:
        assert found == {name: [True, [], []] for name in CHANGES}
        assert (dtype, given, prints) == ("torch.float32", "1", True)


def test_what_cannot_be_restored_is_named() -> None:
    script = """
import signal, threading
from workbench.workers.process_state import ProcessState
before = ProcessState()
signal.signal(signal.SIGUSR1, print)
lost = []
thread = threading.Thread(target=lambda: lost.append(before.restore().lost))
thread.start(); thread.join()
print(*lost)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "['signal handlers cannot be restored']\n"


def test_open_figures_are_closed_and_settings_of_matplotlib_restored() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    before = ProcessState()
    pyplot.figure()
    matplotlib.rcParams["lines.linewidth"] = 9.0

    assert before.restore().changed == ["open figures", "matplotlib's settings"]
    assert (pyplot.get_fignums(), matplotlib.rcParams["lines.linewidth"]) == ([], 1.5)


def test_loggers_of_libraries_keep_what_their_import_configured() -> None:
    before = ProcessState()
    for name in ("pytest.made_by_an_import", "made_by_user_code"):
        logging.getLogger(name).setLevel(logging.ERROR)

    assert before.restore().changed == ["loggers"]
    assert logging.getLogger("pytest.made_by_an_import").level == logging.ERROR
    assert logging.getLogger("made_by_user_code").level == logging.NOTSET
