"""The explorer's server: which requests it answers, with what, and how it rejects the others."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import http.client
import io
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
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import psutil
import pytest
import typer
from starlette.exceptions import HTTPException
from typer.testing import CliRunner

import learncast as lc
from learncast import InvalidSpec, LinearRNN, OutOfTime, cli, tasks
from learncast.results import FORECAST_CLASSES
from learncast.web import (
    Chart,
    ChartAxis,
    Computation,
    JobQueue,
    Panel,
    State,
    Trace,
    View,
    all_panels,
    application,
    control,
    export,
    jobs,
    request_checks,
    to_csv,
    to_plain,
)
from learncast.web import app as server_module

CONTENT_POLICY, MOST_BYTES = request_checks.CONTENT_POLICY, request_checks.MOST_BYTES
COMMAND = "import typer; from learncast.cli import explore; typer.run(explore)"
PORTRAIT = "/api/curriculum/portrait"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server():
    """A running explorer, its process and its port; in the end Ctrl-C must end it without an error."""
    command = [sys.executable, "-c", COMMAND, "--port", "0", "--no-browser"]
    # Background jobs of a shell ignore Ctrl-C, and so do their children; this one must not.
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
        assert "Traceback" not in errors  # it does report requests that are not HTTP
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
    """The status and the answer to these bytes."""
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


def message(body):
    """The message of an error."""
    found = json.loads(body)
    assert set(found) <= {"error", "field"}
    return found["error"]


def traversals():
    """More than 200 attempts to read a file outside the page."""
    ups = ["../", "..\\", "%2e%2e/", "..%2f", "%2e%2e%2f", "..%5c", "%252e%252e%252f", "%c0%ae%c0%ae/", "....//",
           ".%00./", "%e2%80%a5/", "．．/", "%uff0e%uff0e/", "..;/", "/", "//", "\\\\", "file:///"]  # fmt: skip
    files = [
        "app.py",
        "etc/passwd",
        "panels/curriculum.py",
        "index.html%00.js",
        "pyproject.toml",
        "plotly.min.js%00.py",
    ]
    found = {up * depth + name for up, depth, name in itertools.product(ups, (1, 3), files)}
    found |= {"", ".", "..", "%2e", "%00", "con", "index.html", "index.html/..", "plotly.min.js/../app.py", "~root"}
    found |= {"plotly.min.js%00", "plotly.min.js.", "PLOTLY.MIN.JS", "plotly.min.js%20", "plotly.min.js%2f..", "*"}
    return sorted(found)


def test_no_path_traversal_reads_a_file(server):
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
def test_other_addresses_do_not_exist(server, path):
    status, answer = raw(server[1], f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert status == 404
    assert b'"error"' in answer


def test_the_page_and_its_files_are_served(server):
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


def test_other_machines_get_compressed_scripts():
    async def ask_from(client):
        transport = httpx.ASGITransport(app=application(), client=(client, 1))
        asking = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        question = asking.stream("GET", "/assets/plotly.min.js", headers={"Accept-Encoding": "gzip"})
        async with asking, question as answer:
            return answer.headers, sum([len(part) async for part in answer.aiter_raw()])

    near, far = (asyncio.run(ask_from(client)) for client in ("127.0.0.1", "10.0.0.7"))
    assert "content-encoding" not in near[0]
    assert (far[0]["content-encoding"], far[0]["vary"]) == ("gzip", "Accept-Encoding")
    assert far[1] < 0.4 * near[1]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "",
                                  "127.0.0.1:80:80", "127.0.0.1@evil.example", "[::1", "[::1]x", "127.0.0.1 "
                                  "evil.example", "0.0.0.0", "127.0.0.1:x", "2130706433"])  # fmt: skip
def test_another_host_name_is_rejected(server, host):
    status, answer = raw(server[1], f"GET /api/panels HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert status in (400, 421)
    assert b"introduction" not in answer


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:9", "[::1]", "[::1]:8765"])
def test_own_host_names_are_accepted(server, host):
    assert raw(server[1], f"GET /api/panels HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())[0] == 200


def test_two_hosts_or_none_are_rejected(server):
    two = b"GET /api/panels HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n"
    assert raw(server[1], two)[0] == 400
    assert raw(server[1], b"GET /api/panels HTTP/1.0\r\n\r\n")[0] in (400, 421)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "file://", "http://[",
                                    "http://localhost.evil.example", "ftp://127.0.0.1"])  # fmt: skip
def test_another_origin_is_rejected(server, origin):
    _, port = server
    assert post(port, PORTRAIT, {}, {"Origin": origin})[0] == 403
    assert post(port, "/api/window/window", {}, {"Origin": f"http://127.0.0.1:{port}"})[0] == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "",
                                  "application/json2"])  # fmt: skip
def test_other_content_types_are_rejected(server, kind):
    status, _, body = ask(server[1], "POST", PORTRAIT, b"{}", {"Content-Type": kind})
    assert status == 415
    assert "application/json" in message(body)


def test_other_methods_are_rejected_without_cross_origin_headers(server):
    _, port = server
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for method in ("OPTIONS", "PUT", "DELETE", "GET"):
        status, headers, body = ask(port, method, PORTRAIT, headers=asked)
        assert status == 405
        assert message(body)
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
    ('{"gird": 120}', None),
    ('{"__class__": "x"}', None),
    ("[]", None),
    ("3", None),
    ("{", None),
    ("\x00", None),
    ('{"steps": 5}{', None),
    ("[" * 5000, None),
]


@pytest.mark.parametrize(("body", "field"), WRONG)
def test_an_invalid_state_is_rejected_with_its_field(server, body, field):
    for path in (PORTRAIT, "/api/curriculum/study", "/api/curriculum/table"):
        status, _, answer = post(server[1], path, body.encode())
        assert status == 422
        assert json.loads(answer)["field"] == field
        assert field is None or field in message(answer)
        assert 0 < len(message(answer)) < 700


def test_a_misspelt_setting_gets_a_suggestion(server):
    assert "'grid'" in message(post(server[1], PORTRAIT, {"gird": 120})[2])


def test_missing_settings_have_their_defaults(server):
    _, port = server
    complete = all_panels()[0].state().model_dump()
    answers = [post(port, PORTRAIT, state) for state in ({}, b"", {"grid": 120}, complete)]
    assert {status for status, _, _ in answers} == {200}
    assert len({body for _, _, body in answers}) == 1


def test_large_bodies_are_rejected(server):
    _, port = server
    padded = b'{"grid": 120' + b" " * (MOST_BYTES - 13) + b"}"
    assert len(padded) == 64 * 1024
    assert post(port, "/api/window/window", padded)[0] == 422  # it is read, and is not a valid state
    status, _, body = post(port, "/api/window/window", padded + b" " * 1024)
    assert status == 413
    assert "65536" in message(body)
    piece = b"400\r\n" + b" " * 1024 + b"\r\n"
    head = b"POST /api/window/window HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    status, answer = raw(port, head + b"Transfer-Encoding: chunked\r\n\r\n" + piece * 65 + b"0\r\n\r\n")
    assert status == 413, answer
    assert raw(port, head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")[0] == 200
    assert raw(port, head + b"Content-Length: 99999999999999999999\r\n\r\n")[0] in (400, 413)
    assert raw(port, head + b"Content-Length: -1\r\n\r\n")[0] in (400, 413)


def test_the_bytes_of_simultaneous_files_are_limited(server):
    process, port = server
    one = request_checks.uploads.MOST_BYTES
    head = (
        "POST /api/window/file HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\n"
        f"Content-Length: {one}\r\n\r\n"
    ).encode()
    held = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(60)]
    try:
        for connection in held:
            connection.sendall(head + b" " * 1000)
        rejected = []
        for connection in held:
            connection.settimeout(0.2 if len(rejected) < 57 else 0.05)
            with suppress(TimeoutError):
                rejected.append(connection.recv(12))
        assert rejected == [b"HTTP/1.1 503"] * (60 - request_checks.MOST_FILE_BYTES // one)
        assert psutil.Process(process.pid).memory_info().rss < 1e9
    finally:
        for connection in held:
            connection.close()
    # The bytes count only until their request ends.
    headers = {"Content-Type": "application/octet-stream", "X-Name": "mine.nc"}
    eventually(lambda: ask(port, "POST", "/api/window/file", b" " * 1000, headers)[0] == 422, 10)


def test_every_answer_has_the_security_headers(server):
    _, port = server
    answers = [
        ask(port, "GET", "/"),
        ask(port, "GET", "/assets/plotly.min.js"),
        ask(port, "GET", "/nothing"),
        ask(port, "GET", PORTRAIT),
        ask(port, "GET", "/api/panels", headers={"Host": "evil.example"}),
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


def test_the_server_listens_on_loopback_only(server):
    process, port = server
    listening = [one.laddr for one in psutil.Process(process.pid).net_connections() if one.status == psutil.CONN_LISTEN]
    assert listening == [("127.0.0.1", port)]


def test_all_panels_are_listed(server):
    found = json.loads(ask(server[1], "GET", "/api/panels")[2])
    assert [listed["name"] for listed in found] == [panel.name for panel in all_panels()]
    for panel, listed in zip(all_panels(), found, strict=True):
        assert listed["parts"] == list(panel.parts)
        assert {one["key"] for one in listed["controls"]} == set(panel.state.model_fields)


@pytest.mark.parametrize("panel", all_panels(), ids=lambda panel: panel.name)
def test_controls_allow_only_valid_states(panel):
    keys = [one.key for one in panel.controls]
    assert len(keys) == len(set(keys))
    own = panel.state()
    for one in panel.controls:
        assert to_plain(one.default) == to_plain(getattr(own, one.key))
        for value in (one.least, one.most):
            if one.kind == "range":
                kind = panel.state.model_fields[one.key].annotation
                panel.state(**{one.key: int(value) if kind is int else value})
        for word, _ in one.choices:
            panel.state(**{one.key: word})
        for other, words in (one.when or {}).items():
            assert other in keys
            for word in words:
                panel.state(**{other: word})


@pytest.mark.parametrize("panel", all_panels(), ids=lambda panel: panel.name)
def test_every_part_answers_the_initial_state(server, panel):
    _, port = server
    for part in panel.parts:
        status, headers, body = post(port, f"/api/{panel.name}/{part}", {})
        assert status == 200, body
        assert headers["content-type"] == "application/json"
        answer = json.loads(body)
        sent = {"validity" if field.name == "trust" else field.name for field in dataclasses.fields(View)}
        assert set(answer) == sent
        if answer["validity"] is not None:
            assert answer["validity"]["sentence"] == FORECAST_CLASSES[answer["validity"]["kind"]]
    status, headers, body = post(port, f"/api/{panel.name}/study", {})
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert body.startswith(b"# learncast ")
    status, headers, body = post(port, f"/api/{panel.name}/table", {})
    assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert b"part,chart,trace,x,y,z\n" in body


def decoded(array):
    values = np.frombuffer(base64.b64decode(array["bdata"]), dtype="<f8")
    return values.reshape([int(n) for n in array["shape"].split(",")])


def test_numbers_equal_those_of_the_python_interface_exactly(server):
    state = {"steps": 30, "recurrence": 0.9, "target_strength": 0.7, "accuracy": 0.95, "grid": 40, "hidden_size": 8}
    status, _, body = post(server[1], PORTRAIT, state)
    assert status == 200
    heat = json.loads(body)["charts"][0]["traces"][0]
    assert heat["kind"] == "heat"
    target = tasks.integration(30, target_strength=0.7)
    own = lc.phase(
        target,
        LinearRNN.aligned(recurrence=0.9, hidden_size=8, task=target),
        learning_rate=1e-3,
        vary="target_strength",
        values=decoded(heat["y"]),
        accuracies=decoded(heat["x"]),
        goal=0.95,
    )
    assert decoded(heat["z"]).shape == (40, 40)
    assert np.array_equal(decoded(heat["z"]), own["speedup_steps"].values)
    counts = json.loads(post(server[1], "/api/curriculum/descent", state)[2])
    readings = {one["label"]: one["value"] for one in counts["readings"]}
    assert readings["direct training"] == float(own["direct_descent_steps"])
    groups = {one["group"] for one in counts["readings"]}
    assert groups == {"Best in the portrait", ""}


class Numbered(State):
    """A state of one number."""

    number: int = control(0, "number", (0, 1000))


def panel_with(part):
    return Panel("test", "Test", "", Numbered, {"part": part}, lambda _: "")


def answers_of(app, number=1, *, alike=False, path="/api/test/part"):
    """Answers of an application in this process to simultaneous requests."""

    async def all_of_them():
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            states = [{"number": 0 if alike else k} for k in range(number)]
            return await asyncio.gather(*(client.post(path, json=state) for state in states))

    return asyncio.run(all_of_them())


def test_an_internal_error_reveals_no_details(monkeypatch):
    def broken(_):
        raise RuntimeError("secret place")

    monkeypatch.setattr(server_module, "all_panels", lambda _: (panel_with(broken),))
    (answer,) = answers_of(application())
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert message(answer.text)
    assert answer.headers["content-security-policy"] == CONTENT_POLICY


def test_few_requests_compute_and_a_limited_number_waits(monkeypatch):
    running, most, lock = [0], [0], threading.Lock()

    def slow(_):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1
        return View(())

    monkeypatch.setattr(server_module, "all_panels", lambda _: (panel_with(slow),))
    answers = answers_of(application(), 60)
    statuses = [answer.status_code for answer in answers]
    at_once, waiting = server_module.AT_ONCE, server_module.WAITING
    assert most[0] == at_once <= 4
    assert statuses.count(200) == at_once + waiting
    assert statuses.count(503) == 60 - at_once - waiting
    rejected = next(answer for answer in answers if answer.status_code == 503)
    assert rejected.headers["retry-after"] == "1"


def test_the_csv_table_holds_every_number():
    heat = Trace("heat", "theory", "h", np.array([1.0, 2.0]), np.array([0.1, 0.2, 0.3]), np.arange(6.0).reshape(3, 2))
    bars = Trace("bars", "theory", "b, c", np.array(["one", "two"]), np.array([1 / 3, np.nan]))
    band = Trace("band", "null", "n", np.array([1.0]), np.array([0.0]), np.array([2.0]))
    axes = ChartAxis("time", "steps"), ChartAxis("loss", "target^2")
    chart = Chart("p", "P", *axes, (heat, bars, band), z=ChartAxis("gain", "1"))
    text = to_csv({"part": View((chart,))})
    assert text.splitlines()[:2] == [
        "# part, p: x = time (steps); y = loss (target^2); z = gain (1)",
        "part,chart,trace,x,y,z",
    ]
    rows = text.splitlines()[2:]
    assert rows[:3] == ["part,p,h,1.0,0.1,0.0", "part,p,h,2.0,0.1,1.0", "part,p,h,1.0,0.2,2.0"]
    assert rows[6:] == ['part,p,"b, c",one,0.3333333333333333,', 'part,p,"b, c",two,nan,', "part,p,n,1.0,0.0,2.0"]


def command(*arguments):
    app = typer.Typer()
    app.command()(cli.explore)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_an_invalid_address_or_file_ends_the_command():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = command("--port", taken.getsockname()[1], "--no-browser")
    assert result.exit_code == 2
    assert "--port 0" in result.stderr
    assert command("--port", 70000).exit_code == 2
    assert command("--host", "no such host.invalid").exit_code == 2
    assert command("--window", "nothing.nc").exit_code == 2


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name == "uvicorn" else object())
    result = command("--no-browser")
    assert result.exit_code == 2
    assert "uvicorn" in result.stderr


def test_another_host_gets_a_warning_and_a_token(monkeypatch):
    served = []
    monkeypatch.setattr(server_module, "_run", lambda app, _: served.append(app))
    monkeypatch.setattr(server_module, "is_loopback", lambda host: False)
    result = command("--port", 0, "--host", "127.0.0.2", "--no-browser")
    assert result.exit_code == 0
    assert "127.0.0.2" in result.stderr
    assert "http://127.0.0.2:" in result.stdout
    (checks,) = served[0].user_middleware
    assert "127.0.0.2" in checks.kwargs["hosts"]
    # Other machines must know the token in the address.
    (token,) = re.findall(r"http://127\.0\.0\.2:\d+/([\w-]{20,})/", result.stdout)
    assert checks.kwargs["token"] == token


def test_requests_without_the_token_are_rejected(monkeypatch):
    monkeypatch.setattr(server_module, "all_panels", lambda _: (panel_with(lambda _: View(())),))
    app = application(token="secret-token")
    for path in ("/api/test/part", "/secret-toke/api/test/part", "/secret-token", "/secret-token2/api/test/part"):
        (answer,) = answers_of(app, path=path)
        assert answer.status_code == 404
    (answer,) = answers_of(app, path="/secret-token/api/test/part")
    assert answer.status_code == 200


def test_the_rate_of_other_machines_is_limited(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(request_checks.time, "monotonic", lambda: clock[0])
    rates = request_checks.RateLimiter()
    far, near = {"client": ("10.0.0.7", 1)}, {"client": ("127.0.0.1", 1)}
    for _ in range(int(request_checks.BURST)):
        rates.check(far)
    with pytest.raises(HTTPException) as error:
        rates.check(far)
    assert error.value.status_code == 429
    rates.check({"client": ("10.0.0.8", 1)})
    for _ in range(1000):
        rates.check(near)
    clock[0] += 1.0
    for _ in range(int(request_checks.RATE)):
        rates.check(far)
    with pytest.raises(HTTPException):
        rates.check(far)


def test_equal_requests_are_computed_once(monkeypatch):
    computed = []

    def part(state):
        computed.append(state.number)
        time.sleep(0.1)
        return View(())

    monkeypatch.setattr(server_module, "all_panels", lambda _: (panel_with(part),))
    app = application()
    answers = answers_of(app, 50, alike=True)
    assert {answer.status_code for answer in answers} == {200}
    assert computed == [0]
    answers_of(app, 1)
    assert computed == [0]


IMPATIENT = (
    "from learncast.web import jobs, request_checks as checks; "
    "checks.HEAD_SECONDS = checks.BODY_SECONDS = 0.6; jobs.DELAY = 1e6; "
)


@pytest.fixture(scope="module")
def impatient():
    """A running explorer with short time limits."""
    command = [sys.executable, "-c", IMPATIENT + COMMAND, "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        yield process, int(re.search(r":(\d+)/", line)[1])
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=20)
        assert "Traceback" not in errors


def test_idle_connections_are_closed(impatient):
    _, port = impatient
    halves = [b"", b"GET / HTTP/1.1\r\nHost: 127.0", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"]
    held = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(60)]
    for k, connection in enumerate(held):
        connection.sendall(halves[k % len(halves)])
    begun = time.monotonic()
    assert [connection.recv(100) for connection in held] == [b""] * len(held)
    assert time.monotonic() - begun < 8
    for connection in held:
        connection.close()


def test_a_late_body_is_rejected(impatient):
    _, port = impatient
    head = b"POST /api/window/window HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    assert raw(port, head + b"Content-Length: 100\r\n\r\n{")[0] == 408
    # A connection with repeated requests stays open.
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        for _ in range(3):
            connection.request("GET", "/api/panels")
            assert connection.getresponse().read()
            time.sleep(0.4)


def eventually(found, seconds=30):
    until = time.monotonic() + seconds
    while not found() and time.monotonic() < until:
        time.sleep(0.1)
    assert found()


SLOW = {"family": "leaky_integration", "activation": "relu", "steps": 99}


@pytest.fixture(scope="module")
def queue():
    """A queue whose two workers are ready."""
    queue = JobQueue(workers=True)
    queue.start_workers()
    eventually(lambda: len(queue.idle) == 2 and all(worker.ready for worker in queue.idle), 60)
    yield queue
    queue.close()
    assert not queue.workers


def request(state, seconds=60.0):
    """A computation whose client disconnects after some seconds."""
    panel = all_panels()[0]
    body = panel.state(**state).model_dump_json().encode()
    return server_module._computation(panel, "portrait", body), lambda: asyncio.sleep(seconds)


def test_a_disconnect_stops_the_computation_and_replaces_its_worker(queue):
    first = {worker.process.pid for worker in queue.workers}
    assert asyncio.run(queue.result(*request(SLOW, 0.3))) is None
    eventually(lambda: len(queue.workers) == 2 and {worker.process.pid for worker in queue.workers} != first)
    assert (queue.present, queue.running) == (0, {})
    answer = json.loads(asyncio.run(queue.result(*request({"grid": 30}))))
    assert np.array_equal(decoded(answer["charts"][0]["traces"][0]["z"]), portrait_of(30))


def portrait_of(grid):
    panel = all_panels()[0]
    return panel.parts["portrait"](panel.state(grid=grid)).charts[0].traces[0].z


def test_a_computation_that_takes_too_long_is_stopped(queue, monkeypatch):
    eventually(lambda: all(worker.ready for worker in queue.idle))
    monkeypatch.setattr(jobs, "SECONDS", 0.3)
    first = {worker.process.pid for worker in queue.workers}
    with pytest.raises(OutOfTime):
        asyncio.run(queue.result(*request({**SLOW, "steps": 98})))
    eventually(lambda: len(queue.workers) == 2 and {worker.process.pid for worker in queue.workers} != first)


def test_an_error_in_a_worker_is_raised_here(queue):
    eventually(lambda: all(worker.ready for worker in queue.idle), 60)
    worker = queue.idle[0]

    def compute(*request):
        return worker.compute(Computation((), bytes, request))

    with pytest.raises(RuntimeError):
        compute("nothing", "portrait", "{}")
    with pytest.raises(InvalidSpec) as error:
        compute("curriculum", "portrait", '{"data": "unknown"}')
    assert error.value.field == "data"
    assert isinstance(compute("curriculum", "portrait", '{"grid": 20}'), bytes)


def test_studies_tables_and_files_are_computed_in_a_worker(queue, monkeypatch):
    eventually(lambda: all(worker.ready for worker in queue.idle), 60)

    def fail_here(*_):
        raise AssertionError

    monkeypatch.setattr(server_module, "answer", fail_here)
    app = application(queue=queue)
    trials = io.BytesIO()
    np.savez(trials, inputs=np.random.default_rng(0).normal(size=(30, 4, 1)), targets=np.ones((30, 1)))

    async def ask_all():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            found = [await client.post(f"/api/curriculum/{name}", json={"grid": 20}) for name in ("study", "table")]
            headers = {"Content-Type": "application/octet-stream", "X-Name": "mine.npz"}
            found.append(await client.post("/api/curriculum/file", content=trials.getvalue(), headers=headers))
            return found

    study, table, opened = asyncio.run(ask_all())
    assert [one.status_code for one in (study, table, opened)] == [200, 200, 200]
    assert study.text.startswith("# learncast ")
    assert "part,chart,trace,x,y,z\n" in table.text
    assert opened.json()["examples"][0]["changes"]["data"]


@pytest.mark.slow
def test_ctrl_c_while_workers_load_ends_the_server_and_them_without_a_traceback():
    command = [sys.executable, "-c", COMMAND, "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        port = int(re.search(r":(\d+)/", process.stdout.readline())[1])
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("POST", "/api/curriculum/study", "{}", JSON)  # starts the workers at once
            eventually(lambda: len(psutil.Process(process.pid).children()) == 3)
            children = psutil.Process(process.pid).children()
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            _, errors = process.communicate(timeout=20)
        assert process.returncode == 130
        assert "Traceback" not in errors
        assert not psutil.wait_procs(children, timeout=10)[1]
    finally:
        process.kill()


def test_loopback_addresses_are_recognised():
    assert all(map(server_module.is_loopback, ("127.0.0.1", "::1", "localhost", "127.9.9.9")))
    assert not any(map(server_module.is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example")))


def test_the_browser_opens_when_the_socket_listens(monkeypatch):
    opened = []

    def visit(address):
        port = int(re.search(r":(\d+)/", address)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            opened.append(address)

    threads = []

    class Recorded(threading.Thread):
        def start(self):
            super().start()
            threads.append(self)

    monkeypatch.setattr(server_module.webbrowser, "open", visit)
    monkeypatch.setattr(server_module.threading, "Thread", Recorded)
    monkeypatch.setattr(server_module, "_run", lambda *_: [thread.join() for thread in threads])
    assert command("--port", 0).exit_code == 0
    assert len(opened) == 1


@pytest.mark.slow
def test_twenty_clients_for_thirty_seconds_get_no_error(server):
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


def test_slow_states_do_not_delay_quick_ones(monkeypatch):
    release, order = threading.Event(), []

    class Paced(State):
        slow: bool = control(False, "slow", kind="toggle")
        number: int = control(0, "number", (0, 9))

    def part(state):
        if state.slow:
            release.wait(10)
        order.append(state.slow)
        return View(())

    panel = Panel(
        "test", "Test", "", Paced, {"part": part}, lambda _: "", slow=lambda state: "waiting" if state.slow else ""
    )
    monkeypatch.setattr(server_module, "all_panels", lambda _: (panel,))

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
def test_memory_does_not_grow_with_use():
    """Random settings of every panel, as fast as they are answered; half an hour with EXPLORER_SOAK=1800."""
    command = [sys.executable, "-c", COMMAND, "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seconds = float(os.environ.get("EXPLORER_SOAK", "60"))
    try:
        port = int(re.search(r":(\d+)/", process.stdout.readline())[1])
        rng = np.random.default_rng(0)
        panels, sizes, asked, until = all_panels(), [], 0, time.monotonic() + seconds
        while time.monotonic() < until:
            panel = panels[int(rng.integers(len(panels)))]
            part = str(rng.choice(list(panel.parts)))
            keys = [c for c in panel.controls if c.kind == "range" and c.key != "hidden_size"]
            chosen = keys[int(rng.integers(len(keys)))] if keys else None
            state = {}
            if chosen is not None:
                value = float(rng.uniform(chosen.least, chosen.most))
                kind = panel.state.model_fields[chosen.key].annotation
                state = {chosen.key: round(value) if kind is int else value}
            status, _, body = post(port, f"/api/{panel.name}/{part}", state)
            assert status in (200, 422), (state, body)
            asked += 1
            if asked % 20 == 0:
                everyone = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
                sizes.append(sum(one.memory_info().rss for one in everyone))
        late = sizes[len(sizes) // 3 :]
        print(f"{asked} questions in {seconds:g} s, {late[0] / 2**20:.0f} to {max(late) / 2**20:.0f} MB")
        # Caches fill in the first third; only a leak would grow after that.
        assert max(late[len(late) // 2 :]) < 1.15 * max(late[: len(late) // 2])
    finally:
        process.kill()
        process.communicate()


def test_an_exported_page_shows_the_given_window_and_a_damaged_one_is_refused(tmp_path, monkeypatch):
    shown, given = [], object()
    monkeypatch.setattr(export, "all_panels", lambda window=None: shown.append(window) or ())
    monkeypatch.setattr("learncast.web.app.open_window", lambda path, most_bytes=None: given)
    runner, site = CliRunner(), tmp_path / "site"
    result = runner.invoke(cli.app, ["explore", "--window", "a.nc", "--export", str(site)])
    assert (result.exit_code, shown) == (0, [given]), result.output
    assert (site / "index.html").exists()
    monkeypatch.undo()
    (tmp_path / "damaged.nc").write_bytes(b"CDF\x01 and no more")
    options = ["--window", str(tmp_path / "damaged.nc"), "--export", str(tmp_path / "other")]
    result = runner.invoke(cli.app, ["explore", *options])
    assert isinstance(result.exception, lc.LearncastError) or result.exit_code == 2
    assert not (tmp_path / "other").exists()
