"""Concurrent writers that record what the server acknowledged, and the comparison of these records with the store at the end.

Each writer owns one Node and increments a counter in its label by compare-and-swap; sometimes it creates a Node with a name that is used once. Each
request is recorded: acknowledged, refused, or unknown because the connection broke during the request."""
import http.client
import multiprocessing
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))
from orrery_lab import Api, Problem, check, equal, log, node  # noqa: E402

BROKEN = (OSError, http.client.HTTPException)


class Writer:
    def __init__(self, server, token, index, seed):
        self.api = Api(server, token, seconds=20)
        self.name = f"w-{index}"
        self.random = random.Random(f"{seed}-{index}")
        self.count, self.etag = 0, None
        self.pending = False  # whether count + 1 was written is not known
        self.created, self.uncertain, self.names_used = [], [], 0
        self.etags = []  # of acknowledged writes: revision and identity of the store; a new store counts revisions from the beginning
        self.refusals = {}
        self.unknown = 0
        self.slowest = 0.0
        self.violations = []

    def step(self):
        begin = time.monotonic()
        try:
            if self.etag is None:
                self.read()
            elif self.random.random() < 0.2:
                self.create()
            else:
                self.increment()
            self.slowest = max(self.slowest, time.monotonic() - begin)
            return True
        except BROKEN:
            pass
        except Problem as problem:
            self.refusals[problem.status] = self.refusals.get(problem.status, 0) + 1
            if problem.status not in (503, 504):
                self.violations.append(f"{self.name}: {problem}")
        return False

    def read(self):
        seen = self.api.get(f"/v1/nodes/{self.name}?consistent=true")
        count = int(seen["labels"]["count"])
        if count != self.count and not (self.pending and count == self.count + 1):
            self.violations.append(f"{self.name} is at {count}; {self.count} was acknowledged{' and one more is unknown' if self.pending else ''}")
        self.count, self.pending, self.etag = count, False, self.api.headers["ETag"]

    def increment(self):
        etag, self.etag, self.pending = self.etag, None, True
        self.unknown += 1
        try:
            answer = self.api.patch(f"/v1/nodes/{self.name}", {"labels": {"count": str(self.count + 1)}}, {"If-Match": etag})
        except Problem as problem:
            if problem.status == 412 and "another store" in str(problem.document):  # the store was migrated: nothing was written, read again
                self.pending, self.unknown = False, self.unknown - 1
                return
            if problem.status == 412:  # no other client writes this Node: a write that was reported as failed was applied
                self.violations.append(f"{self.name}: an unexpected write at {self.count}: {problem}")
            raise
        self.unknown -= 1
        self.count, self.pending, self.etag = self.count + 1, False, self.api.headers["ETag"]
        self.acknowledge(answer)
        if answer["outcome"] != "updated":
            self.violations.append(f"{self.name}: the increment to {self.count} was answered {answer['outcome']}")

    def create(self):
        self.names_used += 1
        name = f"u-{self.name}-{self.names_used}"
        self.uncertain.append(name)
        answer = self.api.post("/v1/nodes", node(name, {"by": self.name}))
        self.uncertain.pop()
        self.created.append(name)
        self.acknowledge(answer)

    def acknowledge(self, answer):
        """Records the ETag of the answer to a write."""
        etag = self.api.headers["ETag"]
        if not etag or not etag.startswith(f'"{answer["object"]["revision"]}-'):
            self.violations.append(f"{self.name}: the ETag {etag} is not that of revision {answer['object']['revision']}")
        self.etags.append(etag)

    def account(self):
        return {key: getattr(self, key) for key in ("name", "count", "pending", "created", "uncertain", "etags", "refusals", "unknown", "slowest", "violations")}


