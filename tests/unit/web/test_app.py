"""The explorer's server: who may ask, for what, and what bad requests are told."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import psutil
import pytest
import typer
from typer.testing import CliRunner

import learncast
from learncast import LinearRNN, cli, tasks
from learncast._core.errors import OutOfTime
from learncast.web import app as server_module
from learncast.web import desk as desk_module
from learncast.web import guard as guard_module
from learncast.web import room as room_module
from learncast.web.app import application, rooms
from learncast.web.guard import CONTENT_POLICY, MOST_BYTES
from learncast.web.panel import Axis, Panel, Trace, View, csv_of, plain
from learncast.web.room import Room, State

COMMAND = "import typer; from learncast.cli import explore; typer.run(explore)"
PORTRAIT = "/api/curriculum/portrait"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server():
    """A running explorer, its process and its port; at the end Ctrl-C must end it well."""
    command = [sys.executable, "-c", COMMAND, "--port", "0", "--no-browser"]
    # A shell's background jobs are born deaf to Ctrl-C, and so are their children: this one must hear it.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert address, line + process.stderr.read()
        yield process, int(address[1])
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 130
        assert "Traceback" not in errors  # it does say which requests were no HTTP
    finally:
        process.kill()
        process.communicate()


def ask(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def post(port, path, state, headers=None):
    body = state if isinstance(state, bytes) else json.dumps(state).encode()
    return ask(port, "POST", path, body, {**JSON, **(headers or {})})


def raw(port, request):
    """What the server answers to these very bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        found = b""
        while b"\r\n\r\n" not in found or b"content-length" in found.lower():
            part = connection.recv(65536)
            found += part
            if not part or complete(found):
                break
    return int(found.split()[1]), found


def complete(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(length) and len(body) >= int(length[1])


def said(body):
    """The sentence of an error."""
    found = json.loads(body)
    assert set(found) <= {"error", "field"}
    return found["error"]


def traversals():
    """More than 200 ways to ask for a file that is not the page's."""
    ups = ["../", "..\\", "%2e%2e/", "..%2f", "%2e%2e%2f", "..%5c", "%252e%252e%252f", "%c0%ae%c0%ae/", "....//",
           ".%00./", "%e2%80%a5/", "．．/", "%uff0e%uff0e/", "..;/", "/", "//", "\\\\", "file:///"]  # fmt: skip
    files = ["app.py", "etc/passwd", "rooms/curriculum.py", "index.html%00.js", "pyproject.toml", "plotly.min.js%00.py"]
    found = {up * depth + name for up, depth, name in itertools.product(ups, (1, 3), files)}
    found |= {"", ".", "..", "%2e", "%00", "con", "index.html", "index.html/..", "plotly.min.js/../app.py", "~root"}
    found |= {"plotly.min.js%00", "plotly.min.js.", "PLOTLY.MIN.JS", "plotly.min.js%20", "plotly.min.js%2f..", "*"}
    return sorted(found)


def test_no_name_leads_out_of_the_table(server):
    names = traversals()
    assert len(names) >= 200
    for name in names:
        path = quote("/assets/" + name, safe="/%\\.;:*~").encode()
        status, answer = raw(server[1], b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert status in (400, 404), name
        assert b"root:" not in answer
        assert b"import " not in answer
        assert b"[project]" not in answer


UNKNOWN = [
    *("/../app.py", "/etc/passwd", "//etc/passwd", "/page/index.html", "/docs", "/openapi.json", "/redoc", "/api"),
    *("/api/curriculum", "/api/nothing/portrait", "/api/curriculum/../../app.py", "/static/plotly.min.js"),
    "http://127.0.0.1/x",
]


@pytest.mark.parametrize("path", UNKNOWN)
def test_other_addresses_are_unknown(server, path):
    status, answer = raw(server[1], f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert status == 404
    assert b'"error"' in answer


def test_page_and_its_files(server):
    _, port = server
    status, headers, body = ask(port, "GET", "/")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert b"<html" in body
    status, headers, body = ask(port, "GET", "/assets/plotly.min.js")
    assert status == 200
    assert headers["content-type"].startswith("text/javascript")
    assert len(body) > 1e6
    for path in (Path(server_module.__file__).parent / "page").glob("*.css"):
        assert ask(port, "GET", f"/assets/{path.name}")[2] == path.read_bytes()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "",
                                  "127.0.0.1:80:80", "127.0.0.1@evil.example", "[::1", "[::1]x", "127.0.0.1 "
                                  "evil.example", "0.0.0.0", "127.0.0.1:x", "2130706433"])  # fmt: skip
def test_foreign_host_is_refused(server, host):
    status, answer = raw(server[1], f"GET /api/rooms HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert status in (400, 421)
    assert b"introduction" not in answer


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:9", "[::1]", "[::1]:8765"])
def test_own_names_are_let_in(server, host):
    assert raw(server[1], f"GET /api/rooms HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())[0] == 200


def test_two_hosts_or_none_are_refused(server):
    two = b"GET /api/rooms HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n"
    assert raw(server[1], two)[0] == 400
    assert raw(server[1], b"GET /api/rooms HTTP/1.0\r\n\r\n")[0] in (400, 421)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "file://", "http://[",
                                    "http://localhost.evil.example", "ftp://127.0.0.1"])  # fmt: skip
def test_foreign_origin_is_refused(server, origin):
    _, port = server
    status, _, body = post(port, PORTRAIT, {}, {"Origin": origin})
    assert status == 403
    assert "own page" in said(body)
    assert post(port, "/api/window/window", {}, {"Origin": f"http://127.0.0.1:{port}"})[0] == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "",
                                  "application/json2"])  # fmt: skip
