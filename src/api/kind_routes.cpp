#include "api/problem.h"
#include "api/state.h"
#include "core/ids.h"
#include "resource/openapi.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <charconv>

/// The routes every kind has: list, create, read, replace, patch, delete, watch.
namespace orrery::api {

using resource::Kind;
using resource::Object;
using resource::Outcome;
using resource::Verb;

namespace {

constexpr std::size_t default_page = 500;
constexpr std::size_t largest_page = 5000;

Error bad_query(std::string_view parameter, std::string message) {
    Error error{Code::invalid, "the query is not right"};
    error.fields.push_back({fmt::format("?{}", parameter), std::move(message)});
    return error;
}

bool is_timed(const Kind& kind) { return kind.name() == "Event"; }

Result<std::string> time_bound(const Call& call, std::string_view parameter) {
    const auto text = call.query(parameter);
    if (!text) return std::string{};
    auto time = from_rfc3339(*text);
    if (!time.ok())
        return bad_query(parameter, fmt::format("must be a time such as 2026-11-16T04:42:52Z, got \"{}\"", text->substr(0, 64)));
    return time_ordered_bound(*time);
}

Result<resource::ListQuery> list_query(const Kind& kind, const Call& call) {
    resource::ListQuery query;
    query.limit = default_page;
    if (const auto text = call.query("limit")) {
        auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), query.limit);
        if (failed != std::errc{} || end != text->data() + text->size() || query.limit < 1 || query.limit > largest_page)
            return bad_query("limit", fmt::format("must be a number from 1 to {}, got \"{}\"", largest_page, text->substr(0, 64)));
    }
    if (const auto text = call.query("labels")) {
        auto labels = resource::LabelSelector::parse(*text);
        if (!labels.ok()) return bad_query("labels", labels.error().message);
        query.labels = std::move(*labels);
    }
    query.after = call.query("continue").value_or("");
    if (!query.after.empty() && !resource::is_valid_name(query.after))
        return bad_query("continue", "must be what the last page gave as \"continue\"");
    if (const auto order = call.query("order")) {
        if (*order != "newest" && *order != "name")
            return bad_query("order", fmt::format("must be name or newest, got \"{}\"", order->substr(0, 64)));
        query.newest_first = *order == "newest";
    }
    for (const auto& field : kind.spec().children())
        if (field.is_indexed())
            if (const auto value = call.query(field.name())) query.fields.emplace_back(field.name(), *value);
    if (is_timed(kind)) {
        TRY(query.from, time_bound(call, "since"));
        TRY(query.until, time_bound(call, "until"));
    }
    return query;
}

Result<Unit> check_owner(Api::State& state, const Kind& kind, const identity::Principal& principal, const std::string& name) {
    if (kind.owner_field().empty() || principal.role == Role::admin) return Unit{};
    auto object = state.resources.get(kind, name);
    if (!object.ok()) return std::move(object).error();
    if (may_touch(kind, principal, *object)) return Unit{};
    return Error{Code::denied, fmt::format("{} {} belongs to somebody else", kind.name(), name), "ask an admin"};
}

Task<Unit> list(Api::State& state, Call call, const Kind& kind) {
    if (const auto watch = call.query("watch")) co_return co_await stream_changes(state, std::move(call), kind, {}, *watch);
    CO_TRY(auto query, list_query(kind, call));
    CO_TRY(const bool consistent, call.flag("consistent"));
    if (consistent) {
        CO_TRY(std::ignore, co_await state.store().catch_up(call.ctx));
    }
    if (!kind.owner_field().empty() && call.principal.role != Role::admin)
        query.fields.emplace_back(kind.owner_field(), call.principal.user);
    CO_TRY(auto page, state.resources.list(kind, query));
    std::string body = fmt::format("{{\"kind\":\"{}List\",\"items\":[", kind.name());
    bool first = true;
    for (const auto& record : page.records) {
        if (!kind.owner_field().empty()) {
            CO_TRY(const auto object, resource::from_stored(*record));
            if (!may_touch(kind, call.principal, object)) continue;
        }
        if (!first) body += ',';
        first = false;
        state.resources.append_public_json(kind, *record, body);
    }
    body += fmt::format("],\"revision\":{}", page.revision);
    if (!page.next.empty()) body += fmt::format(",\"continue\":\"{}\"", page.next);
    body += '}';
    co_return co_await call.out.send(call.ctx, {200, {{"Content-Type", "application/json"}}, std::move(body)});
}

