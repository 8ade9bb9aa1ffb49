#include "api/continue_token.h"
#include "api/problem.h"
#include "api/state.h"
#include "core/ids.h"
#include "core/truncate.h"
#include "resource/openapi.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <charconv>

/// The routes of every kind: list, create, read, replace, patch, delete, watch.
namespace orrery::api {

using resource::Kind;
using resource::Object;
using resource::Outcome;
using resource::Verb;

namespace {

constexpr std::size_t default_page = 500;
constexpr std::size_t max_page = 5000;

bool is_timed(const Kind& kind) { return kind.name() == "Event"; }

std::string wrong_with_time(std::string_view text) {
    return from_rfc3339(text).ok() ? std::string()
                                   : fmt::format("must be a time such as 2026-11-16T04:42:52Z, got \"{}\"", truncate(text, 64));
}

std::string wrong_with_labels(std::string_view text) {
    const auto labels = resource::LabelSelector::parse(text);
    return labels.ok() ? std::string() : labels.error().message;
}

Result<std::string> time_bound(const Call& call, std::string_view parameter) {
    const auto text = call.query(parameter);
    if (!text) return std::string{};
    TRY(const auto time, from_rfc3339(*text));
    return time_ordered_bound(time);
}

/// Expects values that check_query has accepted.
Result<resource::ListQuery> list_query(const Kind& kind, const Call& call) {
    resource::ListQuery query;
    query.limit = default_page;
    if (const auto text = call.query("limit")) std::from_chars(text->data(), text->data() + text->size(), query.limit);
    if (const auto text = call.query("labels")) {
        TRY(query.labels, resource::LabelSelector::parse(*text));
    }
    if (const auto token = call.query("continue").value_or(""); !token.empty()) {
        TRY(query.after, read_continue_token(kind.plural(), token));
    }
    query.newest_first = call.query("order") == "newest";
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
    if (can_access(kind, principal, *object)) return Unit{};
    return Error{Code::denied, fmt::format("{} {} belongs to another user", kind.name(), name), "ask an admin"};
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
            if (!can_access(kind, call.principal, object)) continue;
        }
        if (!first) body += ',';
        first = false;
        state.resources.append_public_json(kind, *record, body);
    }
    body += fmt::format("],\"revision\":{}", page.revision);
    if (!page.next.empty()) body += fmt::format(",\"continue\":\"{}\"", continue_token(kind.plural(), page.next));
    body += '}';
    net::Headers headers{{"Content-Type", "application/json"}};
    add_copy_age(state, headers);
    co_return co_await call.out.send(call.ctx, {200, std::move(headers), std::move(body)});
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
    net::Headers headers{{"Content-Type", "application/json"}, {"ETag", std::move(etag)}};
    add_copy_age(state, headers);
    co_return co_await call.out.send(call.ctx, {200, std::move(headers), std::move(body)});
}

Result<resource::WriteOptions> write_options(Api::State& state, const Call& call) {
    resource::WriteOptions options;
    TRY(options.dry_run, call.flag("dry_run"));
    options.reason = call.query("reason").value_or("");
    const auto& kinds = call.principal.kinds;
    options.may_name_secrets = kinds.empty() || std::find(kinds.begin(), kinds.end(), "Secret") != kinds.end();
    if (const auto match = call.request.headers.get("If-Match"); !match.empty() && match != "*") {
        auto revision = parse_position(match, state.store().identity(), precondition_field);
        if (!revision.ok() && revision.error().code == Code::compacted) {
            Error stale{Code::conflict, revision.error().message, "read it again"};
            stale.fields.push_back({std::string(precondition_field), "is an ETag of a different store"});
            return stale;
        }
        if (!revision.ok()) return std::move(revision).error();
        options.if_revision = *revision;
    }
    return options;
}

Task<Unit> answer_write(Api::State& state, Call& call, Outcome outcome, bool dry_run) {
    constexpr std::string_view outcomes[] = {"created", "updated", "unchanged", "removed"};
    json::array changes;
    for (auto& difference : outcome.differences)
        changes.push_back(
            {{"path", difference.path}, {"before", std::move(difference.before)}, {"after", std::move(difference.after)}});
    json::object body{{"outcome", outcomes[static_cast<std::size_t>(outcome.action)]},
                      {"dry_run", dry_run},
                      {"object", outcome.object.to_json()},
                      {"changes", std::move(changes)}};
    if (!outcome.once.empty()) body["once"] = std::move(outcome.once);
    net::Headers headers;
    if (outcome.action != Outcome::Action::removed && outcome.object.revision > 0)
        headers.set("ETag", etag_of(outcome.object.revision, state.store().identity()));
    co_return co_await send_json(call, outcome.action == Outcome::Action::created ? 201 : 200, body, std::move(headers));
}