def test_other_content_types_are_refused(server, kind):
    status, _, body = ask(server[1], "POST", PORTRAIT, b"{}", {"Content-Type": kind})
    assert status == 415
    assert "application/json" in said(body)


def test_no_answer_for_other_origins_or_methods(server):
    _, port = server
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for method in ("OPTIONS", "PUT", "DELETE", "GET"):
        status, headers, body = ask(port, method, PORTRAIT, headers=asked)
        assert status == 405
        assert said(body)
        assert not [name for name in headers if name.startswith("access-control")]


WRONG = [
    ('{"steps": NaN}', "steps"),
    ('{"recurrence": NaN}', "recurrence"),
    ('{"recurrence": Infinity}', "recurrence"),
    ('{"learning_rate": -Infinity}', "learning_rate"),
    ('{"learning_rate": 1e999}', "learning_rate"),
    ('{"learning_rate": -1e-3}', "learning_rate"),
    ('{"grid": 201}', "grid"),
    ('{"grid": 1e9}', "grid"),
    ('{"grid": -5}', "grid"),
    ('{"grid": 120.5}', "grid"),
    ('{"grid": 99999999999999999999999999999999999}', "grid"),
    ('{"grid": "120"}', "grid"),
    ('{"grid": true}', "grid"),
    ('{"grid": null}', "grid"),
    ('{"grid": [120]}', "grid"),
    ('{"initial": {}}', "initial"),
    ('{"family": "hierarchy"}', "family"),
    ('{"family": 3}', "family"),
    ('{"pin_value": 1e300}', "pin_value"),
    ('{"pin_accuracy": 1.5}', "pin_accuracy"),
    ('{"gird": 120}', "did you mean 'grid'"),
    ('{"__class__": "x"}', "__class__"),
    ("[]", "object"),
    ("3", "object"),
    ("{", "object"),
    ("\x00", "object"),
    ('{"steps": 5}{', "object"),
    ("[" * 5000, "object"),
]


@pytest.mark.parametrize(("body", "words"), WRONG)
def test_bad_states_are_named_in_a_sentence(server, body, words):
    for path in (PORTRAIT, "/api/curriculum/study", "/api/curriculum/table"):
        status, _, answer = post(server[1], path, body.encode())
        assert status == 422
        sentence = said(answer)
        assert words in sentence
        # The page marks the control; what is no control has nothing to mark.
        assert json.loads(answer)["field"] == (words if words in rooms()[0].state.model_fields else None)
        assert sentence.endswith((".", "?"))
        assert len(sentence) < 700


