#!/usr/bin/python3 -B
"""Names while things fail: three servers on one etcd, each of which looks at the members and answers. A member flaps; four of five fail within a second; the leader is
killed, and a member fails while nobody leads; the time of day is set by an hour, in both directions; all are killed with SIGKILL and start again. Nothing is withdrawn
that works or that a guard holds, every server answers alike, and each case leaves its record. (Vantages that are cut off: gslb_vantages.py.)"""
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
from orrery_lab import Etcd, Server, check, clean_environment, contains, equal, free_port, run, say, scratch, wait_until, write_file  # noqa: E402

MEMBERS = 10

# The time of day that the servers see: as it is, and so many seconds more or less. Not the steady clock: nobody can set that.
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
    """The time of day of all servers. Where there is no C compiler it cannot be set, and that part is left out."""

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
    """Takes connections at an address of its own, or refuses them."""

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
    """Addresses of one answer over UDP; None: there was none."""
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

    def furnish(self):
        api = self.server.api()
        for kind, name, spec in (("zones", "gslb", {"origin": "gslb.test", "nameservers": ["ns1.gslb.test"], "contact": "host@gslb.test", "records": "ns1 A 127.0.0.1\n"}),
                                 ("monitors", "tcp", {"kind": "tcp", "port": self.port, "interval": "1s", "timeout": "500ms", "rise": 2, "fall": 3}),
                                 ("pools", "all", {"monitors": ["tcp"], "guard": {"most": "20%", "window": "10m"}}), ("pools", "spare", {}),
                                 *(("members", name, {"pool": "all", "addresses": [member.address]}) for name, member in self.members.items()),
                                 ("members", "spare", {"pool": "spare", "addresses": ["203.0.113.9"]}),
                                 ("loadbalancers", "www", {"fqdn": "www.gslb.test", "pools": [{"pool": "all"}, {"pool": "spare", "tier": "passive"}], "answers": "all", "max_answers": 32})):
            api.put(f"/v1/{kind}/{name}", {"spec": spec})
        wait_until("all members were found well", lambda: all(api.get(f"/v1/members/{m}").get("status", {}).get("verdict") == "up" for m in self.members), 15)
        self.everywhere("and are answered with", self.addresses())

    def addresses(self, without=()):
        return sorted(member.address for name, member in self.members.items() if name not in without)

    def seen(self, alive=None):
        return [ask(port, "www.gslb.test") for port, server in zip(self.dns, self.servers) if alive is None or server in alive]

    def everywhere(self, what, addresses, alive=None, seconds=15):
        wait_until(f"{what}: {addresses} at every server, and not {self.seen(alive)}", lambda: all(one == addresses for one in self.seen(alive)), seconds)
        check(f"{what}, at every server", True)

    def records(self, limit=50):
        api = next(server for server in self.servers if server.process.alive()).api()
        return [one["spec"] for one in api.get(f"/v1/loadbalancers/www/decisions?limit={limit}")["items"]]

    def always(self, what, seconds, allowed, meanwhile=lambda: None, alive=None):
        """Asks all the time; every answer must be one of these."""
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
    """Down for less than it takes to believe it, again and again."""
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

    site.always("a member that flaps stays", 12, [site.addresses()], flap)
    member.up()
    equal(f"it fell {state['falls']} times, and nothing was decided", len(site.records()), before)
    time.sleep(3)


