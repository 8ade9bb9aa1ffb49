"""Real OpenStack servers from the distribution's packages, each in a temporary folder and on a free port of loopback: Keystone, Designate, Octavia."""
import contextlib
import http.client
import json
import os
import sqlite3
import subprocess
import time

import orrery_lab as lab


class Keystone:
    """keystone under uwsgi, with SQLite, in processes and not threads, because its SQLite does not support threads."""

    def __init__(self):
        self.manage, self.uwsgi = lab.program("keystone-manage", "keystone"), lab.program("uwsgi", "uwsgi-core")
        self.folder = lab.scratch("keystone")
        self.port = lab.free_port()
        self.url = f"http://127.0.0.1:{self.port}/v3"
        self.process = None
        self.token = None
        for name in ("fernet", "credential", "receipts"):
            os.makedirs(os.path.join(self.folder, name), mode=0o700)
        self.configure(3600)
        begin = time.monotonic()
        me = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        own = ["--keystone-user", me, "--keystone-group", me]
        self.run("db_sync")
        self.run("fernet_setup", *own)
        self.run("credential_setup", *own)
        self.run("bootstrap", "--bootstrap-password", "keystone-admin", "--bootstrap-region-id", "RegionOne", "--bootstrap-public-url", self.url + "/",
                 "--bootstrap-internal-url", self.url + "/")
        with contextlib.closing(sqlite3.connect(self.database)) as database:
            database.execute("PRAGMA journal_mode=WAL")
        lab.log(f"keystone prepared in {time.monotonic() - begin:.0f} s")

    @property
    def database(self):
        return os.path.join(self.folder, "keystone.sqlite")

    @property
    def configuration(self):
        return os.path.join(self.folder, "keystone.conf")

    def configure(self, token_seconds):
        """The cache lasts for one request, in which it saves nine tenths of some 500 queries: without it every call of a service whose token is
        checked takes a second of CPU time."""
        f = self.folder
        lab.write_file(self.configuration, f"""[DEFAULT]
log_file = {f}/keystone.log
[database]
connection = sqlite:///{self.database}?timeout=60
sqlite_synchronous = false
[token]
provider = fernet
expiration = {token_seconds}
[fernet_tokens]
key_repository = {f}/fernet
[fernet_receipts]
key_repository = {f}/receipts
[credential]
key_repository = {f}/credential
[cache]
enabled = true
backend = dogpile.cache.null
[identity]
password_hash_rounds = 4
""")

    def run(self, *arguments):
        done = subprocess.run([self.manage, "--config-file", self.configuration, *arguments], capture_output=True, text=True, env=lab.clean_environment(), timeout=300)
        if done.returncode != 0:
            raise lab.Failed(f"keystone-manage {arguments[0]} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}")

    def start(self):
        self.process = lab.Process("keystone", [
            self.uwsgi, "--plugin", "python3", "--http-socket", f"127.0.0.1:{self.port}", "--wsgi-file", "/usr/bin/keystone-wsgi-public", "--processes", "2",
            "--lazy-apps", "--master", "--die-on-term", "--need-app", "--buffer-size", "65535", "--disable-logging",
            "--add-header", "Connection: close"], lab.clean_environment(OS_KEYSTONE_CONFIG_FILES=self.configuration))
        lab.wait_until("keystone answers", self.answers, 120, 0.2)

    def answers(self):
        if not self.process.alive():
            raise lab.Failed("keystone does not start")
        try:
            return self.call("GET", "", token=None)[0] == 200
        except OSError:
            return False

    def stop(self):
        self.process.stop(30)

    def call(self, method, path, body=None, token="admin", headers=None):
        """(status, headers, document)"""
        sent = {"Content-Type": "application/json", **(headers or {})}
        if token == "admin":
            token = self.token
        if token:
            sent["X-Auth-Token"] = token
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, "/v3" + path, json.dumps(body) if body is not None else None, sent)
            answer = connection.getresponse()
            text = answer.read()
        return answer.status, answer.headers, json.loads(text) if text.startswith(b"{") else {}

    def make(self, what, **fields):
        """Creates a domain, project, user or role and returns its id."""
        status, _, document = self.call("POST", f"/{what}s", {what: fields})
        if status != 201:
            raise lab.Failed(f"Keystone does not create the {what} {fields}: {status} {document}")
        return document[what]["id"]

    def grant(self, role, user, project):
        status, _, document = self.call("PUT", f"/projects/{project}/users/{user}/roles/{role}")
        if status != 204:
            raise lab.Failed(f"Keystone does not grant a role: {status} {document}")

    def log_in(self, user, password, project=None, domain="Default", project_domain="Default"):
        """A token, with or without a project."""
        auth = {"identity": {"methods": ["password"], "password": {"user": {"name": user, "domain": {"name": domain}, "password": password}}}}
        if project:
            auth["scope"] = {"project": {"name": project, "domain": {"name": project_domain}}}
        status, headers, document = self.call("POST", "/auth/tokens", {"auth": auth}, token=None)
        if status != 201:
            raise lab.Failed(f"Keystone does not log {user} in: {status} {document}")
        return headers["X-Subject-Token"]

    def revoke(self, token):
        return self.call("DELETE", "/auth/tokens", headers={"X-Subject-Token": token})[0]


