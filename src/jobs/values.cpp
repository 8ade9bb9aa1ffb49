#include "jobs/values.h"

#include "core/text.h"
#include "core/truncate.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <set>

namespace orrery::jobs {

namespace {

Error no_such_value(std::string_view text, std::string message) {
    return Error{Code::invalid, fmt::format("${{{}}}: {}", truncate(text, 128), message)};
}

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::string_view unknown_reference =
    "is not known; values begin with service, hosts, node, task, with, secret, param or job; for a variable of the shell write "
    "$${...}";

/// `text` is the part after "hosts.".
Result<Reference> parse_hosts(std::string_view whole, std::string_view text) {
    const auto last = text.rfind('.');
    if (last == text.npos || last == 0) return no_such_value(whole, "must be ${hosts.NAME.FIELD}");
    Reference out;
    out.type = Reference::Type::hosts;
    out.name = text.substr(0, last);
    out.field = text.substr(last + 1);
    if (!one_of(out.field, {"names", "addresses", "count"})) return no_such_value(whole, "a role has names, addresses and count");
    return out;
}

/// NAME.FIELD, NAME:TAG.FIELD or NAME.STATE.FIELD.
Result<Reference> parse_service_reference(std::string_view whole, std::string_view text) {
    const auto last = text.rfind('.');
    if (last == text.npos || last == 0) return no_such_value(whole, "must be ${service.NAME.FIELD}");
    Reference out;
    out.type = Reference::Type::service;
    out.field = text.substr(last + 1);
    auto name = text.substr(0, last);
    if (const auto before = name.rfind('.'); before != name.npos)
        if (auto state = catalog::parse_state(name.substr(before + 1)); state.ok()) {
            out.state = *state;
            name = name.substr(0, before);
        }
    if (!one_of(out.field, {"addresses", "nodes", "endpoints", "count", "first"}))
        return no_such_value(whole, "a service has addresses, nodes, endpoints, count and first");
    const auto colon = name.find(':');
    out.name = name.substr(0, colon);
    if (colon != name.npos) out.tag = name.substr(colon + 1);
    if (out.name.empty()) return no_such_value(whole, "names no service");
    return out;
}

Result<Reference> parse_node(std::string_view whole, std::string_view text) {
    if (!one_of(text, {"name", "address"}) && !(text.starts_with("labels.") && text.size() > 7))
        return no_such_value(whole, "a node has name, address and labels.NAME");
    Reference out;
    out.type = Reference::Type::node;
    out.field = text;
    return out;
}

Result<Reference> parse_task(std::string_view whole, std::string_view text) {
    const auto values = text.rfind(".values.");
    if (values == text.npos || values == 0) return no_such_value(whole, "must be ${task.NAME.values.KEY}");
    Reference out;
    out.type = Reference::Type::task;
    out.name = text.substr(0, values);
    out.field = text.substr(values + 8);
    return out;
}

Result<Reference> parse_secret(std::string_view whole, std::string_view text) {
    const auto last = text.rfind('.');
    if (last == text.npos || last == 0 || last + 1 == text.size()) return no_such_value(whole, "must be ${secret.NAME.KEY}");
    Reference out;
    out.type = Reference::Type::secret;
    out.name = text.substr(0, last);
    out.field = text.substr(last + 1);
    return out;
}

} // namespace

Result<Reference> parse_reference(std::string_view text) {
    const auto dot = text.find('.');
    if (dot == text.npos) return no_such_value(text, std::string(unknown_reference));
    const auto head = text.substr(0, dot), rest = text.substr(dot + 1);
    if (head == "hosts") return parse_hosts(text, rest);
    if (head == "service") return parse_service_reference(text, rest);
    if (head == "node") return parse_node(text, rest);
    if (head == "task") return parse_task(text, rest);
    if (head == "secret") return parse_secret(text, rest);
    Reference out;
    if (head == "with" || head == "param") {
        out.type = head == "with" ? Reference::Type::with : Reference::Type::param;
        out.name = rest;
        return out;
    }
    if (head == "job" && rest == "name") return out;
    return no_such_value(text, std::string(unknown_reference));
}

namespace {

json::value sorted_list(std::vector<std::string> items) {
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
    json::array out;
    for (auto& item : items) out.emplace_back(std::move(item));
    return out;
}

Result<json::value> service_value(const Reference& reference, const Scope& scope) {
    if (scope.membership == nullptr) return Error{Code::unavailable, "there is no catalog here"};
    TRY(auto found, scope.membership->members(reference.name, reference.tag));
    auto& members = found.all;
    // Right after a start every state is from before it: a value made of that could be written to a host and stay there.
    if (reference.state > MemberState::registered)
        for (const auto& member : members)
            if (member.evidence == Evidence::awaited)
                return Error{Code::unavailable, fmt::format("the first check of {} on {} since this server started is not over",
                                                            reference.name, member.node)};
    std::erase_if(members, [&](const Member& member) { return member.state < reference.state; });
    if (reference.field == "count") return json::value(members.size());
    std::vector<std::string> items;
    for (const auto& member : members) {
        if (reference.field == "nodes")
            items.push_back(member.node);
        else if (reference.field != "endpoints")
            items.push_back(member.address);
        else if (member.port == 0)
            return Error{Code::unavailable, fmt::format("{} on {} has no port; give one to its Service or to the Instance",
                                                        reference.name, member.node)};
        else if (member.address.find(':') == std::string::npos)
            items.push_back(fmt::format("{}:{}", member.address, member.port));
        else
            items.push_back(fmt::format("[{}]:{}", member.address, member.port));
    }
    auto list = sorted_list(std::move(items));
    if (reference.field != "first") return list;
    if (list.get_array().empty())
        return Error{Code::unavailable, fmt::format("no instance of {} is {} yet", reference.name, name_of(reference.state))};
    return list.get_array().front();
}

Result<json::value> hosts_value(const Reference& reference, const Scope& scope) {
    std::vector<std::string> items;
    if (scope.plan != nullptr)
        for (std::size_t i = 0; i < scope.plan->hosts.size(); ++i)
            if (scope.plan->roles[i] == reference.name)
                items.push_back(reference.field == "addresses" && scope.address_of ? scope.address_of(scope.plan->hosts[i])
                                                                                   : scope.plan->hosts[i]);
    if (reference.field == "count") return json::value(items.size());
    return sorted_list(std::move(items));
}

std::string with_dollars_doubled(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) out.append(c == '$' ? 2 : 1, c);
    return out;
}

/// An external value as a bound value.
json::value as_data(const json::value& value) {
    if (const auto* text = value.if_string()) return json::value(with_dollars_doubled(std::string_view(*text)));
    if (const auto* list = value.if_array()) {
        json::array out;
        for (const auto& item : *list) out.push_back(as_data(item));
        return out;
    }
    if (const auto* object = value.if_object()) {
        json::object out;
        for (const auto& [key, item] : *object) out[key] = as_data(item);
        return out;
    }
    return value;
}

Result<json::value> outside_value(const Reference& reference, std::string_view text, const Scope& scope) {
    switch (reference.type) {
    case Reference::Type::service: return service_value(reference, scope);
    case Reference::Type::hosts: return hosts_value(reference, scope);
    case Reference::Type::node: {
        if (!scope.node) return no_such_value(text, "the task has no node of its own");
        if (reference.field == "name") return json::value(scope.node->node.name);
        if (reference.field == "address") return json::value(scope.node->node.address);
        const auto label = scope.node->labels.find(reference.field.substr(7));
        if (label == scope.node->labels.end())
            return no_such_value(text, fmt::format("{} has no such label", scope.node->node.name));
        return json::value(label->second);
    }
    case Reference::Type::task: {
        const auto* values = scope.published ? scope.published(reference.name) : nullptr;
        const auto* found = values == nullptr ? nullptr : values->if_contains(reference.field);
        if (found == nullptr) return no_such_value(text, fmt::format("{} has published no such value", reference.name));
        return *found;
    }
    case Reference::Type::param: {
        const auto* found = scope.plan == nullptr ? nullptr : scope.plan->spec.parameters.if_contains(reference.name);
        if (found == nullptr) return no_such_value(text, "the job has no such parameter");
        return *found;
    }
    case Reference::Type::job: return json::value(scope.job);
    default: return no_such_value(text, "is not known");
    }
}

Result<json::value> value_of(std::string_view text, const Scope& scope) {
    TRY(const auto reference, parse_reference(text));
    if (reference.type == Reference::Type::secret) return json::value(fmt::format("${{{}}}", text));
    if (reference.type == Reference::Type::with) { // bound already
        const auto* found = scope.with == nullptr ? nullptr : scope.with->if_contains(reference.name);
        if (found == nullptr) return no_such_value(text, "\"with\" has no such value");
        return *found;
    }
    TRY(const auto value, outside_value(reference, text, scope));
    return as_data(value);
}

/// The same value with every key as data: in a text, a key must not be read as a reference to a secret.
json::value with_keys_as_data(const json::value& value) {
    if (const auto* list = value.if_array()) {
        json::array out;
        for (const auto& item : *list) out.push_back(with_keys_as_data(item));
        return out;
    }
    if (const auto* object = value.if_object()) {
        json::object out;
        for (const auto& [key, item] : *object) out[with_dollars_doubled(key)] = with_keys_as_data(item);
        return out;
    }
    return value;
}

std::string as_text(const json::value& value) {
    if (value.is_string()) return std::string(std::string_view(value.get_string()));
    if (const auto* list = value.if_array()) {
        std::string out;
        for (const auto& item : *list) {
            if (!out.empty()) out += ',';
            out += as_text(item);
        }
        return out;
    }
    return to_json_text(with_keys_as_data(value));
}

/// Whether the text is exactly one reference.
bool is_one_reference(std::string_view text) { return text.starts_with("${") && text.find('}') == text.size() - 1; }

} // namespace