def test_missing_fields_take_their_defaults(server):
    _, port = server
    whole = rooms()[0].state().model_dump()
    answers = [post(port, PORTRAIT, state) for state in ({}, b"", {"grid": 120}, whole)]
    assert {status for status, _, _ in answers} == {200}
    assert len({body for _, _, body in answers}) == 1


def test_large_bodies_are_refused(server):
    _, port = server
    padded = b'{"grid": 120' + b" " * (MOST_BYTES - 13) + b"}"
    assert len(padded) == 64 * 1024
    assert post(port, "/api/window/window", padded)[0] == 422  # read, and found wrong
    status, _, body = post(port, "/api/window/window", padded + b" " * 1024)
    assert status == 413
    assert "65536" in said(body)
    piece = b"400\r\n" + b" " * 1024 + b"\r\n"
    head = b"POST /api/window/window HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    status, answer = raw(port, head + b"Transfer-Encoding: chunked\r\n\r\n" + piece * 65 + b"0\r\n\r\n")
    assert status == 413, answer
    assert raw(port, head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")[0] == 200
    assert raw(port, head + b"Content-Length: 99999999999999999999\r\n\r\n")[0] in (400, 413)
    assert raw(port, head + b"Content-Length: -1\r\n\r\n")[0] in (400, 413)


def test_every_answer_carries_the_headers(server):
    _, port = server
    answers = [
        ask(port, "GET", "/"),
        ask(port, "GET", "/assets/plotly.min.js"),
        ask(port, "GET", "/nothing"),
        ask(port, "GET", PORTRAIT),
        ask(port, "GET", "/api/rooms", headers={"Host": "evil.example"}),
        post(port, PORTRAIT, {"grid": -1}),
        post(port, PORTRAIT, {}),
        post(port, PORTRAIT, b" " * (MOST_BYTES + 1)),
    ]
    assert [status for status, _, _ in answers] == [200, 200, 404, 405, 421, 422, 200, 413]
    for k, (_, headers, _) in enumerate(answers):
        assert headers["content-security-policy"] == CONTENT_POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == ("no-cache" if k < 3 else "no-store")
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers
    assert "default-src 'self'" in CONTENT_POLICY
    assert "unsafe-eval" not in CONTENT_POLICY
    assert "http" not in CONTENT_POLICY


def test_listening_socket_is_loopback(server):
    process, port = server
    heard = [one.laddr for one in psutil.Process(process.pid).net_connections() if one.status == psutil.CONN_LISTEN]
    assert heard == [("127.0.0.1", port)]


def test_rooms_are_listed_as_they_are(server):
    found = json.loads(ask(server[1], "GET", "/api/rooms")[2])
    assert [room["name"] for room in found] == [room.name for room in rooms()]
    for room, listed in zip(rooms(), found, strict=True):
        assert listed["parts"] == list(room.parts)
        assert {control["key"] for control in listed["controls"]} == set(room.state.model_fields)


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_controls_fit_their_fields(room):
    keys = [control.key for control in room.controls]
    assert len(keys) == len(set(keys))
    own = room.state()
    for control in room.controls:
        assert plain(control.default) == plain(getattr(own, control.key))
        for value in (control.least, control.most):
            if control.kind == "range":
                whole = room.state.model_fields[control.key].annotation is int
                room.state(**{control.key: int(value) if whole else value})
        for word, _ in control.choices:
            room.state(**{control.key: word})
        for other, words in (control.when or {}).items():
            assert other in keys
            for word in words:
                room.state(**{other: word})


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_every_part_answers_its_defaults(server, room):
    _, port = server
    for part in room.parts:
        status, headers, body = post(port, f"/api/{room.name}/{part}", {})
        assert status == 200, body
        assert headers["content-type"] == "application/json"
        assert set(json.loads(body)) == {field.name for field in dataclasses.fields(View)}
    status, headers, body = post(port, f"/api/{room.name}/study", {})
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert body.startswith(b"# learncast ")
    status, headers, body = post(port, f"/api/{room.name}/table", {})
    assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert b"part,panel,trace,x,y,z\n" in body


def decoded(array):
    values = np.frombuffer(base64.b64decode(array["bdata"]), dtype="<f8")
    return values.reshape([int(n) for n in array["shape"].split(",")])


def test_numbers_are_the_python_api_s_to_the_last_bit(server):
    state = {"steps": 30, "recurrence": 0.9, "target_strength": 0.7, "accuracy": 0.95, "grid": 40, "hidden_size": 8}
    status, _, body = post(server[1], PORTRAIT, state)
    assert status == 200
    heat = json.loads(body)["panels"][0]["traces"][0]
    assert heat["kind"] == "heat"
    target = tasks.integration(30, target_strength=0.7)
    own = learncast.phase_portrait(
        target,
        LinearRNN.aligned(recurrence=0.9, hidden_size=8, task=target),
        vary="target_strength",
        values=decoded(heat["x"]),
        accuracies=decoded(heat["y"]),
        learning_rate=1e-3,
        accuracy=0.95,
    )
    assert decoded(heat["z"]).shape == (40, 40)
    assert np.array_equal(decoded(heat["z"]), own["speedup_steps"].values.T)
    counts = json.loads(post(server[1], "/api/curriculum/counted", state)[2])
    assert counts["readings"][0]["value"] == float(own["direct_descent_steps"])


class Numbered(State):
    """A state of one number."""

    number: int = room_module.control(0, "number", (0, 1000))


def room_with(part):
    return Room("test", "Test", "", Numbered, {"part": part}, lambda _: "")


def asked_inside(app, number=1, *, alike=False, path="/api/test/part"):
    """Answers of an application in this process, to requests made at the same time."""

    async def all_of_them():
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            states = [{"number": 0 if alike else k} for k in range(number)]
            return await asyncio.gather(*(client.post(path, json=state) for state in states))

    return asyncio.run(all_of_them())


def test_a_failure_says_nothing_of_itself(monkeypatch):
    def broken(_):
        raise RuntimeError("secret place")

    monkeypatch.setattr(server_module, "rooms", lambda _: (room_with(broken),))
    (answer,) = asked_inside(application())
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert said(answer.text)
    assert answer.headers["content-security-policy"] == CONTENT_POLICY


def test_a_few_compute_and_a_short_queue_waits(monkeypatch):
    running, most, lock = [0], [0], threading.Lock()

    def slow(_):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1
        return View(())

    monkeypatch.setattr(server_module, "rooms", lambda _: (room_with(slow),))
    answers = asked_inside(application(), 60)
    statuses = [answer.status_code for answer in answers]
    at_once, waiting = server_module.AT_ONCE, server_module.WAITING
    assert most[0] == at_once <= 4
    assert statuses.count(200) == at_once + waiting
    assert statuses.count(503) == 60 - at_once - waiting
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert refused.headers["retry-after"] == "1"
    assert "ask again" in said(refused.text)


def test_table_holds_every_number():
    heat = Trace("heat", "theory", "h", np.array([1.0, 2.0]), np.array([0.1, 0.2, 0.3]), np.arange(6.0).reshape(3, 2))
    bars = Trace("bars", "theory", "b, c", np.array(["one", "two"]), np.array([1 / 3, np.nan]))
    band = Trace("band", "null", "n", np.array([1.0]), np.array([0.0]), np.array([2.0]))
    panel = Panel("p", "P", Axis("time", "steps"), Axis("loss", "target^2"), (heat, bars, band), z=Axis("gain", "1"))
    text = csv_of({"part": View((panel,))})
    assert text.splitlines()[:2] == [
        "# part, p: x = time (steps); y = loss (target^2); z = gain (1)",
        "part,panel,trace,x,y,z",
    ]
    rows = text.splitlines()[2:]
    assert rows[:3] == ["part,p,h,1.0,0.1,0.0", "part,p,h,2.0,0.1,1.0", "part,p,h,1.0,0.2,2.0"]
    assert rows[6:] == ['part,p,"b, c",one,0.3333333333333333,', 'part,p,"b, c",two,nan,', "part,p,n,1.0,0.0,2.0"]


def command(*arguments):
    app = typer.Typer()
    app.command()(cli.explore)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_taken_port_is_a_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = command("--port", taken.getsockname()[1], "--no-browser")
    assert result.exit_code == 2
    assert "another program that listens there" in result.stderr
    assert "--port 0" in result.stderr
    assert command("--port", 70000).exit_code == 2
    assert command("--host", "no such host.invalid").exit_code == 2
    assert command("--window", "nothing.nc").exit_code == 2


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name == "uvicorn" else object())
    result = command("--no-browser")
    assert result.exit_code == 2
    assert "no uvicorn" in result.stderr
    assert "pip install starlette uvicorn plotly" in result.stderr


