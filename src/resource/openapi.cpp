#include "resource/openapi.h"

#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::resource {

namespace {

json::array texts(const std::vector<std::string>& from) {
    json::array out;
    for (const auto& text : from) out.emplace_back(json::string(text));
    return out;
}

void bounds_into(const Field& field, std::string_view min_name, std::string_view max_name, json::object& schema) {
    if (field.min() && !(min_name != "minimum" && *field.min() == 0)) schema.emplace(min_name, *field.min());
    if (field.max()) schema.emplace(max_name, *field.max());
}

constexpr std::string_view secret_reference_pattern = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\\.[^.\\x00-\\x1f\\x7f]{1,128}$";

void text_schema(const Field& field, Side side, json::object& schema) {
    schema.emplace("type", "string");
    if (field.is_secret()) schema.emplace("x-sealed", true);
    if (field.is_secret() && side == Side::answer) { // its value is never given out again
        schema.emplace("const", sealed_mark);
        return;
    }
    bounds_into(field, "minLength", "maxLength", schema);
    if (!field.choices().empty()) schema.emplace("enum", texts(field.choices()));
    const auto format = field.reference().empty() ? field.text_format() : Format::name;
    switch (format) {
    case Format::name: schema.emplace("pattern", "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"); break;
    case Format::host: schema.emplace("x-format", "an IP address or a host name"); break;
    case Format::address: schema.emplace("x-format", "an IP address"); break;
    case Format::url: schema.emplace("format", "uri"); break;
    case Format::one_line: schema.emplace("pattern", "^[^\\x00-\\x1f\\x7f]*$"); break;
    case Format::data:
    case Format::any: break;
    }
    if (!field.reference().empty()) schema.emplace("x-reference", field.reference());
    if (!field.takes_secret()) return;
    json::object named{{"type", "object"},
                       {"properties", {{"secret", {{"type", "string"}, {"pattern", secret_reference_pattern}}}}},
                       {"required", {"secret"}},
                       {"additionalProperties", false}};
    schema = {{"anyOf", json::array{std::move(schema), std::move(named)}}};
}

/// Null is taken as if the field were absent; so where the field may be absent, it may be null.
void allow_null(json::object& schema) {
    if (auto* type = schema.if_contains("type"); type != nullptr && type->is_string()) *type = json::array{*type, "null"};
    if (auto* choices = schema.if_contains("enum")) choices->as_array().emplace_back(nullptr);
}

json::object labels_schema(Side side) {
    json::object out{{"type", "object"},
                     {"description", "For selecting."},
                     {"additionalProperties", {{"type", "string"}, {"maxLength", 256}, {"pattern", "^[^\\x00-\\x1f\\x7f]*$"}}},
                     {"propertyNames", {{"pattern", "^[A-Za-z0-9._/-]{1,128}$"}}},
                     {"maxProperties", 64}};
    if (side == Side::request) allow_null(out);
    return out;
}

json::object name_schema() {
    return {{"type", "string"},
            {"description", "Unique within the kind."},
            {"maxLength", 253},
            {"pattern", "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"}};
}

json::object envelope(const Kind& kind, Side side) {
    json::object properties;
    properties.emplace("kind", json::object{{"type", "string"}, {"const", kind.name()}});
    properties.emplace("name", name_schema());
    properties.emplace("labels", labels_schema(side));
    properties.emplace("spec", schema_of(kind.spec(), side));
    return properties;
}

json::object body_schema(const Kind& kind, bool named_by_path) {
    auto properties = envelope(kind, Side::request);
    json::array required;
    if (named_by_path) {
        auto& name = properties.at("name").get_object();
        name["description"] = "May be left out; else the name in the path.";
        allow_null(name);
    } else {
        required.emplace_back("name");
    }
    if (properties.at("spec").get_object().contains("required"))
        required.emplace_back("spec");
    else
        allow_null(properties.at("spec").get_object());
    for (const auto* ignored : {"status", "revision", "created_at", "updated_at"})
        properties.emplace(ignored, json::object{{"description", "Ignored, so that what was read can be sent back."}});
    json::object out{{"type", "object"}, {"description", kind.doc()}, {"properties", std::move(properties)}};
    if (!required.empty()) out.emplace("required", std::move(required));
    out.emplace("additionalProperties", false);
    return out;
}

json::object object_schema(const Field& field, Side side) {
    json::object properties;
    json::array required;
    for (const auto& child : field.children()) {
        auto schema = schema_of(child, side);
        const bool must_be_given = child.is_required() && !child.default_value();
        if (must_be_given) required.emplace_back(child.name());
        if (!must_be_given && side == Side::request) {
            allow_null(schema);
            if (child.takes_secret()) schema.at("anyOf").as_array().push_back({{"type", "null"}});
        }
        properties.emplace(child.name(), std::move(schema));
    }
    json::object schema{{"type", "object"}, {"properties", std::move(properties)}};
    if (!required.empty()) schema.emplace("required", std::move(required));
    schema.emplace("additionalProperties", false);
    return schema;
}

std::string_view verb_name(Verb verb) {
    switch (verb) {
    case Verb::create: return "create";
    case Verb::read: return "read";
    case Verb::update: return "update";
    case Verb::remove: return "remove";
    }
    return "read";
}

void describe_fields(const Field& field, const std::string& path, bool root, json::array& out) {
    if (!root) {
        json::object about{{"path", path}, {"type", name_of(field.type())}, {"doc", field.doc()}};
        about.emplace("required", field.is_required());
        if (!field.forms().empty()) {
            json::array forms;
            for (const auto& form : field.forms()) forms.emplace_back(name_of(form.type()));
            about.emplace("forms", std::move(forms));
        }
        if (field.takes_secret()) about.emplace("forms", json::array{"text", "{secret: NAME.KEY}"});
        if (field.default_value()) about.emplace("default", *field.default_value());
        if (field.example_value()) about.emplace("example", *field.example_value());
        if (!field.choices().empty()) about.emplace("one_of", texts(field.choices()));
        if (!field.reference().empty()) about.emplace("reference", field.reference());
        if (field.min()) about.emplace("min", *field.min());
        if (field.max()) about.emplace("max", *field.max());
        about.emplace("secret", field.is_secret());
        about.emplace("immutable", field.is_immutable());
        out.push_back(std::move(about));
    }
    for (const auto& child : field.children()) describe_fields(child, path + "." + child.name(), false, out);
    if (field.item() != nullptr) describe_fields(*field.item(), path + (field.type() == Type::list ? "[]" : ".*"), false, out);
    const auto is_list = [](const Field& form) { return form.type() == Type::list; };
    const bool listed = std::any_of(field.forms().begin(), field.forms().end(), is_list);
    for (const auto& form : field.forms()) // a map beside a list has the same items under other paths
        if (!listed || form.type() != Type::map) describe_fields(form, path, true, out);
}

} // namespace

