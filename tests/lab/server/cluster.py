#!/usr/bin/python3
"""Servers that share an etcd: any of them answers and sees what the others wrote; one leads, and when it dies or hangs another takes
over within the lease; a leader that resumes too late does not lead any more; a server that runs the API only never leads."""
import base64
import json
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Etcd, Failed, Problem, Server, Stream, check, contains, equal, log, node, run, scratch, wait_until  # noqa: E402

LEASE = 10  # seconds: the leader's


def leads(server):
    try:
        return server.metrics().get("orrery_leader") == 1.0
    except (OSError, Failed):
        return False


def leader_of(servers, seconds=LEASE + 5):
    return wait_until("a server leads", lambda: next((s for s in servers if leads(s)), None), seconds, 0.1)


def leader_key(etcd):
    """(value, create_revision) of the key that the leader holds."""
    encode = lambda text: base64.b64encode(text.encode()).decode()  # noqa: E731
    found = etcd.call("/v3/kv/range", {"key": encode("/lab/sys/leader/"), "range_end": encode("/lab/sys/leader0")}).get("kvs", [])
    return [(base64.b64decode(kv["value"]).decode(), int(kv["create_revision"])) for kv in found]


def any_server_answers(servers, everyone):
    chance = random.Random(7)
    apis = {s.name: s.api() for s in everyone}
    for other in everyone[1:]:
        equal(f"a login at {everyone[0].name} is valid at {other.name}", apis[other.name].get("/v1/whoami")["user"], "admin")
    stream = Stream(everyone[-1], "/v1/nodes?watch=now", seconds=20)
    expected = []
    for i in range(200):
        writer, reader = chance.choice(everyone), chance.choice(everyone)
        name = f"n-{i % 20}"
        answer = apis[writer.name].put(f"/v1/nodes/{name}", node(name, {"turn": str(i)}))
        expected.append(answer["object"]["revision"])
        seen = apis[reader.name].get(f"/v1/nodes/{name}?consistent=true")
        if seen["labels"]["turn"] != str(i):
            equal(f"write {i} at {writer.name} is read through {reader.name}", seen["labels"]["turn"], str(i))
        own = apis[writer.name].get(f"/v1/nodes/{name}")
        if own["labels"]["turn"] != str(i):
            equal("a server returns its own write immediately", own["labels"]["turn"], str(i))
    check("200 writes through each server were read through the others with ?consistent, and immediately by the server that wrote them", True)
    seen = []
    for event, _, data in stream:
        if event == "started":
            continue
        seen.append(data["revision"])
        if len(seen) == len(expected):
            break
    equal(f"a watch at {everyone[-1].name} saw them all in order", seen, expected)
    stream.close()
    first, second = apis[servers[0].name], apis[servers[1].name]
    first.get("/v1/nodes/n-1")
    etag = first.headers["ETag"]
    second.put("/v1/nodes/n-1", node("n-1", {"turn": "other"}))
    first.refused("If-Match holds between servers", 412, "PUT", "/v1/nodes/n-1", node("n-1", {"turn": "late"}), {"If-Match": etag})


def context_lasts(leader):
    """A job that was submitted before another server led: it ends under the context it began with."""
    api = leader.api()
    api.post("/v1/jobs/gated/approve", {"task": "go", "digest": api.get("/v1/jobs/gated")["status"]["digest"]})
    wait_until("the job ends", lambda: api.get("/v1/jobs/gated")["status"]["state"] == "succeeded", 10)

    def messages():
        shown = api.get("/v1/logs?context=trace-gated")
        return shown if any(item["message"] == "Job/gated succeeded" for item in shown["items"]) else None
    shown = wait_until("its last event has the context of the request that submitted it at another server", messages, 5)
    contains("and so has the first event", json.dumps(shown), "Job/gated created", "Job/gated approve")  # or approve-asked, while its engine begins the term
    equal("log lines name their server", (shown["server"], shown["shared_store"]), (leader.name, True))
    equal("and have no others", {item["server"] for item in shown["items"] if item["source"] == "log"}, {leader.name})


