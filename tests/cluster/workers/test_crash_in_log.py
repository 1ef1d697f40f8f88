"""What the log of a trial shows of the end of its process."""

from __future__ import annotations

from pathlib import Path

from workbench.cluster.workers.trial_log import crash_in


def test_the_signal_of_a_crash_is_read_from_the_log_and_earlier_crashes_are_not(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log.txt"
    assert crash_in(log, since_unix_s=0.0) is None
    log.write_text("*** SIGSEGV received at time=1000 on cpu 1 ***\n" + "    @ frame\n" * 100)
    assert crash_in(log, since_unix_s=1000.7) == "SIGSEGV"
    with log.open("a") as file:
        file.write(
            "epoch 1\n[2026 E 1] logging.cc:474: *** SIGABRT received at time=2000 on cpu 0 ***\n"
        )
    assert crash_in(log, since_unix_s=1500.0) == "SIGABRT"
    assert crash_in(log, since_unix_s=3000.0) is None
