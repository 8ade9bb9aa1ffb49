#include "api/facades/consul/kv_encoding.h"

#include "core/json_fields.h"
#include "core/text.h"
#include "net/http.h"

#include <fmt/format.h>
#include <sodium.h>

namespace orrery::api::consul {

namespace {

std::string encode_base64(std::string_view bytes) {
    std::string out(sodium_base64_ENCODED_LEN(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
    sodium_bin2base64(out.data(), out.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                      sodium_base64_VARIANT_ORIGINAL);
    out.resize(out.size() - 1);
    return out;
}

std::string decode_base64(std::string_view text) {
    std::string out(text.size() / 4 * 3 + 3, '\0');
    std::size_t size = 0;
    if (sodium_base642bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(), nullptr, &size,
                          nullptr, sodium_base64_VARIANT_ORIGINAL) != 0)
        return {};
    out.resize(size);
    return out;
}

std::uint64_t unsigned_at(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    if (value == nullptr) return 0;
    if (value->is_uint64()) return value->get_uint64();
    return value->is_int64() && value->get_int64() > 0 ? static_cast<std::uint64_t>(value->get_int64()) : 0;
}

} // namespace

std::string store_key(std::string_view prefix, std::string_view key) {
    std::string out(prefix);
    for (const char c : key) {
        if (c == '/')
            out += c;
        else
            out += net::percent_encode({&c, 1});
    }
    return out;
}

std::string to_value(const Entry& entry) {
    // The key is the first member: it is decoded from here, not from the encoded key of the store.
    return to_json_text(json::object{
        {"k", entry.key}, {"f", entry.flags}, {"l", entry.lock_index}, {"s", entry.session}, {"v", encode_base64(entry.value)}});
}

std::optional<Entry> read_entry(const store::Record& record) {
    const auto value = parse_json(record.value);
    if (!value.ok() || !value->is_object()) return std::nullopt;
    const auto& object = value->get_object();
    Entry out;
    out.key = text_at(object, "k");
    out.flags = unsigned_at(object, "f");
    out.lock_index = unsigned_at(object, "l");
    out.session = text_at(object, "s");
    out.value = decode_base64(text_at(object, "v"));
    out.created = record.created;
    out.modified = record.modified;
    return out;
}

std::string to_value(const Session& session) {
    json::array services;
    for (const auto& [id, space] : session.service_checks) services.push_back(json::object{{"id", id}, {"ns", space}});
    json::object out{{"id", session.id},
                     {"name", session.name},
                     {"node", session.node},
                     {"delay", session.lock_delay.count()},
                     {"deletes", session.deletes},
                     {"ttl_text", session.ttl_text},
                     {"node_checks", json::array(session.node_checks.begin(), session.node_checks.end())}};
    if (session.ttl) out["ttl"] = session.ttl->count();
    if (session.has_service_checks) out["service_checks"] = std::move(services);
    return to_json_text(out);
}

std::optional<Session> read_session(const store::Record& record) {
    const auto value = parse_json(record.value);
    if (!value.ok() || !value->is_object()) return std::nullopt;
    const auto& object = value->get_object();
    Session out;
    out.id = text_at(object, "id");
    out.name = text_at(object, "name");
    out.node = text_at(object, "node");
    out.lock_delay = Duration(integer_at(object, "delay", 0));
    out.deletes = object.contains("deletes") && object.at("deletes") == true;
    if (object.contains("ttl")) out.ttl = Duration(integer_at(object, "ttl", 0));
    out.ttl_text = text_at(object, "ttl_text");
    out.node_checks = texts_at(object, "node_checks");
    if (const auto* services = object.if_contains("service_checks"); services != nullptr && services->is_array()) {
        out.has_service_checks = true;
        for (const auto& one : services->get_array())
            if (one.is_object()) out.service_checks.emplace_back(text_at(one.get_object(), "id"), text_at(one.get_object(), "ns"));
    }
    out.lease = record.lease;
    out.created = record.created;
    out.modified = record.modified;
    return out;
}

json::object Entry::to_json() const {
    json::object out{{"LockIndex", lock_index}, {"Key", key}, {"Flags", flags}, {"Value", nullptr}};
    if (!value.empty()) out["Value"] = encode_base64(value);
    if (!session.empty()) out["Session"] = session;
    out["CreateIndex"] = created;
    out["ModifyIndex"] = modified;
    return out;
}

json::object Session::to_json() const {
    json::value services;
    if (has_service_checks) {
        services = json::array();
        for (const auto& [id_, space] : service_checks)
            services.as_array().push_back(json::object{{"ID", id_}, {"Namespace", space}});
    }
    json::value checks;
    if (!node_checks.empty()) checks = json::array(node_checks.begin(), node_checks.end());
    return {{"ID", id},
            {"Name", name},
            {"Node", node},
            {"LockDelay", std::chrono::duration_cast<std::chrono::nanoseconds>(lock_delay).count()},
            {"Behavior", deletes ? "delete" : "release"},
            {"TTL", ttl_text},
            {"NodeChecks", std::move(checks)},
            {"ServiceChecks", std::move(services)},
            {"CreateIndex", created},
            {"ModifyIndex", modified}};
}

} // namespace orrery::api::consul
