#!/usr/bin/python3 -B
"""Three servers share an etcd, and the leader is killed with SIGKILL at random times while examples/jiocloud.yaml is deployed on ten hosts: every run
has the same outcome, no task's body runs twice, and no line of output is lost, on every server."""
import os
import random
import sys
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), *(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab", part) for part in ("", "jiocloud", "server"))]
from cluster import leader_of  # noqa: E402
from jiocloud import Site  # noqa: E402
from jobs_crash import verify_outcome, submit  # noqa: E402
from orrery_lab import Cli, check, equal, log, run  # noqa: E402


def options(parser):
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))


def kill_during(site, job, kills, chance):
    """Kills the leader until the job is done or `kills` are used up; returns their number."""
    done = 0
    while done < kills:
        leader = leader_of(site.servers)
        # Tasks that follow services run again three seconds after a change (their debounce), so a leader must live longer than that.
        time.sleep(chance.uniform(0.0, 6.0))
        state = leader.api().get(f"/v1/jobs/{job}")["status"].get("state")
        if done > 0 and state in ("converged", "succeeded", "failed"):
            break
        leader.kill()
        done += 1
        log(f"      kill {done}: {leader.name}")
        time.sleep(chance.uniform(0.0, 1.0))
        leader.start()
        if leader.error_lines():
            equal("every start is clean", leader.error_lines(), [])
    return done


def main(given):
    log(f"seed {given.seed} (repeat with --seed)")
    chance = random.Random(given.seed)
    site = Site(given.orrery, servers=3)
    kills = runs = 0
    while kills < given.kills:
        runs += 1
        site.server = chance.choice(site.servers)
        site.cli = Cli(given.orrery, site.server).login(site.server)
        job = submit(site, runs)
        killed = kill_during(site, job, given.kills - kills, chance)
        kills += killed
        verify_outcome(site, job)
        log(f"      {killed} kills in run {runs}, {kills} in total")
    check(f"{kills} kills of the leader in {runs} runs", kills >= given.kills)
    for server in site.servers:
        equal(f"{server.name} stops cleanly", server.stop(), 0)
        equal(f"and {server.name}'s log has no errors", server.error_lines(), [])


if __name__ == "__main__":
    run(main, options)