def test_another_host_is_warned_of_and_let_in(monkeypatch):
    served = []
    monkeypatch.setattr(server_module, "_serve", lambda app, _: served.append(app))
    monkeypatch.setattr(server_module, "is_loopback", lambda host: False)
    result = command("--port", 0, "--host", "127.0.0.2", "--no-browser")
    assert result.exit_code == 0
    assert "127.0.0.2 can be reached from other machines" in result.stderr
    assert "http://127.0.0.2:" in result.stdout
    (guard,) = served[0].user_middleware
    assert "127.0.0.2" in guard.kwargs["hosts"]
    # What is not on this machine must know the address.
    (token,) = re.findall(r"http://127\.0\.0\.2:\d+/([\w-]{20,})/", result.stdout)
    assert guard.kwargs["token"] == token


def test_without_the_token_nothing_is_answered(monkeypatch):
    monkeypatch.setattr(server_module, "rooms", lambda _: (room_with(lambda _: View(())),))
    app = application(token="secret-token")
    for path in ("/api/test/part", "/secret-toke/api/test/part", "/secret-token", "/secret-token2/api/test/part"):
        (answer,) = asked_inside(app, path=path)
        assert answer.status_code == 404
        assert "printed" in said(answer.text)
    (answer,) = asked_inside(app, path="/secret-token/api/test/part")
    assert answer.status_code == 200


