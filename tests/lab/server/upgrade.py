#!/usr/bin/python3
"""A store that an earlier version wrote (recorded_store/, made by record.py) starts under this version: every resource, event, decision and job is there, no
value of it is lost, renamed fields have their new names, and recorded decisions can still be replayed. A second start finds nothing to migrate."""
import collections
import gzip
import json
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402

RECORDED = os.path.join(here, "recorded_store")
# Names that this version replaced, by kind: none may be left in a spec. "*" means all kinds.
REPLACED = {"Monitor": {"fast", "slow", "least_left", "least", "most"}, "Pool": {"most"}, "Publisher": {"look_every"}, "Event": {"what", "because"}}


def recorded(name):
    with gzip.open(os.path.join(RECORDED, name)) as file:
        return file.read()


def leaves(value, path=""):
    """Every scalar below a value. Their paths change when fields are renamed; their number and values must not."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, path)
    else:
        yield path, value


def lost_values(before, after):
    """(path, value) of the values in `before` that are missing in `after`."""
    left = collections.Counter(json.dumps(value) for _, value in leaves(after))
    lost = []
    for path, value in leaves(before):
        text = json.dumps(value)
        if left[text] == 0:
            lost.append((path, value))
        left[text] -= 1
    return lost


def keys(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def compare(plural, before, after):
    now = {item["name"]: item for item in after}
    lab.equal(f"{plural}: all {len(before)} are there", [item["name"] for item in before if item["name"] not in now], [])
    lost, old_names = [], []
    for item in before:
        seen = now[item["name"]]
        lost += [(item["name"], *one) for part in ("spec", "labels") for one in lost_values(item.get(part, {}), seen.get(part, {}))]
        if item.get("created_at") != seen.get("created_at"):
            lost.append((item["name"], "created_at", item.get("created_at")))
        old_names += [f"{item['name']}: {key}" for key in keys(seen.get("spec", {})) if key in REPLACED.get(item["kind"], ())]
    lab.equal(f"{plural}: no value is lost", lost[:10], [])
    lab.equal(f"{plural}: no replaced name is left", old_names[:10], [])


def jobs_are_readable(api, before):
    for name, page in before.items():
        states = [(task["name"], task["state"]) for task in page["tasks"]]
        lab.equal(f"job {name}: its tasks are in their states", [(task["name"], task["state"]) for task in api.get(f"/v1/jobs/{name}/tasks")["tasks"]], states)
        lab.check(f"job {name} can be explained", bool(api.get(f"/v1/why/job/{name}")))


def decisions_can_be_replayed(api, decisions):
    """Through `why` at the time of each: the server decides again from the recorded inputs."""
    newest = {(one["spec"]["loadbalancer"], one["spec"]["at"]): one["spec"] for one in sorted(decisions, key=lambda one: one["spec"]["seq"])}
    lab.check(f"there are {len(newest)} recorded decisions", len(newest) >= 5)
    for (balancer, at), record in newest.items():
        answer = api.get(f"/v1/loadbalancers/{balancer}/why?at={at}")
        lab.check(f"{balancer} #{record['seq']} is replayed with the same result", answer["replayed_exactly"] and answer["decision"] == record["after"], answer)


def main(given):
    objects = json.loads(recorded("objects.json.gz"))
    folder = lab.scratch("data-upgraded")
    lab.write_file(os.path.join(folder, "store.db"), recorded("store.db.gz"))
    with open(os.path.join(RECORDED, "secrets.key"), "rb") as key:
        lab.write_file(os.path.join(folder, "secrets.key"), key.read())
    server = lab.Server(given.orrery, "recorded", folder=folder)
    server.start()
    api = server.api()
    tasks = objects.pop("tasks")
    for plural, before in objects.items():
        compare(plural, [one for one in before if one["kind"] != "Token" or one["spec"].get("description") == "reads"], api.all(plural))
    decisions_can_be_replayed(api, api.all("decisions"))
    jobs_are_readable(api, tasks)
    lab.equal("the log has no errors", server.error_lines(), [])
    lab.check("the log reports the migration", "migrated" in server.log_text() or "rewritten" in server.log_text(), server.log_text()[:2000])
    server.stop()
    server.start()
    for plural in ("monitors", "events", "decisions"):
        compare(plural, objects[plural], server.api().all(plural))
    lab.equal("it stops", server.stop(), 0)


if __name__ == "__main__":
    lab.run(main)
