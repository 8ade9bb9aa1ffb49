#!/usr/bin/python3
"""The server is killed with SIGKILL at random times, repeatedly, while 64 clients write: no acknowledged write is lost, no write is applied
twice, revisions have no gaps and every start is clean."""
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))
from orrery_lab import Cli, Server, check, equal, log, run  # noqa: E402
from server_writers import Writers, verify_accounts  # noqa: E402


def options(parser):
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))


def main(given):
    log(f"seed {given.seed} (repeat with --seed)")
    chance = random.Random(given.seed)
    server = Server(given.orrery)
    server.start()
    writers = Writers(server, given.writers, given.seed)
    starts, unready, warnings = [], 0, {}
    for kill in range(given.kills):
        early = chance.random() < 0.15
        if early:  # also during startup
            server.kill()
            server.spawn()
            time.sleep(chance.uniform(0.0, 0.12))
            unready += 1
        else:
            time.sleep(chance.uniform(0.01, 0.45))
        server.kill()
        starts.append(server.start())
        errors = server.error_lines()
        if errors:
            equal(f"start {kill + 1} is clean", errors, [])
        for line in server.log_text().splitlines():
            if " level=warn " in line:
                text = line.partition("message=")[2]
                warnings[text] = warnings.get(text, 0) + 1
        if (kill + 1) % 50 == 0:
            log(f"      {kill + 1} kills, {unready} of them before the server was ready; start took {sorted(starts)[len(starts) // 2]:.2f} s (median), {max(starts):.2f} s (maximum)")
    accounts = writers.finish()
    check(f"{given.kills} starts after SIGKILL were all clean", not server.error_lines(), "\n".join(server.error_lines()))
    for text, times in list(warnings.items())[:5]:
        log(f"      warning, {times} times: {text[:200]}")
    verify_accounts(server, accounts)
    revision = server.api().get("/v1/store")["revision"]
    equal("the server stops on SIGTERM", server.stop(), 0)
    verified = Cli(given.orrery)("store", "verify", os.path.join(server.folder, "store.db"), seconds=120)
    check("the file verifies, and its revisions have no gaps", verified.status == 0, str(verified))
    # A server that stops releases its leadership, which is another write.
    reached = int(verified.out.partition("revision ")[2].partition(",")[0])
    check("up to the newest revision", reached in (revision, revision + 1), verified.out)
    log("      " + verified.out.strip().replace("\n", "; "))


if __name__ == "__main__":
    run(main, options)