def test_a_client_from_elsewhere_may_ask_only_so_fast(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(guard_module.time, "monotonic", lambda: clock[0])
    rates = guard_module.Rates()
    far, near = {"client": ("10.0.0.7", 1)}, {"client": ("127.0.0.1", 1)}
    for _ in range(int(guard_module.BURST)):
        rates.check(far)
    with pytest.raises(guard_module.HTTPException) as refusal:
        rates.check(far)
    assert refusal.value.status_code == 429
    rates.check({"client": ("10.0.0.8", 1)})
    for _ in range(1000):
        rates.check(near)
    clock[0] += 1.0
    for _ in range(int(guard_module.RATE)):
        rates.check(far)
    with pytest.raises(guard_module.HTTPException):
        rates.check(far)


def test_equal_questions_are_answered_once(monkeypatch):
    asked = []

    def part(state):
        asked.append(state.number)
        time.sleep(0.1)
        return View(())

    monkeypatch.setattr(server_module, "rooms", lambda _: (room_with(part),))
    app = application()
    answers = asked_inside(app, 50, alike=True)
    assert {answer.status_code for answer in answers} == {200}
    assert asked == [0]
    asked_inside(app, 1)
    assert asked == [0]


HASTY = "from learncast.web import guard, desk; guard.HEAD_SECONDS = guard.BODY_SECONDS = 0.6; desk.DELAY = 1e6; "


@pytest.fixture(scope="module")
def hasty():
    """A running explorer that waits for nobody."""
    command = [sys.executable, "-c", HASTY + COMMAND, "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        yield process, int(re.search(r":(\d+)/", line)[1])
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=20)
        assert "Traceback" not in errors


def test_connections_that_are_held_are_let_go(hasty):
    _, port = hasty
    halves = [b"", b"GET / HTTP/1.1\r\nHost: 127.0", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"]
    held = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(60)]
    for k, connection in enumerate(held):
        connection.sendall(halves[k % len(halves)])
    begun = time.monotonic()
    assert [connection.recv(100) for connection in held] == [b""] * len(held)
    assert time.monotonic() - begun < 8
    for connection in held:
        connection.close()


def test_a_body_that_does_not_come_is_not_waited_for(hasty):
    _, port = hasty
    head = b"POST /api/window/window HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    status, answer = raw(port, head + b"Content-Length: 100\r\n\r\n{")
    assert status == 408
    assert b"seconds" in answer
    # A connection that asks again and again is no held one.
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        for _ in range(3):
            connection.request("GET", "/api/rooms")
            assert connection.getresponse().read()
            time.sleep(0.4)


def eventually(found, seconds=30):
    until = time.monotonic() + seconds
    while not found() and time.monotonic() < until:
        time.sleep(0.1)
    assert found()


SLOW = {"family": "leaky_integration", "activation": "relu", "steps": 99}


@pytest.fixture(scope="module")
def desk():
    """A desk whose two workers are ready."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk_module, "DELAY", 0.0)
        made = desk_module.Desk(workers=True)
        eventually(lambda: len(made.idle) == 2 and all(worker.usable for worker in made.idle), 60)
        yield made
        made.close()
        assert not made.all


def question(state, seconds=60.0):
    """A question that whoever asked it waits for so long."""
    room = rooms()[0]
    asked = server_module._question(room, "portrait", server_module.shown(room, "portrait"), room.state(**state))
    return asked, lambda: asyncio.sleep(seconds)


def test_whoever_leaves_stops_the_computation_and_another_worker_comes(desk):
    first = {worker.process.pid for worker in desk.all}
    assert asyncio.run(desk.answer(*question(SLOW, 0.3))) is None
    eventually(lambda: len(desk.all) == 2 and {worker.process.pid for worker in desk.all} != first)
    assert (desk.present, desk.running) == (0, {})
    answer = json.loads(asyncio.run(desk.answer(*question({"grid": 30}))))
    assert np.array_equal(decoded(answer["panels"][0]["traces"][0]["z"]), portrait_of(30))


def portrait_of(grid):
    state = rooms()[0].state(grid=grid)
    return rooms()[0].parts["portrait"](state).panels[0].traces[0].z


def test_a_computation_that_takes_too_long_is_given_up(desk, monkeypatch):
    eventually(lambda: all(worker.usable for worker in desk.idle))
    monkeypatch.setattr(desk_module, "SECONDS", 0.3)
    first = {worker.process.pid for worker in desk.all}
    with pytest.raises(OutOfTime, match="an answer must be there within"):
        asyncio.run(desk.answer(*question({**SLOW, "steps": 98})))
    eventually(lambda: len(desk.all) == 2 and {worker.process.pid for worker in desk.all} != first)


def test_what_a_worker_refuses_is_refused_here(desk):
    eventually(lambda: all(worker.usable for worker in desk.idle), 60)
    worker = desk.idle[0]
    found = worker.ask("nothing", "portrait", "{}", {})
    assert isinstance(found, RuntimeError)
    assert isinstance(worker.ask("curriculum", "portrait", '{"grid": 20}', {}), bytes)


def test_loopback_is_told_from_the_rest():
    assert all(map(server_module.is_loopback, ("127.0.0.1", "::1", "localhost", "127.9.9.9")))
    assert not any(map(server_module.is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example")))


def test_browser_opens_once_the_socket_listens(monkeypatch):
    opened = []

    def visit(address):
        port = int(re.search(r":(\d+)/", address)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            opened.append(address)

    threads = []

    class Kept(threading.Thread):
        def start(self):
            threads.append(self)
            super().start()

    monkeypatch.setattr(server_module.webbrowser, "open", visit)
    monkeypatch.setattr(server_module.threading, "Thread", Kept)
    monkeypatch.setattr(server_module, "_serve", lambda *_: [thread.join() for thread in threads])
    assert command("--port", 0).exit_code == 0
    assert len(opened) == 1


@pytest.mark.slow
def test_twenty_clients_for_thirty_seconds_meet_no_error(server):
    _, port = server
    until, failures, times = time.monotonic() + 30, [], []

    def client(k):
        rng = np.random.default_rng(k)
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            while time.monotonic() < until:
                body = json.dumps({"recurrence": float(rng.uniform(0.5, 1.0)), "pin_value": 1.5, "pin_accuracy": 0.5})
                begun = time.monotonic()
                connection.request("POST", PORTRAIT, body, JSON)
                answer = connection.getresponse()
                answer.read()
                times.append(time.monotonic() - begun)
                if answer.status != 200:
                    failures.append(answer.status)

    clients = [threading.Thread(target=client, args=(k,)) for k in range(20)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert not failures
    assert len(times) > 20
    print(f"p95 {np.quantile(times, 0.95) * 1e3:.0f} ms of {len(times)}")


def test_slow_states_hold_up_no_quick_ones(monkeypatch):
    release, order = threading.Event(), []

    class Paced(State):
        slow: bool = room_module.control(False, "slow", kind="toggle")
        number: int = room_module.control(0, "number", (0, 9))

    def part(state):
        if state.slow:
            release.wait(10)
        order.append(state.slow)
        return View(())

    room = Room(
        "test", "Test", "", Paced, {"part": part}, lambda _: "", slow=lambda state: "waiting" if state.slow else ""
    )
    monkeypatch.setattr(server_module, "rooms", lambda _: (room,))

    async def all_of_them():
        transport = httpx.ASGITransport(app=application())
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            slow = [
                asyncio.create_task(client.post("/api/test/part", json={"slow": True, "number": k})) for k in range(3)
            ]
            await asyncio.sleep(0.05)
            quick = await client.post("/api/test/part", json={})
            release.set()
            return quick, await asyncio.gather(*slow)

    quick, slow = asyncio.run(all_of_them())
    assert {answer.status_code for answer in (quick, *slow)} == {200}
    assert order == [False, True, True, True]


@pytest.mark.slow
def test_long_use_leaves_memory_as_it_was():
    """Random settings of every room, as fast as they are answered; half an hour with EXPLORER_SOAK=1800."""
    command = [sys.executable, "-c", COMMAND, "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seconds = float(os.environ.get("EXPLORER_SOAK", "60"))
    try:
        port = int(re.search(r":(\d+)/", process.stdout.readline())[1])
        rng = np.random.default_rng(0)
        sizes, asked, until = [], 0, time.monotonic() + seconds
        while time.monotonic() < until:
            room = rooms()[int(rng.integers(4))]
            part = str(rng.choice(list(room.parts)))
            keys = [c for c in room.controls if c.kind == "range" and c.key != "hidden_size"]
            chosen = keys[int(rng.integers(len(keys)))] if keys else None
            state = {}
            if chosen is not None:
                value = float(rng.uniform(chosen.least, chosen.most))
                whole_numbers = room.state.model_fields[chosen.key].annotation is int
                state = {chosen.key: round(value) if whole_numbers else value}
            status, _, body = post(port, f"/api/{room.name}/{part}", state)
            assert status in (200, 422), (state, body)
            asked += 1
            if asked % 20 == 0:
                everyone = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
                sizes.append(sum(one.memory_info().rss for one in everyone))
        late = sizes[len(sizes) // 3 :]
        print(f"{asked} questions in {seconds:g} s, {late[0] / 2**20:.0f} to {max(late) / 2**20:.0f} MB")
        # Caches fill in the first third; after that a leak would go on.
        assert max(late[len(late) // 2 :]) < 1.15 * max(late[: len(late) // 2])
    finally:
        process.kill()
        process.communicate()
