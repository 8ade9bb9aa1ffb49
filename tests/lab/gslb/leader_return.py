#!/usr/bin/python3
"""A leader is killed and returns before its lease expires: no server waits for the lease, one leads immediately, and the history is right. Decisions of the others
meanwhile have their true times and consecutive numbers; `why` at a time in between shows the answer of that time; a server that runs the API only
follows immediately."""
import calendar
import os
import socket
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402
import publishing_lab as publishing  # noqa: E402

ALL, LEFT = ["127.0.81.1", "127.0.81.2", "127.0.81.3"], ["127.0.81.1", "127.0.81.2"]


def leads(server):
    try:
        return server.metrics().get("orrery_leader") == 1.0
    except (OSError, lab.Failed):
        return False


def seconds_of(text):
    """Of an RFC 3339 time."""
    whole, _, part = text.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{part or 0}")


def rfc3339(at):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"


class Name:
    """A load balancer with three members on loopback, and its answers."""

    def __init__(self, api):
        self.port = lab.free_port()
        self.listeners = {address: socket.create_server((address, self.port)) for address in ALL}
        api.post("/v1/zones", {"name": "gslb", "spec": {"origin": "gslb.test", "nameservers": ["ns1.example.net"]}})
        api.post("/v1/monitors", {"name": "web", "spec": {"kind": "tcp", "port": self.port, "interval": "1s", "timeout": "500ms", "rise": 1, "fall": 1}})
        api.post("/v1/pools", {"name": "web", "spec": {"min_healthy": 1, "monitors": ["web"]}})
        for i, address in enumerate(ALL, 1):
            api.post("/v1/members", {"name": f"m{i}", "spec": {"pool": "web", "addresses": [address]}})
        api.post("/v1/loadbalancers", {"name": "www", "spec": {"fqdn": "www.gslb.test", "pools": [{"pool": "web"}], "answers": "all"}})

    def fail(self, address):
        self.listeners.pop(address).close()

    def restore(self, address):
        self.listeners[address] = socket.create_server((address, self.port))


def answers(server):
    return publishing.dig(server.dns, "www.gslb.test.")


def records(api):
    """Oldest number first."""
    return sorted((one["spec"] for one in api.all("decisions", "loadbalancer=www")), key=lambda one: one["seq"])


def addresses_in(record):
    return sorted(set(address for address in ALL if address in str(record.get("after", {}).get("classes", record["after"]))))


def check_history(api, name):
    history = records(api)
    lab.equal(f"{name}: numbers go from 1 to {len(history)}, none is missing or duplicated", [one["seq"] for one in history], list(range(1, len(history) + 1)))
    times = [seconds_of(one["at"]) for one in history]
    lab.check(f"{name}: numbers are in order of time", times == sorted(times), [(one["seq"], one["at"], one["cause"]) for one in history])
    lab.equal(f"{name}: the status counts as many", api.get("/v1/loadbalancers/www")["status"]["decisions"], len(history))
    return history


def back_before_the_lease_ends(servers, front, members):
    leader = lab.wait_until("one leads", lambda: next((s for s in servers if leads(s)), None), 15)
    follower = next(s for s in servers if s is not leader)
    before = len(records(leader.api()))
    lab.log(f"{leader.name} leads and is killed; a member fails")
    leader.kill()
    members.fail(ALL[2])
    lab.wait_until("the others withdraw it", lambda: answers(follower) == LEFT, 8, 0.02)
    withdrawn = time.time()
    time.sleep(2.5)
    between = time.time() - 1
    leader.start()
    begin = time.monotonic()
    lab.wait_until("one leads again", lambda: any(leads(s) for s in servers), 5, 0.02)
    lab.check(f"one leads {time.monotonic() - begin:.1f} s after the killed leader's return, without waiting for its old lease", True)
    api = leader.api()

    def recorded():
        return [one for one in records(api)[before:] if one["changed"] and addresses_in(one) == LEFT]
    found = lab.wait_until("the withdrawal is recorded", recorded, 8, 0.1)
    lab.wait_until("the server without controllers answers the same", lambda: answers(front) == LEFT, 5, 0.1)
    time.sleep(1)
    found = recorded()
    lab.check("it is recorded once", len(found) == 1, [{k: v for k, v in one.items() if k != "inputs"} for one in records(api)[before:]])
    late = seconds_of(found[0]["at"]) - withdrawn
    lab.check(f"with the time at which the others withdrew it (differs by {late:.2f} s)", -1.5 < late < 0.3, f"{late:.2f} s: {found[0]['at']}")
    check_history(api, "after the return")
    for server in servers:
        why = server.api().get("/v1/loadbalancers/www/why?at=" + urllib.parse.quote(rfc3339(between)))
        shown = sorted(one for one in ALL if one in str(why["answer"]))
        lab.check(f"{server.name}: `why --at` a time in between shows the answer of that time", shown == LEFT, (rfc3339(between), why.get("record"), [(one["seq"], one["at"], one["cause"], addresses_in(one)) for one in records(api)]))
    members.restore(ALL[2])
    lab.wait_until("the member is back", lambda: all(answers(s) == ALL for s in [*servers, front]), 10, 0.1)
    time.sleep(1)
    check_history(api, "after the member's return")


def the_only_one_returns(make):
    """One server with controllers and one without: the second follows the first as soon as the first is back."""
    solo, front = make("solo", "alone"), make("solo-front", "alone", "--server-run", "api")
    solo.start()
    front._token = solo.token()
    front.start()
    members = Name(solo.api())
    for server in (solo, front):
        lab.wait_until(f"{server.name} answers", lambda server=server: answers(server) == ALL, 15, 0.1)
    lab.wait_until("it leads", lambda: leads(solo), 15)
    lab.log("the only server with controllers is killed and back at once")
    solo.kill()
    solo.start()
    members.fail(ALL[2])
    lab.wait_until("it follows a change of its members", lambda: answers(solo) == LEFT, 10, 0.05)
    begin = time.monotonic()
    lab.wait_until("the server without controllers answers the same within 5 s", lambda: answers(front) == LEFT, 5, 0.05)
    lab.check(f"the server without controllers answers the same {time.monotonic() - begin:.1f} s later", True)
    for server in (solo, front):
        lab.equal(f"{server.name} stops", server.stop(), 0)
    for listener in members.listeners.values():
        listener.close()


def main(given):
    lab.program("dig", "bind9-dnsutils")
    etcd = lab.Etcd(1)
    key = ["--secrets-key-file", os.path.join(lab.scratch("shared"), "secrets.key")]

    def make(name, prefix, *more):
        dns = lab.free_port()
        server = lab.Server(given.orrery, name, store_url=etcd.url(prefix), arguments=[*key, "--dns-listen", f"127.0.0.1:{dns}", *more])
        server.dns = dns
        return server
    the_only_one_returns(make)
    servers, front = [make(name, "lab") for name in ("alpha", "beta", "gamma")], make("front", "lab", "--server-run", "api")
    for server in [*servers, front]:
        server._token = servers[0].token() if server is not servers[0] else None
        server.start()
    members = Name(servers[0].api())
    for server in [*servers, front]:
        lab.wait_until(f"{server.name} answers", lambda server=server: answers(server) == ALL, 15, 0.1)
    time.sleep(2)
    back_before_the_lease_ends(servers, front, members)
    back_before_the_lease_ends(servers, front, members)
    for server in [*servers, front]:
        lab.equal(f"{server.name}'s log has no errors", server.error_lines(), [])


if __name__ == "__main__":
    lab.run(main)
