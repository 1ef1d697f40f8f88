"""Quantities in the units in which people compare them: sizes, durations, short times, rates."""

from __future__ import annotations


def format_bytes(num_bytes: float) -> str:
    """Write a size of memory: 3.4 GiB, 120 MiB, 18 KiB."""
    for unit, unit_bytes in (("GiB", 2**30), ("MiB", 2**20)):
        if num_bytes >= unit_bytes:
            return f"{num_bytes / unit_bytes:.3g} {unit}"
    return f"{num_bytes / 1024:.3g} KiB"


def format_duration(seconds: float) -> str:
    """Write a duration: 12.3s, 4m05s, 2h07m, 3d04h."""
    if seconds < 60:
        return f"{seconds}s" if isinstance(seconds, int) else f"{seconds:.1f}s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest_s:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h"


def format_short_time(seconds: float) -> str:
    """Write how long a step takes: 850 us, 12.3 ms; from a second on as any duration."""
    if seconds >= 1.0:
        return format_duration(seconds)
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def format_rate(per_s: float) -> str:
    """Write how many there are a second: 5,120 from a hundred on, 12.3 below."""
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"
