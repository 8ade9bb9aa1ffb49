#!/usr/bin/python3
"""A thousand watchers and a thousand writes: each watcher sees each revision once and in order. One watcher that reads nothing is cut
off, another that reads too late gets the reason, neither delays the others, and the server's memory stays bounded."""
import json
import os
import re
import resource
import selectors
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Server, Skip, check, contains, equal, log, node, run, wait_until  # noqa: E402

# A frame's place in the stream. Chunk sizes of the transfer coding may occur between frames, never inside one's first lines.
FRAME = re.compile(rb"id: (\d+)-[0-9a-f]+\nevent: (\w+)\n")


class Watcher:
    """One stream, read only as far as its revisions; cheap enough for a thousand in one thread."""

    def __init__(self, server, path, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", server.port))
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: lab\r\nAuthorization: Bearer {server.token()}\r\n\r\n".encode())
        self.rest = b""
        self.revisions, self.events = [], []
        self.done_at = self.started = self.closed = None
        self.bytes = 0

    def readable(self):
        data = self.socket.recv(1 << 18)
        if not data:
            self.closed = time.monotonic()
            return
        self.bytes += len(data)
        text, end = self.rest + data, 0
        for match in FRAME.finditer(text):
            end = match.end()
            if match[2] == b"started":
                self.started = int(match[1])
            else:
                self.revisions.append(int(match[1]))
                self.events.append(match[2])
        self.rest = text[max(end, len(text) - 200):]


class Sipper:
    """Reads a little now and then, so that it is never silent and always behind, and the rest on request."""

    def __init__(self, server, path):
        self.watcher = Watcher(server, path, receive_buffer=1 << 17)
        self.watcher.socket.settimeout(60)
        self.tail = b""
        self.hurry = threading.Event()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while True:
            try:
                data = self.watcher.socket.recv(1 << 16 if self.hurry.is_set() else 1 << 10)
            except OSError:
                return
            if not data:
                return
            self.tail = (self.tail + data)[-65536:]
            if self.tail.endswith(b"\r\n0\r\n\r\n"):  # the answer's end; the connection stays
                return
            self.hurry.wait(0.2)

    def rest_of_it(self):
        """The data of the error event the stream ended with, or None."""
        self.hurry.set()
        self.thread.join(120)
        found = re.search(rb"event: error\ndata: (\{.*\})\n\n", self.tail)
        return json.loads(found[1]) if found else None


class Crowd:
    """Reads all watchers in a thread of its own until each has seen `expected` changes."""

    def __init__(self, watchers, expected):
        self.watchers, self.expected = watchers, expected
        self.selector = selectors.DefaultSelector()
        for watcher in watchers:
            watcher.socket.setblocking(False)
            self.selector.register(watcher.socket, selectors.EVENT_READ, watcher)
        self.left = len(watchers)
        self.lagging = threading.Thread(target=self.read, daemon=True)
        self.lagging.start()

    def read(self):
        while self.left:
            for key, _ in self.selector.select(1):
                watcher = key.data
                try:
                    watcher.readable()
                except BlockingIOError:
                    continue
                if watcher.closed or (len(watcher.revisions) >= self.expected and not watcher.done_at):
                    watcher.done_at = time.monotonic()
                    self.left -= 1
                if watcher.closed:
                    self.selector.unregister(watcher.socket)

    def wait_started(self):
        wait_until("all streams have begun", lambda: all(w.started is not None for w in self.watchers), 60)

    def join(self, seconds):
        self.lagging.join(seconds)
        behind = [w for w in self.watchers if not w.done_at]
        check("every watcher received the last revision", not behind, f"{len(behind)} watchers have not seen all {self.expected} changes; the first saw {len(behind[0].revisions) if behind else 0}")


def write_many(server, count, writers, body):
    """`count` writes by `writers` clients; their revisions and the slowest answer."""
    revisions, slowest, lock = [], [0.0], threading.Lock()

    def work(index):
        api = server.api(seconds=60)
        for i in range(index, count, writers):
            begin = time.monotonic()
            answer = api.put(f"/v1/nodes/n-{i % 100}", body(i))
            took = time.monotonic() - begin
            with lock:
                revisions.append(answer["object"]["revision"])
                slowest[0] = max(slowest[0], took)
        api.close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(revisions), slowest[0]


def small(i):
    return node(f"n-{i % 100}", {"write": str(i)})


def large(i):
    # Some 20 kB, so that a few hundred fill the buffers of a connection that is not read.
    return node(f"n-{i % 100}", {"write": str(i)} | {f"k{k:02d}-{'x' * 100}": f"{i}-{'y' * 230}" for k in range(60)})


def options(parser):
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--writes", type=int, default=1000)


def main(given):
    need = given.watchers * 2 + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < need:
        if hard != resource.RLIM_INFINITY and hard < need:
            raise Skip(f"{given.watchers} watchers need {need} open files, the limit is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    server = Server(given.orrery)
    server.start()
    before = server.resident()
    api = server.api()

    log("a backlog that one watcher asks for and never reads")
    start = api.get("/v1/store")["revision"]
    write_many(server, 800, 8, large)
    stuck = Watcher(server, f"/v1/nodes?watch={start}", receive_buffer=4096)
    stuck_since = time.monotonic()
    with_backlog = server.resident()

    log(f"{given.watchers} watchers, {given.writes} writes")
    now = api.get("/v1/store")["revision"]
    watchers = [Watcher(server, f"/v1/nodes?watch={now}") for _ in range(given.watchers)]
    crowd = Crowd(watchers, given.writes)
    crowd.wait_started()
    check("the server counts its streams", server.metrics()["orrery_event_streams"] >= given.watchers, str(server.metrics()["orrery_event_streams"]))
    begin = time.monotonic()
    expected, slowest = write_many(server, given.writes, 16, small)
    written = time.monotonic()
    crowd.join(200)
    finished = max(w.done_at for w in watchers)
    peak = server.resident()
    equal("each write has a revision of its own", len(set(expected)), given.writes)
    wrong = [w for w in watchers if w.revisions != expected]
    check(f"each of {given.watchers} watchers saw each of {given.writes} revisions once, in order", not wrong,
          f"{len(wrong)} did not; one saw {len(wrong[0].revisions) if wrong else 0}")
    log(f"      written in {written - begin:.1f} s (slowest answer {slowest:.2f} s), all delivered {finished - written:.2f} s later:"
        f" {given.watchers * given.writes / (finished - begin):,.0f} changes/s, {sum(w.bytes for w in watchers) / 2**20:,.0f} MiB")
    log(f"      resident: {before >> 20} MiB empty, {with_backlog >> 20} MiB with the backlog, {peak >> 20} MiB with all watchers")
    check("memory is bounded: less than 256 MiB more than before the watchers connected", peak - with_backlog < 256 << 20, f"{(peak - with_backlog) >> 20} MiB more")
    check("the stuck watcher did not delay the others", finished - begin < 120 and slowest < 10, f"{finished - begin:.1f} s, slowest answer {slowest:.1f} s")
    for watcher in watchers:
        watcher.socket.close()

    log("a client that reads too late gets an error")
    late = Sipper(server, "/v1/nodes?watch=now")
    history, present = 0, api.get("/v1/store")["revision"]
    for round_ in range(60):  # until the history it would need is gone
        write_many(server, 400, 16, lambda i, r=round_: large(i + 1000 * (r + 1)))
        history += 400
        if api.get("/v1/store")["compacted"] > present + 400:
            break
    error = late.rest_of_it()
    check(f"after {history} large changes its stream ends with an error event", error is not None, f"the stream ended without saying why: {late.tail[-300:]!r}")
    equal("410: it fell behind the retained history", (error["status"], error["code"]), (410, "compacted"))
    contains("and a remedy", error.get("remedy", ""), "list")

    log("the one that reads nothing")
    metric = lambda: int(server.metrics()["orrery_event_streams"])  # noqa: E731
    wait_until("the server has closed it", lambda: metric() == 0, 60, 0.5)
    check(f"was cut off {time.monotonic() - stuck_since:.0f} s after it stopped reading", True)
    stuck.socket.settimeout(10)
    try:
        while stuck.socket.recv(1 << 20):
            pass
        ended = "closed"
    except ConnectionResetError:
        ended = "reset"
    except TimeoutError:
        ended = "open"
    check(f"its connection is {ended}", ended != "open")
    reasons = [line for line in server.log_text().splitlines() if "level=warn" in line or "level=info" in line]
    reasons = [line for line in reasons if re.search(r"took no|reads? (nothing|too slow)|slow|cut off|did not read", line)]
    check("the log gives the reason", bool(reasons), "no line of the log mentions it")
    log(f"      {reasons[-1]}")
    log(f"      resident at the end: {server.resident() >> 20} MiB")
    equal("the log has no errors", server.error_lines(), [])
    equal("it stops on SIGTERM", server.stop(), 0)


if __name__ == "__main__":
    run(main, options)
