"""The executors' driver as a child process: `driver = Driver(options.driver, hosts)`, `driver.start("ssh", "h1", {"command": [...]})`."""
import itertools
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
_ids = itertools.count(1)


def add_options(parser):
    parser.add_argument("--driver", required=True, help="path of executor_driver")


class Call:
    """A request to the driver: its output so far, and the end."""

    def __init__(self, id):
        self.id = id
        self.out, self.err = bytearray(), bytearray()
        self.steps, self.done = [], None
        self.ended = threading.Event()
        self.first_output = threading.Event()

    def receive(self, message):
        if message["event"] == "output":
            kept = self.out if message["stream"] == "out" else self.err
            data = message["text"].encode(errors="surrogateescape")
            skip = len(kept) - message["offset"]
            if skip < 0:
                self.done = {"failed": {"message": f"a gap in the output at {message['offset']}, kept {len(kept)}"}}
            kept += data[max(skip, 0):]
            self.first_output.set()
        elif message["event"] == "step":
            self.steps.append(message)
        elif message["event"] == "done":
            self.done = self.done or message
            self.ended.set()

    def wait(self, seconds=60):
        if not self.ended.wait(seconds):
            raise orrery_lab.Failed(f"{self.id} was not done within {seconds} s; its output was {bytes(self.out[-300:])!r} {bytes(self.err[-300:])!r}")
        return self.done

    def outcome(self, seconds=60):
        done = self.wait(seconds)
        if "outcome" not in done:
            raise orrery_lab.Failed(f"{self.id} has no outcome: {done}")
        return done["outcome"]

    def text(self):
        return self.out.decode(errors="replace")


class Driver:
    def __init__(self, path, nodes, key_file, content="", runs=None, quiet=False, programs=None):
        """`nodes`: {name: {"address", "host_key", ...}}."""
        runs = runs or orrery_lab.scratch("runs")
        config = {"key": key_file, "nodes": nodes, "content": content, "runs": runs, "programs": programs or {}}
        if quiet:
            config["quiet"] = True
        self.config = orrery_lab.write_file(os.path.join(orrery_lab.scratch(), f"driver-{next(_ids)}.json"), json.dumps(config))
        self.path, self.calls, self.seq = path, {}, itertools.count(1)
        self.cpu = None
        self.spawn()

    def spawn(self):
        self.errors = open(os.path.join(orrery_lab.scratch("logs"), f"driver-{next(_ids)}.log"), "ab")
        self.child = subprocess.Popen([self.path, self.config], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                      env=orrery_lab.clean_environment(), start_new_session=True)
        self.reader = threading.Thread(target=self.read, args=(self.child,), daemon=True)
        self.reader.start()

    def read(self, child):
        for line in child.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # cut off by a kill
            if message["event"] == "end":
                self.cpu = message
            elif message.get("seq") in self.calls:
                self.calls[message["seq"]].receive(message)

    def ask(self, op, executor, nodes, body=None, id=None, call=None, **more):
        seq = next(self.seq)
        id = id or f"a{os.getpid()}-{next(_ids)}"
        call = call or Call(id)
        call.ended.clear()
        call.done = None
        self.calls[seq] = call
        request = {"seq": seq, "op": op, "executor": executor, "id": id, "nodes": [nodes] if isinstance(nodes, str) else nodes, "body": body, **more}
        self.child.stdin.write((json.dumps(request) + "\n").encode())
        self.child.stdin.flush()
        return call

    def start(self, executor, nodes, body, **more):
        return self.ask("start", executor, nodes, body, **more)

    def kill(self):
        """As kill -9 would end a server."""
        self.child.kill()
        self.child.wait()
        self.reader.join()
        self.errors.close()

    def finish(self, seconds=120):
        """Ends the input, waits for all requests, and returns the resource usage."""
        self.child.stdin.close()
        self.child.wait(seconds)
        self.reader.join()
        self.errors.close()
        return self.cpu


def nodes_of(hosts, **more):
    return {host.name: {"address": host.address, "host_key": host.host_key, **more} for host in hosts}
