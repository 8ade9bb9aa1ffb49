#!/usr/bin/python3 -B
"""The server is killed with SIGKILL at random instants while examples/jiocloud.yaml comes up on ten hosts, again and again: every run comes to the same end, no
task's body runs twice, and no line that a task printed is lost."""
import os
import random
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab", "jiocloud")]
import orrery_lab  # noqa: E402
from jiocloud import EXAMPLE, MACHINES, Site  # noqa: E402
from orrery_lab import check, equal, run, say  # noqa: E402

AGAIN = ("pools", "monmap")  # these run again when members change


def options(parser):
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))


def sweep(site):
    """Nothing runs on the hosts, and the catalog has seen it."""
    for host in site.hosts:
        host.run("pkill", "-f", "http.server", check=False)  # not from a shell: its own words would match, and end it
        host.run("sh", "-c", "rm -f /srv/*")
    site.wait_for("nothing passes any more", lambda: all(one["status"].get("state") != "passing" for one in site.server.api().all("instances")), 30)


def submit(site, number):
    """The example as a job of this number, after the one before it; returns its name."""
    job = f"jiocloud-{number}"
    if number > 1:
        site.cli.ok("job", "cancel", f"jiocloud-{number - 1}", "--because", "the next one")
        sweep(site)
    with open(EXAMPLE) as file:
        site.cli.ok("apply", "-f", "-", stdin=file.read().replace("name: jiocloud\n", f"name: {job}\n"))
    return job


def killed_on_its_way(site, job, kills, chance):
    """Kills until the job is done or `kills` are used up; returns how many it were."""
    done = 0
    while done < kills:
        time.sleep(chance.uniform(0.02, 0.7))
        site.server.kill()
        done += 1
        site.server.start()
        if site.server.complaints():
            equal("every start is clean", site.server.complaints(), [])
        if site.server.api().get(f"/v1/jobs/{job}")["status"].get("state") in ("converged", "succeeded", "failed"):
            break
    return done


def the_same_end(site, job):
    """The end that every run comes to, as every server shows it."""
    site.wait_job(job)
    for name in MACHINES:
        ran = site.ran(name)
        once = [task for task, _ in ran if not task.startswith(AGAIN)]
        if len(once) != len(set(once)) or len(ran) != len(set(ran)):
            raise orrery_lab.Failed(f"{job}: a body ran twice on {name}: {ran}")
    for server in site.servers:
        api = server.api()
        at = f" at {server.name}" if len(site.servers) > 1 else ""
        orrery_lab.wait_until(f"{job}: nothing is missing{at}", lambda: api.get(f"/v1/jobs/{job}/missing")["missing"] == [], 5)
        for name in MACHINES:
            pieces = api.get(f"/v1/jobs/{job}/output?task=packages@{name}")["pieces"]
            printed = "".join(piece["text"] for piece in pieces if piece["stream"] == "out")
            if printed != "".join(f"package {i} of 5\n" for i in range(1, 6)):
                raise orrery_lab.Failed(f"{job}: what packages@{name} printed is not all there, once{at}: {pieces}")
    equal(f"{job}: three monitors are on the map", site.by_name["stmonleader1"].run("cat", "/srv/monmap").count("10.77."), 3)
    equal(f"{job}: two identity servers are behind the load balancer", site.by_name["haproxy1"].run("cat", "/srv/pool-keystone").count(":5000"), 2)


def main(given):
    say(f"seed {given.seed} (give --seed to repeat the instants)")
    chance = random.Random(given.seed)
    site = Site(given.orrery)
    kills = runs = 0
    while kills < given.kills:
        runs += 1
        job = submit(site, runs)
        killed = killed_on_its_way(site, job, given.kills - kills, chance)
        kills += killed
        the_same_end(site, job)
        say(f"      {killed} kills in run {runs}, {kills} in all")
    check(f"{kills} kills in {runs} runs", kills >= given.kills)
    equal("the server stops in peace", site.server.stop(), 0)


if __name__ == "__main__":
    run(main, options)
