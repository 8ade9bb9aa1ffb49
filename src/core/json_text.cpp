#include "core/text.h"
#include "core/truncate.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace orrery {

namespace {

/// Builds values as the parser meets them. Boost's own builder keeps the last of two equal keys and turns integers it cannot hold
/// into floating point; this one stops.
struct JsonBuilder {
    static constexpr std::size_t max_object_size = max_text_size;
    static constexpr std::size_t max_array_size = max_text_size;
    static constexpr std::size_t max_key_size = max_text_size;
    static constexpr std::size_t max_string_size = max_text_size;

    struct Level {
        json::value container;
        std::string key;
    };
    std::vector<Level> levels;
    json::value result;
    std::string piece, number;
    std::string problem;

    bool add(json::value value, json::error_code& failed) {
        if (levels.empty()) {
            result = std::move(value);
            return true;
        }
        auto& level = levels.back();
        if (auto* array = level.container.if_array()) {
            array->push_back(std::move(value));
            return true;
        }
        if (!level.container.get_object().emplace(level.key, std::move(value)).second) {
            problem = fmt::format("the key \"{}\" occurs twice", truncate(level.key, 64));
            failed = json::error::syntax;
            return false;
        }
        return true;
    }
    bool open(json::value container) {
        levels.push_back({std::move(container), {}});
        return true;
    }
    bool close(json::error_code& failed) {
        auto done = std::move(levels.back().container);
        levels.pop_back();
        return add(std::move(done), failed);
    }