Task<Unit> read(Api::State& state, Call call, const Kind& kind) {
    const auto name = call.name();
    CO_TRY(std::ignore, check_owner(state, kind, call.principal, name));
    if (const auto watch = call.query("watch")) co_return co_await stream_changes(state, std::move(call), kind, name, *watch);
    CO_TRY(const bool consistent, call.flag("consistent"));
    if (consistent) {
        CO_TRY(std::ignore, co_await state.store().catch_up(call.ctx));
    }
    const auto record = state.resources.find(kind, name);
    if (!record) co_return state.resources.get(kind, name).error();
    auto etag = etag_of(record->modified, state.store().identity());
    if (call.request.headers.get("If-None-Match") == etag)
        co_return co_await call.out.send(call.ctx, {304, {{"ETag", std::move(etag)}}, {}});
    std::string body;
    body.reserve(record->value.size() + 32);
    state.resources.append_public_json(kind, *record, body);
    co_return co_await call.out.send(call.ctx,
                                     {200, {{"Content-Type", "application/json"}, {"ETag", std::move(etag)}}, std::move(body)});
}

Result<resource::WriteOptions> write_options(Api::State& state, const Call& call) {
    resource::WriteOptions options;
    TRY(options.dry_run, call.flag("dry_run"));
    options.because = call.query("because").value_or("");
    if (options.because.size() > 1024) return bad_query("because", "must be at most 1024 characters");
    if (const auto match = call.request.headers.get("If-Match"); !match.empty() && match != "*") {
        auto revision = parse_position(match, state.store().identity(), precondition_field);
        if (!revision.ok() && revision.error().code == Code::compacted) {
            Error stale{Code::conflict, revision.error().message, "read it again"};
            stale.fields.push_back({std::string(precondition_field), "is an ETag of another store"});
            return stale;
        }
        if (!revision.ok()) return std::move(revision).error();
        options.if_revision = *revision;
    }
    return options;
}

Task<Unit> answer_write(Api::State& state, Call& call, Outcome outcome, bool dry_run) {
    constexpr std::string_view words[] = {"created", "updated", "unchanged", "removed"};
    json::array changes;
    for (auto& difference : outcome.differences)
        changes.push_back(
            {{"path", difference.path}, {"before", std::move(difference.before)}, {"after", std::move(difference.after)}});
    json::object body{{"outcome", words[static_cast<std::size_t>(outcome.what)]},
                      {"dry_run", dry_run},
                      {"object", outcome.object.to_json()},
                      {"changes", std::move(changes)}};
    if (!outcome.once.empty()) body["once"] = std::move(outcome.once);
    net::Headers headers;
    if (outcome.what != Outcome::What::removed && outcome.object.revision > 0)
        headers.set("ETag", etag_of(outcome.object.revision, state.store().identity()));
    co_return co_await send_json(call, outcome.what == Outcome::What::created ? 201 : 200, body, std::move(headers));
}

/// What belongs to a user is a token, and a token may not do more than whoever makes it.
Result<Unit> check_grant(const Kind& kind, const identity::Principal& principal, const Object& object) {
    if (kind.owner_field().empty()) return Unit{};
    Error error{Code::denied, fmt::format("{} may not make this {}", principal.user, kind.name()), "ask an admin, or ask for less"};
    if (!may_touch(kind, principal, object))
        error.fields.push_back({"spec." + kind.owner_field(), fmt::format("must be {}, who makes it", principal.user)});
    const auto* source = object.spec.if_contains("source");
    if (principal.role != Role::admin && source != nullptr && source->is_string() && source->get_string() != principal.source)
        error.fields.push_back({"spec.source", fmt::format("must be {}, which knows {}", principal.source, principal.user)});
    if (const auto* role = object.spec.if_contains("role"); role != nullptr && role->is_string()) {
        auto wanted = resource::parse_role(std::string_view(role->get_string()));
        if (wanted.ok() && *wanted > principal.role)
            error.fields.push_back({"spec.role", fmt::format("must be at most {}", name_of(principal.role))});
    }
    if (!principal.kinds.empty())
        error.fields.push_back({"spec.kinds", "a token that is limited to some kinds cannot make tokens"});
    if (!error.fields.empty()) return error;
    return Unit{};
}

/// Where the owner is left out it is who asks; the role likewise.
void default_owner(const Kind& kind, const identity::Principal& principal, json::value& document) {
    if (kind.owner_field().empty() || !document.is_object()) return;
    auto& spec = document.get_object()["spec"];
    if (spec.is_null()) spec = json::object{};
    if (!spec.is_object() || spec.get_object().contains(kind.owner_field())) return;
    spec.get_object()[kind.owner_field()] = principal.user;
    if (!spec.get_object().contains("source")) spec.get_object()["source"] = principal.source;
    if (!spec.get_object().contains("role")) spec.get_object()["role"] = name_of(principal.role);
}