def authtoken(keystone, name, folder):
    """The settings with which a service validates tokens at Keystone; its user has the name of the service."""
    locks = os.path.join(folder, "locks")
    os.makedirs(locks, exist_ok=True)
    return f"""[keystone_authtoken]
www_authenticate_uri = {keystone.url}
auth_url = {keystone.url}
auth_type = password
username = {name}
password = {name}
project_name = service
user_domain_name = Default
project_domain_name = Default
service_token_roles_required = false
token_cache_time = -1
[oslo_policy]
enforce_scope = false
enforce_new_defaults = false
[oslo_concurrency]
lock_path = {locks}
"""


def register(keystone, service, kind, url):
    """A service user, the service and its endpoint in the catalog; the id of the project "service"."""
    roles = {role["name"]: role["id"] for role in keystone.call("GET", "/roles")[2]["roles"]}
    projects = {project["name"]: project["id"] for project in keystone.call("GET", "/projects")[2]["projects"]}
    project = projects.get("service") or keystone.make("project", name="service", domain_id="default")
    user = keystone.make("user", name=service, domain_id="default", password=service)
    keystone.grant(roles["admin"], user, project)
    made = keystone.make("service", type=kind, name=service)
    status, _, document = keystone.call("POST", "/endpoints", {"endpoint": {"interface": "public", "region_id": "RegionOne", "service_id": made, "url": url}})
    if status != 201:
        raise lab.Failed(f"Keystone refuses the endpoint: {status} {document}")
    return project


class Service:
    """An OpenStack service on a port of its own, with calls that carry `token`."""

    def __init__(self, name, port):
        self.name, self.port, self.process = name, port, None

    def call(self, method, path, body=None, token=None):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json", "X-Auth-Token": token or ""})
            answer = connection.getresponse()
            text = answer.read()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else {}

    def wait_for(self, path, status, seconds=120):
        def answers():
            if not self.process.alive():
                raise lab.Failed(f"{self.name} does not start")
            try:
                return self.call("GET", path)[0] == status
            except OSError:
                return False
        lab.wait_until(f"{self.name} answers", answers, seconds, 0.2)

    def kill(self):
        self.process.kill()


class Designate(Service):
    """All of Designate in one process, with tokens from Keystone and a PowerDNS behind it."""

    def __init__(self, keystone, powerdns, all_in_one):
        super().__init__("designate", lab.free_port())
        self.all_in_one = all_in_one
        folder = self.folder = lab.scratch("designate")
        self.mdns = lab.free_port()
        self.project = register(keystone, "designate", "dns", f"http://127.0.0.1:{self.port}/")
        lab.write_file(os.path.join(folder, "designate.conf"), f"""[DEFAULT]
use_stderr = true
host = lab
transport_url = fake://
state_path = {folder}
[storage:sqlalchemy]
connection = sqlite:///{folder}/designate.sqlite?timeout=60
sqlite_synchronous = false
[service:api]
listen = 127.0.0.1:{self.port}
auth_strategy = keystone
api_base_uri = http://127.0.0.1:{self.port}/
[service:central]
managed_resource_email = hostmaster@example.org.
min_ttl = 5
[service:worker]
poll_delay = 1
poll_retry_interval = 2
[service:mdns]
listen = 127.0.0.1:{self.mdns}
""" + authtoken(keystone, "designate", folder))
        lab.write_file(os.path.join(folder, "pools.yaml"), f"""- name: default
  description: lab
  attributes: {{}}
  ns_records: [{{hostname: ns1.lab.example., priority: 1}}]
  nameservers: [{{host: 127.0.0.1, port: {powerdns.dns}}}]
  targets:
    - type: pdns4
      description: pdns
      masters: [{{host: 127.0.0.1, port: {self.mdns}}}]
      options: {{host: 127.0.0.1, port: {powerdns.dns}, api_endpoint: 'http://127.0.0.1:{powerdns.api}', api_token: {powerdns.key}}}
""")
        done = subprocess.run([lab.program("designate-manage", "designate-common"), "--config-file", os.path.join(folder, "designate.conf"), "database", "sync"],
                              capture_output=True, text=True, env=lab.clean_environment(), timeout=300)
        if done.returncode != 0:
            raise lab.Failed(f"designate-manage ended with {done.returncode}: {done.stderr[-1500:]}")
        with contextlib.closing(sqlite3.connect(os.path.join(folder, "designate.sqlite"))) as database:
            database.execute("PRAGMA journal_mode=WAL")
        self.start()

    def start(self):
        self.process = lab.Process("designate", ["/usr/bin/python3", self.all_in_one, "--config-file", os.path.join(self.folder, "designate.conf")],
                                   lab.clean_environment(POOLS=os.path.join(self.folder, "pools.yaml")))
        self.wait_for("/", 200)


