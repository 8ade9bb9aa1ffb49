#include "catalog/json_read.h"

namespace orrery::catalog {

std::string text_at(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    const auto* text = value ? value->if_string() : nullptr;
    return text ? std::string(std::string_view(*text)) : std::string();
}

std::int64_t number_at(const json::object& object, std::string_view key, std::int64_t otherwise) {
    const auto* value = object.if_contains(key);
    if (value == nullptr) return otherwise;
    if (value->is_int64()) return value->get_int64();
    if (value->is_uint64()) return static_cast<std::int64_t>(value->get_uint64());
    return otherwise;
}

std::vector<std::string> texts_at(const json::object& object, std::string_view key) {
    std::vector<std::string> out;
    const auto* value = object.if_contains(key);
    if (value == nullptr || !value->is_array()) return out;
    for (const auto& item : value->get_array())
        if (item.is_string()) out.emplace_back(std::string_view(item.get_string()));
    return out;
}

std::map<std::string, std::string> texts_by_name(const json::object& object, std::string_view key) {
    std::map<std::string, std::string> out;
    for (const auto& [name, value] : object_at(object, key))
        if (value.is_string()) out[std::string(name)] = std::string(std::string_view(value.get_string()));
    return out;
}

const json::object& object_at(const json::object& object, std::string_view key) {
    static const json::object none;
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_object() ? value->get_object() : none;
}

std::string lowered(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
    return out;
}

} // namespace orrery::catalog