Task<Unit> create(Api::State& state, Call call, const Kind& kind) {
    CO_TRY(auto options, write_options(state, call));
    CO_TRY(auto document, co_await read_document(call, state.options.max_body));
    default_owner(kind, call.principal, document);
    CO_TRY(auto object, resource::read_object(kind, {}, document));
    CO_TRY(std::ignore, check_grant(kind, call.principal, object));
    CO_TRY(auto outcome, co_await state.resources.create(call.ctx, kind, std::move(object), options));
    co_return co_await answer_write(state, call, std::move(outcome), options.dry_run);
}

Task<Unit> replace(Api::State& state, Call call, const Kind& kind) {
    const auto name = call.name();
    CO_TRY(auto options, write_options(state, call));
    CO_TRY(auto document, co_await read_document(call, state.options.max_body));
    default_owner(kind, call.principal, document);
    CO_TRY(auto object, resource::read_object(kind, name, document));
    CO_TRY(std::ignore, check_grant(kind, call.principal, object));
    const bool must_be_new = call.request.headers.get("If-None-Match") == "*";
    const bool must_exist = call.request.headers.has("If-Match");
    // Whether it is there can change until the write; then the write itself says so, and we look again.
    for (int attempt = 0;; ++attempt) {
        const bool exists = state.resources.exists(kind, name);
        const bool make = must_be_new || (!exists && !must_exist && kind.has(Verb::create));
        if (exists && !make) {
            if (!kind.has(Verb::update))
                co_return Error{Code::unsupported, fmt::format("a {} cannot be changed", kind.name()),
                                "delete it and make a new one"};
            CO_TRY(std::ignore, check_owner(state, kind, call.principal, name));
        }
        auto outcome = make ? co_await state.resources.create(call.ctx, kind, object, options)
                            : co_await state.resources.replace(call.ctx, kind, object, options);
        const bool raced = !outcome.ok() && !must_be_new && !must_exist && attempt < 3 &&
                           outcome.error().code == (make ? Code::conflict : Code::not_found) &&
                           state.resources.exists(kind, name) == make;
        if (raced) continue;
        if (!outcome.ok()) co_return std::move(outcome).error();
        co_return co_await answer_write(state, call, std::move(*outcome), options.dry_run);
    }
}

Task<Unit> patch(Api::State& state, Call call, const Kind& kind) {
    const auto name = call.name();
    CO_TRY(std::ignore, check_owner(state, kind, call.principal, name));
    CO_TRY(auto options, write_options(state, call));
    CO_TRY(auto document, co_await read_document(call, state.options.max_body));
    if (!kind.owner_field().empty() && call.principal.role != Role::admin)
        co_return Error{Code::denied, fmt::format("only an admin may patch a {}", kind.name()), "delete it and make a new one"};
    CO_TRY(auto outcome, co_await state.resources.patch(call.ctx, kind, name, std::move(document), options));
    co_return co_await answer_write(state, call, std::move(outcome), options.dry_run);
}

Task<Unit> remove(Api::State& state, Call call, const Kind& kind) {
    const auto name = call.name();
    CO_TRY(std::ignore, check_owner(state, kind, call.principal, name));
    CO_TRY(auto options, write_options(state, call));
    CO_TRY(auto outcome, co_await state.resources.remove(call.ctx, kind, name, options));
    co_return co_await answer_write(state, call, std::move(outcome), options.dry_run);
}

json::object reference(const std::string& name) { return {{"$ref", "#/components/schemas/" + name}}; }

json::object list_schema(const Kind& kind) {
    return {
        {"type", "object"},
        {"properties",
         json::object{{"kind", json::object{{"type", "string"}}},
                      {"items", json::object{{"type", "array"}, {"items", reference(kind.name())}}},
                      {"revision", json::object{{"type", "integer"}}},
                      {"continue", json::object{{"type", "string"},
                                                {"description", "give it as ?continue= for the next page; absent at the end"}}}}}};
}

json::object outcome_schema(const Kind& kind) {
    return {{"type", "object"},
            {"properties",
             json::object{
                 {"outcome", json::object{{"type", "string"}, {"enum", json::array{"created", "updated", "unchanged", "removed"}}}},
                 {"dry_run", json::object{{"type", "boolean"}}},
                 {"object", reference(kind.name())},
                 {"changes", json::object{{"type", "array"}, {"items", json::object{{"type", "object"}}}}},
                 {"once", json::object{{"type", "object"}, {"description", "shown this one time"}}}}}};
}