    bool on_document_begin(json::error_code&) { return true; }
    bool on_document_end(json::error_code&) { return true; }
    bool on_object_begin(json::error_code&) { return open(json::object()); }
    bool on_object_end(std::size_t, json::error_code& failed) { return close(failed); }
    bool on_array_begin(json::error_code&) { return open(json::array()); }
    bool on_array_end(std::size_t, json::error_code& failed) { return close(failed); }
    bool on_key_part(json::string_view text, std::size_t, json::error_code&) {
        piece.append(text.data(), text.size());
        return true;
    }
    bool on_key(json::string_view text, std::size_t, json::error_code& failed) {
        piece.append(text.data(), text.size());
        auto& level = levels.back();
        level.key = std::exchange(piece, {});
        if (!level.container.get_object().contains(level.key)) return true;
        problem = fmt::format("the key \"{}\" occurs twice", truncate(level.key, 64));
        failed = json::error::syntax;
        return false;
    }
    bool on_string_part(json::string_view text, std::size_t, json::error_code&) {
        piece.append(text.data(), text.size());
        return true;
    }
    bool on_string(json::string_view text, std::size_t, json::error_code& failed) {
        piece.append(text.data(), text.size());
        return add(json::value(std::exchange(piece, {})), failed);
    }
    bool on_number_part(json::string_view text, json::error_code&) {
        number.append(text.data(), text.size());
        return true;
    }
    bool on_int64(std::int64_t value, json::string_view, json::error_code& failed) {
        number.clear();
        return add(value, failed);
    }
    bool on_uint64(std::uint64_t value, json::string_view, json::error_code& failed) {
        number.clear();
        return add(value, failed);
    }
    bool on_double(double value, json::string_view text, json::error_code& failed) {
        number.append(text.data(), text.size());
        const auto written = std::exchange(number, {});
        if (written.find_first_of(".eE") == std::string::npos)
            problem = "a whole number has more digits than can be kept; send it as a text";
        else if (!std::isfinite(value))
            problem = "a number is too large";
        std::from_chars(written.data(), written.data() + written.size(),
                        value); // the parser's own value can be off by the last bit
        if (problem.empty()) return add(value, failed);
        failed = json::error::not_number;
        return false;
    }
    bool on_bool(bool value, json::error_code& failed) { return add(value, failed); }
    bool on_null(json::error_code& failed) { return add(nullptr, failed); }
    bool on_comment_part(json::string_view, json::error_code&) { return true; }
    bool on_comment(json::string_view, json::error_code&) { return true; }
};

Error json_error(std::string_view text, std::size_t at, std::string_view what) {
    const auto before = text.substr(0, std::min(at, text.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const auto start = before.rfind('\n');
    const auto column = 1 + before.size() - (start == std::string_view::npos ? 0 : start + 1);
    return {Code::invalid, fmt::format("this is not JSON: line {}, column {}: {}", line, column, what)};
}

void append_json_string(std::string_view text, std::string& out) {
    out += '"';
    std::size_t kept = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        out.append(text, kept, i - kept);
        kept = i + 1;
        switch (c) {
        case '"': out += "\\\""; break;
        case '\\': out += "\\\\"; break;
        case '\n': out += "\\n"; break;
        case '\r': out += "\\r"; break;
        case '\t': out += "\\t"; break;
        default: fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
        }
    }
    out.append(text, kept);
    out += '"';
}

void append_json_number(double value, std::string& out) {
    if (!std::isfinite(value)) { // JSON cannot express it
        out += "null";
        return;
    }
    const auto start = out.size();
    fmt::format_to(std::back_inserter(out), "{}", value);
    if (out.find_first_of(".e", start) == std::string::npos) out += ".0"; // keeps its type when parsed again
}

/// `indent` < 0: all on one line.
void append_json_value(const json::value& value, std::string& out, int indent) {
    auto next_line = [&](int depth) {
        if (indent < 0) return;
        out += '\n';
        out.append(static_cast<std::size_t>(depth) * 2, ' ');
    };
    const int inner = indent < 0 ? indent : indent + 1;
    switch (value.kind()) {
    case json::kind::null: out += "null"; break;
    case json::kind::bool_: out += value.get_bool() ? "true" : "false"; break;
    case json::kind::int64: fmt::format_to(std::back_inserter(out), "{}", value.get_int64()); break;
    case json::kind::uint64: fmt::format_to(std::back_inserter(out), "{}", value.get_uint64()); break;
    case json::kind::double_: append_json_number(value.get_double(), out); break;
    case json::kind::string: append_json_string(std::string_view(value.get_string()), out); break;
    case json::kind::array: {
        const auto& array = value.get_array();
        out += '[';
        for (std::size_t i = 0; i < array.size(); ++i) {
            if (i > 0) out += ',';
            next_line(inner);
            append_json_value(array[i], out, inner);
        }
        if (!array.empty()) next_line(indent);
        out += ']';
        break;
    }
    case json::kind::object: {
        const auto& object = value.get_object();
        out += '{';
        bool first = true;
        for (const auto& [key, item] : object) {
            if (!first) out += ',';
            first = false;
            next_line(inner);
            append_json_string(std::string_view(key), out);
            out += indent < 0 ? ":" : ": ";
            append_json_value(item, out, inner);
        }
        if (!object.empty()) next_line(indent);
        out += '}';
        break;
    }
    }
}

} // namespace

Result<json::value> parse_json(std::string_view text, std::size_t depth) {
    if (text.size() > max_text_size)
        return Error{Code::too_large, fmt::format("the text has {} bytes, at most {} are read", text.size(), max_text_size)};
    json::parse_options options;
    options.max_depth = depth;
    json::basic_parser<JsonBuilder> parser(options);
    json::error_code failed;
    std::size_t read = parser.write_some(false, text.data(), text.size(), failed);
    const auto& builder = parser.handler();
    if (failed == json::error::incomplete) return json_error(text, text.size(), "it ends too early");
    if (failed == json::error::too_deep) return json_error(text, read, fmt::format("it nests deeper than {} levels", depth));
    if (failed) return json_error(text, read, builder.problem.empty() ? failed.message() : builder.problem);
    read = text.find_first_not_of(" \t\r\n", read);
    if (read != std::string_view::npos) return json_error(text, read, "something follows after the end");
    return std::move(parser.handler().result);
}

void append_json(const json::value& value, std::string& out) { append_json_value(value, out, -1); }

std::string to_json_text(const json::value& value) {
    std::string out;
    append_json(value, out);
    return out;
}

std::string to_pretty_json(const json::value& value) {
    std::string out;
    append_json_value(value, out, 0);
    return out;
}

} // namespace orrery
