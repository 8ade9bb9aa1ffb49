#!/usr/bin/python3
"""Three vantages of one member: the server and two checkers, each in its own network, whose route to the member can be cut.

One isolated vantage is outvoted; two isolated vantages quarantine themselves, by their canaries; a member that is really down is withdrawn. No healthy member is withdrawn."""
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
from networks import Checker, ip, own_network, vantages  # noqa: E402

SITE, MEMBER, GATEWAY, PORT, CANARY = "198.18.1.0/24", "198.18.1.11", "198.18.1.1", 8080, 9


class Listener:
    """Accepts connections and closes them."""

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


def main(given):
    own_network(__file__)
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

    checkers = [Checker(given.orrery, name, number, "http://198.18.0.53:8421", token_file, "--canary", f"{GATEWAY}:{CANARY}") for number, name in ((1, "ams"), (2, "nyc"))]
    try:
        lab.wait_until("both checkers have joined", lambda: {"ams", "nyc"} <= vantages(api).keys(), 15)
        lab.wait_until("and probe", lambda: all(vantages(api)[name]["targets"] == 1 for name in ("ams", "nyc")), 15)
        time.sleep(2)
        checkers[0].cut(SITE)
        lab.wait_until("an isolated checker quarantines itself", lambda: not vantages(api)["ams"]["trusted"], 15)
        lab.contains("its canary gives the reason", vantages(api)["ams"]["message"], "canaries fail")
        lab.equal("the member stays", state(), "up")
        checkers[1].cut(SITE)
        lab.wait_until("the other checker, too", lambda: not vantages(api)["nyc"]["trusted"], 15)
        time.sleep(3)
        lab.equal("the member still stays", state(), "up")
        for one in checkers:
            one.restore(SITE)
        lab.wait_until("both count towards quorum again", lambda: all(vantages(api)[name]["trusted"] for name in ("ams", "nyc")), 20)
        began = time.monotonic()
        web.close()
        lab.wait_until("a member that is really down is reported down", lambda: state() == "down", 20)
        lab.log(f"{time.monotonic() - began:.1f} s after it went")
        server.kill()
        api.close()
        server.start()
        api = server.api()
        lab.equal("after kill -9 its state is unchanged", state(), "down")
        lab.wait_until("the checkers reconnect", lambda: {"ams", "nyc"} <= vantages(api).keys(), 40)
        web = Listener(MEMBER, PORT)
        lab.wait_until("it is up again", lambda: state() == "up", 20)
        refused = subprocess.run([given.orrery, "checker", "--join", "http://198.18.0.53:8421", "--allow-plaintext", "--name", "x"], capture_output=True, text=True, timeout=20, env=lab.clean_environment())
        lab.check("without a token every request is refused", refused.returncode != 0 and "401" in refused.stderr, refused)
        time.sleep(1)
        began = time.monotonic()
        server.stop()
        took = time.monotonic() - began
        lab.check(f"it stops at once, although two checkers wait for their assignments: {took:.1f} s", took < 4, took)
    finally:
        for one in checkers:
            one.end()
        gateway.close()


lab.run(main)
