#!/usr/bin/python3
"""Three vantages of one member: the server and two checkers, each in a network of its own whose way to the member can be cut.

One cut off is outvoted; two cut off set themselves aside, by their canaries; what is really down is down. Nothing is withdrawn that works."""
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402

MEMBER, GATEWAY, PORT, CANARY = "198.18.1.11", "198.18.1.1", 8080, 9


def ip(*words, inside=None):
    enter = ["nsenter", "--net", "--target", str(inside)] if inside else []
    done = subprocess.run([*enter, "ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise lab.Failed(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Listener:
    """Takes connections, and lets them go."""

    def __init__(self, address, port):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        self.socket.listen(64)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                self.socket.accept()[0].close()
            except OSError:
                return

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class Checker:
    """`orrery checker` in a network of its own, on a wire to ours."""

    def __init__(self, orrery, name, number, url, token_file):
        self.name, self.dead_end = name, f"198.19.{number}.99"
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "1000"])
        lab.wait_until(f"{name} has a network of its own", lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != os.readlink("/proc/self/ns/net"), 10, 0.01)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        ip("addr", "add", f"198.19.{number}.1/24", "dev", name)
        ip("link", "set", name, "up")
        for words in (["link", "set", "lo", "up"], ["addr", "add", f"198.19.{number}.2/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                      ["route", "add", "default", "via", f"198.19.{number}.1"]):
            ip(*words, inside=self.holder.pid)
        self.process = lab.Process(name, ["nsenter", "--net", "--target", str(self.holder.pid), orrery, "checker", "--join", url.format(number), "--token-file", token_file,
                                          "--name", name, "--canary", f"{GATEWAY}:{CANARY}"])

    def cut(self):
        """Its way to the member, and to its canary, goes nowhere; the one to the server stays."""
        ip("route", "add", "198.18.1.0/24", "via", self.dead_end, inside=self.holder.pid)

    def mend(self):
        ip("route", "del", "198.18.1.0/24", inside=self.holder.pid)

    def end(self):
        self.process.kill()
        self.holder.kill()


def vantages(api):
    return {one["name"]: one for one in api.get("/v1/health/vantages")["items"]}


def main(given):
    lab.skip_unless(os.geteuid() == 0, "networks of one's own need root")
    if os.environ.get("LAB_INSIDE") != "yes":
        os.execvpe("unshare", ["unshare", "--net", sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:]], {**os.environ, "LAB_INSIDE": "yes"})
    ip("link", "set", "lo", "up")
    for address in (MEMBER, GATEWAY, "198.18.0.53"):
        ip("addr", "add", f"{address}/32", "dev", "lo")
    web, gateway = Listener(MEMBER, PORT), Listener(GATEWAY, CANARY)
    server = lab.Server(given.orrery, name="home")
    server.arguments = ["--server-listen", "198.18.0.53:8421", "--server-allow-plaintext"]  # beside its own
    server.start()
    api = server.api()
    token_file = lab.write_file(os.path.join(lab.scratch(), "checker.token"), server.token() + "\n")
    for kind, name, spec in (("monitors", "web", {"kind": "tcp", "port": PORT, "interval": "1s", "timeout": "500ms", "rise": 1, "fall": 2}),
                             ("pools", "eu", {"monitors": ["web"]}), ("members", "eu-1", {"pool": "eu", "addresses": [MEMBER]})):
        api.put(f"/v1/{kind}/{name}", {"spec": spec})
    state = lambda: api.get("/v1/members/eu-1").get("status", {}).get("verdict")  # noqa: E731
    lab.wait_until("the server finds the member up", lambda: state() == "up", 10)

    checkers = [Checker(given.orrery, name, number, "http://198.18.0.53:8421", token_file) for number, name in ((1, "ams"), (2, "nyc"))]
    try:
        lab.wait_until("both checkers have joined", lambda: {"ams", "nyc"} <= vantages(api).keys(), 15)
        lab.wait_until("and look", lambda: all(vantages(api)[name]["targets"] == 1 for name in ("ams", "nyc")), 15)
        time.sleep(2)
        checkers[0].cut()
        lab.wait_until("one is cut off, and sets itself aside", lambda: not vantages(api)["ams"]["fit"], 15)
        lab.contains("its canary tells why", vantages(api)["ams"]["because"], "canaries fail")
        lab.equal("the member stays", state(), "up")
        checkers[1].cut()
        lab.wait_until("the other too", lambda: not vantages(api)["nyc"]["fit"], 15)
        time.sleep(3)
        lab.equal("the member still stays", state(), "up")
        for one in checkers:
            one.mend()
        lab.wait_until("their word counts again", lambda: all(vantages(api)[name]["fit"] for name in ("ams", "nyc")), 20)
        began = time.monotonic()
        web.close()
        lab.wait_until("what is really down is down", lambda: state() == "down", 20)
        lab.say(f"{time.monotonic() - began:.1f} s after it went")
        server.kill()
        api.close()
        server.start()
        api = server.api()
        lab.equal("after kill -9 it is as it was", state(), "down")
        lab.wait_until("the checkers come back by themselves", lambda: {"ams", "nyc"} <= vantages(api).keys(), 40)
        web = Listener(MEMBER, PORT)
        lab.wait_until("it is up again", lambda: state() == "up", 20)
        refused = subprocess.run([given.orrery, "checker", "--join", "http://198.18.0.53:8421", "--name", "x"], capture_output=True, text=True, timeout=20, env=lab.clean_environment())
        lab.check("without a token nobody is let in", refused.returncode != 0 and "401" in refused.stderr, refused)
        time.sleep(1)
        began = time.monotonic()
        server.stop()
        took = time.monotonic() - began
        lab.check(f"it stops at once, though two checkers wait for what is to be looked at: {took:.1f} s", took < 4, took)
    finally:
        for one in checkers:
            one.end()
        gateway.close()


lab.run(main)
