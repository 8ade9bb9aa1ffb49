"""Kills a writing program 200 times at random instants and checks what it finds after each: crash.py PROGRAM [ROUNDS]

After every restart: each writer's count is the last one that was acknowledged or the one after it (the answer was lost, not the write); the
revision is the sum of all counts, so no transaction was applied twice and no revision is missing; as many step keys as there must be.
"""
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

WRITERS = 64
program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
seed = int.from_bytes(os.urandom(4), "big")
rng = random.Random(seed)
folder = tempfile.mkdtemp(prefix="orrery-crash-")
acknowledged = {writer: (0, 0) for writer in range(WRITERS)}  # count, revision
began = time.monotonic()
killed_before_ready = 0


def fail(message):
    print(f"FAILED in round {number} (seed {seed}, store kept in {folder}): {message}")
    sys.exit(1)


def read_all(stream, lines, ready):
    for line in stream:
        if line.endswith(b"\n"):
            lines.append(line)
        if line.startswith(b"ready"):
            ready.set()
    ready.set()


for number in range(rounds + 1):
    lines, ready = [], threading.Event()
    child = subprocess.Popen([program, os.path.join(folder, "store.db"), str(WRITERS)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    reader = threading.Thread(target=read_all, args=(child.stdout, lines, ready))
    reader.start()
    if rng.random() < 0.15 and number < rounds:
        time.sleep(rng.uniform(0, 0.03))  # while it starts
    else:
        ready.wait(60)
        time.sleep(rng.uniform(0, 0.25))
    child.kill()
    child.wait()
    reader.join()
    child.stdout.close()
    counts, steps, revision = {}, None, None
    fresh = {}
    for line in lines:
        word, *rest = line.split()
        if word == b"error":
            fail(line.decode())
        elif word == b"has":
            counts[int(rest[0])] = int(rest[1])
        elif word == b"steps":
            steps = int(rest[0])
        elif word == b"ready":
            revision = int(rest[0])
        elif word == b"ack":
            writer, count, at = map(int, rest)
            expected = fresh.get(writer, (counts[writer], 0))[0] + 1
            if count != expected:
                fail(f"writer {writer} was acknowledged {count} after {expected - 1}")
            fresh[writer] = (count, at)
    if revision is None:
        killed_before_ready += 1
        if number == rounds:
            fail("the last start never became ready")
        continue
    for writer, count in counts.items():
        last, at = acknowledged[writer]
        if count not in (last, last + 1):
            fail(f"writer {writer}: {last} was acknowledged, {count} is there")
        if at > revision:
            fail(f"revision {at} was acknowledged, the store is at {revision}")
    if sum(counts.values()) != revision:
        fail(f"{sum(counts.values())} transactions, but revision {revision}")
    if steps != sum(min(count, 10) for count in counts.values()):
        fail(f"{steps} step keys, {sum(min(count, 10) for count in counts.values())} expected")
    at = sorted(at for _, at in fresh.values())
    if len(set(at)) != len(at):
        fail("a revision was given to two transactions")
    for writer, count in counts.items():
        acknowledged[writer] = fresh.get(writer, (count, acknowledged[writer][1]))

shutil.rmtree(folder)
total = sum(count for count, _ in acknowledged.values())
print(f"{rounds} kills ({killed_before_ready} during start-up) under {WRITERS} writers in {time.monotonic() - began:.0f} s: "
      f"{total} acknowledged writes, none lost, none twice, no revision missing")
