"""Shared code of the labs: a real server and a real etcd as child processes, an API client, and a runner.

A lab is a script `name.py PATH_OF_ORRERY [options]` that prints each check. Its exit status is 0 when all checks passed, 1 after a failed
check, and 77, with the reason, when this host cannot run the lab. It uses Python's standard library only.
"""
import argparse
import contextlib
import http.client
import itertools
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

SKIPPED = 77
LOOPBACK = ("127.0.0.0/8", "::1")  # as net.outbound.allow and --outbound-allow have it


class Skip(Exception):
    """This host cannot run the lab; the text is what is missing."""


class Failed(Exception):
    """A check failed."""


class Problem(Exception):
    """An answer of the API that is not a success. `document` is the problem+json, or {} where the body was not one."""

    def __init__(self, status, document, headers, request):
        self.status, self.document, self.headers = status, document, headers
        self.code = document.get("code", "")
        self.detail = document.get("detail", "")
        self.remedy = document.get("remedy", "")
        super().__init__(f"{request}: {status} {self.code} {self.detail}")


# --- checks and output ------------------------------------------------------------------------------------------------

started_at = time.monotonic()


def log(text):
    print(f"[{time.monotonic() - started_at:6.1f}] {text}", flush=True)


def check(what, holds, detail=""):
    """Prints the check `what`; ends the lab with `detail` where it does not hold."""
    if not holds:
        raise Failed(f"{what}: {detail}" if detail != "" else what)
    log(f"ok    {what}")


def equal(what, seen, expected):
    check(what, seen == expected, f"expected {expected!r}, got {seen!r}")


def contains(what, text, *parts):
    for part in parts:
        if part not in text:
            raise Failed(f"{what}: {part!r} is not in {text!r}")
    log(f"ok    {what}")


def wait_until(what, holds, seconds, every=0.05):
    """Returns the first true result of `holds()`; fails when there is none in time."""
    end = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"not within {seconds} s: {what}")
        time.sleep(every)


def skip_unless(condition, why):
    if not condition:
        raise Skip(why)


def program(name, package):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    skip_unless(path, f"{name} is not installed (Debian package {package})")
    return path


