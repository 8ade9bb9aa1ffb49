#!/usr/bin/python3 -B
"""The examples of the documentation are run (README and tutorial: first_minutes.py): the job of jobs.md and every body of executors.md as plans, examples/gates.yaml to its end."""
import os
import re
import shutil
import subprocess
import sys
import textwrap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Server, check, contains, equal, run, scratch, write_file  # noqa: E402

TREE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))


def text_of(name):
    with open(os.path.join(TREE, "docs", name)) as file:
        return file.read()


def blocks(text, language="yaml"):
    return [textwrap.dedent(found) for found in re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.S | re.M)]


def jobs_page(cli):
    text = text_of("jobs.md")
    cli.ok("apply", "-f", "-", stdin="".join(f"{{kind: Node, name: {role}-1, labels: {{role: {role}}}, spec: {{address: 192.0.2.1}}}}\n---\n" for role in ("db", "oc", "lb", "storage"))
           + "".join(f"{{kind: Service, name: {name}, spec: {{port: 1}}}}\n---\n" for name in ("mysql", "keystone"))[:-4])
    first = next(block for block in blocks(text) if block.startswith("kind: Job"))
    path = write_file(os.path.join(scratch("jobs"), "bring-up.yaml"), first)
    contains("the job of jobs.md is accepted", cli.ok("job", "plan", "-f", path, "--simulate"), "plan ", "haproxy", "predicted: ")
    task = next(block for block in blocks(text) if "artefacts:" in block)
    contains("and its task with artefacts", cli.ok("job", "plan", "-f", "-", stdin="kind: Job\nname: one\nspec:\n  tasks:\n" + textwrap.indent(task, "    ")), "benchmark")
    rule = next(block for block in blocks(text) if block.startswith("kind: RollingRule"))
    contains("and its rule", cli.ok("apply", "-f", "-", stdin=rule), "rollingrule/compute created")
    template = next(block for block in blocks(text_of("job-templates.md")) if block.startswith("kind: JobTemplate"))
    contains("the template of job-templates.md is accepted", cli.ok("apply", "-f", "-", stdin=template), "jobtemplate/restart created")
    known = cli.ok("job", "--help")
    for name in re.split(r"\s*\|\s*", re.search(r"`orrery job ([a-z |\n]+)`", text_of("job-reference.md")).group(1)):
        contains(f"there is a command job {name}", known, name)


def executors_page(cli):
    text = text_of("executors.md")
    node = next(block for block in blocks(text) if block.startswith("kind: Node"))
    cli.ok("apply", "-f", "-", stdin="{kind: Secret, name: site-key, spec: {values: {private_key: none}}}\n---\n{kind: Secret, name: vault, spec: {values: {password: none-at-all}}}\n---\n{kind: Secret, name: api, spec: {values: {token: none-at-all}}}\n---\n"
           "{kind: Node, name: gate-1, spec: {address: 192.0.2.1}}")
    key = cli("apply", "-f", "-", stdin=node.replace("AAAA...", "AAAAC3NzaC1lZDI1NTE5AAAAIJ1wB7vY0sY0rQ8yqk8n0fZ0K6zvV1k5o6xV4m3bq2aT"))
    check("the Node of executors.md applies", key.status == 0, str(key))
    bodies = [part for block in blocks(text) for part in re.split(r"^(?=[a-z]+:)", block, flags=re.M) if re.match(r"(ssh|ansible|puppet|http|local):", part)]
    check(f"executors.md shows {len(bodies)} bodies", len(bodies) >= 9)
    tasks = ""
    for number, body in enumerate(bodies):
        on = "" if body.startswith(("http", "local")) else "      on: [web-1]\n"
        tasks += f"    - name: t{number}\n{on}      run:\n" + textwrap.indent(body, "        ") + "\n"
    for name in re.findall(r"(?:playbook|manifest|hiera): *([^ ,}\n]+)", tasks) + [name.strip() for names in re.findall(r"modules: *\[([^]]*)\]", tasks) for name in names.split(",")]:
        os.makedirs(os.path.dirname(os.path.join(scratch("content"), name)), exist_ok=True)
        write_file(os.path.join(scratch("content"), name), "")
    planned = cli("job", "plan", "-f", "-", stdin="kind: Job\nname: all\nspec:\n  tasks:\n" + tasks)
    check("and each is accepted", planned.status == 0, str(planned))