def take_over(etcd, servers, api_only):
    leader = leader_of(servers)
    gated = {"name": "gated", "spec": {"tasks": [{"name": "a"}, {"name": "go", "after": "a", "approve": True}]}}
    api_only.api().post("/v1/jobs", gated, **{"X-Request-Id": "trace-gated"})
    wait_until("the leader runs it", lambda: leader.api().get("/v1/jobs/gated")["status"]["progress"] == "1/2", 10)
    equal("one leads", [s.name for s in servers if leads(s)], [leader.name])
    held = leader_key(etcd)
    equal("one key holds the leader", len(held), 1)
    contains("and names it", held[0][0], leader.name)

    log(f"{leader.name} leads and is killed")
    rest = [s for s in servers if s is not leader]
    begin = time.monotonic()
    leader.kill()
    second = leader_of(rest)
    took = time.monotonic() - begin
    check(f"{second.name} took over after {took:.1f} s, within the lease of {LEASE} s and a little", took < LEASE + 4, f"{took:.1f} s")
    check("the server that runs the API only does not lead", not leads(api_only))
    context_lasts(second)

    leader.start()
    log(f"{second.name} leads and is stopped (SIGSTOP) for longer than its lease")
    held = leader_key(etcd)
    rest = [s for s in servers if s is not second]
    begin = time.monotonic()
    second.process.signal(signal.SIGSTOP)
    third = leader_of(rest)
    took = time.monotonic() - begin
    check(f"{third.name} took over after {took:.1f} s", took < LEASE + 4, f"{took:.1f} s")
    new = leader_key(etcd)
    check("its term has its own key: writes with the fence of the old leader are refused", len(new) == 1 and new[0][1] != held[0][1], f"{held} {new}")
    second.process.signal(signal.SIGCONT)
    both = 0
    until = time.monotonic() + 4
    while time.monotonic() < until:
        if leads(second):
            both += 1
        time.sleep(0.05)
    equal(f"{second.name} resumed and never considered itself the leader", both, 0)
    equal("the key is still the new leader's", leader_key(etcd), new)
    check(f"{third.name} still leads", leads(third))
    second.api().put("/v1/nodes/woken", node("woken"))
    check(f"and {second.name} serves the API as before", True)

    log(f"{third.name} leads and gets SIGTERM")
    begin = time.monotonic()
    equal("it stops", third.stop(), 0)
    fourth = leader_of([s for s in servers if s is not third])
    took = time.monotonic() - begin
    check(f"it released its lease: {fourth.name} leads after {took:.1f} s", took < 5, f"{took:.1f} s")
    third.start()


def losing_the_store(etcd, servers):
    log("etcd goes away")
    server = servers[0]
    api = server.api(seconds=30)
    etcd.kill(0)
    begin = time.monotonic()
    problem = api.refused("a write during the loss", 503, "PUT", "/v1/nodes/n-1", node("n-1", {"turn": "lost"}))
    first = time.monotonic() - begin
    wait_until("/readyz reports it", lambda: server.probe("/readyz")[0] == 503, 15)
    begin = time.monotonic()
    problem = api.refused("a later write", 503, "PUT", "/v1/nodes/n-2", node("n-2", {"turn": "lost"}))
    check(f"is refused immediately ({(time.monotonic() - begin) * 1000:.0f} ms; the first after {first:.1f} s)", time.monotonic() - begin < 1 and first < 12)
    check("with a reason", "etcd" in problem.detail or "store" in problem.detail, problem.detail)
    log(f"      {problem.detail} ({problem.remedy})")
    contains("/readyz gives the reason", server.probe("/readyz")[1], "etcd")
    check("reads continue", len(api.get("/v1/nodes")["items"]) > 0)
    check("the servers are alive", all(s.process.alive() for s in servers))
    etcd.start(0)
    etcd.wait_healthy()

    def works():
        try:
            api.put("/v1/nodes/n-2", node("n-2", {"turn": f"back-{time.time()}"}))
            return True
        except Problem as refused:
            if refused.status != 503:
                raise
            return False
    begin = time.monotonic()
    wait_until("writes work again", works, 20, 0.1)
    wait_until("/readyz is ready", lambda: server.probe("/readyz")[0] == 200, 15)
    check(f"writes work again {time.monotonic() - begin:.1f} s after etcd came back", True)
    for other in servers[1:]:
        other.wait_ready()
        equal(f"{other.name} has the write", other.api().get("/v1/nodes/n-2?consistent=true")["labels"]["turn"].startswith("back"), True)


def main(given):
    etcd = Etcd(1)
    key = os.path.join(scratch("shared"), "secrets.key")
    make = lambda name, *more: Server(given.orrery, name, store_url=etcd.url("lab"), arguments=["--secrets-key-file", key, *more])  # noqa: E731
    servers = [make("alpha"), make("beta"), make("gamma")]
    api_only = make("delta", "--server-run", "api")
    servers[0].start()
    for server in [*servers[1:], api_only]:
        server._token = servers[0].token()
        server.start()
    any_server_answers(servers, [*servers, api_only])
    take_over(etcd, servers, api_only)
    losing_the_store(etcd, [*servers, api_only])
    leader = leader_of(servers)
    for server in servers:
        if server is not leader:
            server.stop()
    leader.stop()
    time.sleep(LEASE + 3)
    check("a server that runs only the API does not lead, even if it is the only one left", not leads(api_only))
    equal("no server holds the key", leader_key(etcd), [])

    log("a server with another key")
    stranger = Server(given.orrery, "stranger", store_url=etcd.url("lab"))
    stranger.spawn()
    check("is refused", stranger.process.wait(20) != 0)
    check("with a sentence about the key", "key" in stranger.log_text(), stranger.log_text())
    log("      " + stranger.start_error())
    for server in [*servers, api_only]:
        equal(f"{server.name}'s log has no errors", server.error_lines(), [])


if __name__ == "__main__":
    run(main)
