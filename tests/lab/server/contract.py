#!/usr/bin/python3
"""Properties that users, scripts and generated clients rely on, through the real program: sorting, lost updates, full disks at the other end of
a pipe, metrics that Prometheus' own linter accepts, HTTP and OpenAPI as they are declared, events of load balancers, and registrations
through the Consul facade."""
import http.client
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Server, Web, check, contains, equal, free_port, log, node, program, run, scratch, wait_until, write_file  # noqa: E402

CONFLICT, INVALID, OTHER = 5, 7, 1


def sorted_lists(cli, api):
    for i in range(1003):
        api.put(f"/v1/nodes/z-{i:05d}", node(f"z-{i:05d}", {"batch": "a"}))
    equal("get --sort sorts before it limits", cli.ok("get", "nodes", "--sort", "-name", "--limit", "2", "-o", "name").split(), ["node/z-01002", "node/z-01001"])
    contains("also where the table has its own limit", cli.ok("get", "nodes", "--sort", "-name").splitlines()[1], "z-01002")
    ran = cli("get", "nodes", "--sort", "spec.nope")
    equal("an unknown path to sort by is refused", ran.status, INVALID)
    contains("with the known paths", ran.err, "nodes have no such field", "orrery explain node")


def full_disk(cli):
    for arguments in (["get", "nodes", "-o", "yaml"], ["kinds"], ["config", "default"], ["--help"], ["server", "--help"], ["version"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([cli.orrery, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=cli.environment, timeout=30)
        equal(f"orrery {' '.join(arguments)} to a full disk is an error", done.returncode, OTHER)
        contains("and reports it", done.stderr, "writing to standard output failed")


def metrics(server):
    _, text = server.probe("/metrics")
    done = subprocess.run([program("promtool", "prometheus"), "check", "metrics"], input=text, capture_output=True, text=True, timeout=30)
    check("/metrics passes promtool check metrics", done.returncode == 0, done.stdout + done.stderr)


def http_and_openapi(api):
    document = api.get("/openapi.json")
    replace = document["paths"]["/v1/nodes/{name}"]["put"]
    check("OpenAPI declares 201 for a PUT that creates", "201" in replace["responses"] and "200" in replace["responses"])
    names = {parameter["name"] for parameter in replace["parameters"]}
    check("and If-Match, If-None-Match and the ETag", {"If-Match", "If-None-Match"} <= names and "ETag" in replace["responses"]["200"]["headers"], names)
    task = document["components"]["schemas"]["Job"]["properties"]["spec"]["properties"]["tasks"]["anyOf"][0]["items"]["properties"]
    check("and the fields of a Job's tasks", {"name", "on", "after", "wait", "run", "retries", "batch"} <= set(task), sorted(task))
    limit = next(one for one in document["paths"]["/v1/nodes"]["get"]["parameters"] if one["name"] == "limit")
    equal("and the bounds of limit", (limit["schema"]["minimum"], limit["schema"]["maximum"]), (1, 5000))
    flag = next(one for one in replace["parameters"] if one["name"] == "dry_run")
    status, _, body = api.raw("PUT", "/v1/nodes/flag?dry_run", node("flag"))
    equal("and a flag without a value", (as_json(body)["dry_run"], flag["schema"]["anyOf"]), (True, [{"type": "boolean"}, {"type": "string", "maxLength": 0}]))
    sealed = document["components"]["schemas"]["User"]["properties"]["spec"]["properties"]["password"]
    equal("and what is shown of a sealed field", (sealed["const"], api.get("/v1/users/admin")["spec"]["password"]), ("(sealed)", "(sealed)"))
    check("and YAML bodies", "application/yaml" in replace["requestBody"]["content"], list(replace["requestBody"]["content"]))
    status, headers, _ = api.raw("DELETE", "/v1/nodes")
    equal("405", status, 405)
    check("carries Allow", "GET" in (headers.get("Allow") or "") and "POST" in headers["Allow"], dict(headers))
    status, _, body = api.raw("GET", "/v1/nodes?continue=garbage")
    equal("an unknown continue token is refused", status, 400)
    status, _, body = api.raw("GET", "/v1/nodes?limit=abc&foo=1&watch=x")
    equal("all bad query parameters are reported", [field["path"] for field in as_json(body)["fields"]], ["?limit", "?foo", "?watch"])
    status, _, body = api.raw("POST", "/v1/jobs/nope/cancel")
    equal("an empty body of a verb is {}", status, 404)
    for offset in range(5):
        name = "x" * offset + "\U0001f600" * 60
        status, _, body = api.raw("POST", "/v1/nodes", {"name": "a", name: 1, "spec": {"address": "192.0.2.1"}})
        equal(f"an error text is cut at a character ({offset})", (status, "fields" in as_json(body)), (400, True))


def as_json(body):
    return json.loads(body.decode("utf-8"))


def lost_updates(cli, api, folder):
    api.put("/v1/nodes/web-1", node("web-1", ssh={"port": 22}))
    old = write_file(os.path.join(folder, "old.yaml"), cli.ok("get", "node", "web-1", "-o", "yaml"))
    api.put("/v1/nodes/web-1", node("web-1", ssh={"port": 2022}))
    ran = cli("apply", "-f", old)
    equal("apply refuses a file that is older than another client's change", ran.status, CONFLICT)
    contains("and shows the difference", ran.err, "spec.ssh.port: 2022 → 22")
    equal("nothing was changed", api.get("/v1/nodes/web-1")["spec"]["ssh"]["port"], 2022)
    fresh = cli.ok("get", "node", "web-1", "-o", "yaml").replace("port: 2022", "port: 2023")
    contains("a file that was just read is accepted", cli.ok("apply", "-f", "-", stdin=fresh), "2022 → 2023")

    contains("edit replaces it", cli.ok("edit", "node/web-1", EDITOR="sed -i 's/port: 2023/port: 2024/'"), "2023 → 2024")
    # The first time the editor runs, another client is faster; the second time it finds the error and gives up.
    script = write_file(os.path.join(folder, "editor"), f"""#!/bin/sh
if [ ! -e {folder}/once ]; then touch {folder}/once
  echo 'kind: Node
name: web-1
spec: {{address: 192.0.2.77, ssh: {{port: 2024}}}}' | {cli.orrery} apply -f - >/dev/null
  sed -i 's/port: 2024/port: 9/' "$1"
else cp "$1" {folder}/seen; fi
""", 0o700)
    ran = cli("edit", "node", "web-1", EDITOR=script)
    equal("edit refuses a lost update", ran.status, CONFLICT)
    with open(os.path.join(folder, "seen")) as file:
        contains("and opens again with the difference", file.read(), "# error: another user changed the resource", "spec.ssh.port: 2024 → 9", "spec.address: 192.0.2.77 → 192.0.2.1")
    equal("the other change stays", api.get("/v1/nodes/web-1")["spec"]["address"], "192.0.2.77")


def times(cli):
    for line in cli.ok("events", "--limit", "3").splitlines():
        check("event times carry Z", line.split()[0].endswith("Z"), line)


def failover_events(cli, api):
    ports = [free_port(), free_port()]
    webs = [Web("127.0.0.1", port) for port in ports]
    for pool, port in zip(("eu", "us"), ports):
        api.put(f"/v1/monitors/{pool}", {"spec": {"kind": "tcp", "port": port, "interval": "1s", "timeout": "500ms", "rise": 1, "fall": 1}})
        api.put(f"/v1/pools/{pool}", {"spec": {"monitors": [pool]}})
        api.put(f"/v1/members/{pool}-1", {"spec": {"pool": pool, "addresses": ["127.0.0.1"]}})
    api.put("/v1/loadbalancers/www", {"spec": {"fqdn": "www.gslb.test", "zone": "gslb.test", "steering": "failover", "pools": [{"pool": "eu"}, {"pool": "us"}]}})
    wait_until("www is answered from eu", lambda: api.get("/v1/loadbalancers/www")["status"].get("pool") == "eu", 20)
    webs[0].close()

    def seen():
        return [event["spec"]["action"] for event in api.get("/v1/events?subject=LoadBalancer/www")["items"]]
    wait_until("a failover is an event", lambda: "failover" in seen(), 20)
    contains("orrery events shows it", cli.ok("events", "--since", "10m"), "LoadBalancer/www failover")
    webs[1].close()
    wait_until("so is a panic", lambda: "panic" in seen() or "all-down" in seen(), 20)


def consul_registration(cli, port):
    def call(method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request(method, "/v1/" + path, json.dumps(body) if body else None)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    before = int(call("GET", "health/service/db")[1]["X-Consul-Index"])
    status, _, body = call("PUT", "catalog/register", {"Node": "db1", "Address": "10.0.0.1", "Service": {"Service": "db", "Port": 3306},
                           "Checks": [{"Name": "disk", "Status": "passing"}, {"CheckID": "alive", "ServiceID": "db", "Status": "passing", "Output": "ok"}]})
    equal("a registration through the Consul facade", (status, body.strip()), (200, b"true"))
    status, headers, body = call("GET", f"health/service/db?index={before}&wait=5s")
    equal("a blocking query wakes with all of it", [check["Status"] for check in json.loads(body)[0]["Checks"]], ["passing", "passing"])
    after = int(headers["X-Consul-Index"])
    begin = time.monotonic()
    call("GET", f"health/service/db?index={after}&wait=300ms")
    check("and once", time.monotonic() - begin >= 0.3, f"it woke again after {time.monotonic() - begin:.3f} s")
    name = cli.ok("get", "instances", "-o", "name").strip()
    contains("an instance without its Service is not a member", cli.ok("why", name), "is not a member of service db: Service db does not exist", "state: registered")
    wait_until("also in its status", lambda: "Service db does not exist, so it is not a member" in cli.ok("get", "instances"), 10)
    job = "{kind: Job, name: waits, spec: {tasks: [{name: a, wait: db}]}}"
    contains("and no barrier opens by it", cli("job", "submit", "-f", "-", stdin=job).err, "cannot open", "there is no Service db")
    status, headers, _ = call("GET", "catalog/nodes?filter=Node+%3D%3D")
    check("a bad filter answers with the index", status >= 400 and headers["X-Consul-Index"], dict(headers))


def part(name, function, *arguments):
    log(f"--- {name}")
    function(*arguments)


def main(given):
    consul = free_port()
    server = Server(given.orrery, "server", arguments=["--catalog-http-listen", f"127.0.0.1:{consul}", "--catalog-http-anonymous", "operator"])
    server.start()
    folder = scratch("files")
    cli, api = Cli(given.orrery, server).login(server), server.api()
    api.put("/v1/nodes/first", node("first"))
    part("a failed write to standard output is an error", full_disk, cli)
    part("apply honours the revision of a file, and edit replaces what it showed", lost_updates, cli, api, folder)
    part("event times carry Z", times, cli)
    part("HTTP is as OpenAPI declares it", http_and_openapi, api)
    part("failovers and panics are events", failover_events, cli, api)
    part("one registration through the Consul facade is one transaction", consul_registration, cli, consul)
    part("get --sort sorts before it limits", sorted_lists, cli, api)
    part("/metrics passes promtool", metrics, server)
    equal("it stops on SIGTERM", server.stop(), 0)


run(main)
