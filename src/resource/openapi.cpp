#include "resource/openapi.h"

#include "resource/object.h"

#include <fmt/format.h>

namespace orrery::resource {

namespace {

json::array texts(const std::vector<std::string>& from) {
    json::array out;
    for (const auto& text : from) out.emplace_back(json::string(text));
    return out;
}

void bounds_into(const Field& field, std::string_view least, std::string_view greatest, json::object& schema) {
    if (field.least() && !(least != "minimum" && *field.least() == 0)) schema.emplace(least, *field.least());
    if (field.greatest()) schema.emplace(greatest, *field.greatest());
}

void text_schema(const Field& field, json::object& schema) {
    schema.emplace("type", "string");
    bounds_into(field, "minLength", "maxLength", schema);
    if (!field.choices().empty()) schema.emplace("enum", texts(field.choices()));
    const auto format = field.reference().empty() ? field.text_format() : Format::name;
    switch (format) {
    case Format::name: schema.emplace("pattern", "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"); break;
    case Format::host: schema.emplace("format", "hostname"); break;
    case Format::address: schema.emplace("format", "ip"); break;
    case Format::url: schema.emplace("format", "uri"); break;
    case Format::one_line: schema.emplace("pattern", "^[^\\x00-\\x1f\\x7f]*$"); break;
    case Format::any: break;
    }
    if (!field.reference().empty()) schema.emplace("x-reference", field.reference());
    if (field.is_secret()) schema.emplace("writeOnly", true);
}

json::object labels_schema() {
    return {{"type", "object"},
            {"description", "For selecting."},
            {"additionalProperties", {{"type", "string"}, {"maxLength", 256}}},
            {"maxProperties", 64}};
}

json::object name_schema() {
    return {{"type", "string"},
            {"description", "Unique within the kind."},
            {"maxLength", 253},
            {"pattern", "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"}};
}

json::object envelope(const Kind& kind) {
    json::object properties;
    properties.emplace("kind", json::object{{"type", "string"}, {"const", kind.name()}});
    properties.emplace("name", name_schema());
    properties.emplace("labels", labels_schema());
    properties.emplace("spec", schema_of(kind.spec()));
    return properties;
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
        if (field.default_value()) about.emplace("default", *field.default_value());
        if (field.example_value()) about.emplace("example", *field.example_value());
        if (!field.choices().empty()) about.emplace("one_of", texts(field.choices()));
        if (!field.reference().empty()) about.emplace("reference", field.reference());
        if (field.least()) about.emplace("least", *field.least());
        if (field.greatest()) about.emplace("greatest", *field.greatest());
        about.emplace("secret", field.is_secret());
        about.emplace("immutable", field.is_immutable());
        out.push_back(std::move(about));
    }
    for (const auto& child : field.children()) describe_fields(child, path + "." + child.name(), false, out);
    if (field.item() != nullptr) describe_fields(*field.item(), path + (field.type() == Type::list ? "[]" : ".*"), false, out);
}

} // namespace

json::object schema_of(const Field& field) {
    json::object schema;
    switch (field.type()) {
    case Type::text: text_schema(field, schema); break;
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
        schema = {{"type", "array"}, {"items", schema_of(*field.item())}};
        bounds_into(field, "minItems", "maxItems", schema);
        break;
    case Type::map:
        schema = {{"type", "object"}, {"additionalProperties", schema_of(*field.item())}};
        bounds_into(field, "minProperties", "maxProperties", schema);
        break;
    case Type::object: {
        json::object properties;
        json::array required;
        for (const auto& child : field.children()) {
            properties.emplace(child.name(), schema_of(child));
            if (child.is_required() && !child.default_value()) required.emplace_back(child.name());
        }
        schema = {{"type", "object"}, {"properties", std::move(properties)}};
        if (!required.empty()) schema.emplace("required", std::move(required));
        schema.emplace("additionalProperties", false);
        break;
    }
    case Type::any: break;
    }
    if (!field.doc().empty()) schema.emplace("description", field.doc());
    if (field.default_value()) schema.emplace("default", *field.default_value());
    if (field.example_value()) schema.emplace("examples", json::array{*field.example_value()});
    return schema;
}

json::object request_schema(const Kind& kind) {
    json::array required{"name"};
    auto properties = envelope(kind);
    if (properties.at("spec").get_object().contains("required")) required.emplace_back("spec");
    return {
        {"type", "object"}, {"description", kind.doc()}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}

json::object response_schema(const Kind& kind) {
    auto properties = envelope(kind);
    auto status = schema_of(kind.status());
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
