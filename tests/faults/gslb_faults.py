#!/usr/bin/python3 -B
"""Load balancers under failures: three servers on one etcd, each of which probes the members and answers DNS. A member flaps; four of five members fail
within a second; the leader is killed, and a member fails while there is no leader; the wall clock steps by an hour, in both directions; all servers are
killed with SIGKILL and start again. No healthy member and no member that a guard holds is withdrawn, every server gives the same answers, and each case
leaves its record. (Vantages that are cut off: gslb_vantages.py.)"""
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab", part) for part in ("", "server")]
from cluster import leader_of  # noqa: E402
from orrery_lab import Etcd, Server, check, clean_environment, contains, equal, free_port, log, run, scratch, wait_until, write_file  # noqa: E402

MEMBERS = 10

# The wall clock of the servers: the real one plus an offset in seconds. The steady clock stays.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long ahead(void) {
    char text[32] = {0};
    int file = open(getenv("LAB_CLOCK"), O_RDONLY);
    if (file < 0) return 0;
    long size = read(file, text, sizeof text - 1);
    close(file);
    return size > 0 ? atol(text) : 0;
}
int clock_gettime(clockid_t id, struct timespec* out) {
    static int (*real)(clockid_t, struct timespec*);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, out);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) out->tv_sec += ahead();
    return done;
}
int gettimeofday(struct timeval* out, void* zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t* out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The wall clock of all servers. It needs a C compiler; without one this part is left out."""

    def __init__(self):
        self.compiler = shutil.which("cc") or shutil.which("clang-19")
        self.file = write_file(os.path.join(scratch("clock"), "ahead"), "0")
        self.environment = clean_environment()
        if not self.compiler:
            return
        source, library = write_file(os.path.join(scratch("clock"), "clock.c"), CLOCK), os.path.join(scratch("clock"), "clock.so")
        subprocess.run([self.compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
        self.environment = {**self.environment, "LD_PRELOAD": library, "LAB_CLOCK": self.file}

    def set(self, seconds):
        write_file(self.file + ".next", str(seconds))
        os.replace(self.file + ".next", self.file)


class Member:
    """Accepts connections on its own address, or refuses them."""

    def __init__(self, address, port):
        self.address, self.port, self.socket = address, port, None
        self.up()

    def up(self):
        if self.socket:
            return
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((self.address, self.port))
        self.socket.listen(64)
        threading.Thread(target=self.run, args=(self.socket,), daemon=True).start()

    def run(self, listener):
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return

    def down(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.socket = None


def ask(port, name, host="127.0.0.1"):
    """The addresses of one response over UDP; None without a response."""
    query = b"\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00" + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0\0\x01\0\x01"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        try:
            client.sendto(query, (host, port))
            answer = client.recv(4096)
        except OSError:
            return None
    count = int.from_bytes(answer[6:8], "big")
    return sorted(".".join(str(b) for b in answer[i + 12:i + 16]) for i in range(len(query), len(query) + 16 * count, 16))


class Site:
    def __init__(self, orrery):
        self.etcd = Etcd()
        self.port = free_port()
        self.members = {f"m{i}": Member(f"127.2.0.{i}", self.port) for i in range(1, MEMBERS + 1)}
        self.dns = [free_port() for _ in range(3)]
        key = os.path.join(scratch("shared"), "secrets.key")
        self.clock = Clock()
        self.servers = [Server(orrery, f"s{i}", store_url=self.etcd.url("lab"), environment=self.clock.environment, arguments=["--secrets-key-file", key, "--dns-listen", f"127.0.0.1:{port}"]) for i, port in enumerate(self.dns)]
        self.server = self.servers[0]
        for server in self.servers:
            server.start()
            server._token = self.server.token()

    def create_resources(self):
        api = self.server.api()
        for kind, name, spec in (("zones", "gslb", {"origin": "gslb.test", "nameservers": ["ns1.gslb.test"], "contact": "host@gslb.test", "records": "ns1 A 127.0.0.1\n"}),
                                 ("monitors", "tcp", {"kind": "tcp", "port": self.port, "interval": "1s", "timeout": "500ms", "rise": 2, "fall": 3}),
                                 ("pools", "all", {"monitors": ["tcp"], "guard": {"max_ejections": "20%", "window": "10m"}}), ("pools", "spare", {}),
                                 *(("members", name, {"pool": "all", "addresses": [member.address]}) for name, member in self.members.items()),
                                 ("members", "spare", {"pool": "spare", "addresses": ["203.0.113.9"]}),
                                 ("loadbalancers", "www", {"fqdn": "www.gslb.test", "pools": [{"pool": "all"}, {"pool": "spare", "tier": "passive"}], "answers": "all", "max_answers": 32})):
            api.put(f"/v1/{kind}/{name}", {"spec": spec})
        wait_until("all members are up", lambda: all(api.get(f"/v1/members/{m}").get("status", {}).get("verdict") == "up" for m in self.members), 15)
        self.everywhere("all members are answered", self.addresses())

    def addresses(self, without=()):
        return sorted(member.address for name, member in self.members.items() if name not in without)

    def seen(self, alive=None):
        return [ask(port, "www.gslb.test") for port, server in zip(self.dns, self.servers) if alive is None or server in alive]

    def everywhere(self, what, addresses, alive=None, seconds=15):
        wait_until(f"{what}: {addresses} on every server, not {self.seen(alive)}", lambda: all(one == addresses for one in self.seen(alive)), seconds)
        check(f"{what}, on every server", True)

    def records(self, limit=50):
        api = next(server for server in self.servers if server.process.alive()).api()
        return [one["spec"] for one in api.get(f"/v1/loadbalancers/www/decisions?limit={limit}")["items"]]

    def always(self, what, seconds, allowed, meanwhile=lambda: None, alive=None):
        """Queries continuously; every answer must be one of `allowed`."""
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            meanwhile()
            for one in self.seen(alive):
                if one not in allowed:
                    equal(what, one, allowed)
                count += 1
            time.sleep(0.005)
        check(f"{what} ({count} answers)", count > 0)


def flapping(site):
    """A member is down repeatedly, each time too briefly for a verdict."""
    before = len(site.records())
    member, state = site.members["m3"], {"next": time.monotonic(), "falls": 0}

    def flap():
        if time.monotonic() < state["next"]:
            return
        if member.socket:
            member.down()
            state["falls"] += 1
            state["next"] = time.monotonic() + 1.2
        else:
            member.up()
            state["next"] = time.monotonic() + 1.2

    site.always("a flapping member is not withdrawn", 12, [site.addresses()], flap)
    member.up()
    equal(f"it failed {state['falls']} times, and there was no decision", len(site.records()), before)
    time.sleep(3)


def leader_killed(site):
    """A member fails while there is no leader: answers follow immediately, and the record is not lost."""
    leader = leader_of(site.servers)
    rest = [server for server in site.servers if server is not leader]
    log(f"{leader.name} is the leader and is killed; then m1 fails")
    leader.kill()
    site.always("answers do not change", 1, [site.addresses()], alive=rest)
    began = time.monotonic()
    site.members["m1"].down()
    site.everywhere("m1 is withdrawn", site.addresses(["m1"]), rest)
    took = time.monotonic() - began
    check(f"after {took:.1f} s, before the next leader", took < 6, took)
    second = leader_of(rest)
    log(f"{second.name} is the leader")
    record = wait_until("a record exists", lambda: next((one for one in site.records() if one["changed"] and one.get("trigger", {}).get("member") == "m1" and one["trigger"]["to"] == "down"), None), 10)
    equal("the record has the cause", (record["cause"], record["trigger"]["to"]), ("probe", "down"))
    check("the record has the answers before and after", "127.2.0.1" in record["before"]["answers"] and "127.2.0.1" not in record["after"]["classes"][0]["answers"], record) if "classes" in record["after"] else None
    time.sleep(2)
    fallen = [(one["seq"], one["at"]) for one in site.records() if one["changed"] and (one.get("trigger", {}).get("member"), one.get("trigger", {}).get("to")) == ("m1", "down")]
    equal("there is one record, not one of each server", fallen, [(record["seq"], record["at"])])
    leader.start()
    site.everywhere("the restarted server gives the same answers", site.addresses(["m1"]))


def mass_failure(site):
    """Eight of ten members fail within a second: the guard allows two of ten in ten minutes, and one was withdrawn before."""
    failed = [f"m{i}" for i in range(2, 10)]
    log(f"{len(failed)} more members fail within a second")
    for name in failed:
        site.members[name].down()
    wait_until("one more member is withdrawn", lambda: all(len(one or []) == MEMBERS - 2 for one in site.seen()), 15)
    site.always("the others are held", 5, [one for one in ([sorted(set(site.addresses(["m1"])) - {a}) for a in site.addresses()])])
    equal("all servers give the same answers", len({tuple(one) for one in site.seen()}), 1)
    records = site.records()
    held = next((one for one in records if one.get("withheld")), None)
    check("the record has the withheld changes", held is not None and {w["cause"] for w in held["withheld"]} == {"mass_guard_hold"}, records[:2])
    contains("with their message", held["withheld"][0]["message"], "held in", "guard allows 20%")
    equal("seven members are held", len(site.server.api().get("/v1/loadbalancers/www")["status"]["withheld"]), 7)
    return failed


def clock_stepped(site):
    """The wall clock steps while a guard holds members for ten minutes: no hold ends early."""
    if not site.clock.compiler:
        return log("clock steps are skipped: there is no C compiler")
    before, decided = site.seen()[0], len(site.records())
    for by in (3600, -3600, 3600):
        site.clock.set(by)
        site.always(f"the wall clock is {by:+} s off, and answers do not change", 4, [before])
        check("the step was detected", wait_until("the step was detected", lambda: all("wall clock stepped" in server.log_text() for server in site.servers), 5))
    equal("there was no decision", len(site.records()), decided)
    return None


def all_killed(site):
    """All servers are killed together with SIGKILL; the members do not change."""
    before, decided = site.seen()[0], sum(one["changed"] for one in site.records())
    for server in site.servers:
        server.process.signal(9)
    for server in site.servers:
        server.kill()
    for server in site.servers:
        server.start(40)
    first = [wait_until("the server answers", lambda p=port: ask(p, "www.gslb.test"), 15) for port in site.dns]
    check("the first answers lack no further member", all(len(one) >= MEMBERS - 2 for one in first), first)
    site.always("no further member is withdrawn", 8, [before])
    leader_of(site.servers, 20)
    equal("there was no new decision", sum(one["changed"] for one in site.records()), decided)


def recovered(site):
    for member in site.members.values():
        member.up()
    site.everywhere("all members are answered again", site.addresses(), seconds=20)
    last = wait_until("the recovery is recorded", lambda: next((one for one in site.records() if one["changed"]), None), 5)
    equal("its cause is a probe", last["cause"], "probe")


def main(given):
    site = Site(given.orrery)
    site.create_resources()
    flapping(site)
    leader_killed(site)
    mass_failure(site)
    clock_stepped(site)
    all_killed(site)  # with a wall clock that is an hour ahead
    recovered(site)
    for server in site.servers:
        equal(f"{server.name} stops cleanly", server.stop(), 0)
        equal(f"{server.name}'s log has no errors", server.error_lines(), [])


if __name__ == "__main__":
    run(main)