def run(main, add_options=None, description=None, build_folder=False):
    """Runs `main(options)` as a lab: parses the command line, cleans up, and exits with the status of the lab. With `build_folder` the
    argument is the folder of the build, which has the program."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("orrery", metavar="BUILD_FOLDER" if build_folder else "ORRERY", help="folder of the build" if build_folder else "path of the program")
    if add_options:
        add_options(parser)
    options = parser.parse_args()
    options.orrery = os.path.join(os.path.abspath(options.orrery), *(["orrery"] if build_folder else []))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    status = 1
    try:
        main(options)
        log("all checks passed")
        status = 0
    except Skip as why:
        print(f"skipped because {why}", flush=True)
        status = SKIPPED
    except Failed as why:
        print(f"FAILED {why}", flush=True)
    except Exception:  # noqa: BLE001 - after any failure the logs are printed and the processes end
        traceback.print_exc()
        print("FAILED by the exception above", flush=True)
    finally:
        if status == 1:
            for process in list(Process.running):
                print(f"--- the end of {process.name}'s log\n{process.log_text()[-3000:]}", flush=True)
        for process in list(Process.running):
            process.kill()
        shutil.rmtree(scratch.path, ignore_errors=True) if scratch.path else None
    sys.exit(status)


class _Scratch:
    """The temporary folder of a lab, created at the first use and removed at the end."""

    path = None

    def __call__(self, name=""):
        if not self.path:
            self.path = tempfile.mkdtemp(prefix="orrery-lab-")
        if not name:
            return self.path
        folder = os.path.join(self.path, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return folder


scratch = _Scratch()


def write_file(path, text, mode=0o600):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return path


_given_ports = itertools.count()


def free_port():
    """A free port, returned only once. It is below the range of ephemeral ports, so that a server that is killed and started again finds
    its port free. Each process has its own block of ports."""
    first, block, blocks = 10240, 32, 700
    for _ in range(block):
        port = first + os.getpid() % blocks * block + next(_given_ports) % block
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise RuntimeError("no free port on loopback")


def clean_environment(**more):
    """An environment without the settings of the caller."""
    home = scratch("home")
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": home, "XDG_CONFIG_HOME": os.path.join(home, ".config"),
            "LANG": "C.UTF-8", "no_proxy": "127.0.0.1,localhost", **more}


# --- processes --------------------------------------------------------------------------------------------------------


class Process:
    """A child process whose output goes to a file."""

    running = []

    def __init__(self, name, arguments, environment=None, log=None):
        self.name = name
        self.log = log or os.path.join(scratch("logs"), f"{name}.log")
        self.log_start = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as output:
            self.child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                          env=environment or clean_environment(), start_new_session=True)
        self.pid = self.child.pid
        Process.running.append(self)

    def alive(self):
        return self.child.poll() is None

    def signal(self, number):
        self.child.send_signal(number)

    def wait(self, seconds):
        status = self.child.wait(seconds)
        self._forget()
        return status

    def kill(self):
        if self.alive():
            self.child.kill()
        self.child.wait()
        self._forget()

    def stop(self, seconds=15):
        """Sends SIGTERM and returns the exit status."""
        if self.alive():
            self.child.terminate()
        try:
            return self.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not stop within {seconds} s of SIGTERM") from None

    def _forget(self):
        if self in Process.running:
            Process.running.remove(self)

    def log_text(self):
        """The log since the start of the process."""
        with open(self.log, "rb") as file:
            file.seek(self.log_start)
            return file.read().decode(errors="replace")

    def resident(self):
        """Resident bytes."""
        with open(f"/proc/{self.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read()).group(1)) * 1024


class Server:
    """`orrery server` with its own port and folder, which stay the same over restarts."""

    admin_password = "first-login-of-the-lab"

    def __init__(self, orrery, name="server", folder=None, store_url=None, arguments=(), environment=None, admin_password=None, outbound_allow=LOOPBACK):
        self.orrery, self.name = orrery, name
        self.folder = folder or scratch(f"data-{name}")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        if admin_password:
            self.admin_password = admin_password
        self.password_file = write_file(os.path.join(scratch(), f"{name}.password"), self.admin_password + "\n")
        self.store_url, self.arguments, self.environment = store_url, list(arguments), environment
        self.outbound_allow = list(outbound_allow)  # the targets of checks and tasks in labs are on loopback
        self.log = os.path.join(scratch("logs"), f"{name}.log")
        self.process = None
        self.ssl = None  # a context for clients, where the server uses TLS
        self._token, self._login = None, threading.Lock()

    def command(self):
        line = [self.orrery, "server", "--config", "/dev/null", "--data-folder", self.folder, "--server-listen", f"127.0.0.1:{self.port}",
                "--identity-admin-password-file", self.password_file, "--log-format", "logfmt", "--server-name", self.name]
        if self.store_url:
            line += ["--store-url", self.store_url]
            if self.store_url.startswith("etcd://") and not self.store_url.startswith("etcd://127."):
                line.append("--store-etcd-allow-plaintext")
        if self.outbound_allow:
            line += ["--net-outbound-allow", ",".join(self.outbound_allow)]
        return line + self.arguments

    def spawn(self):
        """Starts the server without waiting."""
        self.process = Process(self.name, self.command(), self.environment, self.log)
        return self

    def start(self, seconds=20):
        """Starts the server, waits until it is ready and returns how long that took."""
        begin = time.monotonic()
        self.spawn()
        self.wait_ready(seconds)
        return time.monotonic() - begin

    def wait_ready(self, seconds=20):
        end = time.monotonic() + seconds
        while True:
            try:
                if self.probe("/readyz")[0] == 200:
                    return
            except OSError:
                pass
            if not self.process.alive():
                raise Failed(f"{self.name} ended with status {self.process.child.returncode} before it was ready: {self.process.log_text()[-1500:]}")
            if time.monotonic() > end:
                raise Failed(f"{self.name} was not ready within {seconds} s: {self.process.log_text()[-1500:]}")
            time.sleep(0.005)

    def probe(self, path, seconds=5):
        """(status, text) of a GET without login, on a new connection."""
        connection = self.connect(seconds)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")

    def connect(self, seconds=30):
        if self.ssl:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=seconds, context=self.ssl)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)

    def kill(self):
        self.process.kill()

    def stop(self, seconds=15):
        return self.process.stop(seconds)

    def resident(self):
        return self.process.resident()

    def log_text(self):
        return self.process.log_text()

    def error_lines(self):
        """Log lines of level error since the last start."""
        return [line for line in self.log_text().splitlines() if " level=error " in line]

    def start_error(self):
        """The message of a server that refused to start."""
        return (self.error_lines() or self.log_text().strip().splitlines() or [""])[-1].partition("message=")[2][:400]

    def token(self):
        """The administrator's token, from a login at the first call."""
        with self._login:  # many concurrent logins would be taken for password guesses
            if not self._token:
                self._token = self.api(token=None).post("/v1/login", {"user": "admin", "password": self.admin_password})["token"]
        return self._token

    def api(self, token="admin", seconds=30):
        return Api(self, self.token() if token == "admin" else token, seconds)

    def metrics(self):
        """{name: value} of metrics without labels."""
        status, text = self.probe("/metrics")
        if status != 200:
            raise Failed(f"/metrics answered {status}")
        return {m[1]: float(m[2]) for m in re.finditer(r"^([a-z_]+) (\S+)$", text, re.M)}


