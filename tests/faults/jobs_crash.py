#!/usr/bin/python3 -B
"""The server is killed with SIGKILL at random times while examples/jiocloud.yaml is deployed on ten hosts, repeatedly: every run has the same
outcome, no task's body runs twice, and no line of output is lost."""
import os
import random
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab", "jiocloud")]
import orrery_lab  # noqa: E402
from jiocloud import EXAMPLE, MACHINES, Site  # noqa: E402
from orrery_lab import check, equal, log, run  # noqa: E402

AGAIN = ("pools", "monmap")  # these run again when members change


def options(parser):
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))


def sweep(site):
    """Stops all services on the hosts, and waits until the catalog shows it."""
    for host in site.hosts:
        host.run("pkill", "-f", "http.server", check=False)  # not from a shell: pkill would match and kill the shell itself
        host.run("sh", "-c", "rm -f /srv/*")
    site.wait_for("no instance is passing", lambda: all(one["status"].get("state") != "passing" for one in site.server.api().all("instances")), 30)


def submit(site, number):
    """Submits the example as job number `number`, after the previous job ended; returns its name."""
    job = f"jiocloud-{number}"
    if number > 1:
        site.cli.ok("job", "cancel", f"jiocloud-{number - 1}", "--reason", "the next one")
        sweep(site)
    with open(EXAMPLE) as file:
        site.cli.ok("apply", "-f", "-", stdin=file.read().replace("name: jiocloud\n", f"name: {job}\n"))
    return job


def kill_during(site, job, kills, chance):
    """Kills the server until the job is done or `kills` are used up; returns their number."""
    done = 0
    while done < kills:
        time.sleep(chance.uniform(0.02, 0.7))
        site.server.kill()
        done += 1
        site.server.start()
        if site.server.error_lines():
            equal("every start is clean", site.server.error_lines(), [])
        if site.server.api().get(f"/v1/jobs/{job}")["status"].get("state") in ("converged", "succeeded", "failed"):
            break
    return done


def verify_outcome(site, job):
    """Checks the outcome of a run, on every server."""
    site.wait_job(job)
    for name in MACHINES:
        ran = site.ran(name)
        once = [task for task, _ in ran if not task.startswith(AGAIN)]
        if len(once) != len(set(once)) or len(ran) != len(set(ran)):
            raise orrery_lab.Failed(f"{job}: a body ran twice on {name}: {ran}")
    for server in site.servers:
        api = server.api()
        at = f" on {server.name}" if len(site.servers) > 1 else ""
        orrery_lab.wait_until(f"{job}: no instance is missing{at}", lambda: api.get(f"/v1/jobs/{job}/missing")["missing"] == [], 5)
        for name in MACHINES:
            pieces = api.get(f"/v1/jobs/{job}/output?task=packages@{name}")["pieces"]
            printed = "".join(piece["text"] for piece in pieces if piece["stream"] == "out")
            if printed != "".join(f"package {i} of 5\n" for i in range(1, 6)):
                raise orrery_lab.Failed(f"{job}: the output of packages@{name} is not complete{at}: {pieces}")
    equal(f"{job}: three monitors are on the map", site.by_name["stmonleader1"].run("cat", "/srv/monmap").count("10.77."), 3)
    equal(f"{job}: two identity servers are behind the load balancer", site.by_name["haproxy1"].run("cat", "/srv/pool-keystone").count(":5000"), 2)


def main(given):
    log(f"seed {given.seed} (repeat with --seed)")
    chance = random.Random(given.seed)
    site = Site(given.orrery)
    kills = runs = 0
    while kills < given.kills:
        runs += 1
        job = submit(site, runs)
        killed = kill_during(site, job, given.kills - kills, chance)
        kills += killed
        verify_outcome(site, job)
        log(f"      {killed} kills in run {runs}, {kills} in total")
    check(f"{kills} kills in {runs} runs", kills >= given.kills)
    equal("the server stops cleanly", site.server.stop(), 0)


if __name__ == "__main__":
    run(main, options)
