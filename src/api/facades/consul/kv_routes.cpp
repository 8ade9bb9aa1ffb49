#include "api/facades/consul/facade_state.h"
#include "core/ascii.h"
#include "core/json_fields.h"
#include "core/text.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <charconv>

/// Handlers of /v1/kv, /v1/txn and /v1/session.
namespace orrery::api::consul {

namespace {

using Verb = Operation::Verb;

/// Headers of a read-only transaction, the same as of other reads.
const net::Headers read_headers{{"X-Consul-Knownleader", "true"}, {"X-Consul-Lastcontact", "0"}};

constexpr std::size_t max_value = 512 << 10, max_operations = 128; // limits of Consul

Result<std::uint64_t> number_of(const std::string& text) {
    std::uint64_t out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    // The error text of Go, as in Consul.
    if (error != std::errc{} || end != text.data() + text.size())
        return Error{Code::internal, fmt::format("strconv.ParseUint: parsing \"{}\": invalid syntax", text)};
    return out;
}

/// Keys cut after the first separator behind the prefix, without duplicates.
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

/// Fields that Consul adds to the response of a read-only transaction.
void add_read_fields(json::object& out) {
    for (auto& [key, value] : json::object{{"Index", 1},
                                           {"LastContact", 0},
                                           {"KnownLeader", true},
                                           {"ConsistencyLevel", ""},
                                           {"NotModified", false},
                                           {"Backend", 0},
                                           {"ResultsFilteredByACLs", false}})
        out[key] = value;
}

json::object failures_json(const std::vector<KeyValues::Failure>& failures, bool read_only) {
    json::array errors;
    for (const auto& failure : failures) errors.push_back(json::object{{"OpIndex", failure.operation}, {"What", failure.message}});
    json::object out{{"Results", nullptr}, {"Errors", std::move(errors)}};
    if (read_only) add_read_fields(out);
    return out;
}

bool is_empty_array(const json::value& value) { return value.as_array().empty(); }

/// A parsed body of /v1/txn.
struct ParsedTransaction {
    std::vector<Operation> operations;
    bool read_only = true;
    std::optional<KeyValues::Failure> refused; ///< an operation that Consul answers with 409
    bool unknown_verb = false;                 ///< `refused` is about its verb
};

Result<Operation> parse_operation(const json::object& given, Verb verb) {
    Operation out;
    out.verb = verb;
    out.key = text_at(given, "Key");
    TRY(out.value, base64_at(given, "Value"));
    out.session = text_at(given, "Session");
    out.flags = static_cast<std::uint64_t>(integer_at(given, "Flags", 0));
    out.index = static_cast<std::uint64_t>(integer_at(given, "Index", 0));
    return out;
}

/// Errors have the status and the text of Consul.
Result<ParsedTransaction> parse_transaction(const std::string& body) {
    constexpr std::array reads{Verb::get,         Verb::get_or_empty,  Verb::get_tree,
                               Verb::check_index, Verb::check_session, Verb::check_not_exists};
    auto value = parse_json(body);
    if (!value.ok() || !value->is_array())
        return Error{Code::invalid,
                     "Failed to parse body: " + (value.ok() ? std::string("it must be a list") : value.error().message)};
    const auto& list = value->get_array();
    if (list.size() > max_operations)
        return Error{Code::too_large,
                     fmt::format("Transaction contains too many operations ({} > {})", list.size(), max_operations)};
    ParsedTransaction out;
    for (const auto& item : list) {
        const auto* one = item.is_object() ? item.get_object().if_contains("KV") : nullptr;
        if (one == nullptr || !one->is_object()) return Error{Code::invalid, "Only operations on keys (\"KV\") are supported here"};
        const auto& given = one->get_object();
        const auto verb_name = text_at(given, "Verb");
        const auto verb = verbs().find(verb_name);
        if (verb == verbs().end()) {
            out.refused = {out.operations.size(), fmt::format("unknown KV verb \"{}\"", verb_name)};
            out.unknown_verb = true;
            return out;
        }
        if (text_at(given, "Key").empty() && verb->second != Verb::get_tree && verb->second != Verb::remove_tree) {
            out.refused = {out.operations.size(), "Must provide key"};
            return out;
        }
        TRY(auto operation, parse_operation(given, verb->second));
        out.read_only = out.read_only && std::find(reads.begin(), reads.end(), operation.verb) != reads.end();
        out.operations.push_back(std::move(operation));
    }
    return out;
}

Result<Duration> lock_delay_of(const json::object& body) {
    Duration out = Session().lock_delay;
    const auto* delay = body.if_contains("LockDelay");
    if (delay != nullptr && delay->is_string()) {
        const auto parsed = parse_go_duration(delay->get_string());
        if (!parsed)
            return Error{Code::invalid, fmt::format("Request decode failed: time: invalid duration \"{}\"",
                                                    std::string_view(delay->get_string()))};
        out = *parsed;
    } else if (delay != nullptr && delay->is_int64()) {
        // As in Consul, numbers below 1000 are seconds and others nanoseconds.
        const auto number = delay->get_int64();
        out = number < 1000 ? Duration(std::chrono::seconds(number))
                            : std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(number));
    }
    return std::clamp<Duration>(out, Duration::zero(), std::chrono::minutes(1));
}

Result<std::optional<Duration>> session_ttl(const std::string& text) {
    if (text.empty()) return std::optional<Duration>{};
    const auto ttl = parse_go_duration(text);
    if (!ttl) return Error{Code::internal, fmt::format("Session TTL '{}' invalid: time: invalid duration \"{}\"", text, text)};
    if (*ttl <= Duration::zero()) return std::optional<Duration>{};
    if (*ttl < std::chrono::seconds(10) || *ttl > std::chrono::hours(24))
        return Error{Code::internal, fmt::format("Invalid Session TTL '{}', must be between [10s=24h0m0s]",
                                                 std::chrono::duration_cast<std::chrono::nanoseconds>(*ttl).count())};
    return ttl;
}

/// Reads the body of session/create. The node and the checks are not resolved yet.
Result<Session> parse_session(const json::object& body, const std::string& default_node) {
    Session out;
    out.id = random_uuid();
    out.name = text_at(body, "Name");
    out.node = text_at(body, "Node").empty() ? default_node : text_at(body, "Node");
    const auto behavior = text_at(body, "Behavior");
    if (!behavior.empty() && behavior != "release" && behavior != "delete")
        return Error{Code::internal, fmt::format("Invalid Behavior setting '{}'", behavior)};
    out.deletes = behavior == "delete";
    TRY(out.lock_delay, lock_delay_of(body));
    out.ttl_text = text_at(body, "TTL");
    TRY(out.ttl, session_ttl(out.ttl_text));
    const bool given = body.contains("NodeChecks") || body.contains("Checks");
    out.node_checks = texts_at(body, body.contains("NodeChecks") ? "NodeChecks" : "Checks");
    if (!given) out.node_checks = {"serfHealth"}; // the default of Consul
    if (const auto* services = body.if_contains("ServiceChecks"); services != nullptr && services->is_array()) {
        out.has_service_checks = true;
        for (const auto& one : services->get_array())
            if (one.is_object())
                out.service_checks.emplace_back(text_at(one.get_object(), "ID"), text_at(one.get_object(), "Namespace"));
    }
    return out;
}

} // namespace

