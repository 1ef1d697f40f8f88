"""Machines of a network that lies in this one.

Namespaces with addresses of their own, on links that can be slowed down and cut. Needs Linux, root
and iproute2.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_NUMBERS = itertools.count(os.getpid())
_MAX_NETWORKS = 250


def why_not() -> str | None:
    """Why there can be no network here; None where there can."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "iproute2 is not installed"
    probe = f"wb-probe-{os.getpid()}"
    done = subprocess.run(
        ["ip", "netns", "add", probe], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return f"network namespaces cannot be made here: {done.stderr.strip()}"
    _run("ip", "netns", "delete", probe)
    return None


@dataclass(frozen=True)
class Place:
    """A namespace with one link."""

    namespace: str
    address: str
    link: str
    """The end of its link that lies outside."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """What begins a command that runs there."""
        return ("ip", "netns", "exec", self.namespace)


class Network:
    """A bridge on this machine, which has the first address, and places linked to it."""

    def __init__(self) -> None:
        self._number = _make_bridge()
        self._bridge = f"wbb{self._number}"
        self.address = f"10.77.{self._number}.1"
        self.places: list[Place] = []
        self._links: list[subprocess.Popen[str]] = []
        _run("ip", "address", "add", f"{self.address}/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")

    def add(self, delay_s: float = 0.0) -> Place:
        """Add a place; what passes its link takes `delay_s` in either direction."""
        index = len(self.places)
        name = f"wbn{self._number}-{index}"
        place = Place(name, f"10.77.{self._number}.{index + 2}", f"wbl{self._number}-{index}")
        self.places.append(place)
        inside = f"wbi{self._number}-{index}"
        _run("ip", "netns", "add", name)
        if delay_s:
            self._start_link(place.link, inside, delay_s)
        else:
            _run("ip", "link", "add", place.link, "type", "veth", "peer", "name", inside)
        _run("ip", "link", "set", inside, "netns", name)
        _run("ip", "link", "set", place.link, "master", self._bridge, "up")
        _run(*place.prefix, "ip", "address", "add", f"{place.address}/24", "dev", inside)
        for link in ("lo", inside):
            _run(*place.prefix, "ip", "link", "set", link, "up")
        return place

    def _start_link(self, outside: str, inside: str, delay_s: float) -> None:
        words = [sys.executable, "-m", "tests.services.delayed_link", outside, inside, str(delay_s)]
        link = subprocess.Popen(
            words, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
        )
        self._links.append(link)
        assert link.stdout is not None
        if link.stdout.readline() != "ready\n":
            raise RuntimeError(f"the link {outside} was not made")

    def limit(self, place: Place, megabits_per_s: int) -> None:
        """Let a link carry no more in either direction, and queue what is too much."""
        inside = place.link.replace("wbl", "wbi")
        shape = [
            "root",
            "tbf",
            "rate",
            f"{megabits_per_s}mbit",
            "burst",
            "64kb",
            "latency",
            "400ms",
        ]
        _run("tc", "qdisc", "replace", "dev", place.link, *shape)
        _run(*place.prefix, "tc", "qdisc", "replace", "dev", inside, *shape)

    def cut(self, place: Place) -> None:
        """Let nothing pass; nobody's connection is closed."""
        _run("ip", "link", "set", place.link, "down")

    def mend(self, place: Place) -> None:
        """Let everything pass again."""
        _run("ip", "link", "set", place.link, "up")

    def carried_bytes(self, place: Place) -> int:
        """Bytes that a place has sent so far."""
        with open(f"/sys/class/net/{place.link}/statistics/rx_bytes") as file:
            return int(file.read())

    def close(self) -> None:
        """Remove everything."""
        for place in self.places:
            _run("ip", "netns", "delete", place.namespace)  # its links go with it
        for link in self._links:
            link.kill()
            link.communicate()
        _run("ip", "link", "delete", self._bridge)


def _make_bridge() -> int:
    """Make a bridge with a number that no network has, also not that of another process or a killed
    one.
    """
    for _ in range(_MAX_NETWORKS):
        number = next(_NUMBERS) % _MAX_NETWORKS
        try:
            _run("ip", "link", "add", f"wbb{number}", "type", "bridge")
        except RuntimeError as error:
            if "File exists" not in str(error):
                raise
        else:
            return number
    raise RuntimeError("no number of a network is free: remove bridges with `ip link delete`")


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