def _work(server, token, indices, seed, go_on, pause, out):
    writers = [Writer(server, token, index, seed) for index in indices]

    def loop(writer):
        while go_on.is_set():
            # A writer that was refused waits, so that retries against a stopped server do not use a whole core.
            time.sleep(writer.random.uniform(*pause) if writer.step() else writer.random.uniform(0.03, 0.12))
        writer.api.close()

    threads = [threading.Thread(target=loop, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.put([writer.account() for writer in writers])


class Writers:
    """`count` writers in a few processes. Their Nodes are created first."""

    def __init__(self, server, count, seed, pause=(0.0, 0.02), processes=4):
        self.count = count
        api = server.api()
        for index in range(count):
            api.put(f"/v1/nodes/w-{index}", node(f"w-{index}", {"count": "0"}))
        api.close()
        context = multiprocessing.get_context("fork")
        self.out, self.go_on = context.Queue(), context.Event()
        self.go_on.set()
        connector = _Address(server)
        self.processes = [context.Process(target=_work, args=(connector, server.token(), range(count)[i::processes], seed, self.go_on, pause, self.out), daemon=True)
                          for i in range(processes)]
        for process in self.processes:
            process.start()

    def finish(self):
        """Stops the writers and returns the account of each."""
        self.go_on.clear()
        accounts = [account for _ in self.processes for account in self.out.get(timeout=60)]
        for process in self.processes:
            process.join()
        return accounts


class _Address:
    """The part of a Server that a writer in another process needs."""

    def __init__(self, server):
        self.port = server.port

    def connect(self, seconds):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)


def verify_accounts(server, accounts):
    """Compares the writers' accounts with the store: Nodes, and the audit events of the same transactions."""
    api = server.api(seconds=120)
    nodes = {item["name"]: item for item in api.all("nodes", "consistent=true")}
    updates, creations, increments = {}, {}, {}
    for event in api.all("events"):
        spec = event["spec"]
        if spec["action"] == "updated":
            updates[spec["subject"]] = updates.get(spec["subject"], 0) + 1
            for change in changes_of(spec.get("evidence")):
                if change.get("path") == "labels.count":
                    increments.setdefault(spec["subject"], []).append(int(change["after"]))
        elif spec["action"] == "created":
            creations[spec["subject"]] = creations.get(spec["subject"], 0) + 1

    violations = [text for account in accounts for text in account["violations"]]
    equal("no writer saw an inconsistency", violations[:5], [])
    acknowledged = sum(len(account["etags"]) for account in accounts)
    lost, duplicated, unmatched = [], [], []
    names = set()
    for account in accounts:
        subject, count = f"Node/{account['name']}", int(nodes[account["name"]]["labels"]["count"])
        if count < account["count"]:
            lost.append(f"{account['name']} is at {count}, {account['count']} was acknowledged")
        if count > account["count"] + (1 if account["pending"] else 0):
            duplicated.append(f"{account['name']} is at {count}, only {account['count']} (+ {int(account['pending'])} unknown) was written")
        if updates.get(subject, 0) != count:
            unmatched.append(f"{subject} was changed {count} times and has {updates.get(subject, 0)} events")
        if subject in increments and sorted(increments[subject]) != list(range(1, count + 1)):
            unmatched.append(f"{subject}: the increments in its events are not 1 to {count}, each once")
        lost += [name for name in account["created"] if name not in nodes]
        names.update(account["created"], account["uncertain"])
        for name in account["created"] + account["uncertain"]:
            if creations.get(f"Node/{name}", 0) != (1 if name in nodes else 0):
                unmatched.append(f"Node/{name} {'exists' if name in nodes else 'does not exist'} and has {creations.get(f'Node/{name}', 0)} creation events")
    unknown = [name for name in nodes if name.startswith("u-") and name not in names]
    equal(f"none of {acknowledged} acknowledged writes is lost", lost[:5], [])
    equal("no write was applied twice", duplicated[:5], [])
    equal("no Node exists that no writer created", unknown[:5], [])
    equal("each change has exactly one audit event, and each event its change", unmatched[:5], [])
    check("events have the changed fields", bool(increments) or not acknowledged)
    etags = [etag for account in accounts for etag in account["etags"]]
    equal("no two acknowledged writes share a revision of one store", len(set(etags)), len(etags))
    refusals = {}
    for account in accounts:
        for status, times in account["refusals"].items():
            refusals[status] = refusals.get(status, 0) + times
    log(f"      {acknowledged} acknowledged, {sum(a['unknown'] for a in accounts) + sum(len(a['uncertain']) for a in accounts)} with unknown outcome,"
        f" refusals {refusals or 'none'}, slowest answer {max(a['slowest'] for a in accounts):.2f} s, {len(nodes)} nodes")
    api.close()


def changes_of(evidence):
    """The changes in the evidence of an audit event."""
    if isinstance(evidence, dict):
        evidence = evidence.get("changes", [])
    return evidence if isinstance(evidence, list) else []
