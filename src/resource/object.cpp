#include "resource/object.h"

#include "core/nearest.h"
#include "core/text.h"
#include "core/truncate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace orrery::resource {

namespace {

constexpr std::array<std::string_view, 8> object_keys = {"kind",   "name",     "labels",     "spec",
                                                         "status", "revision", "created_at", "updated_at"};

json::object labels_to_json(const std::map<std::string, std::string>& labels) {
    json::object out;
    for (const auto& [key, value] : labels) out.emplace(key, json::string(value));
    return out;
}

void unknown_object_key(std::string_view key, std::vector<FieldError>& errors) {
    std::string message = "unknown field; known are kind, name, labels and spec";
    if (key == "metadata")
        message = "unknown field; name and labels belong at the top level";
    else if (key == "apiVersion")
        message = "unknown field; leave it out";
    else if (key.size() <= 64) {
        const auto near = nearest(key, object_keys.data(), object_keys.data() + object_keys.size());
        if (!near.empty()) message = fmt::format("unknown field; did you mean \"{}\"?", near);
    }
    if (errors.size() < 100) errors.push_back({truncate(key, 64), std::move(message)});
}

void read_labels(const json::value& given, Object& object, std::vector<FieldError>& errors) {
    if (given.is_null()) return;
    const auto* labels = given.if_object();
    if (labels == nullptr) {
        errors.push_back({"labels", "must be an object of texts"});
        return;
    }
    // Labels are free-form, so their declaration is built here.
    static const Field one_label = map("labels", "", text("", ""));
    static const Field wrapper = resource::object("", "").with(one_label);
    json::object copy;
    copy.emplace("labels", *labels);
    const auto errors_before = errors.size();
    check_fields(wrapper, copy, "", errors);
    if (errors.size() != errors_before) return;
    for (const auto& [key, value] : copy.at("labels").get_object())
        object.labels.emplace(std::string_view(key), std::string_view(value.get_string()));
    check_labels(object.labels, errors);
}

void append_differences(const Field* declared, const json::value* before, const json::value* after, const std::string& path,
                        std::vector<Difference>& out) {
    const bool same = before == nullptr || after == nullptr ? before == after : *before == *after;
    if (same) return;
    if (declared != nullptr && declared->is_secret()) {
        const auto shown = [](const json::value* value) { return value == nullptr ? json::value() : json::value("(secret)"); };
        out.push_back({path, shown(before), shown(after)});
        return;
    }
    const auto* old_object = before == nullptr ? nullptr : before->if_object();
    const auto* new_object = after == nullptr ? nullptr : after->if_object();
    const bool descends = (old_object != nullptr || new_object != nullptr) && (before == nullptr || old_object != nullptr) &&
                          (after == nullptr || new_object != nullptr);
    if (descends) {
        const auto child_of = [&](std::string_view key) -> const Field* {
            if (declared == nullptr) return nullptr;
            if (declared->item() != nullptr) return declared->item();
            for (const auto& child : declared->children())
                if (child.name() == key) return &child;
            return nullptr;
        };
        const auto size_before = out.size();
        if (old_object != nullptr)
            for (const auto& [key, value] : *old_object)
                append_differences(child_of(key), &value, new_object == nullptr ? nullptr : new_object->if_contains(key),
                                   fmt::format("{}.{}", path, std::string_view(key)), out);
        if (new_object != nullptr)
            for (const auto& [key, value] : *new_object)
                if (old_object == nullptr || !old_object->contains(key))
                    append_differences(child_of(key), nullptr, &value, fmt::format("{}.{}", path, std::string_view(key)), out);
        if (out.size() > size_before) return; // an empty object that came or went has no members to name
    }
    if (declared != nullptr && declared->item() != nullptr && declared->type() == Type::list) {
        // A list is shown whole, so secrets in it must be taken out first.
        const auto masked = [&](const json::value* value) {
            if (value == nullptr) return json::value();
            json::object holder{{"list", *value}};
            const Field wrapper = resource::object("", "").with(list("list", "", *declared->item()));
            visit_secrets(wrapper, holder, "", [](const Field&, const std::string&, json::value& secret) { secret = "(secret)"; });
            return holder["list"];
        };
        out.push_back({path, masked(before), masked(after)});
        return;
    }
    out.push_back({path, before == nullptr ? json::value() : *before, after == nullptr ? json::value() : *after});
}

} // namespace

json::object Object::to_json() const {
    json::object out;
    out.reserve(8);
    out.emplace("kind", kind);
    out.emplace("name", name);
    out.emplace("labels", labels_to_json(labels));
    out.emplace("spec", spec);
    out.emplace("status", status);
    out.emplace("created_at", to_rfc3339(created_at));
    out.emplace("updated_at", to_rfc3339(updated_at));
    out.emplace("revision", revision);
    return out;
}

