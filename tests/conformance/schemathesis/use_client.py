"""Uses a client that openapi-python-client has generated, as its users do: FOLDER URL TOKEN BODIES. Prints a line for each
operation: its name, a tab, and "ok" or the actual result."""
import importlib
import json
import sys
import time

folder, url, token, bodies = sys.argv[1:5]
sys.path.insert(0, folder)
made = importlib.import_module("made")
models = importlib.import_module("made.models")
client = made.AuthenticatedClient(base_url=url, token=token)


def snake(text):
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(text)).lstrip("_")


def operation(name):
    """The module of an operation, wherever the client put it."""
    import glob
    import os
    found = glob.glob(os.path.join(folder, "made", "api", "*", name + ".py"))
    return importlib.import_module(f"made.api.{os.path.basename(os.path.dirname(found[0]))}.{name}")


def tried(what, call, good, inspect=lambda parsed: True):
    try:
        answer = call()
        right = int(answer.status_code) in good and type(answer.parsed).__name__ != "Problem" and inspect(answer.parsed)
        print(f"{what}\t{'ok' if right else f'{answer.status_code} {answer.parsed}'}")
    except Exception as error:  # noqa: BLE001: whatever the client throws is what is looked for
        print(f"{what}\t{type(error).__name__}: {error}")


CREATED_BY_PUT = ("Secret", "Node", "Service", "Monitor", "Pool", "Member", "RollingRule")
for kind, spec in json.loads(bodies).items():
    name = kind.lower()
    once = snake(kind)
    request = getattr(models, kind + "Request").from_dict({"kind": kind, "name": name, "spec": spec})
    tried(f"{kind}: create", lambda: operation(f"create_{once}").sync_detailed(client=client, body=request), {201}, lambda parsed: parsed.object_.name == name)
    tried(f"{kind}: read", lambda: operation(f"read_{once}").sync_detailed(name, client=client), {200}, lambda parsed: parsed.name == name)
    replacement = getattr(models, kind + "Replacement").from_dict({"spec": spec, "labels": {"by": "client"}})
    tried(f"{kind}: replace", lambda: operation(f"replace_{once}").sync_detailed(name, client=client, body=replacement), {200}, lambda parsed: parsed.outcome in ("updated", "unchanged"))
    if kind in CREATED_BY_PUT:
        tried(f"{kind}: a PUT that creates", lambda: operation(f"replace_{once}").sync_detailed(name + "-2", client=client, body=replacement), {201}, lambda parsed: parsed.outcome == "created")
    plural = name if name.endswith("s") else name + "s"
    tried(f"{kind}: list", lambda: operation(f"list_{plural}").sync_detailed(client=client), {200}, lambda parsed: name in [item.name for item in parsed.items])
for kind in reversed(json.loads(bodies)):
    if kind == "Job":  # it waits for an approval: a job that has not ended is not deleted
        operation("post_jobs_cancel").sync_detailed("job", client=client)
        while operation("read_job").sync_detailed("job", client=client).parsed.status.to_dict()["state"] != "cancelled":
            time.sleep(0.1)
    for name in [kind.lower() + "-2"] * (kind in CREATED_BY_PUT) + [kind.lower()]:
        tried(f"{kind}: delete {name}", lambda name=name: operation(f"delete_{snake(kind)}").sync_detailed(name, client=client), {200}, lambda parsed: parsed.outcome == "removed")
missing = operation("read_node").sync_detailed("nope", client=client)
print(f"what is not there is a Problem\t{'ok' if type(missing.parsed).__name__ == 'Problem' and missing.parsed.code == 'not_found' else missing.parsed}")