def documents_of(path):
    """Job files that a page or an example shows: (line, text) of each YAML document that is a Job or a JobTemplate."""
    with open(path) as file:
        text = file.read()
    if not path.endswith(".md"):
        pieces = [(1, text)]
    else:
        pieces = [(text.count("\n", 0, found.start(1)) + 1, textwrap.dedent(found.group(1))) for found in re.finditer(r"^ *```yaml\n(.*?)^ *```", text, re.S | re.M)]
        pieces += [(text.count("\n", 0, found.start(2)) + 1, found.group(2)) for found in re.finditer(r"<<'?([A-Z]+)'?[^\n]*\n(.*?)^ *\1$", text, re.S | re.M)]
    out = []
    for line, piece in pieces:
        for part in re.split(r"^---\n", piece, flags=re.M):
            if re.search(r"^kind: (Job|JobTemplate)$", part, re.M):
                out.append((line, part))
    return out


def safe_forms(cli):
    """Every job in docs/ and examples/ passes the check of the positions of values. Other names in it (nodes, services, files) need not exist: only
    refusals that are about values count."""
    unsafe = re.compile(r"could become code|\} is in |is reserved: names|would evaluate|not closed|is not known; values begin with|expands nothing")
    seen = 0
    for folder, _, names in sorted(os.walk(TREE)):
        if not folder.startswith((os.path.join(TREE, "docs"), os.path.join(TREE, "examples"))) and folder != TREE:
            continue
        for name in sorted(names):
            if not name.endswith((".md", ".yaml", ".yml")):
                continue
            path = os.path.join(folder, name)
            for line, document in documents_of(path):
                seen += 1
                asked = cli("apply", "--dry-run", "-f", "-", stdin=document)
                wrong = unsafe.search(asked.err + asked.out)
                check(f"{os.path.relpath(path, TREE)}:{line} uses the safe forms", not wrong, str(asked))
    check(f"{seen} jobs were checked", seen >= 8)


UNSAFE = [  # the tasks of a job file, the line that the error names, its message
    ("ssh: {shell: python3, script: \"print('${node.name}')\"}", "spec.tasks[1].run.ssh.script", ["${node.name} is in a program for python3", "pass it by env, with or arguments"]),
    ("puppet: {code: \"notify { '${node.name}': }\"}", "spec.tasks[1].run.puppet.code", ["contains ${node.name}, and the value could become code", "pass the value in `with` or `data` and read it with lookup()"]),
    ("ansible: {playbook: site.yml, variables: {ansible_connection: local}}", "spec.tasks[1].run.ansible.variables.ansible_connection", ["is reserved: names that begin with ansible_ or orrery_"]),
    ("ssh: {blocks: [{template: {path: /x, content: \"{{ join(${node.name}, 1) }}\"}}]}", "spec.tasks[1].run.ssh.blocks[0].template.content", ["is in an expression of the template", "bind it with `with: {name: \"${node.name}\"}`"]),
    ("ssh: {script: \"true\\neval echo ${node.name}\"}", "spec.tasks[1].run.ssh.script", ["line 2 of the script", "is in program text (eval)", "pass it as an argument of that program, or by env"]),
    ("ssh: {script: \"true\\nsed -i s/^host=.*/host=${node.name}/ /etc/x\"}", "spec.tasks[1].run.ssh.script", ["line 2 of the script", "is in program text (sed)", "pass it as an argument of that program, or by env"]),
    ("ssh: {script: \"echo '${node.name}'\"}", "spec.tasks[1].run.ssh.script", ["in single quotes", "use double quotes"]),
    ("ssh: {script: \"echo $((${node.labels.n} + 1))\"}", "spec.tasks[1].run.ssh.script", ["in arithmetic", "assign it to a variable first"]),
]


