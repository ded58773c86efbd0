"""The explorer: from a moved slider to its picture, over HTTP.

A worker computes a picture, the server passes it on and the client reads it: the CPU time of all three is reported.
Times are wall-clock times of an idle machine; on shared cores they vary by up to a half from hour to hour.

If twenty clients request pictures without pause on two shared cores, a picture of c milliseconds of CPU arrives after
20 c / 2 on average, so 100 ms allow 10 ms of CPU in total. The row "after the command" includes loading the
interpreter, numpy, pydantic and the server; the rest loads on demand.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import psutil

COMMAND = "import typer; from learncast.cli import explore; typer.run(explore)"
PORTRAIT, COUNTED = "/api/curriculum/portrait", "/api/curriculum/descent"
CLIENTS, SECONDS = 20, 30.0
#: Pictures a second that a hand asks for: the page waits for one before it asks for the next.
PACE = 5.0


@contextmanager
def served() -> Iterator[tuple[int, psutil.Process]]:
    """A running explorer's port and process."""
    command = [sys.executable, "-c", COMMAND, "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = re.search(r":(\d+)/", process.stdout.readline())
        assert address is not None
        yield int(address[1]), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


class Client:
    """A hand on the sliders: each state differs from all before."""

    def __init__(self, port: int, seed: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.rng = np.random.default_rng(seed)
        self.times: list[float] = []
        self.errors = 0

    def move(self, part: str = PORTRAIT, **more: object) -> None:
        state = {
            "recurrence": float(self.rng.uniform(0.5, 1.0)),
            "target_strength": float(self.rng.uniform(0.5, 2.0)),
            "initial": float(10 ** self.rng.uniform(-3, -1)),
            **more,
        }
        body = json.dumps(state)
        begun = time.perf_counter()
        self.connection.request("POST", part, body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        answer.read()
        self.times.append(time.perf_counter() - begun)
        self.errors += answer.status != 200

    def drag(self, until: float, pause: float) -> None:
        time.sleep(self.rng.uniform(0, pause))
        while time.monotonic() < until:
            begun = time.monotonic()
            self.move()
            time.sleep(max(0.0, pause - (time.monotonic() - begun)))


def quantiles(times: list[float]) -> tuple[str, str]:
    return tuple(f"{np.quantile(times, q) * 1e3:.1f} ms" for q in (0.5, 0.95))  # type: ignore[return-value]


def crowd(port: int, pause: float) -> tuple[int, int, str]:
    """Requests, errors and p95 of many clients at once, each asking again after a pause."""
    clients = [Client(port, seed) for seed in range(CLIENTS)]
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=client.drag, args=(until, pause)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = [t for client in clients for t in client.times]
    return len(times), sum(client.errors for client in clients), quantiles(times)[1]


def rows() -> Iterator[tuple[str, str, str]]:
    with served() as (port, server):
        one = Client(port, 100)
        until = time.monotonic() + 6.0  # until the workers are there
        while time.monotonic() < until:
            one.move()
        one.times.clear()
        before = cpu_seconds(server)
        for _ in range(300):
            one.move()
        cost = [(now - then) / 300 * 1e3 for now, then in zip(cpu_seconds(server), before, strict=True)]
        told = f"server {cost[0]:.1f}, workers {cost[1]:.1f}, client {cost[2]:.1f}"
        yield f"CPU of one picture of 120 x 120 ({told} ms)", f"{sum(cost):.1f} ms", "<= 10 ms"
        half, most = quantiles(one.times)
        yield "portrait of 120 x 120, slider to picture: p50", half, "<= 30 ms"
        yield "portrait of 120 x 120, slider to picture: p95", most, "<= 60 ms"
        one.times.clear()
        for _ in range(60):
            one.move(COUNTED)
        half, most = quantiles(one.times)
        yield "steps of descent for the star and 576 points of a portrait: p50", half, "<= 150 ms"
        one.times.clear()
        for _ in range(60):
            one.move("/api/curriculum/pinned", target_strength=1.0, pin_value=1.5, pin_accuracy=0.6)
        half, most = quantiles(one.times)
        yield "one pinned curriculum with its plan: p50", half, "<= 100 ms"
        yield "errors in the rows above", str(one.errors), "0"
        asked, errors, most = crowd(port, 1 / PACE)
        yield f"{CLIENTS} clients at {PACE:g} pictures a second for {SECONDS:g} s: errors of {asked}", str(errors), "0"
        yield f"{CLIENTS} clients at {PACE:g} pictures a second: p95", most, "<= 100 ms"
        asked, errors, most = crowd(port, 0.0)
        yield (
            f"{CLIENTS} clients without pause ({asked / SECONDS:.0f} pictures a second in all): errors",
            str(errors),
            "0",
        )
        yield f"{CLIENTS} clients without pause: p95", most, "<= 100 ms"
        yield f"{CLIENTS} clients that ask for one picture at once: p95", together(port), "<= 100 ms"
    yield "first picture after the command", f"{first_picture():.2f} s", "<= 1.5 s"


def cpu_seconds(server: psutil.Process) -> tuple[float, float, float]:
    """CPU seconds so far of the server, of its workers, and of this process, which asks."""
    every = (server.cpu_times(), *(worker.cpu_times() for worker in server.children()))
    first, *others = (one.user + one.system for one in every)
    return first, sum(others), time.process_time()


def together(port: int) -> str:
    """p95 of many clients that ask one question at the same moment, twenty times."""
    times: list[float] = []
    for turn in range(20):
        clients = [Client(port, 1000 + turn) for _ in range(CLIENTS)]
        threads = [threading.Thread(target=client.move) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        times += [t for client in clients for t in client.times]
    return quantiles(times)[1]


def first_picture() -> float:
    """Seconds from the command to the first portrait."""
    begun = time.perf_counter()
    with served() as (port, _):
        Client(port, 0).move()
        return time.perf_counter() - begun
