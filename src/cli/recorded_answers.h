#pragma once

#include <string_view>

/// Responses of the real server that FakeApi sends, so that unit tests see what users see. Two checks keep them honest:
/// tests/lab/server/first_login.py sends these requests to a running server and fails if a response differs, and the unit test
/// FakeResponsesHaveTheRecordedMembers compares the fake with them. In requests, USER is a user whose password "one-time" is for
/// one login.
namespace orrery::cli {

/// Errors. They are equal to those of the real server, except `request_id` and `{path}`.
inline constexpr std::string_view recorded_answers = R"json({
  "login with a wrong password": {
    "request": {"method": "POST", "path": "/v1/login", "body": {"user": "USER", "password": "wrong"}},
    "answer": {"title": "Unauthorized", "status": 401, "code": "unauthenticated", "detail": "wrong user or password",
               "remedy": "check both; an admin can set a new password"}},
  "login with a one-time password": {
    "request": {"method": "POST", "path": "/v1/login", "body": {"user": "USER", "password": "one-time"}},
    "answer": {"title": "Forbidden", "status": 403, "code": "denied", "detail": "this is a one-time password",
               "remedy": "set a new password",
               "fields": [{"path": "new_password", "message": "is required: the password that replaces the one-time password"}],
               "reason": "password_change_required"}},
  "no token": {
    "request": {"method": "GET", "path": "/v1/nodes"},
    "answer": {"title": "Unauthorized", "status": 401, "code": "unauthenticated", "detail": "GET {path} requires a login",
               "remedy": "orrery login, or send an Authorization header"}},
  "a token that is not valid": {
    "request": {"method": "GET", "path": "/v1/nodes", "token": "orr_x"},
    "answer": {"title": "Unauthorized", "status": 401, "code": "unauthenticated", "detail": "the token is invalid: it is unknown or was revoked",
               "remedy": "log in again, or use another token"}},
  "a path that does not exist": {
    "request": {"method": "GET", "path": "/nope"},
    "answer": {"title": "Not Found", "status": 404, "code": "not_found", "detail": "no route for {path}",
               "remedy": "GET /openapi.json lists all paths; /docs describes them"}}
})json";

/// Successful responses. Values are examples; a real response has all these members with the same JSON types. The names of kinds
/// and columns in "kinds" are equal to the real ones.
inline constexpr std::string_view recorded_responses = R"json({
  "whoami": {
    "request": {"method": "GET", "path": "/v1/whoami"},
    "answer": {"user": "admin", "role": "admin", "via": "token"}},
  "store": {
    "request": {"method": "GET", "path": "/v1/store"},
    "answer": {"engine": "sqlite", "identity": "store1", "revision": 12, "keys": 4}},
  "create": {
    "request": {"method": "PUT", "path": "/v1/nodes/n1",
                "body": {"kind": "Node", "name": "n1", "labels": {"role": "web"}, "spec": {"address": "192.0.2.1"}}},
    "answer": {"outcome": "created", "dry_run": false, "changes": [],
               "object": {"kind": "Node", "name": "n1", "labels": {"role": "web"}, "spec": {"address": "192.0.2.1"}, "status": {},
                          "revision": 13, "created_at": "2026-11-16T12:00:00.000Z", "updated_at": "2026-11-16T12:00:00.000Z"}}},
  "update": {
    "request": {"method": "PUT", "path": "/v1/nodes/n1",
                "body": {"kind": "Node", "name": "n1", "labels": {"role": "web"}, "spec": {"address": "192.0.2.2"}}},
    "answer": {"outcome": "updated", "dry_run": false, "object": {"name": "n1", "revision": 14},
               "changes": [{"path": "spec.address", "before": "192.0.2.1", "after": "192.0.2.2"}]}},
  "list": {
    "request": {"method": "GET", "path": "/v1/nodes?limit=500"},
    "answer": {"kind": "List", "revision": 14, "items": [{"kind": "Node", "name": "n1", "spec": {"address": "192.0.2.2"}}]}},
  "remove": {
    "request": {"method": "DELETE", "path": "/v1/nodes/n1"},
    "answer": {"outcome": "removed", "dry_run": false, "changes": [], "object": {"name": "n1"}}},
  "kinds": {
    "request": {"method": "GET", "path": "/v1/kinds"},
    "answer": {"items": [
      {"kind": "Node", "plural": "nodes", "names": ["node"], "doc": "", "verbs": ["create"], "example": "", "indexed": ["address"],
       "columns": [{"title": "ADDRESS", "path": "spec.address"}, {"title": "LABELS", "path": "labels"}],
       "fields": [{"path": "spec.address", "type": "text", "doc": "", "required": true}]},
      {"kind": "Event", "plural": "events", "names": ["event"], "doc": "", "verbs": ["read"], "example": "", "indexed": ["subject"],
       "columns": [{"title": "TIME", "path": "spec.at"}, {"title": "SUBJECT", "path": "spec.subject"},
                   {"title": "ACTION", "path": "spec.action"}, {"title": "ACTOR", "path": "spec.actor"},
                   {"title": "REASON", "path": "spec.reason"}],
       "fields": [{"path": "spec.at", "type": "time", "doc": ""}]}]}}
})json";

} // namespace orrery::cli