def unsafe_forms(cli):
    """A job file with an unsafe form is refused: the line of the file, the field, the safe form."""
    folder = scratch("unsafe")
    os.makedirs(scratch("content"), exist_ok=True)
    write_file(os.path.join(scratch("content"), "site.yml"), "")
    for number, (run_as, field, parts) in enumerate(UNSAFE):
        path = write_file(os.path.join(folder, f"unsafe-{number}.yaml"), f"kind: Job\nname: unsafe\nspec:\n  tasks:\n    - name: first\n    - name: second\n      on: [web-1]\n      run:\n        {run_as}\n")
        for command in (("job", "plan", "-f", path), ("apply", "-f", path)):
            refused = cli(*command)
            check(f"{' '.join(command[:-1])}: refused", refused.status != 0, str(refused))
            contains(f"with the line, the field and the safe form: {run_as[:50]}", refused.err, f"{path}:9: {field}", *parts)
    path = write_file(os.path.join(folder, "template.yaml"), "kind: JobTemplate\nname: unsafe\nspec:\n  parameters: [{name: x, default: a}]\n  job:\n    tasks:\n      - name: one\n        on: web\n"
                      "        run:\n          ssh:\n            shell: python3\n            script: print('${param.x}')\n")
    refused = cli("apply", "-f", path)
    contains("a template with one too", refused.err, f"{path}:12: spec.job.tasks[0].run.ssh.script", "${param.x} is in a program for python3", "pass it by env")
    equal("and nothing was stored", [name for name in ("job", "jobtemplate") if cli("get", name, "unsafe").status == 0], [])


def reference_pages(cli, server):
    """The pages that list things list all of them."""
    kinds = [line.split()[0] for line in cli.ok("kinds").splitlines()[1:]]
    listed = re.findall(r"^\| (\w+) \|", text_of("resources.md"), re.M)
    equal("resources.md lists every kind", [kind for kind in kinds if kind not in listed], [])
    sections = re.findall(r"^#([a-z_]+):", cli.ok("config", "default"), re.M)
    listed = re.findall(r"`([a-z_]+)`", "".join(line.split("|")[1] for line in text_of("configuration.md").splitlines() if line.startswith("| `")))
    equal("configuration.md lists every section", [section for section in sections if section not in listed], [])
    manual = cli.ok("man").replace("\\-", "-")
    commands_known = [re.sub(r" +(\[|[A-Z]).*", "", line) for line in re.findall(r"^\.SS orrery (.*)$", manual, re.M)] + re.findall(r"orrery (server|checker)\\fR", manual)
    page = text_of("cli.md")
    groups = {}
    for row in re.findall(r"^\| (`.*`) \| ", page, re.M):
        for shown in re.findall(r"`([^`]+)`", row):
            words = shown.replace("\\|", "|").split()
            groups.setdefault(words[0], set()).update(words[1].split("|") if len(words) > 1 else [""])
    missing = [command for command in commands_known if command.split()[0] not in groups or (" " in command and command.split()[1] not in groups[command.split()[0]])]
    equal(f"cli.md lists all {len(commands_known)} commands", missing, [])
    for page_name, headings in (("coming-from.md", ("Ansible", "Puppet", "Consul", "Nomad", "Kubernetes", "gdnsd", "Terraform", "Salt")),
                                ("operations.md", ("The first login", "A lost password", "Ports", "Sizing", "Behind a reverse proxy", "Upgrade", "Alerts"))):
        text = text_of(page_name)
        equal(f"{page_name} has a section on each topic", [heading for heading in headings if not re.search(rf"^##+ (From )?{heading}$", text, re.M)], [])
    ports = re.findall(r"^\| \d+/.*? \| `([a-z_.]+)` \|", text_of("operations.md"), re.M)
    listeners = [name for name in re.findall(r"^\s*([a-z_.]+\.listen)\s", cli.ok("config", "show", "-f", "/dev/null"), re.M)]
    equal("operations.md lists the port of every listener", sorted(set(listeners) - set(ports)), [])
    metrics = server.probe("/metrics")[1]
    with open(os.path.join(TREE, "share", "alerts", "orrery.rules.yml")) as file:
        rules = file.read()
    named = set(re.findall(r"\b((?:orrery|process)_[a-z_]+)\b(?=[{ ])", "\n".join(re.findall(r"expr: (.*)", rules))))
    equal(f"the alert rules use {len(named)} metrics that exist", sorted(name for name in named if f"# TYPE {name} " not in metrics), [])
    for rule in re.findall(r"alert: (\w+)", rules):
        contains(f"operations.md explains the alert {rule}", text_of("operations.md"), rule)
    if shutil.which("promtool"):
        checked = subprocess.run(["promtool", "check", "rules", os.path.join(TREE, "share", "alerts", "orrery.rules.yml")], capture_output=True, text=True)
        equal("promtool accepts the alert rules", checked.returncode, 0)


