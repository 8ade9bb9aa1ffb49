"""Concurrent writers that know what they were promised, and the account that is settled with the server at the end.

Each writer owns one Node and counts in its label by compare-and-set; now and then it makes a Node of a name used once. What it was
told is kept: acknowledged, refused, or unknown because the connection broke under the request."""
import http.client
import multiprocessing
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))
from orrery_lab import Api, Problem, check, equal, node, say  # noqa: E402

BROKEN = (OSError, http.client.HTTPException)


class Writer:
    def __init__(self, server, token, index, seed):
        self.api = Api(server, token, seconds=20)
        self.name = f"w-{index}"
        self.random = random.Random(f"{seed}-{index}")
        self.count, self.etag = 0, None
        self.pending = False  # the outcome of the step to count+1 is not known
        self.made, self.uncertain, self.made_count = [], [], 0
        self.revisions = []
        self.refusals = {}
        self.unknown = 0
        self.slowest = 0.0
        self.wrong = []

    def step(self):
        begin = time.monotonic()
        try:
            if self.etag is None:
                self.look()
            elif self.random.random() < 0.2:
                self.make()
            else:
                self.increment()
            self.slowest = max(self.slowest, time.monotonic() - begin)
            return True
        except BROKEN:
            pass
        except Problem as problem:
            self.refusals[problem.status] = self.refusals.get(problem.status, 0) + 1
            if problem.status not in (503, 504):
                self.wrong.append(f"{self.name}: {problem}")
        return False

    def look(self):
        seen = self.api.get(f"/v1/nodes/{self.name}?consistent=true")
        count = int(seen["labels"]["count"])
        if count != self.count and not (self.pending and count == self.count + 1):
            self.wrong.append(f"{self.name} stands at {count}; {self.count} was acknowledged{' and one more in flight' if self.pending else ''}")
        self.count, self.pending, self.etag = count, False, self.api.headers["ETag"]

    def increment(self):
        etag, self.etag, self.pending = self.etag, None, True
        self.unknown += 1
        try:
            answer = self.api.patch(f"/v1/nodes/{self.name}", {"labels": {"count": str(self.count + 1)}}, {"If-Match": etag})
        except Problem as problem:
            if problem.status == 412 and "another store" in str(problem.document):  # it moved: nothing was written, read again
                self.pending, self.unknown = False, self.unknown - 1
                return
            if problem.status == 412:  # nobody else writes here: what was refused as lost was made after all
                self.wrong.append(f"{self.name}: a write of somebody else at {self.count}: {problem}")
            raise
        self.unknown -= 1
        self.count, self.pending, self.etag = self.count + 1, False, self.api.headers["ETag"]
        self.revisions.append(answer["object"]["revision"])
        if answer["outcome"] != "updated":
            self.wrong.append(f"{self.name}: the step to {self.count} was answered {answer['outcome']}")

    def make(self):
        self.made_count += 1
        name = f"u-{self.name}-{self.made_count}"
        self.uncertain.append(name)
        answer = self.api.post("/v1/nodes", node(name, {"by": self.name}))
        self.uncertain.pop()
        self.made.append(name)
        self.revisions.append(answer["object"]["revision"])

    def account(self):
        return {key: getattr(self, key) for key in ("name", "count", "pending", "made", "uncertain", "revisions", "refusals", "unknown", "slowest", "wrong")}


def _work(server, token, indices, seed, go_on, pause, out):
    writers = [Writer(server, token, index, seed) for index in indices]

    def loop(writer):
        while go_on.is_set():
            # One that was refused waits a little, so that a stopped server does not cost a whole core of retries.
            time.sleep(writer.random.uniform(*pause) if writer.step() else writer.random.uniform(0.03, 0.12))
        writer.api.close()

    threads = [threading.Thread(target=loop, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.put([writer.account() for writer in writers])


class Writers:
    """`count` writers in a few processes. Their nodes are made first."""

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
        """Ends them and returns what each was promised."""
        self.go_on.clear()
        accounts = [account for _ in self.processes for account in self.out.get(timeout=60)]
        for process in self.processes:
            process.join()
        return accounts


class _Address:
    """What of a Server a writer in another process needs."""

    def __init__(self, server):
        self.port = server.port

    def connect(self, seconds):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)


def settle(server, accounts):
    """Compares what was promised with what is there: nodes, and the audit events that were written in the same transactions."""
    api = server.api(seconds=120)
    nodes = {item["name"]: item for item in api.all("nodes", "consistent=true")}
    updates, creations, steps = {}, {}, {}
    for event in api.all("events"):
        spec = event["spec"]
        if spec["what"] == "updated":
            updates[spec["subject"]] = updates.get(spec["subject"], 0) + 1
            for change in changes_of(spec.get("evidence")):
                if change.get("path") == "labels.count":
                    steps.setdefault(spec["subject"], []).append(int(change["after"]))
        elif spec["what"] == "created":
            creations[spec["subject"]] = creations.get(spec["subject"], 0) + 1

    wrong = [text for account in accounts for text in account["wrong"]]
    equal("no writer saw anything it could not explain", wrong[:5], [])
    acknowledged = sum(len(account["revisions"]) for account in accounts)
    lost, twice, untold, uneven = [], [], [], []
    names = set()
    for account in accounts:
        subject, stands = f"Node/{account['name']}", int(nodes[account["name"]]["labels"]["count"])
        if stands < account["count"]:
            lost.append(f"{account['name']} stands at {stands}, {account['count']} was acknowledged")
        if stands > account["count"] + (1 if account["pending"] else 0):
            twice.append(f"{account['name']} stands at {stands}, only {account['count']} (+ {int(account['pending'])} in flight) was written")
        if updates.get(subject, 0) != stands:
            uneven.append(f"{subject} was changed {stands} times and has {updates.get(subject, 0)} events of it")
        if subject in steps and sorted(steps[subject]) != list(range(1, stands + 1)):
            uneven.append(f"{subject}: the events' steps are not 1 to {stands}, each once")
        lost += [name for name in account["made"] if name not in nodes]
        names.update(account["made"], account["uncertain"])
        for name in account["made"] + account["uncertain"]:
            if creations.get(f"Node/{name}", 0) != (1 if name in nodes else 0):
                uneven.append(f"Node/{name} {'exists' if name in nodes else 'does not exist'} and has {creations.get(f'Node/{name}', 0)} creation events")
    untold = [name for name in nodes if name.startswith("u-") and name not in names]
    equal(f"none of {acknowledged} acknowledged writes is lost", lost[:5], [])
    equal("none was applied twice", twice[:5], [])
    equal("no node is there that nobody made", untold[:5], [])
    equal("each change has exactly one audit event, each event its change", uneven[:5], [])
    check("the events say what changed", bool(steps) or not acknowledged)
    revisions = [revision for account in accounts for revision in account["revisions"]]
    equal("no two acknowledged writes share a revision", len(set(revisions)), len(revisions))
    refusals = {}
    for account in accounts:
        for status, times in account["refusals"].items():
            refusals[status] = refusals.get(status, 0) + times
    say(f"      {acknowledged} acknowledged, {sum(a['unknown'] for a in accounts) + sum(len(a['uncertain']) for a in accounts)} cut off in flight,"
        f" refusals {refusals or 'none'}, slowest answer {max(a['slowest'] for a in accounts):.2f} s, {len(nodes)} nodes")
    api.close()


def changes_of(evidence):
    """The changes an audit event lists, wherever its evidence keeps them."""
    if isinstance(evidence, dict):
        evidence = evidence.get("changes", [])
    return evidence if isinstance(evidence, list) else []
