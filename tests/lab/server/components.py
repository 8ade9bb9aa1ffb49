#!/usr/bin/python3 -B
"""An exception in one component of the real server: it is stopped and started again, an alarm is raised, and the API and DNS continue meanwhile. One that fails too often stays down, and a
server that shares its store then gives up the leadership. The fault is injected: a library that is loaded into the server throws from the formatting of a job's progress while a file exists."""
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from networks import own_network  # noqa: E402
from orrery_lab import Etcd, Server, check, clean_environment, contains, equal, free_port, run, scratch, skip_unless, wait_until, write_file  # noqa: E402

# The status of a job has its progress, "3/7": the only two numbers that are formatted so.
FAULT = r"""
#define FMT_SHARED
#include <cstdlib>
#include <fmt/format.h>
#include <stdexcept>
#include <unistd.h>
FMT_BEGIN_NAMESPACE
std::string vformat(string_view text, format_args args) {
    const char* flag = getenv("LAB_FAULT");
    if (flag && text == string_view("{}/{}") && args.get(0).type() == detail::type::uint_type && ::access(flag, F_OK) == 0)
        throw std::runtime_error("a fault of the lab");
    memory_buffer out;
    detail::vformat_to(out, text, args);
    return to_string(out);
}
FMT_END_NAMESPACE
"""
OTHERS = ("api", "catalog", "dns", "executors", "gslb", "health", "garbage_collection", "publication", "server")