def gates(cli):
    path = os.path.join(TREE, "examples", "gates.yaml")
    digest = cli.ok("job", "submit", "-f", path).split("plan ")[1].strip()
    contains("examples/gates.yaml: its tasks", cli.ok("job", "show", "gates"), "prepared", "go", "over")
    cli.ok("job", "approve", "gates", "go", "--digest", digest)
    contains("and it ends", cli.ok("job", "wait", "gates"), "job gates succeeded")


def picture(orrery):
    """docs/pictures/jiocloud.svg is what `job graph` draws of examples/jiocloud.yaml: after a change of either, copy it from the scratch folder that is named."""
    server = Server(orrery, name="picture")
    server.start()
    cli = Cli(orrery, server, HOME=scratch("home-picture"), XDG_CONFIG_HOME=scratch("home-picture")).login(server)
    with open(os.path.join(TREE, "examples", "jiocloud.yaml")) as file:
        site = file.read()
    before, job = site.split("kind: Job\n")
    job = job.replace("spec:\n", "spec:\n  approve: true\n", 1)  # nothing of it begins
    cli.ok("apply", "-f", "-", stdin='{kind: Secret, name: site-key, spec: {values: {private_key: "none"}}}')
    cli.ok("apply", "-f", os.path.join(TREE, "examples", "jiocloud-nodes.yaml"))
    cli.ok("apply", "-f", "-", stdin=f"{before}kind: Job\n{job}")
    drawn = cli.ok("job", "graph", "jiocloud", "-o", "svg")
    path = write_file(os.path.join(scratch("picture"), "jiocloud.svg"), drawn)
    with open(os.path.join(TREE, "docs", "pictures", "jiocloud.svg")) as file:
        check(f"docs/pictures/jiocloud.svg is {path}", file.read() == drawn)
    equal("the server that drew it stops", server.stop(), 0)


def main(given):
    backup = write_file(os.path.join(scratch("programs"), "backup"), "#!/bin/sh\n", 0o700)
    server = Server(given.orrery, arguments=["--jobs-programs", f"backup={backup}", "--jobs-content", scratch("content")])
    server.start()
    cli = Cli(given.orrery, server, HOME=scratch("home"), XDG_CONFIG_HOME=scratch("home")).login(server)
    jobs_page(cli)
    executors_page(cli)
    safe_forms(cli)
    unsafe_forms(cli)
    gates(cli)
    reference_pages(cli, server)
    picture(given.orrery)
    equal("it stops on SIGTERM", server.stop(), 0)


if __name__ == "__main__":
    run(main)