class Octavia(Service):
    """Octavia's API with a provider that does nothing: the test writes its database directly."""

    def __init__(self, keystone):
        super().__init__("octavia", lab.free_port())
        folder = self.folder = lab.scratch("octavia")
        self.project = register(keystone, "octavia", "load-balancer", f"http://127.0.0.1:{self.port}")
        self.database = os.path.join(folder, "octavia.sqlite")
        lab.write_file(os.path.join(folder, "octavia.conf"), f"""[DEFAULT]
use_stderr = true
transport_url = fake://
[database]
connection = sqlite:///{self.database}?timeout=60
sqlite_synchronous = false
[api_settings]
bind_host = 127.0.0.1
bind_port = {self.port}
auth_strategy = keystone
api_base_uri = http://127.0.0.1:{self.port}
enabled_provider_drivers = noop_driver:noop
default_provider_driver = noop_driver
[controller_worker]
network_driver = network_noop_driver
[certificates]
cert_manager = local_cert_manager
[driver_agent]
status_socket_path = {folder}/status.sock
stats_socket_path = {folder}/stats.sock
get_socket_path = {folder}/get.sock
""" + authtoken(keystone, "octavia", folder))
        script = lab.write_file(os.path.join(folder, "schema.py"), OCTAVIA_SCHEMA)
        done = subprocess.run(["/usr/bin/python3", script, self.database], capture_output=True, text=True, env=lab.clean_environment(), timeout=300)
        if done.returncode != 0:
            raise lab.Failed(f"octavia's schema: {done.stderr[-1500:]}")
        with contextlib.closing(sqlite3.connect(self.database)) as database:
            database.execute("PRAGMA journal_mode=WAL")
        self.start()

    def start(self):
        self.process = lab.Process("octavia", [lab.program("octavia-api", "octavia-api"), "--config-file", os.path.join(self.folder, "octavia.conf")])
        self.wait_for("/", 200)

    def sql(self, statement, *values):
        with contextlib.closing(sqlite3.connect(self.database, timeout=60)) as database:
            database.execute(statement, values)
            database.commit()


# Octavia's migrations do not run on SQLite: its tables are made of its models.
OCTAVIA_SCHEMA = """
import sys, sqlalchemy as sa
from octavia.common import constants as c
from octavia.db import base_models, models as m
engine = sa.create_engine('sqlite:///' + sys.argv[1])
base_models.BASE.metadata.create_all(engine)
lookups = [('PROVISIONING_STATUSES', m.ProvisioningStatus), ('HEALTH_MONITOR_TYPES', m.HealthMonitorType),
           ('LB_ALGORITHMS', m.Algorithm), ('PROTOCOLS', m.Protocol), ('OPERATING_STATUSES', m.OperatingStatus),
           ('SP_TYPES', m.SessionPersistenceType), ('AMPHORA_ROLES', m.AmphoraRoles), ('LB_TOPOLOGIES', m.LBTopology),
           ('VRRP_AUTH', m.VRRPAuthMethod), ('L7RULE_TYPES', m.L7RuleType), ('L7RULE_COMPARE_TYPES', m.L7RuleCompareType),
           ('L7POLICY_ACTIONS', m.L7PolicyAction), ('CLIENT_AUTH_MODES', m.ClientAuthenticationMode)]
nil = c.NIL_UUID
with engine.begin() as connection:
    for name, model in lookups:
        connection.execute(model.__table__.insert(), [{'name': v} for v in getattr(c, 'SUPPORTED_' + name)])
    connection.execute(m.FlavorProfile.__table__.insert(), [dict(id=nil, name='DELETED-PLACEHOLDER', provider_name='DELETED', flavor_data='{}')])
    connection.execute(m.Flavor.__table__.insert(), [dict(id=nil, flavor_profile_id=nil, name='DELETED-PLACEHOLDER', enabled=False, description='')])
"""
