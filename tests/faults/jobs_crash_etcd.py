#!/usr/bin/python3 -B
"""Three servers share an etcd, and whichever leads is killed with SIGKILL at random instants while examples/jiocloud.yaml comes up on ten hosts: every run comes
to the same end, no task's body runs twice, and no line that a task printed is lost, whichever server is asked."""
import os
import random
import sys
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), *(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab", part) for part in ("", "jiocloud", "server"))]
from cluster import leader_of  # noqa: E402
from jiocloud import Site  # noqa: E402
from jobs_crash import the_same_end, submit  # noqa: E402
from orrery_lab import Cli, check, equal, run, say  # noqa: E402


def options(parser):
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))


def killed_on_its_way(site, job, kills, chance):
    """Kills who leads until the job is done or `kills` are used up; returns how many it were."""
    done = 0
    while done < kills:
        leader = leader_of(site.servers)
        # Tasks that follow services run again three seconds after a change (their debounce): where no leader lives that long, never.
        time.sleep(chance.uniform(0.0, 6.0))
        state = leader.api().get(f"/v1/jobs/{job}")["status"].get("state")
        if done > 0 and state in ("converged", "succeeded", "failed"):
            break
        leader.kill()
        done += 1
        say(f"      kill {done}: {leader.name}")
        time.sleep(chance.uniform(0.0, 1.0))
        leader.start()
        if leader.complaints():
            equal("every start is clean", leader.complaints(), [])
    return done


def main(given):
    say(f"seed {given.seed} (give --seed to repeat the instants)")
    chance = random.Random(given.seed)
    site = Site(given.orrery, servers=3)
    kills = runs = 0
    while kills < given.kills:
        runs += 1
        site.server = chance.choice(site.servers)
        site.cli = Cli(given.orrery, site.server).login(site.server)
        job = submit(site, runs)
        killed = killed_on_its_way(site, job, given.kills - kills, chance)
        kills += killed
        the_same_end(site, job)
        say(f"      {killed} kills in run {runs}, {kills} in all")
    check(f"{kills} kills of the leader in {runs} runs", kills >= given.kills)
    for server in site.servers:
        equal(f"{server.name} stops in peace", server.stop(), 0)
        equal(f"and {server.name}'s log has no errors", server.complaints(), [])


if __name__ == "__main__":
    run(main, options)