class Api:
    """A keep-alive connection with JSON bodies, for one thread. Answers that are not a success are raised as Problem."""

    def __init__(self, server, token=None, seconds=30):
        self.server, self.bearer, self.seconds = server, token, seconds
        self.connection = None
        self.headers = {}  # of the last answer
        self.status = 0

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def raw(self, method, path, body=None, headers=None):
        """(status, headers, bytes). OSError or http.client.HTTPException when the connection breaks; it is then closed."""
        if not self.connection:
            self.connection = self.server.connect(self.seconds)
        sent = dict(headers or {})
        if self.bearer:
            sent.setdefault("Authorization", f"Bearer {self.bearer}")
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        try:
            self.connection.request(method, path, body, sent)
            answer = self.connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        return answer.status, answer.headers, data

    def request(self, method, path, body=None, headers=None):
        status, self.headers, data = self.raw(method, path, body, headers)
        self.status = status
        try:
            document = json.loads(data) if data else {}
        except ValueError:
            document = {"text": data.decode(errors="replace")}
        if status >= 300:
            raise Problem(status, document if isinstance(document, dict) else {}, self.headers, f"{method} {path}")
        return document

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)

    def post(self, path, body=None, **headers):
        return self.request("POST", path, body, headers)

    def put(self, path, body, **headers):
        return self.request("PUT", path, body, headers)

    def patch(self, path, body, headers=None):
        return self.request("PATCH", path, body, headers)

    def delete(self, path, **headers):
        return self.request("DELETE", path, headers=headers)

    def refused(self, what, status, method, path, body=None, headers=None):
        """Checks that the request is refused with this status, and returns the Problem."""
        try:
            document = self.request(method, path, body, headers)
        except Problem as problem:
            equal(f"{what}: {status}", problem.status, status)
            return problem
        raise Failed(f"{what}: expected {status}, got {self.status} {json.dumps(document)[:300]}")

    def all(self, plural, query="", page=5000):
        """All items of a list, from all its pages."""
        after, extra = "", f"&{query}" if query else ""
        while True:
            part = self.get(f"/v1/{plural}?limit={page}{extra}{after}")
            yield from part["items"]
            if "continue" not in part:
                return
            after = "&continue=" + urllib.parse.quote(part["continue"])


class Stream:
    """A stream of server-sent events. Iterating yields (event, id, data); heartbeats are counted."""

    def __init__(self, server, path, token="admin", seconds=30, headers=None):
        self.connection = server.connect(seconds)
        sent = {"Accept": "text/event-stream", **(headers or {})}
        bearer = server.token() if token == "admin" else token
        if bearer:
            sent["Authorization"] = f"Bearer {bearer}"
        self.connection.request("GET", path, headers=sent)
        self.answer = self.connection.getresponse()
        self.heartbeats = 0
        if self.answer.status != 200:
            text = self.answer.read()
            raise Problem(self.answer.status, json.loads(text) if text.startswith(b"{") else {}, self.answer.headers, f"GET {path}")

    def __iter__(self):
        event = ident = None
        data = []
        while True:
            line = self.answer.readline()
            if not line:
                return
            line = line.rstrip(b"\r\n").decode()
            if line.startswith(":"):
                self.heartbeats += 1
            elif not line:
                if event or data:
                    yield event, ident, json.loads("\n".join(data)) if data else None
                event, data = None, []
            else:
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "event":
                    event = value
                elif name == "id":
                    ident = value
                elif name == "data":
                    data.append(value)

    def close(self):
        self.connection.close()