json::object schema_of(const Field& field, Side side) {
    json::object schema;
    switch (field.type()) {
    case Type::text: text_schema(field, side, schema); break;
    case Type::integer:
        schema = {{"type", "integer"}, {"format", "int64"}};
        bounds_into(field, "minimum", "maximum", schema);
        break;
    case Type::number:
        schema = {{"type", "number"}};
        bounds_into(field, "minimum", "maximum", schema);
        break;
    case Type::boolean: schema = {{"type", "boolean"}}; break;
    case Type::duration: schema = {{"type", "string"}, {"pattern", "^([0-9]+(ms|s|m|h|d))+$|^0$"}}; break;
    case Type::time: schema = {{"type", "string"}, {"format", "date-time"}}; break;
    case Type::list:
        schema = {{"type", "array"}, {"items", schema_of(*field.item(), side)}};
        bounds_into(field, "minItems", "maxItems", schema);
        break;
    case Type::map:
        schema = {{"type", "object"},
                  {"additionalProperties", schema_of(*field.item(), side)},
                  {"propertyNames", {{"minLength", 1}, {"maxLength", 128}}}};
        bounds_into(field, "minProperties", "maxProperties", schema);
        break;
    case Type::object: schema = object_schema(field, side); break;
    case Type::any: {
        json::array forms;
        for (const auto& form : field.forms()) forms.push_back(schema_of(form, side));
        if (!forms.empty()) schema.emplace("anyOf", std::move(forms));
        break;
    }
    }
    if (!field.doc().empty()) schema.emplace("description", field.doc());
    if (field.default_value()) schema.emplace("default", *field.default_value());
    if (field.example_value()) schema.emplace("examples", json::array{*field.example_value()});
    return schema;
}

json::object request_schema(const Kind& kind) { return body_schema(kind, false); }
json::object replacement_schema(const Kind& kind) { return body_schema(kind, true); }

json::object response_schema(const Kind& kind) {
    auto properties = envelope(kind, Side::answer);
    auto status = schema_of(kind.status(), Side::answer);
    if (kind.status().children().empty()) status.erase("additionalProperties");
    properties.emplace("status", std::move(status));
    properties.emplace("created_at", json::object{{"type", "string"}, {"format", "date-time"}});
    properties.emplace("updated_at", json::object{{"type", "string"}, {"format", "date-time"}});
    properties.emplace("revision", json::object{{"type", "integer"}, {"format", "int64"}, {"description", "Of its newest write."}});
    return {{"type", "object"},
            {"description", kind.doc()},
            {"properties", std::move(properties)},
            {"required", {"kind", "name", "labels", "spec", "status", "created_at", "updated_at", "revision"}}};
}

json::object describe_kind(const Kind& kind) {
    json::array verbs, columns, fields, indexed;
    for (const auto verb : {Verb::create, Verb::read, Verb::update, Verb::remove})
        if (kind.has(verb)) verbs.emplace_back(verb_name(verb));
    for (const auto& column : kind.columns())
        columns.push_back({{"title", column.title}, {"path", column.path}, {"wide", column.wide}});
    describe_fields(kind.spec(), "spec", true, fields);
    describe_fields(kind.status(), "status", true, fields);
    for (const auto& field : kind.spec().children())
        if (field.is_indexed()) indexed.emplace_back(field.name());
    json::object out;
    out.emplace("kind", kind.name());
    out.emplace("plural", kind.plural());
    out.emplace("names", texts(kind.names()));
    out.emplace("doc", kind.doc());
    out.emplace("verbs", std::move(verbs));
    out.emplace("roles", json::object{{"read", name_of(kind.read_role())}, {"write", name_of(kind.write_role())}});
    out.emplace("columns", std::move(columns));
    out.emplace("fields", std::move(fields));
    out.emplace("indexed", std::move(indexed));
    out.emplace("example", kind.example());
    return out;
}

} // namespace orrery::resource