void add_routes_of(Api::State& state, const Kind& kind) {
    const auto collection = "/v1/" + kind.plural();
    const auto single = collection + "/{name}";
    const std::vector<Parameter> writes = {{"dry_run", "check and show the outcome, change nothing", "boolean"},
                                           {"because", "the reason, kept in the audit event"}};
    const auto add = [&](std::string method, std::string pattern, std::string summary, Role role, std::vector<Parameter> query,
                         json::object request, json::object response, int status,
                         Task<Unit> (*handler)(Api::State&, Call, const Kind&)) {
        state.router.add({.method = std::move(method),
                          .pattern = std::move(pattern),
                          .summary = std::move(summary),
                          .group = kind.plural(),
                          .role = role,
                          .kind = &kind,
                          .query = std::move(query),
                          .request = std::move(request),
                          .response = std::move(response),
                          .status = status,
                          .handler = [&state, &kind, handler](Call call) { return handler(state, std::move(call), kind); }});
    };
    const auto& lower = kind.name();
    if (kind.has(Verb::read)) {
        std::vector<Parameter> query = {{"limit", "at most so many (1 to 5000, else 500)", "integer"},
                                        {"continue", "what the last page gave"},
                                        {"labels", "role=compute,zone!=b,gpu,!legacy"},
                                        {"consistent", "wait until this server has everything acknowledged before", "boolean"},
                                        {"watch", "a revision (or \"now\"): stream the changes after it as server-sent events"}};
        if (kind.has_indexes()) query.push_back({"order", "name, or newest for the reverse"});
        for (const auto& field : kind.spec().children())
            if (field.is_indexed()) query.push_back({field.name(), fmt::format("only those whose {} is this", field.name())});
        if (is_timed(kind)) {
            query.push_back({"since", "only from this time on"});
            query.push_back({"until", "only before this time"});
        }
        add("GET", collection, fmt::format("List {}, or watch them", kind.plural()), kind.read_role(), query, {}, list_schema(kind),
            200, &list);
        add("GET", single, fmt::format("Read one {}, or watch it", lower), kind.read_role(),
            {{"consistent", "wait until this server has everything acknowledged before", "boolean"},
             {"watch", "a revision (or \"now\"): stream its changes"}},
            {}, reference(kind.name()), 200, &read);
    }
    if (kind.has(Verb::create))
        add("POST", collection, fmt::format("Create a {}", lower), kind.write_role(), writes, reference(kind.name() + "Request"),
            outcome_schema(kind), 201, &create);
    if (kind.has(Verb::update) || kind.has(Verb::create))
        add("PUT", single, fmt::format("Create or replace a {}", lower), kind.write_role(), writes,
            reference(kind.name() + "Request"), outcome_schema(kind), 200, &replace);
    if (kind.has(Verb::update))
        add("PATCH", single, fmt::format("Change parts of a {} (JSON merge patch)", lower), kind.write_role(), writes,
            {{"type", "object"}}, outcome_schema(kind), 200, &patch);
    if (kind.has(Verb::remove))
        add("DELETE", single, fmt::format("Delete a {}", lower), kind.write_role(), writes, {}, outcome_schema(kind), 200, &remove);
}

Task<Unit> list_kinds(Api::State& state, Call call) {
    json::array items;
    for (const auto& kind : state.resources.registry().all()) items.push_back(resource::describe_kind(*kind));
    co_return co_await send_json(call, 200, json::object{{"items", std::move(items)}});
}

} // namespace

bool may_touch(const Kind& kind, const identity::Principal& principal, const Object& object) {
    if (kind.owner_field().empty() || principal.role == Role::admin) return true;
    const auto is = [&](std::string_view field, std::string_view wanted) {
        const auto* value = object.spec.if_contains(field);
        return value != nullptr && value->is_string() && std::string_view(value->get_string()) == wanted;
    };
    return is(kind.owner_field(), principal.user) && is("source", principal.source);
}

void add_kind_routes(Api::State& state) {
    state.router.add({.method = "GET",
                      .pattern = "/v1/kinds",
                      .summary = "What kinds there are: fields, columns, verbs",
                      .group = "server",
                      .role = Role::viewer,
                      .response = {{"type", "object"}},
                      .handler = [&state](Call call) { return list_kinds(state, std::move(call)); }});
    for (const auto& kind : state.resources.registry().all()) add_routes_of(state, *kind);
}

} // namespace orrery::api