Result<std::string> bind_text(std::string_view text, const Scope& scope) {
    std::string out;
    std::size_t from = 0;
    for (auto at = text.find("${"); at != text.npos; at = text.find("${", from)) {
        if (at > from && text[at - 1] == '$') { // "$${HOME}" is the shell's
            out += with_dollars_doubled(text.substr(from, at - from));
            out += '{';
            from = at + 2;
            continue;
        }
        const auto end = text.find('}', at);
        if (end == text.npos) break;
        TRY(const auto value, value_of(text.substr(at + 2, end - at - 2), scope));
        out += with_dollars_doubled(text.substr(from, at - from));
        out += as_text(value);
        from = end + 1;
    }
    out += with_dollars_doubled(text.substr(from));
    return out;
}

namespace {

json::value canonical(const json::value& value) {
    if (const auto* list = value.if_array()) {
        json::array out;
        for (const auto& item : *list) out.push_back(canonical(item));
        return out;
    }
    if (const auto* object = value.if_object()) {
        std::vector<std::string_view> keys;
        for (const auto& [key, item] : *object) keys.push_back(key);
        std::sort(keys.begin(), keys.end());
        json::object out;
        for (const auto key : keys) out[key] = canonical(*object->if_contains(key));
        return out;
    }
    return value;
}

} // namespace

