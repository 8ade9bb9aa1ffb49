#include "api/facades/consul/state.h"
#include "catalog/json_read.h"
#include "core/text.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <charconv>

namespace orrery::api::consul {

namespace {

using catalog::text_at;
using Verb = Operation::Verb;

/// What a transaction that only reads has, like other reads.
const net::Headers read_headers{{"X-Consul-Knownleader", "true"}, {"X-Consul-Lastcontact", "0"}};

constexpr std::size_t largest_value = 512 << 10, most_operations = 128; // as Consul's

Result<std::uint64_t> number_of(const std::string& text) {
    std::uint64_t out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    // The words Consul's clients know.
    if (error != std::errc{} || end != text.data() + text.size())
        return Error{Code::internal, fmt::format("strconv.ParseUint: parsing \"{}\": invalid syntax", text)};
    return out;
}

/// Keys up to and with the first separator after the prefix, each once.
json::array keys_of(const std::vector<const Entry*>& entries, const std::string& prefix, const std::string& separator) {
    json::array out;
    std::string last;
    for (const auto* entry : entries) {
        std::string key = entry->key;
        if (!separator.empty())
            if (const auto at = key.find(separator, prefix.size()); at != std::string::npos) key.resize(at + separator.size());
        if (!out.empty() && key == last) continue;
        last = key;
        out.emplace_back(key);
    }
    return out;
}

const std::map<std::string, Verb, std::less<>>& verbs() {
    static const std::map<std::string, Verb, std::less<>> all{{"set", Verb::set},
                                                              {"cas", Verb::cas},
                                                              {"lock", Verb::lock},
                                                              {"unlock", Verb::unlock},
                                                              {"get", Verb::get},
                                                              {"get-or-empty", Verb::get_or_empty},
                                                              {"get-tree", Verb::get_tree},
                                                              {"check-index", Verb::check_index},
                                                              {"check-session", Verb::check_session},
                                                              {"check-not-exists", Verb::check_not_exists},
                                                              {"delete", Verb::remove},
                                                              {"delete-tree", Verb::remove_tree},
                                                              {"delete-cas", Verb::remove_cas}};
    return all;
}

Result<std::string> base64_at(const json::object& object, std::string_view key) {
    const auto text = text_at(object, key);
    std::string out(text.size() / 4 * 3 + 3, '\0');
    std::size_t size = 0;
    const char* end = nullptr;
    if (sodium_base642bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(), nullptr, &size, &end,
                          sodium_base64_VARIANT_ORIGINAL) != 0 ||
        end != text.data() + text.size())
        return Error{Code::invalid, "Failed to parse body: illegal base64 data"};
    out.resize(size);
    return out;
}

json::object failures_json(const std::vector<KeyValues::Failure>& failures, bool read_only) {
    json::array errors;
    for (const auto& failure : failures) errors.push_back(json::object{{"OpIndex", failure.operation}, {"What", failure.what}});
    json::object out{{"Results", nullptr}, {"Errors", std::move(errors)}};
    if (read_only)
        for (auto& [key, value] : json::object{{"Index", 1},
                                               {"LastContact", 0},
                                               {"KnownLeader", true},
                                               {"ConsistencyLevel", ""},
                                               {"NotModified", false},
                                               {"Backend", 0},
                                               {"ResultsFilteredByACLs", false}})
            out[key] = value;
    return out;
}

} // namespace

