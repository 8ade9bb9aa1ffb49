#!/usr/bin/python3
"""Three etcd members are killed with SIGKILL one after another while 64 clients write through a server: no acknowledged write is lost, no write is
applied twice."""
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))
from orrery_lab import Etcd, Server, check, equal, log, run  # noqa: E402
from server_writers import Writers, verify_accounts  # noqa: E402


def options(parser):
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))


def main(given):
    log(f"seed {given.seed} (repeat with --seed)")
    chance = random.Random(given.seed)
    etcd = Etcd(3)
    server = Server(given.orrery, store_url=etcd.url("crash"))
    server.start()
    writers = Writers(server, given.writers, given.seed)
    for kill in range(given.kills):
        member = kill % 3
        time.sleep(chance.uniform(0.3, 1.5))
        etcd.kill(member)
        time.sleep(chance.uniform(0.5, 2.5))
        etcd.start(member)
        etcd.wait_healthy([member])
        check(f"kill {kill + 1}: the server is alive", server.process.alive())
    time.sleep(1)
    accounts = writers.finish()
    server.wait_ready()
    verify_accounts(server, accounts)
    equal("the log has no errors", server.error_lines()[:5], [])
    log("the server itself is killed and started again")
    server.kill()
    server.start()
    verify_accounts(server, accounts)
    equal("the server stops on SIGTERM", server.stop(), 0)


if __name__ == "__main__":
    run(main, options)
