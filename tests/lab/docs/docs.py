#!/usr/bin/python3 -B
"""What the documentation shows is run: the tutorial word for word on two hosts, the job of jobs.md and every body of executors.md as plans, examples/gates.yaml to its end."""
import os
import re
import sys
import textwrap
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from hosts import Hosts  # noqa: E402
from orrery_lab import Cli, Server, check, contains, equal, run, scratch, wait_until, write_file  # noqa: E402

TREE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))


def text_of(name):
    with open(os.path.join(TREE, "docs", name)) as file:
        return file.read()


def blocks(text, language="yaml"):
    return [textwrap.dedent(found) for found in re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.S | re.M)]


def commands(text):
    """Lines that are indented as code and begin with "orrery", without their comments."""
    return [line.strip().split("  #")[0].split()[1:] for line in text.splitlines() if line.startswith("    orrery ")]


def tutorial(hosts, cli, server):
    text = text_of("tutorial.md")
    site, job = blocks(text)
    key = hosts.private_key().replace("\n", "\\n")
    site = site.replace("-----BEGIN OPENSSH PRIVATE KEY-----\\n...", key).replace("192.0.2.11", hosts[0].address).replace("192.0.2.12", hosts[1].address)
    folder = scratch("tutorial")
    write_file(os.path.join(folder, "site.yaml"), site)
    write_file(os.path.join(folder, "bring-up.yaml"), job)
    steps = [" ".join(step) for step in commands(text)]
    equal("the tutorial's commands are those this lab knows", steps, ["apply -f site.yaml", "get services", "job plan -f bring-up.yaml", "job submit -f bring-up.yaml", "job watch bring-up",
                                                                    "job why bring-up web@web1", "job wait bring-up --now"])

    def do(step):
        return cli(*(os.path.join(folder, word) if word.endswith(".yaml") else word for word in step.split()), seconds=60)
    contains("1: what there is", do(steps[0]).out, "service/database created", "instance/database-db1 created")
    line = next(line for line in do(steps[1]).out.splitlines() if line.startswith("database"))
    contains("database: wanted 1, registered 1, passing 0", " ".join(line.split()), "1 1")
    plan = do(steps[2])
    contains("2: what will run where, in which order", plan.out, "database", "web1", "critical path")
    equal("submitted", do(steps[3]).status, 0)
    why = ""
    end = time.monotonic() + 20
    while time.monotonic() < end and "is waiting" not in why:  # it is quick: a look that comes too late sees that it is done
        ran = do(steps[5])
        why = ran.out or str(ran)
        if "succeeded" in why:
            break
    contains("3: why", why, "web@web1 is ")
    wait_until("all is there", lambda: do(steps[6]).status == 0, 30)
    contains("the live tree", do(steps[4]).out, "converged")
    equal("web knows its database", hosts[1].run("cat", "/srv/web.conf"), f"database at {hosts[0].address}:5432\n")
    # 4: a second database, and kill -9 on the way.
    second = site.split("---\n")
    more = "---\n".join([second[1].replace("db1", "db2").replace(hosts[0].address, hosts[2].address), second[4].replace("db1", "db2")])
    cli.ok("apply", "-f", "-", stdin=more)
    server.kill()
    server.start()
    hosts[2].run("sh", "-c", "setsid python3 -m http.server --directory /srv 5432 >/dev/null 2>&1 </dev/null &")
    wanted = f"database at {','.join(sorted(f'{host.address}:5432' for host in (hosts[0], hosts[2])))}\n"
    wait_until("web runs again with both addresses", lambda: hosts[1].run("cat", "/srv/web.conf") == wanted, 30)
    cli.ok("job", "cancel", "bring-up")