void View::State::add_kv_routes() {
    add("GET", "kv/**", [this](Call& call) -> Task<Unit> {
        const auto& key = call.rest[0];
        if (call.has("keys")) {
            co_return co_await read(
                call, {.index = [this, key] { return kv.tree_revision(key); },
                       .make = [this, key, separator = call.query("separator")] { return keys_of(kv.tree(key), key, separator); },
                       .catalog = false,
                       .absent = [](const json::value& value) { return value.as_array().empty(); }});
        }
        if (call.has("recurse")) {
            co_return co_await read(call, {.index = [this, key] { return kv.tree_revision(key); },
                                           .make =
                                               [this, key] {
                                                   json::array out;
                                                   for (const auto* entry : kv.tree(key)) out.push_back(entry->to_json());
                                                   return out;
                                               },
                                           .catalog = false,
                                           .absent = [](const json::value& value) { return value.as_array().empty(); }});
        }
        if (key.empty()) co_return co_await text(call, 400, "Missing key name");
        if (call.has("raw") && kv.find(key) != nullptr && call.query("index").empty()) {
            const auto entry = *kv.find(key);
            net::Headers headers{{"Content-Type", "text/plain"},         {"X-Content-Type-Options", "nosniff"},
                                 {"Content-Security-Policy", "sandbox"}, {"X-Consul-Index", std::to_string(entry.modified)},
                                 {"X-Consul-Knownleader", "true"},       {"X-Consul-Lastcontact", "0"}};
            co_return co_await call.out.send(call.ctx, net::Response{200, std::move(headers), entry.value});
        }
        co_return co_await read(call, {.index = [this, key] { return kv.key_revision(key); },
                                       .make =
                                           [this, key] {
                                               json::array out;
                                               if (const auto* entry = kv.find(key)) out.push_back(entry->to_json());
                                               return out;
                                           },
                                       .catalog = false,
                                       .absent = [](const json::value& value) { return value.as_array().empty(); }});
    });
    add("PUT", "kv/**", [this](Call& call) -> Task<Unit> {
        Operation operation;
        operation.verb = Verb::set;
        operation.key = call.rest[0];
        if (operation.key.empty()) co_return co_await text(call, 400, "Missing key name");
        int ways = 0;
        if (call.has("flags")) {
            CO_TRY(operation.flags, number_of(call.query("flags")));
        }
        if (call.has("cas")) {
            CO_TRY(operation.index, number_of(call.query("cas")));
            operation.verb = Verb::cas;
            ++ways;
        }
        for (const auto& [name, verb] : {std::pair{"acquire", Verb::lock}, {"release", Verb::unlock}}) {
            if (!call.has(name)) continue;
            operation.session = call.query(name);
            operation.verb = verb;
            ++ways;
        }
        if (ways > 1) co_return co_await text(call, 400, "Conflicting flags: only one of cas, acquire and release can be used");
        auto body = co_await body_of(call, largest_value);
        if (!body.ok() && body.error().code == Code::too_large)
            co_return co_await text(call, 413, fmt::format("Request body(bytes) too large, max size: {} bytes.", largest_value));
        if (!body.ok()) co_return std::move(body).error();
        operation.value = std::move(*body);
        std::vector<Operation> one;
        one.push_back(std::move(operation));
        auto done = co_await kv.apply(call.ctx, call.request.peer, std::move(one));
        if (!done.ok() && done.error().code == Code::invalid)
            co_return Error{Code::internal, "raft apply failed: " + done.error().message};
        if (!done.ok()) co_return std::move(done).error();
        co_return co_await answer(call, done->failures.empty());
    });
    add("DELETE", "kv/**", [this](Call& call) -> Task<Unit> {
        const auto key = call.rest[0];
        if (call.has("recurse")) {
            if (call.has("cas")) co_return co_await text(call, 400, "Conflicting flags: recurse and cas");
            CO_TRY(std::ignore, co_await kv.remove_tree(call.ctx, call.request.peer, key));
            co_return co_await answer(call, true);
        }
        if (key.empty()) co_return co_await text(call, 400, "Missing key name");
        Operation operation;
        operation.verb = Verb::remove;
        operation.key = key;
        if (call.has("cas")) {
            operation.verb = Verb::remove_cas;
            CO_TRY(operation.index, number_of(call.query("cas")));
        }
        std::vector<Operation> one;
        one.push_back(std::move(operation));
        CO_TRY(const auto done, co_await kv.apply(call.ctx, call.request.peer, std::move(one)));
        co_return co_await answer(call, done.failures.empty());
    });
    add("PUT", "txn", [this](Call& call) -> Task<Unit> {
        auto body = co_await body_of(call, largest_value);
        if (!body.ok()) co_return std::move(body).error();
        auto value = parse_json(*body);
        if (!value.ok() || !value->is_array())
            co_return co_await text(
                call, 400, "Failed to parse body: " + (value.ok() ? std::string("it must be a list") : value.error().message));
        const auto& list = value->get_array();
        if (list.size() > most_operations)
            co_return co_await text(
                call, 413, fmt::format("Transaction contains too many operations ({} > {})", list.size(), most_operations));
        std::vector<Operation> operations;
        bool read_only = true;
        for (const auto& item : list) {
            const auto* one = item.is_object() ? item.get_object().if_contains("KV") : nullptr;
            if (one == nullptr || !one->is_object())
                co_return co_await text(call, 400, "Only operations on keys (\"KV\") are supported here");
            const auto& given = one->get_object();
            const auto verb_name = text_at(given, "Verb");
            const auto verb = verbs().find(verb_name);
            if (verb == verbs().end())
                co_return co_await answer(
                    call, failures_json({{operations.size(), fmt::format("unknown KV verb \"{}\"", verb_name)}}, true), 409,
                    read_headers);
            Operation operation;
            operation.verb = verb->second;
            operation.key = text_at(given, "Key");
            if (operation.key.empty() && operation.verb != Verb::get_tree && operation.verb != Verb::remove_tree)
                co_return co_await answer(call, failures_json({{operations.size(), "Must provide key"}}, false), 409);
            CO_TRY(operation.value, base64_at(given, "Value"));
            operation.session = text_at(given, "Session");
            operation.flags = static_cast<std::uint64_t>(catalog::number_at(given, "Flags", 0));
            operation.index = static_cast<std::uint64_t>(catalog::number_at(given, "Index", 0));
            constexpr std::array reads{Verb::get,         Verb::get_or_empty,  Verb::get_tree,
                                       Verb::check_index, Verb::check_session, Verb::check_not_exists};
            read_only = read_only && std::find(reads.begin(), reads.end(), operation.verb) != reads.end();
            operations.push_back(std::move(operation));
        }
        const auto count = operations.size();
        auto done = co_await kv.apply(call.ctx, call.request.peer, std::move(operations));
        if (!done.ok() && done.error().code == Code::invalid)
            co_return co_await answer(call, failures_json({{0, done.error().message}}, false), 409);
        if (!done.ok()) co_return std::move(done).error();
        if (!done->failures.empty())
            co_return co_await answer(call, failures_json(done->failures, read_only), 409,
                                      read_only ? read_headers : net::Headers());
        json::array results;
        for (const auto& entry : done->results) results.push_back(json::object{{"KV", entry.to_json()}});
        json::object out{{"Results", std::move(results)}, {"Errors", nullptr}};
        if (read_only || count == 0)
            for (auto& [key, shown] : json::object{{"Index", 1},
                                                   {"LastContact", 0},
                                                   {"KnownLeader", true},
                                                   {"ConsistencyLevel", ""},
                                                   {"NotModified", false},
                                                   {"Backend", 0},
                                                   {"ResultsFilteredByACLs", false}})
                out[key] = shown;
        co_return co_await answer(call, std::move(out), 200, read_only ? read_headers : net::Headers());
    });
}

