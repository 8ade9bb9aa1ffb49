"""Says on standard output what happens in a playbook, one JSON object a line, as it happens. orrery's ansible executor reads it.

Every text is cut to a length and every result to the parts that people ask for, so that one host's answer cannot flood the other end.
"""
import json
import sys
import time

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: orrery
    type: stdout
    short_description: events for orrery, one JSON object a line
    description: Events for orrery, one JSON object a line.
    requirements: [set as stdout_callback]
"""

TEXT = 4000   # characters of a message or of a program's output
DIFF = 30000  # of each side of a difference


def cut(value, length=TEXT):
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= length else text[:length] + "... (%d more characters)" % (len(text) - length)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "orrery"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.begun = {}

    def say(self, event, **more):
        sys.stdout.write(json.dumps({"event": event, **more}, default=str) + "\n")
        sys.stdout.flush()

    # --- what is being done

    def v2_playbook_on_play_start(self, play):
        self.say("play", name=cut(play.get_name().strip(), 200))

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.say("task", id=str(task._uuid), name=cut(task.get_name().strip(), 200))

    def v2_playbook_on_handler_task_start(self, task):
        self.say("task", id=str(task._uuid), name=cut(task.get_name().strip(), 200), handler=True)

    def v2_runner_on_start(self, host, task):
        self.begun[(host.get_name(), str(task._uuid))] = time.monotonic()
        self.say("start", host=host.get_name(), id=str(task._uuid), name=cut(task.get_name().strip(), 200))

    def v2_playbook_on_no_hosts_matched(self):
        self.say("no_hosts")

    def v2_playbook_on_no_hosts_remaining(self):
        self.say("no_hosts_remaining")

    # --- how it went

    def result(self, event, result, **more):
        host, task, seen = result._host.get_name(), result._task, result._result
        out = {"host": host, "id": str(task._uuid), "name": cut(task.get_name().strip(), 200), "changed": bool(seen.get("changed", False))}
        begun = self.begun.pop((host, out["id"]), None)
        if begun is not None:
            out["seconds"] = round(time.monotonic() - begun, 3)
        if seen.get("_ansible_no_log") or getattr(task, "no_log", False):
            out["censored"] = True
        else:
            for key in ("msg", "stdout", "stderr", "rc", "skip_reason", "module_stderr"):
                if seen.get(key) not in (None, ""):
                    out[key] = seen[key] if isinstance(seen[key], (int, bool)) else cut(seen[key])
            failed = [cut(item.get("msg", ""), 500) for item in seen.get("results", []) if isinstance(item, dict) and item.get("failed")]
            if failed:
                out["items"] = failed[:10]
        self.say(event, **out, **more)

    def v2_runner_on_ok(self, result):
        self.result("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.result("failed", result, ignored=bool(ignore_errors))

    def v2_runner_on_unreachable(self, result):
        self.result("unreachable", result)

    def v2_runner_on_skipped(self, result):
        self.result("skipped", result)

    def v2_runner_retry(self, result):
        self.say("retry", host=result._host.get_name(), id=str(result._task._uuid), name=cut(result._task.get_name().strip(), 200),
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
                self.say("diff", host=result._host.get_name(), name=cut(result._task.get_name().strip(), 200),
                         what=cut(diff.get("after_header") or diff.get("before_header") or result._task.get_name().strip(), 300),
                         before=cut(diff.get("before", diff.get("prepared", "")), DIFF), after=cut(diff.get("after", ""), DIFF))

    def v2_playbook_on_stats(self, stats):
        self.say("stats", hosts={host: stats.summarize(host) for host in sorted(stats.processed)})