Result<json::value> bind(const json::value& value, const Scope& scope) {
    if (const auto* found = value.if_string()) {
        const std::string_view text(*found);
        if (is_one_reference(text)) return value_of(text.substr(2, text.size() - 3), scope);
        TRY(const auto bound, bind_text(text, scope));
        return json::value(bound);
    }
    if (const auto* list = value.if_array()) {
        json::array out;
        for (const auto& item : *list) {
            TRY(auto bound, bind(item, scope));
            out.push_back(std::move(bound));
        }
        return json::value(std::move(out));
    }
    if (const auto* object = value.if_object()) {
        json::object out;
        for (const auto& [key, item] : *object) {
            TRY(auto bound, bind(item, scope));
            out[key] = std::move(bound);
        }
        return json::value(std::move(out));
    }
    return value;
}

bool is_plain(const json::value& value) {
    if (const auto* text = value.if_string()) return text->find('$') == json::string::npos;
    if (const auto* list = value.if_array()) return std::all_of(list->begin(), list->end(), is_plain);
    if (const auto* object = value.if_object())
        return std::all_of(object->begin(), object->end(), [](const auto& item) { return is_plain(item.value()); });
    return true;
}

std::string sha256_text(std::string_view bytes, std::size_t digits) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
    std::string out;
    for (unsigned int i = 0; i < size && out.size() < digits; ++i) out += fmt::format("{:02x}", digest[i]);
    out.resize(std::min(out.size(), digits));
    return out;
}

std::string digest_of(const json::value& value) { return sha256_text(to_json_text(canonical(value))); }

} // namespace orrery::jobs
