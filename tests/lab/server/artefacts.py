#!/usr/bin/python3 -B
"""Artefacts of tasks: fetched over SSH, also by an account that needs sudo, also after kill -9 of the server; stored, listed, saved, removed with the job."""
import hashlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from hosts import Hosts  # noqa: E402
from orrery_lab import Cli, Server, check, contains, equal, run, scratch, wait_until  # noqa: E402

JOB = """\
kind: Job
name: leaves
spec:
  tasks:
    - name: report
      on: [h1, h2]
      run: |
        head -c 3000000 /dev/urandom >/srv/report.bin
        sha256sum </srv/report.bin
        id -u >"/srv/who-$(hostname)"; chmod 600 /srv/who-*
      artefacts: [/srv/report.bin, "/srv/who-${node.name}", /srv, /srv/none]
    - name: fails
      on: [h1]
      env: {PASSWORD: "${secret.lab.password}"}
      run: echo why >/srv/why; echo "$PASSWORD" >/srv/conf; head -c 200000 /dev/zero >/srv/large; exit 4
      artefacts: [/srv/why, /srv/conf, /srv/large]
    - name: slow
      on: [h2]
      run: echo begun >/srv/slow; sleep 2; echo done >>/srv/slow
      artefacts: [/srv/slow]
"""


def main(given):
    hosts = Hosts(2)
    hosts.enter()
    hosts[1].run("sh", "-c", "useradd -m -d /srv/deploy -s /bin/sh -p '*' deploy && mkdir /srv/deploy/.ssh && cp /root/.ssh/authorized_keys /srv/deploy/.ssh/ && chown -R deploy /srv/deploy"
                 " && echo 'deploy ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/deploy")
    server = Server(given.orrery, arguments=["--jobs-artefact-limit", "4MiB"])
    server.start()
    api = server.api()
    api.put("/v1/secrets/lab", {"spec": {"values": {"password": "Canary-artefact-31337"}}})
    api.put("/v1/secrets/lab-key", {"spec": {"values": {"private_key": hosts.private_key()}}})
    api.put("/v1/nodes/h1", hosts.node(hosts[0]))
    api.put("/v1/nodes/h2", hosts.node(hosts[1], user="deploy", sudo=True))
    cli = Cli(given.orrery, server, HOME=scratch("home"), XDG_CONFIG_HOME=scratch("home")).login(server)
    cli.ok("job", "submit", "-f", "-", stdin=JOB)
    wait_until("the slow task has started", lambda: hosts[1].run("sh", "-c", "cat /srv/slow 2>/dev/null || true") == "begun\n", 20)
    server.kill()
    time.sleep(2.5)  # it ends meanwhile
    server.start()
    equal("the job fails, as one of its tasks must", cli("job", "wait", "leaves", seconds=60).status, 1)
    for host in hosts:
        task = f"report@{host.name}"
        listed = {one["path"]: one for one in json.loads(cli.ok("job", "artefacts", "leaves", task, "-o", "json"))["artefacts"]}
        sum_there = cli.ok("job", "logs", "leaves", task).split()[0]
        equal(f"{task}: three megabytes, byte by byte", (listed["/srv/report.bin"]["size"], listed["/srv/report.bin"]["sha256"]), (3000000, sum_there))
        equal(f"{task}: a path that is not a file is reported", [listed[path]["message"] for path in ("/srv", "/srv/none")], ["is not a file: pack a folder into one", "is not there"])
        folder = scratch("saved")
        saved = cli("job", "artefacts", "leaves", task, "--save", folder)
        equal(f"{task}: saving reports the missing file: 1", saved.status, 1)
        contains(f"{task}: by name", saved.err, f"{host.name}:/srv/none is not there")
        with open(os.path.join(folder, host.name, "srv/report.bin"), "rb") as file:
            equal(f"{task}: the saved file equals the file on the node", hashlib.sha256(file.read()).hexdigest(), sum_there)
        with open(os.path.join(folder, host.name, f"srv/who-{host.name}")) as file:
            equal(f"{task}: a file for root only is fetched as root", file.read(), "0\n")
    out = cli.ok("job", "artefacts", "leaves", "fails@h1")
    contains("a task that failed leaves its files too", out, "/srv/why", hashlib.sha256(b"why\n").hexdigest())
    contains("but no file that contains its secret", out, "holds a secret of its task, and is not stored")
    contains("artefacts of a task that ended while the server was down are fetched, too", cli.ok("job", "artefacts", "leaves", "slow@h2"), hashlib.sha256(b"begun\ndone\n").hexdigest())
    api = server.api()
    api.post("/v1/users", {"kind": "User", "name": "viewer", "spec": {"role": "viewer", "password": "only looking, thanks"}})
    viewer = server.api(token=server.api(token=None).post("/v1/login", {"user": "viewer", "password": "only looking, thanks"})["token"])
    check("a viewer sees the list", len(viewer.get("/v1/jobs/leaves/artefacts?task=fails@h1")["artefacts"]) == 3)
    viewer.refused("and not the contents", 403, "GET", "/v1/jobs/leaves/artefact?task=fails@h1")
    wait_until("nothing is left on the nodes", lambda: api.get("/v1/jobs/leaves")["status"].get("cleaned"), 20)
    kept = [name for _, _, names in os.walk(os.path.join(server.folder, "jobs")) for name in names]
    check("they are beside the job's output", len(kept) > 5, kept)
    cli.ok("delete", "job", "leaves")
    wait_until("and are removed with the job", lambda: not any(names for _, _, names in os.walk(os.path.join(server.folder, "jobs"))), 20)
    equal("it stops on SIGTERM", server.stop(), 0)
    equal("without an error in its log", server.error_lines(), [])


if __name__ == "__main__":
    run(main)