/// Kinds with an owner are tokens. A token must not have more rights than the principal that creates it.
Result<Unit> check_grant(const Kind& kind, const identity::Principal& principal, const Object& object) {
    if (kind.owner_field().empty()) return Unit{};
    Error error{Code::denied, fmt::format("{} may not create this {}", principal.user, kind.name()),
                "ask an admin, or request fewer rights"};
    if (!can_access(kind, principal, object))
        error.fields.push_back({"spec." + kind.owner_field(), fmt::format("must be {}, the user that creates it", principal.user)});
    const auto* source = object.spec.if_contains("source");
    if (principal.role != Role::admin && source != nullptr && source->is_string() && source->get_string() != principal.source)
        error.fields.push_back({"spec.source", fmt::format("must be {}, the directory of {}", principal.source, principal.user)});
    if (const auto* role = object.spec.if_contains("role"); role != nullptr && role->is_string()) {
        auto wanted = resource::parse_role(std::string_view(role->get_string()));
        if (wanted.ok() && *wanted > principal.role)
            error.fields.push_back({"spec.role", fmt::format("must be at most {}", name_of(principal.role))});
    }
    if (!principal.kinds.empty())
        error.fields.push_back({"spec.kinds", "a token that is limited to some kinds cannot create tokens"});
    if (!error.fields.empty()) return error;
    return Unit{};
}

/// The default owner is the principal of the request; the same applies to its directory and role.
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
    CO_TRY(auto document, co_await read_document(call, state.options.max_body, EmptyBody::refuse));
    default_owner(kind, call.principal, document);
    CO_TRY(auto object, resource::read_object(kind, {}, document));
    CO_TRY(std::ignore, check_grant(kind, call.principal, object));
    CO_TRY(auto outcome, co_await state.resources.create(call.ctx, kind, std::move(object), options));
    co_return co_await answer_write(state, call, std::move(outcome), options.dry_run);
}

