from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
import ray

from workbench.cluster.workers.trial_cleanup import ProcessState, TrialCleanup


def test_a_trial_cannot_cut_its_process_off_from_ray(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray, "shutdown", ray.shutdown)  # brought back after the test
    TrialCleanup()
    for _ in range(2):  # in every trial
        caplog.clear()
        ray.shutdown()
        assert "ray.shutdown() has no effect in a trial" in caplog.text


CHANGES = {
    "the working directory": "os.chdir('/')",
    "environment variables": (
        "os.environ['LEFT'] = '1'; del os.environ['GIVEN']; os.environ['HOME'] = '/x'"
    ),
    "sys.path": "sys.path.insert(0, '/x')",
    "sys.argv": "sys.argv.append('--x')",
    "the recursion limit": "sys.setrecursionlimit(5000)",
    "sys.excepthook": "sys.excepthook = print",
    "sys.stdout": "sys.stdout = io.StringIO()",
    "built-in functions": "builtins.print = str; builtins.added = 1",
    "warning filters": "warnings.simplefilter('error')",
    "loggers": (
        "logging.basicConfig(level=1); logging.getLogger('mine').addHandler(logging.NullHandler())"
    ),
    "logging.disable": "logging.disable(50)",
    "the alarm timer": "signal.setitimer(signal.ITIMER_REAL, 500)",
    "garbage collection": "gc.disable()",
    "the socket timeout": "socket.setdefaulttimeout(1)",
    "the start method of processes": "multiprocessing.set_start_method('spawn', force=True)",
    "blocked signals": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])",
    "sys.settrace": "sys.settrace(lambda *_: None)",
    "sys.setprofile": "sys.setprofile(lambda *_: None)",
    "what numpy does about errors": "numpy.seterr(all='raise')",
    "whether gradients are computed": "torch.set_grad_enabled(False)",
    "signal handlers": "signal.signal(signal.SIGUSR1, print)",
    "the time zone": "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
    "the umask": "os.umask(0o123)",
    "the switch interval of threads": "sys.setswitchinterval(0.5)",
    "the limit of digits": "sys.set_int_max_str_digits(0)",
    "the stack size of threads": "threading.stack_size(2**20)",
    "the trace function of threads": "threading.settrace(lambda *given: None)",
    "the profile function of threads": "threading.setprofile(lambda *given: None)",
    "decimal contexts": (
        "decimal.DefaultContext.prec = 3; decimal.getcontext().rounding = decimal.ROUND_UP"
    ),
    "the flags of debugging garbage collection": "gc.set_debug(gc.DEBUG_STATS)",
    "faulthandler": (
        "faulthandler.disable() if faulthandler.is_enabled() else faulthandler.enable(out)"
    ),
    "the policy of event loops": "asyncio.set_event_loop_policy(Policy())",
    "the virtual timer": "signal.setitimer(signal.ITIMER_VIRTUAL, 500)",
    "the profiling timer": "signal.setitimer(signal.ITIMER_PROF, 500)",
    "the folder of temporary files": "tempfile.tempdir = '/nowhere'",
    "sys.unraisablehook": "sys.unraisablehook = print",
    "captured warnings": "logging.captureWarnings(True)",
    "the class of loggers": "logging.setLoggerClass(type('Own', (logging.Logger,), {}))",
    "the factory of log records": "logging.setLogRecordFactory(print)",
    "soft limits": (
        "limits = resource.getrlimit(resource.RLIMIT_NOFILE); "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))"
    ),
    "the affinity to processors": "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
    "how torch shares tensors": "torch.multiprocessing.set_sharing_strategy('file_system')",
    "torch.backends.opt_einsum.enabled": "torch.backends.opt_einsum.enabled = False",
    "pandas' options": "pandas.set_option('display.max_rows', 7)",
    "torch's default device": "torch.set_default_device('meta')",
    "torch's default dtype": "torch.set_default_dtype(torch.float64)",
    "torch's deterministic algorithms": "torch.use_deterministic_algorithms(True, warn_only=True)",
    "anomaly detection": "torch.autograd.set_detect_anomaly(True)",
    "torch.backends.cudnn.benchmark": "torch.backends.cudnn.benchmark = True",
    "torch.backends.cudnn.deterministic": "torch.backends.cudnn.deterministic = True",
    "the precision of products of float32 matrices": "torch.set_float32_matmul_precision('high')",
    "torch.backends.cuda.matmul.fp32_precision": (
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'"
    ),
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
import asyncio, builtins, decimal, faulthandler, gc, io, json, logging, multiprocessing, os
import resource, signal, socket, sys, tempfile, threading, time, warnings
import numpy, pandas
Policy = type("Policy", (asyncio.DefaultEventLoopPolicy,), {})
changes, out = json.loads(sys.argv[1]), sys.stdout
from workbench.cluster.workers.trial_cleanup import ProcessState
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


@pytest.mark.slow
def test_everything_that_a_trial_changes_is_restored_whether_it_loads_torch_or_finds_it() -> None:
    command = [sys.executable, "-c", SCRIPT, json.dumps(CHANGES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == 2
    for item, dtype, given, prints in rounds:
        assert item == {name: [True, [], []] for name in CHANGES}
        assert (dtype, given, prints) == ("torch.float32", "1", True)


@pytest.mark.slow
def test_what_cannot_be_restored_is_named() -> None:
    script = """
import signal, threading
from workbench.cluster.workers.trial_cleanup import ProcessState
before = ProcessState()
signal.signal(signal.SIGUSR1, print)
lost = []
thread = threading.Thread(target=lambda: lost.append(before.restore().lost))
thread.start(); thread.join()
print(*lost)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
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