Task<Unit> ConsulFacade::State::kv_read_tree(Call& call) {
    const auto& key = call.path[0];
    std::function<json::value()> render = [this, key] {
        json::array out;
        for (const auto* entry : kv.tree(key)) out.push_back(entry->to_json());
        return out;
    };
    if (call.has("keys"))
        render = [this, key, separator = call.query("separator")] { return keys_of(kv.tree(key), key, separator); };
    return blocking_read(call, {.index = [this, key] { return kv.tree_revision(key); },
                                .render = std::move(render),
                                .catalog = false,
                                .is_absent = &is_empty_array});
}

Task<Unit> ConsulFacade::State::kv_get(Call& call) {
    const auto& key = call.path[0];
    if (call.has("keys") || call.has("recurse")) co_return co_await kv_read_tree(call);
    if (key.empty()) co_return co_await send_text(call, 400, "Missing key name");
    if (call.has("raw") && kv.find(key) != nullptr && call.query("index").empty()) {
        const auto entry = *kv.find(key);
        net::Headers headers{{"Content-Type", "text/plain"},         {"X-Content-Type-Options", "nosniff"},
                             {"Content-Security-Policy", "sandbox"}, {"X-Consul-Index", std::to_string(entry.modified)},
                             {"X-Consul-Knownleader", "true"},       {"X-Consul-Lastcontact", "0"}};
        co_return co_await call.out.send(call.ctx, net::Response{200, std::move(headers), entry.value});
    }
    const auto render = [this, key] {
        json::array out;
        if (const auto* entry = kv.find(key)) out.push_back(entry->to_json());
        return out;
    };
    co_return co_await blocking_read(
        call,
        {.index = [this, key] { return kv.key_revision(key); }, .render = render, .catalog = false, .is_absent = &is_empty_array});
}

Task<Unit> ConsulFacade::State::kv_put(Call& call) {
    Operation operation;
    operation.verb = Verb::set;
    operation.key = call.path[0];
    if (operation.key.empty()) co_return co_await send_text(call, 400, "Missing key name");
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
    if (ways > 1) co_return co_await send_text(call, 400, "Conflicting flags: only one of cas, acquire and release can be used");
    auto body = co_await body_of(call, max_value);
    if (!body.ok() && body.error().code == Code::too_large)
        co_return co_await send_text(call, 413, fmt::format("Request body(bytes) too large, max size: {} bytes.", max_value));
    if (!body.ok()) co_return std::move(body).error();
    operation.value = std::move(*body);
    std::vector<Operation> one;
    one.push_back(std::move(operation));
    auto done = co_await kv.apply(call.ctx, call.request.peer, std::move(one));
    if (!done.ok() && done.error().code == Code::invalid)
        co_return Error{Code::internal, "raft apply failed: " + done.error().message};
    if (!done.ok()) co_return std::move(done).error();
    co_return co_await send_json(call, done->failures.empty());
}