Task<Unit> replace(Api::State& state, Call call, const Kind& kind) {
    const auto name = call.name();
    CO_TRY(auto options, write_options(state, call));
    CO_TRY(auto document, co_await read_document(call, state.options.max_body, EmptyBody::refuse));
    default_owner(kind, call.principal, document);
    CO_TRY(auto object, resource::read_object(kind, name, document));
    CO_TRY(std::ignore, check_grant(kind, call.principal, object));
    const bool must_be_new = call.request.headers.get("If-None-Match") == "*";
    const bool must_exist = call.request.headers.has("If-Match");
    // The object can appear or vanish before the write; then the write fails, and the loop decides again.
    for (int attempt = 0;; ++attempt) {
        const bool exists = state.resources.exists(kind, name);
        const bool make = must_be_new || (!exists && !must_exist && kind.has(Verb::create));
        if (exists && !make) {
            if (!kind.has(Verb::update))
                co_return Error{Code::unsupported, fmt::format("a {} cannot be changed", kind.name()),
                                "delete it and create a new one"};
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
    CO_TRY(auto document, co_await read_document(call, state.options.max_body, EmptyBody::refuse));
    if (!kind.owner_field().empty() && call.principal.role != Role::admin)
        co_return Error{Code::denied, fmt::format("only an admin may patch a {}", kind.name()), "delete it and create a new one"};
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

std::string wrong_with_reason(std::string_view text) {
    return text.size() > 1024 ? "must be at most 1024 characters" : std::string();
}

std::string wrong_with_watch(Api::State& state, std::string_view text) {
    if (text == "now" || text.empty()) return {};
    const auto position = parse_position(text, state.store().identity(), "?watch");
    return position.ok() || position.error().code != Code::invalid ? std::string() : position.error().fields.front().message;
}

/// 201 if the write created the object, otherwise 200.
constexpr int either = 0;

json::object reference(const std::string& name) { return {{"$ref", "#/components/schemas/" + name}}; }

json::object list_schema(const Kind& kind) {
    return {{"type", "object"},
            {"required", json::array{"kind", "items", "revision"}},
            {"properties",
             json::object{{"kind", json::object{{"type", "string"}}},
                          {"items", json::object{{"type", "array"}, {"items", reference(kind.name())}}},
                          {"revision", json::object{{"type", "integer"}}},
                          {"continue",
                           json::object{{"type", "string"},
                                        {"description", "pass it as ?continue= to get the next page; absent on the last page"}}}}}};
}

json::object outcome_schema(const Kind& kind) {
    const json::object change{{"type", "object"},
                              {"required", json::array{"path", "before", "after"}},
                              {"properties", json::object{{"path", json::object{{"type", "string"}}},
                                                          {"before", json::object{{"description", "null: absent"}}},
                                                          {"after", json::object{{"description", "null: absent"}}}}}};
    return {{"type", "object"},
            {"required", json::array{"outcome", "dry_run", "object", "changes"}},
            {"properties",
             json::object{
                 {"outcome", json::object{{"type", "string"}, {"enum", json::array{"created", "updated", "unchanged", "removed"}}}},
                 {"dry_run", json::object{{"type", "boolean"}}},
                 {"object", reference(kind.name())},
                 {"changes", json::object{{"type", "array"}, {"items", change}}},
                 {"once", json::object{{"type", "object"}, {"description", "values that are shown only once"}}}}}};
}

/// Adds the routes of one kind.
class KindRoutes {
public:
    KindRoutes(Api::State& state, const Kind& kind)
        : state_(state), kind_(kind), collection_("/v1/" + kind.plural()), single_(collection_ + "/{name}") {}

    void add_reads() {
        const auto check_watch = [state = &state_](std::string_view text) { return wrong_with_watch(*state, text); };
        const Parameter consistent{"consistent", "first apply all writes acknowledged before this request, by any server",
                                   "boolean"};
        auto query = list_parameters();
        query.push_back(consistent);
        query.push_back({.name = "watch",
                         .doc = "a revision, or \"now\": stream the changes after it as server-sent events",
                         .check = check_watch});
        add("GET", collection_, fmt::format("List {}, or watch them", kind_.plural()), query, {}, list_schema(kind_), 200, &list);
        add("GET", single_, fmt::format("Read one {}, or watch it", kind_.name()),
            {consistent,
             {.name = "watch", .doc = "a revision, or \"now\": stream the changes of the resource", .check = check_watch}},
            {}, reference(kind_.name()), 200, &read);
    }

    void add_writes() {
        const std::vector<Parameter> query = {
            {"dry_run", "validate and return the outcome without a change", "boolean"},
            {.name = "reason", .doc = "the reason of the change, stored in the audit event", .check = &wrong_with_reason}};
        const auto& name = kind_.name();
        if (kind_.has(Verb::create))
            add("POST", collection_, fmt::format("Create a {}", name), query, reference(name + "Request"), outcome_schema(kind_),
                201, &create);
        if (kind_.has(Verb::update) || kind_.has(Verb::create))
            add("PUT", single_, fmt::format("Create or replace a {}", name), query, reference(name + "Replacement"),
                outcome_schema(kind_), kind_.has(Verb::create) ? either : 200, &replace);
        if (kind_.has(Verb::update))
            add("PATCH", single_, fmt::format("Change parts of a {} (JSON merge patch)", name), query, {{"type", "object"}},
                outcome_schema(kind_), 200, &patch);
        if (kind_.has(Verb::remove))
            add("DELETE", single_, fmt::format("Delete a {}", name), query, {}, outcome_schema(kind_), 200, &remove);
    }

private:
    std::vector<Parameter> list_parameters() const {
        std::vector<Parameter> out = {limit_parameter(default_page, max_page),
                                      continue_parameter(kind_.plural()),
                                      {.name = "labels", .doc = "role=compute,zone!=b,gpu,!legacy", .check = &wrong_with_labels}};
        if (kind_.has_indexes())
            out.push_back({.name = "order", .doc = "name, or newest for the reverse", .choices = {"name", "newest"}});
        for (const auto& field : kind_.spec().children())
            if (field.is_indexed()) out.push_back({field.name(), fmt::format("only resources with this {}", field.name())});
        if (is_timed(kind_)) {
            out.push_back({.name = "since", .doc = "only from this time on", .check = &wrong_with_time});
            out.push_back({.name = "until", .doc = "only before this time", .check = &wrong_with_time});
        }
        return out;
    }

    void add(std::string method, std::string pattern, std::string summary, std::vector<Parameter> query, json::object request,
             json::object response, int status, Task<Unit> (*handler)(Api::State&, Call, const Kind&)) {
        const bool reads = method == "GET";
        std::vector<std::string> headers;
        if (pattern.ends_with('}')) headers.emplace_back(reads ? "If-None-Match" : "If-Match");
        if (method == "PUT") headers.emplace_back("If-None-Match");
        state_.router.add(
            {.method = std::move(method),
             .pattern = std::move(pattern),
             .summary = std::move(summary),
             .group = kind_.plural(),
             .role = reads ? kind_.read_role() : kind_.write_role(),
             .kind = &kind_,
             .query = std::move(query),
             .request = std::move(request),
             .response = std::move(response),
             .media_type = reads ? "text/event-stream" : "",
             .status = status == either ? 200 : status,
             .other_status = status == either ? 201 : 0,
             .headers = std::move(headers),
             .handler = [state = &state_, kind = &kind_, handler](Call call) { return handler(*state, std::move(call), *kind); }});
    }

    Api::State& state_;
    const Kind& kind_;
    std::string collection_, single_;
};

Task<Unit> list_kinds(Api::State& state, Call call) {
    json::array items;
    for (const auto& kind : state.resources.registry().all()) items.push_back(resource::describe_kind(*kind));
    co_return co_await send_json(call, 200, json::object{{"items", std::move(items)}});
}

} // namespace

bool can_access(const Kind& kind, const identity::Principal& principal, const Object& object) {
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
                      .summary = "List the kinds with their fields, columns and verbs",
                      .group = "server",
                      .role = Role::viewer,
                      .response = {{"type", "object"}},
                      .handler = [&state](Call call) { return list_kinds(state, std::move(call)); }});
    for (const auto& kind : state.resources.registry().all()) {
        KindRoutes routes(state, *kind);
        if (kind->has(Verb::read)) routes.add_reads();
        routes.add_writes();
    }
}

} // namespace orrery::api
