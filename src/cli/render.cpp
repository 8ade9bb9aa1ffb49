#include "cli/render.h"

#include "core/text.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <ostream>

namespace orrery::cli {

namespace {

constexpr std::string_view masked = "(secret)";

bool is_empty(const json::value* value) {
    return value == nullptr || value->is_null() || (value->is_string() && value->get_string().empty()) ||
           (value->is_array() && value->get_array().empty()) || (value->is_object() && value->get_object().empty());
}

void add_leaves(const KindView& kind, const json::value& value, const std::string& path, std::vector<ShownChange>& out) {
    const auto* declared = kind.field(path);
    if (declared != nullptr && declared->secret) {
        out.push_back({'+', fmt::format("{}: {}", path, masked)});
    } else if (value.is_object() && !value.get_object().empty()) {
        for (const auto& [name, member] : value.get_object())
            add_leaves(kind, member, fmt::format("{}.{}", path, std::string_view(name)), out);
    } else if (value.is_array()) {
        // One row for each item if an item may be or contain a secret.
        const auto& items = value.get_array();
        const auto* item = kind.field(path + "[0]");
        const bool plain = std::none_of(items.begin(), items.end(), [](const json::value& one) { return one.is_structured(); }) &&
                           (item == nullptr || !item->secret);
        if (plain && !items.empty()) out.push_back({'+', fmt::format("{}: {}", path, value_text(value))});
        for (std::size_t i = 0; !plain && i < items.size(); ++i) add_leaves(kind, items[i], fmt::format("{}[{}]", path, i), out);
    } else if (!is_empty(&value)) {
        out.push_back({'+', fmt::format("{}: {}", path, value_text(value))});
    }
}

} // namespace

std::string value_text(const json::value& value) {
    switch (value.kind()) {
    case json::kind::null: return "-";
    case json::kind::string: return std::string(value.get_string());
    case json::kind::array: {
        std::string out;
        for (const auto& item : value.get_array()) out += (out.empty() ? "" : ",") + value_text(item);
        return out;
    }
    case json::kind::object: {
        std::string out;
        for (const auto& [name, member] : value.get_object())
            out += fmt::format("{}{}={}", out.empty() ? "" : ",", std::string_view(name), value_text(member));
        return out;
    }
    default: return to_json_text(value);
    }
}

std::string shown_at(const json::value& object, std::string_view path) {
    const auto* found = at_path(object, path);
    return found == nullptr ? std::string() : printable(value_text(*found));
}

std::string column_text(const KindView& kind, const json::value& object, std::string_view path, WallTime now) {
    if (path == "age") {
        const auto created = from_rfc3339(text_of(object, "created_at"));
        return created.ok() ? short_age(now - *created) : "-";
    }
    const auto* value = at_path(object, path);
    if (is_empty(value)) return "-";
    const auto* declared = kind.field(path);
    const bool is_time = path == "created_at" || path == "updated_at" || (declared != nullptr && declared->type == "time");
    if (is_time && value->is_string())
        if (const auto time = from_rfc3339(std::string_view(value->get_string())); time.ok()) return relative_time(*time, now);
    return value_text(*value);
}

Table object_table(const KindView& kind, const std::vector<json::value>& objects, bool wide, WallTime now) {
    std::vector<KindColumn> columns;
    const auto has = [&](std::string_view path) {
        return std::any_of(kind.columns.begin(), kind.columns.end(), [&](const KindColumn& column) { return column.path == path; });
    };
    const bool complete = has("name"); // otherwise add name and age
    if (!complete) columns.push_back({"NAME", "name", false});
    for (const auto& column : kind.columns)
        if (wide || !column.wide) columns.push_back(column);
    if (wide && !has("labels")) columns.push_back({"LABELS", "labels", true});
    if (!complete && !has("age")) columns.push_back({"AGE", "age", false});
    std::vector<std::string> titles;
    for (const auto& column : columns) titles.push_back(column.title);
    Table table(std::move(titles));
    for (const auto& object : objects) {
        std::vector<Cell> row;
        for (const auto& column : columns) row.push_back({column_text(kind, object, column.path, now)});
        table.add(std::move(row));
    }
    return table;
}

std::string object_yaml(const json::value& object) {
    if (!object.is_object()) return to_yaml(object);
    json::object ordered;
    for (const std::string_view name : {"kind", "name", "labels", "spec", "status", "revision", "created_at", "updated_at"})
        if (const auto* member = object.get_object().if_contains(name)) {
            const bool optional = name == "labels" || name == "status";
            if (!optional || !is_empty(member)) ordered[name] = *member;
        }
    for (const auto& [name, member] : object.get_object())
        if (!ordered.contains(name) && !is_empty(&member)) ordered[name] = member;
    return to_yaml(ordered);
}

void print_yaml(std::ostream& out, const std::vector<json::value>& objects) {
    for (std::size_t i = 0; i < objects.size(); ++i) out << (i > 0 ? "---\n" : "") << object_yaml(objects[i]);
}

std::vector<ShownChange> changes_of(const json::value& answer) {
    std::vector<ShownChange> out;
    const auto* changes = at_path(answer, "changes");
    if (changes == nullptr || !changes->is_array()) return out;
    for (const auto& change : changes->get_array()) {
        const auto path = text_of(change, "path");
        const auto* before = at_path(change, "before");
        const auto* after = at_path(change, "after");
        const bool was = before != nullptr && !before->is_null(), is = after != nullptr && !after->is_null();
        if (was && is)
            out.push_back({'~', fmt::format("{}: {} → {}", path, value_text(*before), value_text(*after))});
        else if (is)
            out.push_back({'+', fmt::format("{}: {}", path, value_text(*after))});
        else if (was)
            out.push_back({'-', fmt::format("{}: {}", path, value_text(*before))});
        else
            out.push_back({'~', path});
    }
    return out;
}

std::vector<ShownChange> additions_of(const KindView& kind, const json::value& document) {
    std::vector<ShownChange> out;
    for (const std::string_view part : {"labels", "spec"})
        if (const auto* value = at_path(document, part)) add_leaves(kind, *value, std::string(part), out);
    return out;
}

std::string changes_line(const std::vector<ShownChange>& changes) {
    constexpr std::size_t most = 3;
    std::string out;
    for (std::size_t i = 0; i < std::min(most, changes.size()); ++i) {
        if (i > 0) out += ", ";
        out += changes[i].text;
        if (changes[i].sign == '+') out += " added";
        if (changes[i].sign == '-') out += " removed";
    }
    if (changes.size() > most) out += fmt::format(" and {} more", changes.size() - most);
    return printable(out);
}

Style style_of_outcome(std::string_view outcome) {
    if (outcome == "created") return Style::green;
    if (outcome == "updated") return Style::yellow;
    if (outcome == "removed") return Style::red;
    return Style::dim;
}

} // namespace orrery::cli
