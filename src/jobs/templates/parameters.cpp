#include "jobs/templates/parameters.h"

#include "core/json_fields.h"
#include "core/nearest.h"
#include "core/text.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <re2/re2.h>
#include <set>

namespace orrery::jobs {

namespace {

constexpr std::size_t max_parameters = 100, max_text = 8192, max_items = 1000;
constexpr std::array<std::string_view, 5> type_names{"text", "integer", "number", "boolean", "list"};

const RE2::Options& pattern_options() {
    static const RE2::Options options = [] {
        RE2::Options made(RE2::Quiet);
        made.set_max_mem(1 << 20);
        return made;
    }();
    return options;
}

/// One text of a value: the text itself, or an item of a list.
std::string check_text(const Parameter& declared, const json::value& value) {
    if (!value.is_string()) return "must be a text";
    const std::string_view text(value.get_string());
    if (text.size() > max_text) return fmt::format("must have at most {} characters", max_text);
    if (!declared.pattern.empty() &&
        !RE2::FullMatch(re2::StringPiece(text.data(), text.size()), RE2(declared.pattern, pattern_options())))
        return fmt::format("must match the pattern {}", declared.pattern);
    return {};
}

std::string check_number(const Parameter& declared, const json::value& value) {
    if (declared.type == Parameter::Type::integer && !value.is_int64()) return "must be an integer";
    if (!value.is_number()) return "must be a number";
    const auto number = value.to_number<double>();
    if (declared.min && number < *declared.min) return fmt::format("must be at least {}", *declared.min);
    if (declared.max && number > *declared.max) return fmt::format("must be at most {}", *declared.max);
    return {};
}

std::string check_allowed(const Parameter& declared, const json::value& value) {
    if (declared.allowed.empty() || std::find(declared.allowed.begin(), declared.allowed.end(), value) != declared.allowed.end())
        return {};
    std::string list;
    for (const auto& one : declared.allowed) list += (list.empty() ? "" : ", ") + to_json_text(one);
    return fmt::format("must be one of {}", list.substr(0, 500));
}

std::optional<double> optional_number(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_number() ? std::optional(value->to_number<double>()) : std::nullopt;
}
Parameter read_parameter(const json::object& object, const std::string& path, std::vector<FieldError>& errors) {
    Parameter out;
    out.name = text_at(object, "name");
    out.description = text_at(object, "description");
    const auto type = std::find(type_names.begin(), type_names.end(), text_at(object, "type"));
    if (type != type_names.end()) out.type = static_cast<Parameter::Type>(type - type_names.begin());
    const auto* required = object.if_contains("required");
    out.required = required != nullptr && required->is_bool() && required->get_bool();
    out.pattern = text_at(object, "pattern");
    out.min = optional_number(object, "min");
    out.max = optional_number(object, "max");
    const bool is_text = out.type == Parameter::Type::text || out.type == Parameter::Type::list;
    const bool is_number = out.type == Parameter::Type::integer || out.type == Parameter::Type::number;
    const bool right_name = !out.name.empty() && out.name.size() <= 64 && std::all_of(out.name.begin(), out.name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
    if (!right_name) errors.push_back({path + ".name", "must be letters, digits, - and _ only, at most 64"});
    if (!out.pattern.empty() && !is_text) errors.push_back({path + ".pattern", "is for texts and lists only"});
    if ((out.min || out.max) && !is_number) errors.push_back({path + (out.min ? ".min" : ".max"), "is for numbers only"});
    if (!out.pattern.empty())
        if (const RE2 expression(out.pattern, pattern_options()); !expression.ok()) {
            errors.push_back({path + ".pattern", fmt::format("is no regular expression: {}", expression.error())});
            out.pattern.clear();
        }
    if (const auto* allowed = object.if_contains("allowed"); allowed != nullptr && allowed->is_array()) {
        auto item = out; // of a list, the items
        if (item.type == Parameter::Type::list) item.type = Parameter::Type::text;
        for (std::size_t i = 0; i < allowed->get_array().size(); ++i)
            if (auto wrong = check_parameter(item, allowed->get_array()[i]); !wrong.empty())
                errors.push_back({fmt::format("{}.allowed[{}]", path, i), std::move(wrong)});
        out.allowed.assign(allowed->get_array().begin(), allowed->get_array().end());
    }
    if (const auto* value = object.if_contains("default"); value != nullptr && !value->is_null()) {
        if (auto wrong = check_parameter(out, *value); !wrong.empty()) errors.push_back({path + ".default", std::move(wrong)});
        out.default_value = *value;
    }
    if (out.required && out.default_value) errors.push_back({path + ".default", "a required parameter has no default"});
    if (!out.required && !out.default_value) errors.push_back({path, "needs a default, or required: true"});
    return out;
}

} // namespace

resource::Field parameter_field() {
    using namespace resource;
    return object("parameter", "A parameter.")
        .with(text("name", "How the job refers to it: ${param.NAME}.").required())
        .with(text("type", "What a value is; a list holds texts.")
                  .one_of({type_names.begin(), type_names.end()})
                  .default_value("text"))
        .with(text("description", "What it is for.").format(Format::one_line).between(0, 1024))
        .with(boolean("required", "A run must give it.").default_value(false))
        .with(any("default", "Its value where a run does not give one."))
        .with(list("allowed", "The values it may have; left out: any of its type.", any("value", "A value.")).between(1, 1000))
        .with(text("pattern", "A regular expression (RE2) that a text, or each item of a list, must match as a whole.")
                  .between(1, 1024))
        .with(number("min", "The least number."))
        .with(number("max", "The greatest number."));
}

std::vector<Parameter> read_parameters(const json::object& spec, std::vector<FieldError>& errors) {
    std::vector<Parameter> out;
    const auto* given = spec.if_contains("parameters");
    if (given == nullptr || !given->is_array()) return out;
    if (given->get_array().size() > max_parameters)
        errors.push_back({"spec.parameters", fmt::format("may have at most {} entries", max_parameters)});
    std::set<std::string> names;
    for (const auto& one : given->get_array()) {
        const auto path = fmt::format("spec.parameters[{}]", out.size());
        out.push_back(one.is_object() ? read_parameter(one.get_object(), path, errors) : Parameter{});
        if (!names.insert(out.back().name).second)
            errors.push_back({path + ".name", fmt::format("the name {} is used twice", out.back().name)});
    }
    return out;
}

std::string check_parameter(const Parameter& declared, const json::value& value) {
    std::string wrong;
    switch (declared.type) {
    case Parameter::Type::text: wrong = check_text(declared, value); break;
    case Parameter::Type::integer:
    case Parameter::Type::number: wrong = check_number(declared, value); break;
    case Parameter::Type::boolean: wrong = value.is_bool() ? "" : "must be true or false"; break;
    case Parameter::Type::list:
        if (!value.is_array()) return "must be a list of texts";
        if (value.get_array().size() > max_items) return fmt::format("may have at most {} items", max_items);
        for (const auto& item : value.get_array()) {
            wrong = check_text(declared, item);
            if (wrong.empty()) wrong = check_allowed(declared, item);
            if (!wrong.empty()) return fmt::format("item {}: {}", to_json_text(item).substr(0, 64), wrong);
        }
        return {};
    }
    return wrong.empty() ? check_allowed(declared, value) : wrong;
}

Result<json::object> parameter_values(const std::vector<Parameter>& declared, const json::object& given) {
    json::object out;
    std::vector<FieldError> errors;
    std::vector<std::string_view> names;
    for (const auto& parameter : declared) {
        names.push_back(parameter.name);
        const auto* value = given.if_contains(parameter.name);
        if (value == nullptr && parameter.default_value) value = &*parameter.default_value;
        const auto path = "parameters." + parameter.name;
        if (value == nullptr) {
            errors.push_back(
                {path, fmt::format("is required{}{}", parameter.description.empty() ? "" : ": ", parameter.description)});
        } else if (auto wrong = check_parameter(parameter, *value); !wrong.empty()) {
            errors.push_back({path, std::move(wrong)});
        } else {
            out[parameter.name] = *value;
        }
    }
    for (const auto& [name, value] : given) {
        if (std::find(names.begin(), names.end(), std::string_view(name)) != names.end()) continue;
        const auto near = nearest(name, names.data(), names.data() + names.size());
        errors.push_back({fmt::format("parameters.{}", std::string_view(name).substr(0, 64)),
                          near.empty() ? "is not known" : fmt::format("is not known; did you mean {}?", near)});
    }
    if (errors.empty()) return out;
    Error error{Code::invalid, errors.size() == 1 ? fmt::format("{} {}", errors.front().path, errors.front().message)
                                                  : fmt::format("{} parameters are wrong", errors.size())};
    error.fields = std::move(errors);
    return error;
}

} // namespace orrery::jobs