Result<Object> read_object(const Kind& kind, std::string_view name, const json::value& document) {
    const auto* given = document.if_object();
    if (given == nullptr)
        return Error{Code::invalid, fmt::format("a {} must be an object with kind, name, labels and spec", kind.name())};
    std::vector<FieldError> errors;
    Object object;
    object.kind = kind.name();
    object.name = std::string(name);
    for (const auto& [key, value] : *given)
        if (std::find(object_keys.begin(), object_keys.end(), std::string_view(key)) == object_keys.end())
            unknown_object_key(key, errors);

    if (const auto* sent = given->if_contains("kind"); sent != nullptr && (!sent->is_string() || sent->get_string() != kind.name()))
        errors.push_back({"kind", fmt::format("must be {} here", kind.name())});
    if (const auto* sent = given->if_contains("name"); sent != nullptr && !sent->is_null()) {
        if (!sent->is_string())
            errors.push_back({"name", sent->is_primitive() ? "must be a text: put it in quotes" : "must be a text"});
        else if (name.empty())
            object.name = std::string(std::string_view(sent->get_string()));
        else if (sent->get_string() != name)
            errors.push_back({"name", fmt::format("must be {}, as in the address", name)});
    } else if (name.empty()) {
        errors.push_back({"name", "must be given"});
    }
    if (!object.name.empty())
        if (auto right = check_format(Format::name, object.name); !right.empty()) errors.push_back({"name", std::move(right)});
    if (object.name.empty() && errors.empty()) errors.push_back({"name", "must be given"});

    if (const auto* labels = given->if_contains("labels")) read_labels(*labels, object, errors);
    if (const auto* spec = given->if_contains("spec"); spec != nullptr && !spec->is_null()) {
        if (spec->is_object())
            object.spec = spec->get_object();
        else
            errors.push_back({"spec", "must be an object"});
    }
    if (const auto* spec = given->if_contains("spec"); spec == nullptr || spec->is_null() || spec->is_object())
        check_fields(kind.spec(), object.spec, "spec", errors);
    TRY([[maybe_unused]] auto valid, verdict(kind, object.name, std::move(errors)));
    return object;
}

void merge_patch(json::value& target, const json::value& patch) {
    const auto* changes = patch.if_object();
    if (changes == nullptr) {
        target = patch;
        return;
    }
    if (!target.is_object()) target = json::object();
    auto& object = target.get_object();
    for (const auto& [key, value] : *changes) {
        if (value.is_null())
            object.erase(key);
        else
            merge_patch(object[key], value);
    }
}

std::vector<Difference> differences(const Kind& kind, const json::object& before, const json::object& after) {
    std::vector<Difference> out;
    const auto compare = [&](const Field* declared, std::string_view key) {
        static const json::value nothing = json::object();
        const auto* old_value = before.if_contains(key);
        const auto* new_value = after.if_contains(key);
        append_differences(declared, old_value == nullptr ? &nothing : old_value, new_value == nullptr ? &nothing : new_value,
                           std::string(key), out);
    };
    compare(nullptr, "labels");
    compare(&kind.spec(), "spec");
    return out;
}

std::string to_stored(const Object& object) {
    std::string out;
    out.reserve(256);
    out += "{\"kind\":";
    append_json(json::string(object.kind), out);
    out += ",\"name\":";
    append_json(json::string(object.name), out);
    out += ",\"labels\":";
    append_json(labels_to_json(object.labels), out);
    out += ",\"spec\":";
    append_json(object.spec, out);
    out += ",\"status\":";
    append_json(object.status, out);
    out +=
        fmt::format(",\"created_at\":\"{}\",\"updated_at\":\"{}\"}}", to_rfc3339(object.created_at), to_rfc3339(object.updated_at));
    return out;
}

bool same_but_for_status(const store::Record& before, const store::Record& after) {
    // In the format of `to_stored`, everything before the key "status" of the outermost object is user input.
    constexpr std::string_view mark = ",\"status\":";
    const std::string_view text = after.value;
    int depth = 0;
    bool quoted = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (quoted) {
            if (c == '\\') ++at;
            if (c == '"') quoted = false;
            continue;
        }
        if (depth == 1 && c == ',' && text.substr(at).starts_with(mark))
            return std::string_view(before.value).starts_with(text.substr(0, at + mark.size()));
        if (c == '"') quoted = true;
        if (c == '{' || c == '[') ++depth;
        if (c == '}' || c == ']') --depth;
    }
    return false;
}

Result<Object> from_stored(const store::Record& record) {
    const auto unreadable = [&](std::string_view why) {
        return Error{Code::internal, fmt::format("what is stored at {} does not read as a resource: {}", record.key, why),
                     "something else wrote into this store, or it is damaged; restore that key from a backup"};
    };
    auto parsed = parse_json(record.value, max_stored_depth);
    if (!parsed.ok()) return unreadable(parsed.error().message);
    auto& document = *parsed;
    auto* stored = document.if_object();
    if (stored == nullptr) return unreadable("it is not an object");
    Object object;
    object.revision = record.modified;
    const auto text_at = [&](std::string_view key, std::string& out) {
        const auto* value = stored->if_contains(key);
        if (value == nullptr || !value->is_string()) return false;
        out = std::string_view(value->get_string());
        return true;
    };
    std::string created, updated;
    if (!text_at("kind", object.kind) || !text_at("name", object.name) || !text_at("created_at", created) ||
        !text_at("updated_at", updated))
        return unreadable("kind, name or a time is missing");
    const auto created_at = from_rfc3339(created), updated_at = from_rfc3339(updated);
    if (!created_at.ok() || !updated_at.ok()) return unreadable("a time does not read");
    object.created_at = *created_at;
    object.updated_at = *updated_at;
    auto* labels = stored->if_contains("labels");
    auto* spec = stored->if_contains("spec");
    auto* status = stored->if_contains("status");
    if (labels == nullptr || !labels->is_object() || spec == nullptr || !spec->is_object() || status == nullptr ||
        !status->is_object())
        return unreadable("labels, spec or status is missing");
    for (const auto& [key, value] : labels->get_object()) {
        if (!value.is_string()) return unreadable("a label is not a text");
        object.labels.emplace(std::string_view(key), std::string_view(value.get_string()));
    }
    object.spec = std::move(spec->get_object());
    object.status = std::move(status->get_object());
    return object;
}

} // namespace orrery::resource