Task<Unit> ConsulFacade::State::kv_delete(Call& call) {
    const auto key = call.path[0];
    if (call.has("recurse")) {
        if (call.has("cas")) co_return co_await send_text(call, 400, "Conflicting flags: recurse and cas");
        CO_TRY(std::ignore, co_await kv.remove_tree(call.ctx, call.request.peer, key));
        co_return co_await send_json(call, true);
    }
    if (key.empty()) co_return co_await send_text(call, 400, "Missing key name");
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
    co_return co_await send_json(call, done.failures.empty());
}

Task<Unit> ConsulFacade::State::txn(Call& call) {
    CO_TRY(const auto body, co_await body_of(call, max_value));
    auto parsed = parse_transaction(body);
    if (!parsed.ok()) co_return std::move(parsed).error();
    if (parsed->refused)
        co_return co_await send_json(call, failures_json({*parsed->refused}, parsed->unknown_verb), 409,
                                     parsed->unknown_verb ? read_headers : net::Headers());
    const bool read_only = parsed->read_only;
    const auto count = parsed->operations.size();
    auto done = co_await kv.apply(call.ctx, call.request.peer, std::move(parsed->operations));
    if (!done.ok() && done.error().code == Code::invalid)
        co_return co_await send_json(call, failures_json({{0, done.error().message}}, false), 409);
    if (!done.ok()) co_return std::move(done).error();
    if (!done->failures.empty())
        co_return co_await send_json(call, failures_json(done->failures, read_only), 409,
                                     read_only ? read_headers : net::Headers());
    json::array results;
    for (const auto& entry : done->results) results.push_back(json::object{{"KV", entry.to_json()}});
    json::object out{{"Results", std::move(results)}, {"Errors", nullptr}};
    if (read_only || count == 0) add_read_fields(out);
    co_return co_await send_json(call, std::move(out), 200, read_only ? read_headers : net::Headers());
}

Task<Unit> ConsulFacade::State::session_create(Call& call) {
    CO_TRY(const auto text, co_await body_of(call, max_body));
    json::object body;
    if (!text.empty()) {
        auto value = parse_json(text);
        if (!value.ok() || !value->is_object())
            co_return Error{Code::invalid,
                            "Request decode failed: " + (value.ok() ? std::string("it must be an object") : value.error().message)};
        body = value->get_object();
    }
    CO_TRY(auto session, parse_session(body, options.node));
    const auto node = catalog.node(session.node);
    if (!node) co_return Error{Code::internal, "apply failed: Missing node registration"};
    session.node = node->name;
    auto checks = session.node_checks;
    for (const auto& [id, space] : session.service_checks) checks.push_back(id);
    for (const auto& id : checks)
        if (holder_of_check(session.node, id).empty())
            co_return Error{Code::internal, fmt::format("apply failed: Missing check '{}' registration", id)};
    const auto id = session.id;
    CO_TRY(std::ignore, co_await kv.create_session(call.ctx, call.request.peer, std::move(session)));
    co_return co_await send_json(call, json::object{{"ID", id}});
}

Task<Unit> ConsulFacade::State::session_destroy(Call& call) {
    CO_TRY(std::ignore, co_await kv.destroy_session(call.ctx, call.request.peer, call.path[0]));
    co_return co_await send_json(call, true);
}

Task<Unit> ConsulFacade::State::session_renew(Call& call) {
    auto session = co_await kv.renew_session(call.ctx, call.path[0]);
    if (!session.ok()) {
        if (session.error().code != Code::not_found) co_return std::move(session).error();
        co_return co_await send_text(call, 404, fmt::format("Session id '{}' not found", call.path[0]));
    }
    co_return co_await send_json(call, json::array{session->to_json()});
}

Task<Unit> ConsulFacade::State::session_info(Call& call) {
    return blocking_read(call, {.index =
                                    [this, id = call.path[0]] {
                                        return kv.session(id) != nullptr ? kv.session(id)->modified : kv.sessions_revision();
                                    },
                                .render =
                                    [this, id = call.path[0]] {
                                        json::array out;
                                        if (const auto* session = kv.session(id)) out.push_back(session->to_json());
                                        return out;
                                    },
                                .catalog = false});
}

Task<Unit> ConsulFacade::State::session_list(Call& call) {
    return blocking_read(call, {.index = [this] { return kv.sessions_revision(); },
                                .render =
                                    [this] {
                                        json::array out;
                                        for (const auto* session : kv.sessions()) out.push_back(session->to_json());
                                        return out;
                                    },
                                .catalog = false});
}

Task<Unit> ConsulFacade::State::session_node(Call& call) {
    return blocking_read(call, {.index = [this] { return kv.sessions_revision(); },
                                .render =
                                    [this, node = ascii_lower(call.path[0])] {
                                        json::array out;
                                        for (const auto* session : kv.sessions())
                                            if (ascii_lower(session->node) == node) out.push_back(session->to_json());
                                        return out;
                                    },
                                .catalog = false});
}

} // namespace orrery::api::consul
