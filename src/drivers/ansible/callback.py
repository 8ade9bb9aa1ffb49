"""Prints the events of a playbook on standard output, one JSON object a line, as they happen. orrery's ansible executor reads them.

Every text is cut, and every result reduced to the parts for people, so that one host cannot flood the reader.
"""
import json
import os
import sys
import time

from ansible.plugins.callback import CallbackBase
from ansible.utils.unsafe_proxy import wrap_var

DOCUMENTATION = """
    name: orrery
    type: stdout
    short_description: events for orrery, one JSON object a line
    description: Events for orrery, one JSON object a line.
    requirements: [set as stdout_callback]
"""

TEXT = 16000      # characters of a message or of a program's output
ITEM_TEXT = 2000  # of those of one item of a loop
ITEMS = 50        # items of a loop whose text is reported
DIFF = 30000      # of each side of a difference
SHOWN = ("msg", "stdout", "stderr", "rc", "skip_reason", "module_stderr")
LINE = 900000     # characters of one event: the reader's limit is 1 MiB
OWN_KEYS = ("changed", "failed", "skipped", "invocation", "results", "diff", "warnings", "deprecations", "ansible_loop_var", "ansible_index_var", "ansible_loop")


def cut(value, length=TEXT):
    """At most `length` characters: the beginning and the end, which has the reason of a failure."""
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if len(text) <= length:
        return text
    half = length // 2
    return "%s\n... (%d characters left out) ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def shown(task, seen, length=TEXT):
    """The parts of a result that are for people. `debug: {var: x}` has its value under the variable's own name."""
    out = {}
    for key in SHOWN:
        if seen.get(key) not in (None, "", [], "All items completed"):
            out[key] = seen[key] if isinstance(seen[key], (int, bool)) else cut(seen[key], length)
    if str(task.action).rpartition(".")[2] == "debug" and "msg" not in out:
        own = (*OWN_KEYS, seen.get("ansible_loop_var"))
        values = {key: value for key, value in seen.items() if not key.startswith("_") and key not in own}
        if values:
            out["msg"] = cut("\n".join("%s: %s" % (key, cut(value, length)) for key, value in values.items()), length)
    return out


def target(result, seen, diff):
    """The subject of a difference. `after_header` is not used: copy and template set it to a temporary file of this host."""
    arguments = (getattr(result, "_task_fields", None) or {}).get("args") or {}
    looped = seen is not result._result  # the arguments are then those of the last item
    for found in (diff.get("before_header"), seen.get("dest"), seen.get("path"), *(() if looped else (arguments.get("dest"), arguments.get("path")))):
        if isinstance(found, str) and found:
            return found
    return result._task.get_name().strip() + (" (%s)" % label(seen) if looped else "")


def label(item):
    """The label of an item of a loop."""
    return cut(item.get("_ansible_item_label", item.get(item.get("ansible_loop_var", "item"), "")), 200)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "orrery"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.begun = {}

    def emit(self, event, **more):
        line = json.dumps({"event": event, **more}, default=str)
        if len(line) > LINE and "items" in more:
            line = json.dumps({"event": event, **{key: cut(value, 2000) if isinstance(value, str) else value for key, value in more.items() if key != "items"}}, default=str)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    # --- progress

    def v2_playbook_on_start(self, playbook):
        """Adds the task's environment to every play; the play's own environment wins. Values are data, not templates."""
        path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "environment.json")
        with open(path, encoding="utf-8") as file:
            environment = json.load(file)
        for play in playbook.get_plays() if environment else ():
            play.environment = [wrap_var(environment)] + list(play.environment or [])

    def v2_playbook_on_play_start(self, play):
        self.emit("play", name=cut(play.get_name().strip(), 200))

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.emit("task", id=str(task._uuid), name=cut(task.get_name().strip(), 200))

    def v2_playbook_on_handler_task_start(self, task):
        self.emit("task", id=str(task._uuid), name=cut(task.get_name().strip(), 200), handler=True)

    def v2_runner_on_start(self, host, task):
        self.begun[(host.get_name(), str(task._uuid))] = time.monotonic()
        self.emit("start", host=host.get_name(), id=str(task._uuid), name=cut(task.get_name().strip(), 200))

    def v2_playbook_on_no_hosts_matched(self):
        self.emit("no_hosts")

    def v2_playbook_on_no_hosts_remaining(self):
        self.emit("no_hosts_remaining")

    # --- results

    def result(self, event, result, **more):
        host, task, seen = result._host.get_name(), result._task, result._result
        out = {"host": host, "id": str(task._uuid), "name": cut(task.get_name().strip(), 200), "changed": bool(seen.get("changed", False))}
        begun = self.begun.pop((host, out["id"]), None)
        if begun is not None:
            out["seconds"] = round(time.monotonic() - begun, 3)
        if "censored" in seen or seen.get("_ansible_no_log") or getattr(task, "no_log", False):
            out["censored"] = True
        else:
            out.update(shown(task, seen))
            items = self.items(task, seen)
            if items:
                out["items"] = items
        self.emit(event, **out, **more)

    def items(self, task, seen):
        """The output of the items of a loop; failed items come first, because the number of items is limited."""
        results = seen.get("results")
        if not task.loop or not isinstance(results, list):
            return []
        found = [item for item in results if isinstance(item, dict) and not item.get("_ansible_no_log") and "censored" not in item]
        found.sort(key=lambda item: not item.get("failed"))
        out = []
        for item in found:
            text = shown(task, item, ITEM_TEXT)
            if text.keys() - {"rc", "skip_reason"} and len(out) < ITEMS:
                out.append({"item": label(item), "failed": bool(item.get("failed")), **text})
        return out

    def v2_runner_on_ok(self, result):
        self.result("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.result("failed", result, ignored=bool(ignore_errors))

    def v2_runner_on_unreachable(self, result):
        self.result("unreachable", result)

    def v2_runner_on_skipped(self, result):
        self.result("skipped", result)

    def v2_runner_retry(self, result):
        self.emit("retry", host=result._host.get_name(), id=str(result._task._uuid), name=cut(result._task.get_name().strip(), 200),
                 attempts=result._result.get("attempts", 0), retries=result._result.get("retries", 0))

    def v2_on_file_diff(self, result):
        if result._result.get("_ansible_no_log"):
            return
        found = result._result.get("results") if result._task.loop else [result._result]
        for item in found or []:
            diffs = item.get("diff") if isinstance(item, dict) and item.get("changed") else None
            for diff in (diffs if isinstance(diffs, list) else [diffs]):
                if not isinstance(diff, dict) or not diff:
                    continue
                self.emit("diff", host=result._host.get_name(), name=cut(result._task.get_name().strip(), 200),
                         subject=cut(target(result, item, diff), 300),
                         before=cut(diff.get("before", diff.get("prepared", "")), DIFF), after=cut(diff.get("after", ""), DIFF))

    def v2_playbook_on_stats(self, stats):
        self.emit("stats", hosts={host: stats.summarize(host) for host in sorted(stats.processed)})