def jobs_page(cli):
    text = text_of("jobs.md")
    cli.ok("apply", "-f", "-", stdin="".join(f"{{kind: Node, name: {role}-1, labels: {{role: {role}}}, spec: {{address: 192.0.2.1}}}}\n---\n" for role in ("db", "oc", "lb", "storage"))
           + "".join(f"{{kind: Service, name: {name}, spec: {{port: 1}}}}\n---\n" for name in ("mysql", "keystone"))[:-4])
    first = next(block for block in blocks(text) if block.startswith("kind: Job"))
    path = write_file(os.path.join(scratch("jobs"), "bring-up.yaml"), first)
    contains("the job of jobs.md is accepted", cli.ok("job", "plan", "-f", path, "--simulate"), "plan ", "haproxy", "predicted: ")
    task = next(block for block in blocks(text) if "artefacts:" in block)
    contains("and its task with artefacts", cli.ok("job", "plan", "-f", "-", stdin="kind: Job\nname: one\nspec:\n  tasks:\n" + textwrap.indent(task, "    ")), "benchmark")
    rule = next(block for block in blocks(text) if block.startswith("kind: RollingRule"))
    contains("and its rule", cli.ok("apply", "-f", "-", stdin=rule), "rollingrule/compute created")
    known = cli.ok("job", "--help")
    for name in re.search(r"`orrery job ([a-z |]+)`", text).group(1).split(" | "):
        contains(f"there is a command job {name}", known, name)


def executors_page(cli):
    text = text_of("executors.md")
    node = next(block for block in blocks(text) if block.startswith("kind: Node"))
    cli.ok("apply", "-f", "-", stdin="{kind: Secret, name: vault, spec: {values: {password: none-at-all}}}\n---\n{kind: Secret, name: api, spec: {values: {token: none-at-all}}}\n---\n"
           "{kind: Node, name: gate-1, spec: {address: 192.0.2.1}}")
    key = cli("apply", "-f", "-", stdin=node.replace("AAAA...", "AAAAC3NzaC1lZDI1NTE5AAAAIJ1wB7vY0sY0rQ8yqk8n0fZ0K6zvV1k5o6xV4m3bq2aT"))
    check("the Node of executors.md applies", key.status == 0, str(key))
    bodies = [part for block in blocks(text) for part in re.split(r"^(?=[a-z]+:)", block, flags=re.M) if re.match(r"(ssh|ansible|puppet|http|local):", part)]
    check(f"executors.md shows {len(bodies)} bodies", len(bodies) >= 9)
    tasks = ""
    for number, body in enumerate(bodies):
        on = "" if body.startswith(("http", "local")) else "      on: [web-1]\n"
        tasks += f"    - name: t{number}\n{on}      run:\n" + textwrap.indent(body, "        ") + "\n"
    planned = cli("job", "plan", "-f", "-", stdin="kind: Job\nname: all\nspec:\n  tasks:\n" + tasks)
    check("and each is accepted", planned.status == 0, str(planned))


def gates(cli):
    path = os.path.join(TREE, "examples", "gates.yaml")
    digest = cli.ok("job", "submit", "-f", path).split("plan ")[1].strip()
    contains("examples/gates.yaml: its tasks", cli.ok("job", "show", "gates"), "prepared", "go", "over")
    cli.ok("job", "approve", "gates", "go", "--digest", digest)
    contains("and it ends", cli.ok("job", "wait", "gates"), "job gates succeeded")


def main(given):
    hosts = Hosts(3)
    hosts.enter()
    backup = write_file(os.path.join(scratch("programs"), "backup"), "#!/bin/sh\n", 0o700)
    server = Server(given.orrery, arguments=["--jobs-programs", f"backup={backup}"])
    server.start()
    cli = Cli(given.orrery, server, HOME=scratch("home"), XDG_CONFIG_HOME=scratch("home")).login(server)
    tutorial(hosts, cli, server)
    jobs_page(cli)
    executors_page(cli)
    gates(cli)
    equal("it stops on SIGTERM", server.stop(), 0)


if __name__ == "__main__":
    run(main)