void View::State::add_session_routes() {
    add("PUT", "session/create", [this](Call& call) -> Task<Unit> {
        CO_TRY(const auto text_, co_await body_of(call, max_body));
        json::object body;
        if (!text_.empty()) {
            auto value = parse_json(text_);
            if (!value.ok() || !value->is_object())
                co_return co_await text(call, 400,
                                        "Request decode failed: " +
                                            (value.ok() ? std::string("it must be an object") : value.error().message));
            body = value->get_object();
        }
        Session session;
        session.id = random_uuid();
        session.name = text_at(body, "Name");
        session.node = text_at(body, "Node").empty() ? options.node : text_at(body, "Node");
        const auto behavior = text_at(body, "Behavior");
        if (!behavior.empty() && behavior != "release" && behavior != "delete")
            co_return Error{Code::internal, fmt::format("Invalid Behavior setting '{}'", behavior)};
        session.deletes = behavior == "delete";
        if (const auto* delay = body.if_contains("LockDelay"); delay != nullptr) {
            if (delay->is_string()) {
                const auto parsed = parse_go_duration(delay->get_string());
                if (!parsed)
                    co_return co_await text(
                        call, 400,
                        fmt::format("Request decode failed: time: invalid duration \"{}\"", std::string_view(delay->get_string())));
                session.lock_delay = *parsed;
            } else if (delay->is_int64()) {
                // Small numbers are seconds: that is what people mean.
                const auto number = delay->get_int64();
                session.lock_delay = number < 1000 ? Duration(std::chrono::seconds(number))
                                                   : std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(number));
            }
        }
        session.lock_delay = std::clamp<Duration>(session.lock_delay, Duration::zero(), std::chrono::minutes(1));
        session.ttl_text = text_at(body, "TTL");
        if (!session.ttl_text.empty()) {
            const auto ttl = parse_go_duration(session.ttl_text);
            if (!ttl)
                co_return Error{Code::internal, fmt::format("Session TTL '{}' invalid: time: invalid duration \"{}\"",
                                                            session.ttl_text, session.ttl_text)};
            if (*ttl > Duration::zero() && (*ttl < std::chrono::seconds(10) || *ttl > std::chrono::hours(24)))
                co_return Error{Code::internal, fmt::format("Invalid Session TTL '{}', must be between [10s=24h0m0s]",
                                                            std::chrono::duration_cast<std::chrono::nanoseconds>(*ttl).count())};
            if (*ttl > Duration::zero()) session.ttl = *ttl;
        }
        const auto node = catalog.node(session.node);
        if (!node) co_return Error{Code::internal, "apply failed: Missing node registration"};
        session.node = node->name;
        const bool given = body.contains("NodeChecks") || body.contains("Checks");
        session.node_checks = catalog::texts_at(body, body.contains("NodeChecks") ? "NodeChecks" : "Checks");
        // Without a word about it, the health of the node's server counts, where it has that.
        if (!given) session.node_checks = {"serfHealth"};
        if (const auto* services = body.if_contains("ServiceChecks"); services != nullptr && services->is_array()) {
            session.has_service_checks = true;
            for (const auto& one : services->get_array())
                if (one.is_object())
                    session.service_checks.emplace_back(text_at(one.get_object(), "ID"), text_at(one.get_object(), "Namespace"));
        }
        std::vector<std::string> relied_on = session.node_checks;
        for (const auto& [id, space] : session.service_checks) relied_on.push_back(id);
        for (const auto& id : relied_on) {
            const auto holder = holder_of_check(session.node, id);
            if (holder.empty()) co_return Error{Code::internal, fmt::format("apply failed: Missing check '{}' registration", id)};
        }
        const auto id = session.id;
        CO_TRY(std::ignore, co_await kv.create_session(call.ctx, call.request.peer, std::move(session)));
        co_return co_await answer(call, json::object{{"ID", id}});
    });
    add("PUT", "session/destroy/*", [this](Call& call) -> Task<Unit> {
        CO_TRY(std::ignore, co_await kv.destroy_session(call.ctx, call.request.peer, call.rest[0]));
        co_return co_await answer(call, true);
    });
    add("PUT", "session/renew/*", [this](Call& call) -> Task<Unit> {
        auto session = co_await kv.renew_session(call.ctx, call.rest[0]);
        if (!session.ok()) {
            if (session.error().code != Code::not_found) co_return std::move(session).error();
            co_return co_await text(call, 404, fmt::format("Session id '{}' not found", call.rest[0]));
        }
        co_return co_await answer(call, json::array{session->to_json()});
    });
    add("GET", "session/info/*", [this](Call& call) {
        return read(call, {.index =
                               [this, id = call.rest[0]] {
                                   return kv.session(id) != nullptr ? kv.session(id)->modified : kv.sessions_revision();
                               },
                           .make =
                               [this, id = call.rest[0]] {
                                   json::array out;
                                   if (const auto* session = kv.session(id)) out.push_back(session->to_json());
                                   return out;
                               },
                           .catalog = false});
    });
    add("GET", "session/list", [this](Call& call) {
        return read(call, {.index = [this] { return kv.sessions_revision(); },
                           .make =
                               [this] {
                                   json::array out;
                                   for (const auto* session : kv.sessions()) out.push_back(session->to_json());
                                   return out;
                               },
                           .catalog = false});
    });
    add("GET", "session/node/*", [this](Call& call) {
        return read(call, {.index = [this] { return kv.sessions_revision(); },
                           .make =
                               [this, node = catalog::lowered(call.rest[0])] {
                                   json::array out;
                                   for (const auto* session : kv.sessions())
                                       if (catalog::lowered(session->node) == node) out.push_back(session->to_json());
                                   return out;
                               },
                           .catalog = false});
    });
}

} // namespace orrery::api::consul