def fault():
    compiler = shutil.which("clang++-19") or shutil.which("g++")
    skip_unless(compiler and os.path.exists("/usr/include/fmt/format.h"), "there is no C++ compiler, or no libfmt-dev")
    source, library = write_file(os.path.join(scratch("fault"), "fault.cpp"), FAULT), os.path.join(scratch("fault"), "fault.so")
    subprocess.run([compiler, "-std=c++20", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    return library


class Faulty:
    """A server in which the component jobs can be made to fail."""

    def __init__(self, orrery, library, name, program, arguments=(), **more):
        self.flag = os.path.join(scratch("fault"), name)
        self.server = Server(orrery, name, arguments=["--jobs-programs", f"talk={program}", *arguments], environment=clean_environment(LD_PRELOAD=library, LAB_FAULT=self.flag), **more)

    def break_jobs(self):
        write_file(self.flag, "")

    def mend_jobs(self):
        os.unlink(self.flag)

    def metric(self, component, name="orrery_component_failed"):
        found = re.search(rf'^{name}{{component="{component}"}} (\S+)$', self.server.probe("/metrics")[1], re.M)
        return float(found[1]) if found else None

    def leads(self):
        return self.server.metrics().get("orrery_leader") == 1

    def submit(self, name):
        self.server.api().post("/v1/jobs", {"name": name, "spec": {"tasks": {"talk": {"run": {"local": {"program": "talk"}}}}}})

    def state_of(self, name):
        return self.server.api().get(f"/v1/jobs/{name}").get("status", {}).get("state")

    def alarms(self):
        return [event["spec"] for event in self.server.api().get("/v1/events?limit=1000")["items"] if event["spec"]["action"] == "component-failed"]


def answers(port):
    return subprocess.run(["dig", "+short", "+time=2", "+tries=1", "-p", str(port), "@127.0.0.1", "www.names.example", "A"], capture_output=True, text=True).stdout.split()


def serve_a_name(api):
    api.put("/v1/zones/names", {"spec": {"origin": "names.example", "nameservers": ["ns1.names.example"]}})
    api.put("/v1/pools/web", {"spec": {}})
    api.put("/v1/members/web-1", {"spec": {"pool": "web", "addresses": ["192.0.2.80"]}})
    api.put("/v1/loadbalancers/www", {"spec": {"fqdn": "www.names.example", "pools": [{"pool": "web"}]}})


def starts_again(orrery, library, program):
    dns = free_port()
    one = Faulty(orrery, library, "one", program, ["--dns-listen", f"127.0.0.1:{dns}"])
    one.server.start()
    api, process = one.server.api(), one.server.process.child.pid
    serve_a_name(api)
    if shutil.which("dig"):
        wait_until("a name is answered", lambda: answers(dns) == ["192.0.2.80"], 15)
    equal("all components run", (one.server.probe("/readyz"), one.metric("jobs")), ((200, "ready\n"), 0))
    one.break_jobs()
    one.submit("broken")
    wait_until("the component jobs fails", lambda: one.metric("jobs") == 1, 15)
    contains("/readyz reports it, and is ready", str(one.server.probe("/readyz")), "200", "degraded: component jobs", "a fault of the lab")
    api.put("/v1/nodes/meanwhile", {"spec": {"address": "192.0.2.1"}})
    equal("the API accepts writes, and no other component failed", [name for name in OTHERS if one.metric(name) != 0], [])
    if shutil.which("dig"):
        equal("the name is answered", answers(dns), ["192.0.2.80"])
    wait_until("an event names the component and the reason", lambda: any(alarm["subject"] == "Server/one" and alarm["reason"] == "a fault of the lab" and alarm["evidence"]["component"] == "jobs" for alarm in one.alarms()), 5)
    one.mend_jobs()
    wait_until("without the fault it runs again", lambda: one.metric("jobs") == 0 and one.server.probe("/readyz") == (200, "ready\n"), 30)
    wait_until("and continues the job", lambda: one.state_of("broken") == "succeeded", 30)
    contains("the log has the component's name", one.server.log_text(), "component jobs failed", "component jobs starts again")
    equal("it is the same process", (one.server.process.alive(), one.server.process.child.pid), (True, process))
    one.server.stop()
    equal("and the job succeeds", one.server.process.child.returncode, 0)


def stays_down(orrery, library, program):
    alone = Faulty(orrery, library, "alone", program)
    alone.server.start()
    alone.break_jobs()
    alone.submit("broken")
    wait_until("after five failures in a row it stays down", lambda: "component jobs is down after 5 failures in a row" in alone.server.probe("/readyz")[1], 60)
    equal("its failures are counted", alone.metric("jobs", "orrery_component_failures_total"), 5)
    equal("a single server keeps the leadership, for the other components", alone.leads(), True)
    alone.server.api().put("/v1/nodes/after", {"spec": {"address": "192.0.2.2"}})
    alone.server.stop()


def gives_up_the_lead(orrery, library, program):
    etcd, key = Etcd(1), ["--secrets-key-file", os.path.join(scratch(), "shared.key")]
    first = Faulty(orrery, library, "first", program, key, store_url=etcd.url("components"))
    second = Faulty(orrery, library, "second", program, key, store_url=etcd.url("components"))
    first.server.start()
    wait_until("the first server leads", first.leads, 20)
    second.server.start()
    first.break_jobs()
    first.submit("broken")
    wait_until("its component jobs stays down", lambda: "component jobs is down" in first.server.probe("/readyz")[1], 60)
    wait_until("the other server leads then", second.leads, 20)
    equal("the first server does not lead", first.leads(), False)
    wait_until("and the job ends there", lambda: second.state_of("broken") in ("succeeded", "failed"), 60)
    contains("the first server reports the reason", first.server.log_text(), "leadership lost: role=controllers reason=its component jobs failed 5 times in a row")
    second.server.kill()
    began = time.monotonic()
    wait_until("where no other server is left, the first leads again", first.leads, 60)
    check("but not immediately", time.monotonic() - began > 10, time.monotonic() - began)
    first.server.stop()
    etcd.stop()


def main(given):
    own_network(__file__)
    library = fault()
    program = write_file(os.path.join(scratch(), "talk"), "#!/bin/sh\nfor i in 1 2 3 4; do echo line $i; sleep 0.5; done\n", 0o755)
    starts_again(given.orrery, library, program)
    stays_down(given.orrery, library, program)
    gives_up_the_lead(given.orrery, library, program)


if __name__ == "__main__":
    run(main)
