#include "jobs/values.h"

#include "core/text.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <set>

namespace orrery::jobs {

namespace {

Error no_such_value(std::string_view text, std::string message) {
    return Error{Code::invalid, fmt::format("${{{}}}: {}", text.substr(0, 128), message)};
}

bool one_of(std::string_view word, std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

} // namespace

Result<Reference> parse_reference(std::string_view text) {
    const auto whole = text;
    const auto dot = text.find('.');
    const auto head = text.substr(0, dot);
    if (dot == text.npos)
        return no_such_value(whole, "is not known; values begin with service, hosts, node, task, with, secret or job; for a "
                                    "variable of the shell write $${...}");
    text.remove_prefix(dot + 1);
    Reference reference;
    const auto last = text.rfind('.');
    if (head == "service" || head == "hosts") {
        if (last == text.npos || last == 0) return no_such_value(whole, fmt::format("must be ${{{}.NAME.FIELD}}", head));
        reference.field = text.substr(last + 1);
        auto name = text.substr(0, last);
        if (head == "hosts") {
            reference.what = Reference::What::hosts;
            if (!one_of(reference.field, {"names", "addresses", "count"}))
                return no_such_value(whole, "a role has names, addresses and count");
            reference.name = name;
            return reference;
        }
        reference.what = Reference::What::service;
        if (const auto before = name.rfind('.'); before != name.npos) {
            if (auto state = parse_member_state(name.substr(before + 1)); state.ok()) {
                reference.state = *state;
                name = name.substr(0, before);
            }
        }
        if (!one_of(reference.field, {"addresses", "nodes", "endpoints", "count", "first"}))
            return no_such_value(whole, "a service has addresses, nodes, endpoints, count and first");
        const auto colon = name.find(':');
        reference.name = name.substr(0, colon);
        if (colon != name.npos) reference.tag = name.substr(colon + 1);
        if (reference.name.empty()) return no_such_value(whole, "names no service");
        return reference;
    }
    if (head == "node") {
        reference.what = Reference::What::node;
        reference.field = text;
        if (!one_of(text, {"name", "address"}) && !(text.starts_with("labels.") && text.size() > 7))
            return no_such_value(whole, "a node has name, address and labels.NAME");
        return reference;
    }
    if (head == "task") {
        reference.what = Reference::What::task;
        const auto values = text.rfind(".values.");
        if (values == text.npos || values == 0) return no_such_value(whole, "must be ${task.NAME.values.KEY}");
        reference.name = text.substr(0, values);
        reference.field = text.substr(values + 8);
        return reference;
    }
    if (head == "with") {
        reference.what = Reference::What::with;
        reference.name = text;
        return reference;
    }
    if (head == "secret") {
        reference.what = Reference::What::secret;
        if (last == text.npos || last == 0 || last + 1 == text.size()) return no_such_value(whole, "must be ${secret.NAME.KEY}");
        reference.name = text.substr(0, last);
        reference.field = text.substr(last + 1);
        return reference;
    }
    if (head == "job" && text == "name") return reference;
    return no_such_value(whole, "is not known; values begin with service, hosts, node, task, with, secret or job; for a variable "
                                "of the shell write $${...}");
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
    if (scope.membership == nullptr) return Error{Code::unavailable, "nobody knows about services here"};
    TRY(auto members, scope.membership->members(reference.name, reference.tag));
    std::erase_if(members, [&](const Member& member) { return member.state < reference.state; });
    if (reference.field == "count") return json::value(members.size());
    std::vector<std::string> items;
    for (const auto& member : members) {
        if (reference.field == "nodes")
            items.push_back(member.node);
        else if (reference.field != "endpoints")
            items.push_back(member.address);
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

Result<json::value> value_of(std::string_view text, const Scope& scope) {
    TRY(const auto reference, parse_reference(text));
    switch (reference.what) {
    case Reference::What::service: return service_value(reference, scope);
    case Reference::What::hosts: return hosts_value(reference, scope);
    case Reference::What::node: {
        if (!scope.node) return no_such_value(text, "the task is not about one machine");
        if (reference.field == "name") return json::value(scope.node->node.name);
        if (reference.field == "address") return json::value(scope.node->node.address);
        const auto label = scope.node->labels.find(reference.field.substr(7));
        if (label == scope.node->labels.end())
            return no_such_value(text, fmt::format("{} has no such label", scope.node->node.name));
        return json::value(label->second);
    }
    case Reference::What::task: {
        const auto* values = scope.published ? scope.published(reference.name) : nullptr;
        const auto* found = values == nullptr ? nullptr : values->if_contains(reference.field);
        if (found == nullptr) return no_such_value(text, fmt::format("{} has published no such value", reference.name));
        return *found;
    }
    case Reference::What::with: {
        const auto* found = scope.with == nullptr ? nullptr : scope.with->if_contains(reference.name);
        if (found == nullptr) return no_such_value(text, "\"with\" has no such value");
        return *found;
    }
    case Reference::What::secret: return json::value(fmt::format("${{{}}}", text));
    case Reference::What::job: return json::value(scope.job);
    }
    return no_such_value(text, "is not known");
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
    return to_json_text(value);
}

Result<json::value> bind_text(std::string_view text, const Scope& scope) {
    auto at = text.find("${");
    if (at == text.npos) return json::value(text);
    if (at == 0 && text.find('}') == text.size() - 1) return value_of(text.substr(2, text.size() - 3), scope);
    std::string out;
    std::size_t from = 0;
    for (; at != text.npos; at = text.find("${", from)) {
        if (at > from && text[at - 1] == '$') { // "$${HOME}" is the shell's
            out += text.substr(from, at - from);
            out += '{';
            from = at + 2;
            continue;
        }
        const auto end = text.find('}', at);
        if (end == text.npos) break;
        TRY(const auto value, value_of(text.substr(at + 2, end - at - 2), scope));
        out += text.substr(from, at - from);
        out += as_text(value);
        from = end + 1;
    }
    out += text.substr(from);
    return json::value(std::move(out));
}

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
    if (const auto* text = value.if_string()) return bind_text(std::string_view(*text), scope);
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
