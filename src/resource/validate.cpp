#include "core/nearest.h"
#include "core/truncate.h"
#include "core/url_text.h"
#include "resource/object.h"

#include <boost/asio/ip/address.hpp>
#include <boost/url/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace orrery::resource {

namespace {

constexpr std::size_t max_errors = 100;
constexpr std::size_t max_map_key = 128;

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool has_control_characters(std::string_view text, std::string_view allowed) {
    return std::any_of(text.begin(), text.end(), [&](char c) {
        return (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) && allowed.find(c) == std::string_view::npos;
    });
}

/// Characters, not bytes.
std::size_t text_length(std::string_view text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::string cut(std::string_view text) { return text.size() <= 40 ? std::string(text) : truncate(text, 40) + "..."; }

/// Description of an unexpected value, for messages.
std::string found(const json::value& value) {
    switch (value.kind()) {
    case json::kind::null: return "nothing";
    case json::kind::bool_: return value.get_bool() ? "true" : "false";
    case json::kind::int64: return fmt::format("the number {}", value.get_int64());
    case json::kind::uint64: return fmt::format("the number {}", value.get_uint64());
    case json::kind::double_: return fmt::format("the number {}", value.get_double());
    case json::kind::string: return fmt::format("the text \"{}\"", cut(std::string_view(value.get_string())));
    case json::kind::array: return "a list";
    case json::kind::object: return "an object";
    }
    return "something else";
}

/// An IP address. The zone of fe80::1%eth0 is the name or number of an interface; Asio accepts any text there.
bool is_address(std::string_view text) {
    if (const auto percent = text.find('%'); percent != text.npos) {
        const auto zone = text.substr(percent + 1);
        const auto is_plain = [](char c) { return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-'; };
        if (zone.empty() || zone.size() > 15 || !std::all_of(zone.begin(), zone.end(), is_plain)) return false;
    }
    boost::system::error_code failed;
    boost::asio::ip::make_address(std::string(text), failed);
    return !failed;
}

bool is_host(std::string_view text) {
    if (is_address(text)) return true;
    if (text.empty() || text.size() > 253) return false;
    bool last_is_number = false;
    for (std::size_t start = 0; start <= text.size();) {
        const auto end = std::min(text.find('.', start), text.size());
        const auto label = text.substr(start, end - start);
        if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') return false;
        if (!std::all_of(label.begin(), label.end(), [](char c) { return is_letter_or_digit(c) || c == '-'; })) return false;
        last_is_number = label.find_first_not_of("0123456789") == std::string_view::npos;
        start = end + 1;
    }
    return !last_is_number; // 10.0.0.300 is a mistyped address, not a name
}

class FieldChecker {
public:
    FieldChecker(std::vector<FieldError>& errors, Secrets secrets) : errors_(errors), secrets_(secrets) {}

    void fields(const Field& declared, json::object& value, const std::string& path) {
        for (const auto& [key, ignored] : value) unknown(declared, std::string_view(key), path);
        json::object in_order;
        for (const auto& field : declared.children()) {
            auto* given = value.if_contains(field.name());
            if (given != nullptr && (!given->is_null() || field.type() == Type::any)) {
                check(field, *given, at(path, field.name()));
                in_order.emplace(field.name(), std::move(*given));
            } else if (field.default_value()) {
                in_order.emplace(field.name(), *field.default_value());
            } else if (field.is_required()) {
                if (!field.is_secret() || secrets_ == Secrets::joined) wrong(at(path, field.name()), "must be given");
            } else if (field.type() == Type::object && has_defaults(field)) {
                json::value made = json::object();
                check(field, made, at(path, field.name()));
                in_order.emplace(field.name(), std::move(made));
            }
        }
        value = std::move(in_order);
    }

private:
    static std::string at(const std::string& path, std::string_view name) {
        std::string out;
        out.reserve(path.size() + 1 + name.size());
        out += path;
        if (!path.empty()) out += '.';
        out += name;
        return out;
    }

    /// Made where it is absent only if its defaults complete it.
    static bool has_defaults(const Field& object) {
        bool any = false;
        for (const auto& child : object.children()) {
            if (child.is_required() && !child.default_value()) return false;
            any = any || child.default_value().has_value() || (child.type() == Type::object && has_defaults(child));
        }
        return any;
    }

    void wrong(const std::string& path, std::string message) {
        if (errors_.size() < max_errors) errors_.push_back({path, std::move(message)});
    }

    void unknown(const Field& declared, std::string_view key, const std::string& path) {
        const auto& children = declared.children();
        if (std::any_of(children.begin(), children.end(), [&](const Field& field) { return field.name() == key; })) return;
        std::vector<std::string_view> known;
        for (const auto& field : children) {
            if (field.old_name() == key)
                return wrong(at(path, cut(key)), fmt::format("this field is called \"{}\" now", field.name()));
            known.push_back(field.name());
        }
        const auto near = key.size() > 64 ? std::string_view{} : nearest(key, known.data(), known.data() + known.size());
        if (!near.empty())
            wrong(at(path, cut(key)), fmt::format("unknown field; did you mean \"{}\"?", near));
        else if (known.empty())
            wrong(at(path, cut(key)), "unknown field; there are none here");
        else
            wrong(at(path, cut(key)), fmt::format("unknown field; known are {}", fmt::join(known, ", ")));
    }

    /// Whether a value of the wrong type may contain a secret, such as a scalar instead of a map of secrets.
    static bool holds_secrets(const Field& field) {
        return field.is_secret() || (field.item() != nullptr && holds_secrets(*field.item())) ||
               std::any_of(field.children().begin(), field.children().end(), holds_secrets);
    }

    std::string what_was_found(const Field& field, const json::value& value) {
        if (!holds_secrets(field)) return found(value);
        return value.is_string() ? "something else" : value.is_structured() ? found(value) : "a value that is not a text";
    }

    void wrong_type(const Field& field, const json::value& value, const std::string& path, std::string_view wanted,
                    std::string_view hint = {}) {
        wrong(path, fmt::format("must be {}, got {}{}", wanted, what_was_found(field, value), hint));
    }

    template <class Number> void check_bounds(const Field& field, Number value, const std::string& path, std::string_view unit) {
        const bool low = field.min() && value < static_cast<Number>(*field.min());
        const bool high = field.max() && value > static_cast<Number>(*field.max());
        if (!low && !high) return;
        wrong(path, fmt::format("{} between {} and {}{}, got {}", unit.empty() ? "must be" : "must have", *field.min(),
                                *field.max(), unit, value));
    }

    void check(const Field& field, json::value& value, const std::string& path) {
        switch (field.type()) {
        case Type::text: return check_text(field, value, path);
        case Type::integer: return check_integer(field, value, path);
        case Type::number: return check_number(field, value, path);
        case Type::boolean:
            if (!value.is_bool()) wrong_type(field, value, path, "true or false");
            return;
        case Type::duration: return check_duration(field, value, path);
        case Type::time: return check_time(field, value, path);
        case Type::list: return check_list(field, value, path);
        case Type::map: return check_map(field, value, path);
        case Type::object:
            if (!value.is_object()) return wrong_type(field, value, path, "an object");
            return fields(field, value.get_object(), path);
        case Type::any: return;
        }
    }

    void check_text(const Field& field, json::value& value, const std::string& path) {
        if (field.is_secret() && secrets_ == Secrets::joined && sealed_text(value) != nullptr) return;
        if (field.takes_secret() && value.is_object()) return check_secret_reference(value.get_object(), path);
        if (!value.is_string())
            return wrong_type(field, value, path, "a text", value.is_primitive() && !value.is_null() ? ": put it in quotes" : "");
        const std::string_view text = value.get_string();
        if (field.is_secret() && text == sealed_mark) return;
        if (!field.choices().empty() && std::find(field.choices().begin(), field.choices().end(), text) == field.choices().end())
            return wrong(path,
                         fmt::format("must be one of {}, got {}", fmt::join(field.choices(), ", "), what_was_found(field, value)));
        if (field.text_format() == Format::data && text.find('\0') != text.npos)
            return wrong(path, "must not have a NUL character");
        if (field.text_format() != Format::data && has_control_characters(text, "\n\r\t"))
            return wrong(path, "must not have control characters");
        if (field.min() || field.max()) {
            const auto length = static_cast<std::int64_t>(text_length(text));
            check_bounds(field, length, path, " characters");
        }
        const auto format = field.reference().empty() ? field.text_format() : Format::name;
        if (auto right = check_format(format, text); !right.empty())
            wrong(path, field.is_secret() ? std::move(right) : fmt::format("{}, got \"{}\"", right, cut(mask_userinfo(text))));
    }

    void check_secret_reference(const json::object& value, const std::string& path) {
        for (const auto& [key, ignored] : value)
            if (key != "secret") wrong(at(path, cut(key)), "unknown field; known is secret");
        const auto* named = value.if_contains("secret");
        if (named == nullptr || !named->is_string() || !SecretReference::parse(std::string_view(named->get_string())))
            wrong(at(path, "secret"), "must name a Secret and one of its values, as in site-login.password");
    }

    void check_integer(const Field& field, json::value& value, const std::string& path) {
        if (value.is_double() && std::nearbyint(value.get_double()) == value.get_double() && std::abs(value.get_double()) < 9e15)
            value = static_cast<std::int64_t>(value.get_double());
        if (value.is_uint64() && value.get_uint64() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            value = static_cast<std::int64_t>(value.get_uint64());
        if (value.is_uint64()) return wrong(path, fmt::format("is too large a number: {}", value.get_uint64()));
        if (!value.is_int64()) {
            const bool quoted = value.is_string() && !value.get_string().empty() &&
                                value.get_string().find_first_not_of("0123456789") == json::string::npos;
            return wrong_type(field, value, path, "a whole number", quoted ? ": leave out the quotes" : "");
        }
        check_bounds(field, value.get_int64(), path, "");
    }

    void check_number(const Field& field, json::value& value, const std::string& path) {
        if (!value.is_number()) return wrong_type(field, value, path, "a number");
        const auto as_double = value.is_double()  ? value.get_double()
                               : value.is_int64() ? static_cast<double>(value.get_int64())
                                                  : static_cast<double>(value.get_uint64());
        check_bounds(field, as_double, path, "");
    }

    void check_duration(const Field& field, json::value& value, const std::string& path) {
        constexpr std::string_view wanted = "a duration with its unit, as in 250ms, 30s, 15m, 2h30m or 7d";
        if (!value.is_string()) return wrong_type(field, value, path, wanted);
        const auto parsed = parse_duration(std::string_view(value.get_string()));
        if (!parsed.ok()) return wrong_type(field, value, path, wanted);
        if (!field.min()) return;
        const auto low = Duration(std::chrono::seconds(*field.min())), high = Duration(std::chrono::seconds(*field.max()));
        if (*parsed < low || *parsed > high)
            wrong(path, fmt::format("must be between {} and {}, got {}", to_text(low), to_text(high),
                                    std::string_view(value.get_string())));
    }

    void check_time(const Field& field, json::value& value, const std::string& path) {
        constexpr std::string_view wanted = "a time such as 2026-11-16T04:42:52Z";
        if (!value.is_string()) return wrong_type(field, value, path, wanted);
        const auto parsed = from_rfc3339(std::string_view(value.get_string()));
        if (!parsed.ok()) return wrong_type(field, value, path, wanted);
        value = to_rfc3339(*parsed); // one way to write it, so that equal times are equal and sort
    }

    void check_list(const Field& field, json::value& value, const std::string& path) {
        if (!value.is_array()) return wrong_type(field, value, path, "a list");
        auto& array = value.get_array();
        check_bounds(field, static_cast<std::int64_t>(array.size()), path, " items");
        for (std::size_t i = 0; i < array.size(); ++i) check(*field.item(), array[i], fmt::format("{}[{}]", path, i));
    }

    void check_map(const Field& field, json::value& value, const std::string& path) {
        if (!value.is_object()) return wrong_type(field, value, path, "an object");
        auto& map = value.get_object();
        check_bounds(field, static_cast<std::int64_t>(map.size()), path, " entries");
        for (auto& [raw_key, item] : map) {
            const std::string_view key = raw_key;
            if (key.empty() || key.size() > max_map_key || has_control_characters(key, ""))
                wrong(at(path, cut(key)), fmt::format("is not a good key: 1 to {} characters on one line", max_map_key));
            else
                check(*field.item(), item, at(path, key));
        }
    }

    std::vector<FieldError>& errors_;
    Secrets secrets_;
};

/// The reference to a Secret that a field has in place of its text.
const Field& secret_reference_field() {
    static const Field field = text("secret", "A Secret.").refers_to("Secret");
    return field;
}

/// What a visitor is after.
enum class Mark { secret, reference, named_secret };

/// Whether the field, or one below it, can hold what is visited: the others need no path.
bool is_marked(const Field& field, Mark mark) {
    if (mark != Mark::secret && field.takes_secret()) return true;
    if (mark == Mark::secret ? field.is_secret() : mark == Mark::reference && !field.reference().empty()) return true;
    if (field.item() != nullptr && is_marked(*field.item(), mark)) return true;
    return std::any_of(field.children().begin(), field.children().end(),
                       [&](const Field& child) { return is_marked(child, mark); });
}

void visit_marked(const Field& field, json::value& value, const std::string& path, Mark mark, const Visitor& visit) {
    if (mark != Mark::secret && field.takes_secret()) {
        const auto named = named_secret(value);
        if (!named) return;
        if (mark == Mark::named_secret) return visit(field, path + ".secret", value);
        json::value name(named->name);
        return visit(secret_reference_field(), path + ".secret", name);
    }
    if (mark == Mark::secret ? field.is_secret() : mark == Mark::reference && !field.reference().empty())
        return visit(field, path, value);
    if (auto* object = value.if_object(); object != nullptr && field.type() == Type::object) {
        for (const auto& child : field.children())
            if (auto* given = is_marked(child, mark) ? object->if_contains(child.name()) : nullptr)
                visit_marked(child, *given, path + "." + child.name(), mark, visit);
    } else if (object != nullptr && field.type() == Type::map && field.item() != nullptr) {
        for (auto& [key, item] : *object)
            visit_marked(*field.item(), item, fmt::format("{}.{}", path, std::string_view(key)), mark, visit);
    } else if (auto* array = value.if_array(); array != nullptr && field.type() == Type::list && field.item() != nullptr) {
        for (std::size_t i = 0; i < array->size(); ++i)
            visit_marked(*field.item(), (*array)[i], fmt::format("{}[{}]", path, i), mark, visit);
    }
}

void visit_children(const Field& declared, json::object& value, const std::string& path, Mark mark, const Visitor& visit) {
    for (const auto& child : declared.children())
        if (auto* given = is_marked(child, mark) ? value.if_contains(child.name()) : nullptr)
            visit_marked(child, *given, path + "." + child.name(), mark, visit);
}

} // namespace

void check_fields(const Field& declared, json::object& value, const std::string& path, std::vector<FieldError>& errors,
                  Secrets secrets) {
    FieldChecker(errors, secrets).fields(declared, value, path);
}

void check_labels(const std::map<std::string, std::string>& labels, std::vector<FieldError>& errors) {
    if (labels.size() > 64) errors.push_back({"labels", fmt::format("must be at most 64, got {}", labels.size())});
    for (const auto& [key, value] : labels) {
        const auto path = "labels." + cut(key);
        if (key.empty() || key.size() > 128 || !std::all_of(key.begin(), key.end(), [](char c) {
                return is_letter_or_digit(c) || c == '.' || c == '_' || c == '/' || c == '-';
            }))
            errors.push_back({path, "is not a good label: 1 to 128 of a-z, A-Z, 0-9, '.', '_', '/' and '-'"});
        if (value.size() > 256 || has_control_characters(value, ""))
            errors.push_back({path, "must be one line of at most 256 bytes"});
        if (errors.size() >= max_errors) return;
    }
}

void check_immutable(const Field& declared, const json::object& before, const json::object& after, const std::string& path,
                     std::vector<FieldError>& errors) {
    for (const auto& field : declared.children()) {
        const auto* old_value = before.if_contains(field.name());
        const auto* new_value = after.if_contains(field.name());
        const auto where = path + "." + field.name();
        if (field.is_immutable()) {
            const bool same = old_value == nullptr || new_value == nullptr ? old_value == new_value : *old_value == *new_value;
            if (!same)
                errors.push_back({where, field.is_secret() ? "cannot change once it is set"
                                                           : fmt::format("cannot change once it is set; it is {}",
                                                                         old_value == nullptr ? "not set" : found(*old_value))});
        } else if (field.type() == Type::object && old_value != nullptr && new_value != nullptr && old_value->is_object() &&
                   new_value->is_object()) {
            check_immutable(field, old_value->get_object(), new_value->get_object(), where, errors);
        }
    }
}

Result<Unit> verdict(const Kind& kind, std::string_view name, std::vector<FieldError> errors) {
    if (errors.empty()) return Unit{};
    const auto what = name.empty() ? fmt::format("this {}", kind.name()) : fmt::format("{} {}", kind.name(), cut(name));
    Error error{Code::invalid,
                errors.size() == 1 ? fmt::format("{} is not valid: {} {}", what, errors.front().path, errors.front().message)
                                   : fmt::format("{} is not valid: {} fields are wrong", what, errors.size()),
                fmt::format("\"orrery explain {}\" describes its fields", kind.names().front())};
    error.fields = std::move(errors);
    return error;
}

bool is_valid_name(std::string_view name) {
    const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
    if (name.empty() || name.size() > 253 || !is_plain(name.front()) || !is_plain(name.back())) return false;
    return std::all_of(name.begin(), name.end(), [&](char c) { return is_plain(c) || c == '-' || c == '.'; });
}

std::string check_format(Format format, std::string_view text) {
    switch (format) {
    case Format::any: return {};
    case Format::name:
        return is_valid_name(text) ? "" : "must be 1 to 253 of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit";
    case Format::host: return is_host(text) ? "" : "must be an IP address or a host name";
    case Format::address: return is_address(text) ? "" : "must be an IP address";
    case Format::url: {
        const auto parsed = boost::urls::parse_uri(text);
        const bool right = parsed && (parsed->scheme() == "http" || parsed->scheme() == "https") && !parsed->host().empty();
        if (!right) return "must be an address that begins with http:// or https://";
        return parsed->has_userinfo() ? "must not hold a user or a password: every reader of the resource would see them" : "";
    }
    case Format::one_line: return has_control_characters(text, "") ? "must be one line" : "";
    case Format::data: return text.find('\0') != text.npos ? "must not have a NUL character" : "";
    }
    return {};
}

void visit_secrets(const Field& declared, json::object& value, const std::string& path, const Visitor& visit) {
    visit_children(declared, value, path, Mark::secret, visit);
}

void visit_references(const Field& declared, json::object& value, const std::string& path, const Visitor& visit) {
    visit_children(declared, value, path, Mark::reference, visit);
}

void visit_named_secrets(const Field& declared, json::object& value, const std::string& path, const NamedSecretVisitor& visit) {
    visit_children(declared, value, path, Mark::named_secret,
                   [&](const Field&, const std::string& at, json::value& found) { visit(at, *named_secret(found)); });
}

void mask_secrets(const Kind& kind, json::object& spec) {
    if (!kind.has_secrets()) return;
    visit_secrets(kind.spec(), spec, "spec",
                  [](const Field&, const std::string&, json::value& value) { value = json::string(sealed_mark); });
}

std::optional<SecretReference> SecretReference::parse(std::string_view text) {
    const auto dot = text.rfind('.');
    if (dot == std::string_view::npos || dot + 1 == text.size() || text.size() - dot > 129) return std::nullopt;
    SecretReference out{std::string(text.substr(0, dot)), std::string(text.substr(dot + 1))};
    if (!is_valid_name(out.name) || has_control_characters(out.key, "")) return std::nullopt;
    return out;
}

std::optional<SecretReference> named_secret(const json::value& value) {
    const auto* object = value.if_object();
    const auto* named = object == nullptr ? nullptr : object->if_contains("secret");
    if (named == nullptr || !named->is_string()) return std::nullopt;
    return SecretReference::parse(std::string_view(named->get_string()));
}

const json::string* sealed_text(const json::value& value) {
    const auto* object = value.if_object();
    if (object == nullptr || object->size() != 1) return nullptr;
    const auto* sealed = object->if_contains("$sealed");
    return sealed == nullptr ? nullptr : sealed->if_string();
}

} // namespace orrery::resource
