#!/usr/bin/python3
"""The Kosmos API as its clients meet it: /openapi.json describes the body of every request and answer, docs/kosmos.md lists the same fields, a body with all of them is accepted and shown
again, and lists are paged by limit and marker."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs", "kosmos.md")
SCHEMAS = {"gslb": "KosmosGslb", "pool": "KosmosPool", "pool_member": "KosmosPoolMember", "monitor": "KosmosMonitor"}
COLLECTIONS = ("/v0.1/gslbs", "/v0.1/pools", "/v0.1/pools/{name}/pool_members", "/v0.1/monitors")
BODIES = [("/v0.1/monitors", "monitor", {"name": "web", "description": "the site", "type": "HTTPS", "delay": 5, "timeout": 2, "max_retries": 4, "port": 8443, "http_method": "POST", "url_path": "/up",
                                         "expected_codes": [200, 204], "receive_string": "fine", "insecure": True, "payload": {"content": "x", "content_type": "text/plain"}}),
          ("/v0.1/pools", "pool", {"name": "eu", "description": "Europe", "monitors": ["web"], "members": []}),
          ("/v0.1/pools/eu/pool_members", "pool_member", {"name": "eu-1", "type": "IP", "region": "ams", "endpoints": ["192.0.2.1"], "monitors": ["web"]}),
          ("/v0.1/pools/eu/pool_members", "pool_member", {"name": "eu-2", "type": "neutron_port", "neutron_id": "6d9ef8a2-0b67-4c8e-9d0b-7f2f2f8f5a11", "region": "ams", "endpoints": ["192.0.2.2"]}),
          ("/v0.1/gslbs", "gslb", {"name": "www", "description": "the site", "fqdn": "www.gslb.test.", "zone_name": "gslb.test.", "pools": [{"pool": "eu", "type": "ACTIVE"}]})]


def fields_of_the_page():
    """{section: fields in the first column of its table}"""
    found, section = {}, ""
    with open(PAGE, encoding="utf-8") as file:
        for line in file:
            if line.startswith("#"):
                section = line.strip("# \n")
            elif line.startswith("| `"):
                found.setdefault(section, set()).update(re.findall(r"`(\w+)`", line.split("|")[1]))
    return found


def properties(schema):
    """Of an object, also one that is wrapped or has alternatives."""
    out = set(schema.get("properties", {}))
    for one in schema.get("anyOf", []) + schema.get("allOf", []) + schema.get("oneOf", []):
        out |= properties(one)
    return out


def bodies_are_described(document):
    paths = {path: methods for path, methods in document["paths"].items() if path.startswith("/v0.1/")}
    lab.check(f"{len(paths)} paths of Kosmos are described", len(paths) >= 15, sorted(paths))
    bodies = 0
    for path, methods in paths.items():
        for method, operation in methods.items():
            if method in ("post", "put", "patch"):
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                wrapped = properties(schema)
                inner = {name for one in schema.get("anyOf", [schema]) for value in one.get("properties", {}).values() for name in value.get("properties", {})}
                lab.check(f"the body of {method.upper()} {path} is described", len(inner | wrapped) >= 4, schema)
                bodies += 1
            if method == "get" and path in COLLECTIONS:
                named = {one["name"] for one in operation.get("parameters", [])}
                lab.check(f"GET {path} has limit and marker", {"limit", "marker"} <= named, named)
    lab.check(f"{bodies} requests have a body", bodies >= 12, bodies)


def the_page_lists_the_fields(document):
    page = fields_of_the_page()
    for section, schema in SCHEMAS.items():
        described = set(document["components"]["schemas"][schema]["properties"])
        listed = page[section] | page["All"]
        lab.equal(f"every field of {section} in /openapi.json is in the page", described - listed, set())
        sent = {"members", "payload"} | ({"description"} if section == "pool_member" else set())
        lab.equal(f"every field of {section} in the page is in /openapi.json, except those that are only sent", listed - described - sent, set())


def bodies_are_accepted(api, document):
    for path, name, body in BODIES:
        answer = api.post(path, {name: body})
        shown = answer[name]
        lab.equal(f"{name} {body['name']} is shown with the fields that were sent", {key: shown.get(key) for key in body if key not in ("members", "payload", "name", "pools")},
                  {key: value for key, value in body.items() if key not in ("members", "payload", "name", "pools")})
        lab.equal(f"{name} {body['name']}: every shown field is described", set(shown) - set(document["components"]["schemas"][SCHEMAS[name]]["properties"]), set())


def lists_are_paged(api):
    for at in range(7):
        api.post("/v0.1/pools", {"pool": {"name": f"p{at}"}})
        api.post("/v0.1/pools/eu/pool_members", {"pool_member": {"name": f"m{at}", "endpoints": [f"192.0.2.{at + 10}"]}})
        api.post("/v0.1/monitors", {"monitor": {"name": f"t{at}", "type": "TCP", "port": 80}})
        api.post("/v0.1/gslbs", {"gslb": {"name": f"g{at}", "fqdn": f"g{at}.gslb.test.", "pools": ["eu"]}})
    for path in ("/v0.1/pools", "/v0.1/pools/eu/pool_members", "/v0.1/monitors", "/v0.1/gslbs"):
        name = path.rsplit("/", 1)[1]
        everything = [one["id"] for one in api.get(path)[name]]
        paged, address, pages = [], f"{path}?limit=3", 0
        while address and pages < 10:
            page = api.get(address)
            lab.check(f"a page of {path} has at most 3", 1 <= len(page[name]) <= 3, page)
            paged += [one["id"] for one in page[name]]
            address = next((one["href"] for one in page.get(f"{name}_links", []) if one["rel"] == "next"), None)
            pages += 1
        lab.check(f"the {pages} pages of {path} are the whole list, in its order", paged == everything and pages == -(-len(everything) // 3), (paged, everything))
        api.refused(f"{path}: a marker that does not exist is refused", 400, "GET", f"{path}?marker=nothing")
        api.refused(f"{path}: a limit of 0 is refused", 400, "GET", f"{path}?limit=0")


def main(given):
    server = lab.Server(given.orrery)
    server.start()
    api = server.api()
    document = api.get("/openapi.json")
    bodies_are_described(document)
    the_page_lists_the_fields(document)
    bodies_are_accepted(api, document)
    lists_are_paged(api)
    lab.equal("the log has no errors", server.error_lines(), [])
    lab.equal("the server stops", server.stop(), 0)


if __name__ == "__main__":
    lab.run(main)