def leader_killed(site):
    """While nobody leads a member fails: the names follow at once, and the record is not lost."""
    leader = leader_of(site.servers)
    rest = [server for server in site.servers if server is not leader]
    say(f"{leader.name} leads and is killed; then m1 fails")
    leader.kill()
    site.always("nothing changes for that", 1, [site.addresses()], alive=rest)
    began = time.monotonic()
    site.members["m1"].down()
    site.everywhere("m1 goes", site.addresses(["m1"]), rest)
    took = time.monotonic() - began
    check(f"{took:.1f} s later, before anybody led again", took < 6, took)
    second = leader_of(rest)
    say(f"{second.name} leads")
    record = wait_until("there is a record of it", lambda: next((one for one in site.records() if one["changed"] and one.get("trigger", {}).get("member") == "m1" and one["trigger"]["to"] == "down"), None), 10)
    equal("which says why", (record["cause"], record["trigger"]["to"]), ("probe", "down"))
    check("with the answers before and after", "127.2.0.1" in record["before"]["answers"] and "127.2.0.1" not in record["after"]["classes"][0]["answers"], record) if "classes" in record["after"] else None
    time.sleep(2)
    fallen = [(one["seq"], one["at"]) for one in site.records() if one["changed"] and (one.get("trigger", {}).get("member"), one.get("trigger", {}).get("to")) == ("m1", "down")]
    equal("once, and not by each server", fallen, [(record["seq"], record["at"])])
    leader.start()
    site.everywhere("and the one that comes back says the same", site.addresses(["m1"]))


def mass_failure(site):
    """Eight of ten within a second: the guard lets two of ten go in ten minutes, and one has gone."""
    gone = [f"m{i}" for i in range(2, 10)]
    say(f"{len(gone)} more fail within a second")
    for name in gone:
        site.members[name].down()
    wait_until("one more goes", lambda: all(len(one or []) == MEMBERS - 2 for one in site.seen()), 15)
    site.always("and the others are held in", 5, [one for one in ([sorted(set(site.addresses(["m1"])) - {a}) for a in site.addresses()])])
    equal("the same everywhere", len({tuple(one) for one in site.seen()}), 1)
    records = site.records()
    held = next((one for one in records if one.get("withheld")), None)
    check("what is held back is in the record", held is not None and {w["cause"] for w in held["withheld"]} == {"mass_guard_hold"}, records[:2])
    contains("with its words", held["withheld"][0]["words"], "held in", "guard allows 20%")
    equal("seven are held", len(site.server.api().get("/v1/loadbalancers/www")["status"]["withheld"]), 7)
    return gone


def clock_stepped(site):
    """While a guard holds members in, for ten minutes, and one that is down stays out: no hour has passed."""
    if not site.clock.compiler:
        return say("the clock is left alone: there is no C compiler")
    before, decided = site.seen()[0], len(site.records())
    for by in (3600, -3600, 3600):
        site.clock.set(by)
        site.always(f"the time of day is set to {by:+} s, and nothing follows from it", 4, [before])
        check("it was noticed", wait_until("it was noticed", lambda: all("the time of day was set by" in server.log_text() for server in site.servers), 5))
    equal("nothing was decided", len(site.records()), decided)
    return None


def all_killed(site):
    """kill -9 of all, at once; the members are as they were."""
    before, decided = site.seen()[0], sum(one["changed"] for one in site.records())
    for server in site.servers:
        server.process.signal(9)
    for server in site.servers:
        server.kill()
    for server in site.servers:
        server.start(40)
    first = [wait_until("it answers", lambda p=port: ask(p, "www.gslb.test"), 15) for port in site.dns]
    check("the first answers are withdrawn from no further", all(len(one) >= MEMBERS - 2 for one in first), first)
    site.always("nothing is withdrawn that was not", 8, [before])
    leader_of(site.servers, 20)
    equal("and nothing was decided anew", sum(one["changed"] for one in site.records()), decided)


def over(site):
    for member in site.members.values():
        member.up()
    site.everywhere("all is well again", site.addresses(), seconds=20)
    last = wait_until("and recorded", lambda: next((one for one in site.records() if one["changed"]), None), 5)
    equal("by what was seen", last["cause"], "probe")


def main(given):
    site = Site(given.orrery)
    site.furnish()
    flapping(site)
    leader_killed(site)
    mass_failure(site)
    clock_stepped(site)
    all_killed(site)  # by a clock that is an hour ahead
    over(site)
    for server in site.servers:
        equal(f"{server.name} stops in peace", server.stop(), 0)
        equal(f"and {server.name}'s log has no errors", server.complaints(), [])


if __name__ == "__main__":
    run(main)
