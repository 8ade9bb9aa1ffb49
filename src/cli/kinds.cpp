#include "cli/kinds.h"

#include "core/nearest.h"
#include "net/http.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

namespace orrery::cli {

namespace {

std::string lower_case(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return out;
}

std::vector<std::string> texts_of(const json::value& object, std::string_view name) {
    std::vector<std::string> out;
    const auto* value = at_path(object, name);
    if (value == nullptr || !value->is_array()) return out;
    for (const auto& item : value->get_array())
        if (item.is_string()) out.emplace_back(item.get_string());
    return out;
}

KindView read_kind(const json::value& described) {
    KindView kind{.kind = text_of(described, "kind"),
                  .plural = text_of(described, "plural"),
                  .doc = text_of(described, "doc"),
                  .example = text_of(described, "example"),
                  .names = texts_of(described, "names"),
                  .verbs = texts_of(described, "verbs"),
                  .indexed = texts_of(described, "indexed"),
                  .columns = {},
                  .fields = {}};
    if (const auto* columns = at_path(described, "columns"); columns != nullptr && columns->is_array())
        for (const auto& column : columns->get_array())
            kind.columns.push_back({text_of(column, "title"), text_of(column, "path"), is_true(column, "wide")});
    if (const auto* fields = at_path(described, "fields"); fields != nullptr && fields->is_array())
        for (const auto& field : fields->get_array()) {
            const auto* default_value = at_path(field, "default");
            kind.fields.push_back({.path = text_of(field, "path"),
                                   .type = text_of(field, "type"),
                                   .doc = text_of(field, "doc"),
                                   .reference = text_of(field, "reference"),
                                   .required = is_true(field, "required"),
                                   .secret = is_true(field, "secret"),
                                   .immutable = is_true(field, "immutable"),
                                   .default_value = default_value == nullptr ? json::value{} : *default_value,
                                   .one_of = texts_of(field, "one_of"),
                                   .forms = texts_of(field, "forms")});
        }
    return kind;
}

} // namespace

const json::value* at_path(const json::value& object, std::string_view path) {
    const auto* at = &object;
    while (!path.empty()) {
        const auto end = std::min(path.find('.'), path.size());
        auto part = path.substr(0, end);
        path.remove_prefix(std::min(end + 1, path.size()));
        auto bracket = std::min(part.find('['), part.size());
        if (!at->is_object()) return nullptr;
        at = at->get_object().if_contains(part.substr(0, bracket));
        for (; at != nullptr && bracket < part.size(); bracket = std::min(part.find('[', bracket + 1), part.size())) {
            std::size_t index = 0;
            const auto [stop, error] = std::from_chars(part.data() + bracket + 1, part.data() + part.size(), index);
            if (error != std::errc{} || !at->is_array() || index >= at->get_array().size()) return nullptr;
            at = &at->get_array()[index];
        }
        if (at == nullptr) return nullptr;
    }
    return at;
}

std::string text_of(const json::value& object, std::string_view path) {
    const auto* value = at_path(object, path);
    return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string{};
}

bool is_true(const json::value& object, std::string_view path) {
    const auto* value = at_path(object, path);
    return value != nullptr && value->is_bool() && value->get_bool();
}

const json::array& list_at(const json::value& object, std::string_view path) {
    static const json::array empty;
    const auto* value = at_path(object, path);
    return value != nullptr && value->is_array() ? value->get_array() : empty;
}

std::string KindView::singular() const { return lower_case(kind); }

namespace {

/// Does a declared path ("spec.members[].node", "spec.values.*") match the path of a value ("spec.members[2].node")?
bool declares(std::string_view declared, std::string_view path) {
    const auto next = [](std::string_view& rest) {
        const auto end = std::min(rest.find('.'), rest.size());
        const auto part = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        return part;
    };
    while (!declared.empty() && !path.empty()) {
        auto wanted = next(declared);
        auto given = next(path);
        if (wanted == "*") continue;
        const auto brackets = [](std::string_view part) { return part.substr(0, part.find('[')); };
        const auto count = [](std::string_view part) { return std::count(part.begin(), part.end(), '['); };
        if (brackets(wanted) != brackets(given) || count(wanted) != count(given)) return false;
    }
    return declared.empty() && path.empty();
}

} // namespace

const KindField* KindView::field(std::string_view path) const {
    const auto found =
        std::find_if(fields.begin(), fields.end(), [&](const KindField& field) { return declares(field.path, path); });
    return found == fields.end() ? nullptr : &*found;
}

std::string KindView::route(std::string_view name) const {
    return name.empty() ? "/v1/" + plural : fmt::format("/v1/{}/{}", plural, net::percent_encode(name));
}

Result<KindCatalog> KindCatalog::read(const json::value& answer) {
    const auto* items = at_path(answer, "items");
    if (items == nullptr || !items->is_array())
        return Error{Code::internal, "the server sent a list of kinds that is not valid",
                     "check that it is an orrery server of this version"};
    KindCatalog catalog;
    for (const auto& item : items->get_array()) {
        auto kind = read_kind(item);
        if (!kind.kind.empty() && !kind.plural.empty()) catalog.kinds_.push_back(std::move(kind));
    }
    return catalog;
}

Result<const KindView*> KindCatalog::find(std::string_view name) const {
    const auto wanted = lower_case(name);
    std::vector<std::string> known;
    for (const auto& kind : kinds_) {
        if (wanted == kind.singular() || wanted == kind.plural) return &kind;
        for (const auto& other : kind.names)
            if (wanted == lower_case(other)) return &kind;
        // Of two equally similar names, prefer the one in the same number.
        known.push_back(wanted.ends_with('s') ? kind.plural : kind.singular());
        known.push_back(wanted.ends_with('s') ? kind.singular() : kind.plural);
    }
    const std::vector<std::string_view> candidates(known.begin(), known.end());
    const auto near = nearest(wanted, candidates.data(), candidates.data() + candidates.size());
    return Error{Code::not_found, fmt::format("there is no kind \"{}\"", name),
                 near.empty() ? std::string("\"orrery kinds\" lists all kinds")
                              : fmt::format("did you mean {}? \"orrery kinds\" lists all kinds", near)};
}

std::vector<const KindView*> KindCatalog::in_order() const {
    std::map<std::string, const KindView*> by_name;
    for (const auto& kind : kinds_) by_name[kind.kind] = &kind;
    std::vector<const KindView*> out;
    std::map<const KindView*, bool> seen;
    const std::function<void(const KindView*)> visit = [&](const KindView* kind) {
        if (!seen.emplace(kind, true).second) return; // also ends cycles of references
        for (const auto& field : kind->fields)
            if (const auto other = by_name.find(field.reference); other != by_name.end()) visit(other->second);
        out.push_back(kind);
    };
    for (const auto& kind : kinds_) visit(&kind);
    return out;
}

} // namespace orrery::cli