class Etcd:
    """One or more etcd members on loopback, or on another address of this host. Members keep their ports and data over kill and start."""

    def __init__(self, members=1, host="127.0.0.1"):
        self.path, self.host = program("etcd", "etcd-server"), host
        self.clients = [free_port() for _ in range(members)]
        self.peers = [free_port() for _ in range(members)]
        self.processes = [None] * members
        for member in range(members):
            self.start(member)
        self.wait_healthy()

    def start(self, member):
        client, peer = (f"http://{self.host}:{ports[member]}" for ports in (self.clients, self.peers))
        cluster = ",".join(f"m{i}=http://{self.host}:{port}" for i, port in enumerate(self.peers))
        self.processes[member] = Process(f"etcd-{member}", [
            self.path, "--name", f"m{member}", "--data-dir", os.path.join(scratch("etcd"), str(self.clients[member])), "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster,
            "--initial-cluster-state", "new", "--heartbeat-interval", "100", "--election-timeout", "1000", "--log-level", "warn"])

    def kill(self, member):
        self.processes[member].kill()

    def stop(self):
        for process in self.processes:
            process.kill()

    def healthy(self, member):
        try:
            connection = http.client.HTTPConnection(self.host, self.clients[member], timeout=2)
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                return json.loads(connection.getresponse().read()).get("health") == "true"
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def wait_healthy(self, members=None, seconds=30):
        for member in members if members is not None else range(len(self.clients)):
            wait_until(f"etcd member {member} is healthy", lambda m=member: self.healthy(m), seconds)

    def url(self, prefix=""):
        return "etcd://" + ",".join(f"{self.host}:{port}" for port in self.clients) + (f"/{prefix}" if prefix else "")

    def call(self, path, body, member=0):
        """The JSON gateway."""
        connection = http.client.HTTPConnection(self.host, self.clients[member], timeout=10)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(body))
            return json.loads(connection.getresponse().read())


# --- the command line --------------------------------------------------------------------------------------------------


class Ran:
    def __init__(self, arguments, status, out, err):
        self.arguments, self.status, self.out, self.err = arguments, status, out, err

    def __str__(self):
        return f"orrery {' '.join(self.arguments)} ended with {self.status}\nstdout: {self.out}\nstderr: {self.err}"


class Cli:
    """The command line as a user runs it, with its own home folder."""

    def __init__(self, orrery, server=None, **environment):
        self.orrery, self.environment = orrery, clean_environment(**environment)
        if server:
            self.environment["ORRERY_SERVER"] = server.url

    def __call__(self, *arguments, stdin=None, seconds=30, **environment):
        done = subprocess.run([self.orrery, *arguments], input=stdin, capture_output=True, text=True, timeout=seconds,
                              env={**self.environment, **environment})
        return Ran(arguments, done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments, **named):
        ran = self(*arguments, **named)
        if ran.status != 0:
            raise Failed(str(ran))
        return ran.out

    def login(self, server):
        self.ok("login", "admin", "--password-file", server.password_file)
        return self


def at_terminal(arguments, environment, answers, seconds=30):
    """Runs a program on a pty and types each answer when its prompt appears: (exit status, what was on the screen)."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(arguments[0], arguments, environment)
    screen, left, end = "", list(answers), time.monotonic() + seconds
    seen = 0
    while time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        if ready:
            try:
                data = os.read(terminal, 4096)
            except OSError:  # the program has ended
                break
            if not data:
                break
            screen += data.decode(errors="replace")
        if left and left[0][0] in screen[seen:]:
            seen = len(screen)
            os.write(terminal, (left.pop(0)[1] + "\n").encode())
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise Failed(f"{arguments} did not end within {seconds} s; on the screen: {screen!r}")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if left:
        raise Failed(f"{arguments} did not print the prompt {left[0][0]!r}; it ended with {status}; on the screen: {screen!r}")
    return status, screen


class Web:
    """Answers HTTP on its own address, with a status that is a value or a function; records the time and status of each answer."""

    def __init__(self, address, port=8088):
        self.status, self.answered, self.clients = 200, [], set()
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        self.socket.listen(64)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        self.clients.add(client)
        with contextlib.suppress(OSError), client:
            while client.recv(4096):
                status = self.status() if callable(self.status) else self.status
                self.answered.append((time.monotonic(), status))
                client.sendall(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok".encode())
        self.clients.discard(client)

    @property
    def asked(self):
        return len(self.answered)

    def close(self):
        for one in (self.socket, *self.clients):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def node(name, labels=None, **spec):
    return {"kind": "Node", "name": name, "labels": labels or {}, "spec": {"address": "192.0.2.1", **spec}}


def tls_context(ca, certificate=None, key=None):
    context = ssl.create_default_context(cafile=ca)
    if certificate:
        context.load_cert_chain(certificate, key)
    return context
