#!/usr/bin/python3 -B
"""From an import file to the preview of a plan, with examples/fleet and the commands of docs/fleet.md."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Server, check, contains, equal, run, scratch, write_file  # noqa: E402

TREE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
FILES = os.path.join(TREE, "examples", "fleet")


def import_file(cli):
    path = os.path.join(FILES, "instackenv.json")
    contains("a dry run", cli.ok("fleet", "import", path, "--dry-run"), "machine/ctl-0 created", "8 created, 0 updated, 0 unchanged (dry run")
    equal("changes nothing", cli.ok("get", "machines", "-o", "name").strip(), "")
    contains("the import", cli.ok("fleet", "import", path, "--reason", "rack 1 arrived"), "8 created")
    contains("again", cli.ok("fleet", "import", path), "0 created, 0 updated, 8 unchanged")
    wrong = write_file(os.path.join(scratch("import"), "wrong.csv"), "pxe_ipmitool,192.0.2.10,admin\npxe_ssh,a,b,c\n")
    refused = cli("fleet", "import", wrong)
    check("a file with errors is refused", refused.status == 7, str(refused))
    contains("with all of them", refused.err, "line 1: has 3 fields", "line 2: pm_type pxe_ssh is served by no driver any more")
    one = write_file(os.path.join(scratch("import"), "one.csv"), "pxe_ipmitool,192.0.2.10,admin,example-10\n")
    contains("machines that the file lacks are reported", cli.ok("fleet", "import", one), "in the inventory but not in the file: cmp-0, cmp-1")


def no_passwords(cli, server):
    """Passwords are in Secrets and in nothing that is shown, stored or logged."""
    shown = "".join(cli.ok("get", kind, "-o", "json") for kind in ("machines", "secrets", "events"))
    for number in (10, 30):
        check("no answer has a password", f"example-{number}" not in shown)
    with open(server.log, errors="replace") as log:
        check("no log line has one", "example-10" not in log.read())


def evidence(cli):
    contains("facts and benchmarks", cli.ok("apply", "-f", os.path.join(FILES, "facts.yaml")), "facts/cmp-0 created", "benchmark/cmp-3-1 created")
    contains("the slow machine is named", cli.ok("fleet", "outliers"), "cmp-3", "slow", "memory is slow", "4 machines measured, 4 compared, 1 deviate")
    contains("flavors are suggested", cli.ok("fleet", "flavors"), "flavor-64cpu-x86-64-262144mb-446gb", "cmp-0, cmp-1, cmp-2, cmp-3")
    contains("and can be applied", cli.ok("apply", "--dry-run", "-f", "-", stdin=cli.ok("fleet", "flavors", "-o", "yaml")), "flavor/flavor-64cpu")


def preview(cli):
    cli.ok("apply", "-f", os.path.join(FILES, "plan.yaml"))
    seen = json.loads(cli.ok("plan", "preview", "cloud", "-o", "json"))
    equal("each role has its machines", {role["role"]: [machine["machine"] for machine in role["machines"]] for role in seen["roles"]},
          {"control": ["ctl-0", "ctl-1", "ctl-2"], "compute": ["cmp-0", "cmp-1", "cmp-2"], "storage": ["sto-0"]})
    equal("the same preview has the same digest", json.loads(cli.ok("plan", "preview", "cloud", "-o", "json"))["digest"], seen["digest"])
    contains("the table", cli.ok("plan", "preview", "cloud"), "plan cloud is feasible", "role control (version 1, flavor control, image debian-12): 3 of 3 machines",
             "cmp-3", "its benchmark excludes it: memory is slow", f"digest {seen['digest']}")
    contains("why a machine has its role", cli.ok("why", "machine/sto-0"), "plan cloud gives machine sto-0 role storage")
    contains("why another has none", cli.ok("why", "machine/cmp-3"), "its benchmark excludes it", "bandwidth_1M")
    contains("why a plan", cli.ok("why", "plan/cloud"), "plan cloud is feasible")
    with open(os.path.join(FILES, "plan.yaml")) as file:
        larger = file.read().replace("role: compute, count: 3", "role: compute, count: 5")
    cli.ok("apply", "-f", "-", stdin=larger)
    refused = cli("plan", "preview", "cloud")
    equal("an infeasible plan ends with 1", refused.status, 1)
    contains("and reports the shortage", refused.out, "role compute needs 5 machines, but only 3 machines fit: cmp-0, cmp-1, cmp-2; 2 are missing")
    check("and has another digest", seen["digest"] not in refused.out)


def page(cli):
    """docs/fleet.md shows commands that exist and resources that are accepted."""
    with open(os.path.join(TREE, "docs", "fleet.md")) as file:
        text = file.read()
    known = cli.ok("man").replace("\\-", "-")
    for command in sorted(set(re.findall(r"orrery ((?:fleet|plan) [a-z]+)", text))):
        contains(f"there is a command {command}", known, f"orrery {command}")
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", text, re.S | re.M)):
        accepted = cli("apply", "--dry-run", "-f", "-", stdin=block)
        check(f"block {number} of fleet.md is accepted", accepted.status == 0, str(accepted))


def main(given):
    server = Server(given.orrery)
    server.start()
    cli = Cli(given.orrery, server, HOME=scratch("home"), XDG_CONFIG_HOME=scratch("home")).login(server)
    import_file(cli)
    no_passwords(cli, server)
    evidence(cli)
    preview(cli)
    page(cli)
    equal("it stops on SIGTERM", server.stop(), 0)


if __name__ == "__main__":
    run(main)
