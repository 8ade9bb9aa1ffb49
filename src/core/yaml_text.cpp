#include "core/text.h"
#include "core/truncate.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <charconv>
#include <cmath>
#include <exception>
#include <sstream>

namespace orrery {

namespace {

struct YamlRefused : std::exception {
    int line, column;
    std::string what_is_wrong;
    YamlRefused(const YAML::Mark& mark, std::string wrong)
        : line(mark.line + 1), column(mark.column + 1), what_is_wrong(std::move(wrong)) {}
};

bool all_digits(std::string_view text, std::string_view digits = "0123456789") {
    return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}

bool looks_like_float(std::string_view text) {
    const auto exponent = text.find_first_of("eE");
    const auto mantissa = text.substr(0, exponent);
    if (exponent != std::string_view::npos) {
        auto power = text.substr(exponent + 1);
        if (!power.empty() && (power[0] == '+' || power[0] == '-')) power.remove_prefix(1);
        if (!all_digits(power)) return false;
    }
    const auto point = mantissa.find('.');
    if (point == std::string_view::npos) return all_digits(mantissa);
    const auto whole = mantissa.substr(0, point), fraction = mantissa.substr(point + 1);
    return (whole.empty() || all_digits(whole)) && (fraction.empty() || all_digits(fraction)) &&
           !(whole.empty() && fraction.empty());
}

template <class Number> bool read_whole(std::string_view text, int base, Number& out) {
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out, base);
    return failed == std::errc{} && end == text.data() + text.size();
}

/// What a plain scalar means in YAML's core schema. `problem` is set where it is a number that JSON cannot hold.
json::value plain_scalar(std::string_view text, std::string& problem) {
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
    if (text == "true" || text == "True" || text == "TRUE") return true;
    if (text == "false" || text == "False" || text == "FALSE") return false;
    const bool negative = text[0] == '-';
    const auto digits = negative || text[0] == '+' ? text.substr(1) : text;
    if (digits == ".inf" || digits == ".Inf" || digits == ".INF" || text == ".nan" || text == ".NaN" || text == ".NAN") {
        problem = fmt::format("{} is a number that cannot be kept; put it in quotes if a text is meant", text);
        return nullptr;
    }
    const bool hex = digits.starts_with("0x") && all_digits(digits.substr(2), "0123456789abcdefABCDEF");
    const bool octal = digits.starts_with("0o") && all_digits(digits.substr(2), "01234567");
    const bool decimal = all_digits(digits);
    if ((hex || octal) && digits.size() != text.size()) return json::string(text); // no sign there
    if (decimal && digits.size() > 1 && digits[0] == '0') return json::string(text);
    if (hex || octal || decimal) {
        const int base = hex ? 16 : octal ? 8 : 10;
        auto body = base == 10 ? text : text.substr(2);
        if (body[0] == '+') body.remove_prefix(1);
        std::int64_t small = 0;
        if (read_whole(body, base, small)) return small;
        std::uint64_t large = 0;
        if (!negative && read_whole(body, base, large)) return large;
        problem = "a whole number has more digits than can be kept; put it in quotes if a text is meant";
        return nullptr;
    }
    if (!looks_like_float(digits)) return json::string(text);
    double value = 0;
    const auto* end = digits.data() + digits.size();
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    // "1." reads up to the point only, which is what is meant.
    if (result.ec != std::errc{} || !std::isfinite(value) || (result.ptr != end && *result.ptr != '.')) {
        problem = fmt::format("{} is a number that cannot be kept; put it in quotes if a text is meant", truncate(text, 40));
        return nullptr;
    }
    return negative ? -value : value;
}

/// The length of the UTF-8 sequence at the front, or 0 if there is none. Overlong forms and surrogates are invalid.
std::size_t utf8_sequence(std::string_view text, std::uint32_t& point) {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0U) == 0x80U; };
    const unsigned first = byte(0);
    if (first < 0x80) {
        point = first;
        return 1;
    }
    const std::size_t length = first >= 0xc2 && first < 0xe0   ? 2
                               : (first & 0xf0U) == 0xe0       ? 3
                               : first >= 0xf0 && first < 0xf5 ? 4
                                                               : 0;
    if (length == 0) return 0;
    point = first & (0xffU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
        if (!continues(i)) return 0;
        point = (point << 6U) | (byte(i) & 0x3fU);
    }
    const bool overlong = (length == 3 && point < 0x800) || (length == 4 && (point < 0x10000 || point > 0x10ffff));
    return overlong || (point >= 0xd800 && point < 0xe000) ? 0 : length;
}

bool is_utf8(std::string_view text) {
    std::uint32_t point = 0;
    while (!text.empty()) {
        const auto length = utf8_sequence(text, point);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

/// Takes the parser's events and builds values, within limits. Throws YamlRefused, which the parser lets through.
class YamlBuilder final : public YAML::EventHandler {
public:
    std::vector<Document> documents;

    void OnDocumentStart(const YAML::Mark& mark) override {
        // The parser can stop advancing, for example at a comma, and emit empty documents for ever.
        if (mark.pos == began_at_) throw YamlRefused(mark, "no document can begin here");
        began_at_ = mark.pos;
        levels_.clear();
        result_ = nullptr;
        line_ = mark.line + 1;
    }
    void OnDocumentEnd() override {
        if (!result_.is_null()) documents.push_back({std::move(result_), line_});
        result_ = nullptr;
    }
    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        refuse_anchor(mark, anchor);
        add(mark, nullptr, nullptr);
    }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
        throw YamlRefused(mark, "aliases (*name) are not read; write the value out");
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
        refuse_anchor(mark, anchor);
        refuse_tag(mark, tag);
        // The parser writes these two escapes as bytes that are no UTF-8.
        if (!is_utf8(text)) throw YamlRefused(mark, "the escapes \\N and \\_ are not read; write \\u0085 and \\u00a0");
        if (tag == "!") return add(mark, json::string(text), &text); // quoted
        std::string problem;
        auto value = plain_scalar(text, problem);
        if (!problem.empty() && !expects_key()) throw YamlRefused(mark, std::move(problem));
        add(mark, std::move(value), &text);
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        open(mark, tag, anchor, json::array());
    }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
        open(mark, tag, anchor, json::object());
    }
    void OnSequenceEnd() override { close(); }
    void OnMapEnd() override { close(); }
    void OnAnchor(const YAML::Mark& mark, const std::string&) override { throw YamlRefused(mark, anchors_are_refused); }

private:
    static constexpr const char* anchors_are_refused = "anchors (&name) are not read; write the value out where it is used";
    struct Level {
        json::value container;
        std::string key;
        bool has_key = false;
        YAML::Mark mark;
    };

    static void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
        if (anchor != 0) throw YamlRefused(mark, anchors_are_refused);
    }
    static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
        if (!tag.empty() && tag != "?" && tag != "!")
            throw YamlRefused(mark, "tags (!name) are not read; quote a text that begins with !");
    }
    bool expects_key() const { return !levels_.empty() && levels_.back().container.is_object() && !levels_.back().has_key; }

    /// `text` is how a scalar was written: a key is that, whatever it would mean as a value.
    void add(const YAML::Mark& mark, json::value value, const std::string* text) {
        if (++nodes_ > max_nodes) throw YamlRefused(mark, fmt::format("there are more than {} values", max_nodes));
        if (levels_.empty()) {
            result_ = std::move(value);
            return;
        }
        auto& level = levels_.back();
        if (auto* array = level.container.if_array()) {
            array->push_back(std::move(value));
        } else if (level.has_key) {
            level.container.get_object().emplace(level.key, std::move(value));
            level.has_key = false;
        } else {
            if (text == nullptr) throw YamlRefused(mark, "a key must be a text");
            if (level.container.get_object().contains(*text))
                throw YamlRefused(mark, fmt::format("the key \"{}\" occurs twice", truncate(*text, 64)));
            level.key = *text;
            level.has_key = true;
        }
    }
    void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, json::value container) {
        refuse_anchor(mark, anchor);
        refuse_tag(mark, tag);
        if (expects_key()) throw YamlRefused(mark, "a key must be a text");
        if (levels_.size() >= max_depth) throw YamlRefused(mark, fmt::format("it nests deeper than {} levels", max_depth));
        levels_.push_back({std::move(container), {}, false, mark});
    }
    void close() {
        auto level = std::move(levels_.back());
        levels_.pop_back();
        add(level.mark, std::move(level.container), nullptr);
    }

    std::vector<Level> levels_;
    json::value result_;
    int line_ = 1;
    std::size_t nodes_ = 0;
    int began_at_ = -1; ///< where the present document did
};

Error yaml_error(int line, int column, std::string_view what) {
    return {Code::invalid, fmt::format("this is not YAML that can be read: line {}, column {}: {}", line, column, what)};
}

/// The parser below trusts its input more than we do: what is not text never reaches it.
Result<Unit> check_yaml_bytes(std::string_view text) {
    int line = 1, column = 1;
    while (!text.empty()) {
        std::uint32_t point = 0;
        const auto length = utf8_sequence(text, point);
        if (length == 0) return yaml_error(line, column, "it is not UTF-8");
        if ((point < 0x20 && point != '\n' && point != '\t' && point != '\r') || point == 0x7f)
            return yaml_error(line, column, "it has a control character; write it as an escape in double quotes");
        text.remove_prefix(length);
        ++column;
        if (point == '\n') {
            ++line;
            column = 1;
        }
    }
    return Unit{};
}

} // namespace

Result<std::vector<Document>> parse_yaml(std::string_view text) {
    if (text.size() > max_text_size)
        return Error{Code::too_large, fmt::format("the text has {} bytes, at most {} are read", text.size(), max_text_size)};
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return std::vector<Document>{};
    if (text[first] == '{' || text[first] == '[') { // JSON, possibly with tabs, which YAML forbids
        if (auto value = parse_json(text)) {
            std::vector<Document> one;
            one.push_back({std::move(*value), 1 + static_cast<int>(std::count(
                                                      text.begin(), text.begin() + static_cast<std::ptrdiff_t>(first), '\n'))});
            return one;
        }
    }
    TRY([[maybe_unused]] auto bytes, check_yaml_bytes(text));
    try {
        std::istringstream stream{std::string(text)};
        YAML::Parser parser(stream);
        YamlBuilder builder;
        while (parser.HandleNextDocument(builder)) {
        }
        return std::move(builder.documents);
    } catch (const YamlRefused& refused) {
        return yaml_error(refused.line, refused.column, refused.what_is_wrong);
    } catch (const YAML::Exception& failed) {
        return yaml_error(failed.mark.line + 1, failed.mark.column + 1, failed.msg);
    } catch (const std::exception& failed) {
        return Error{Code::invalid, fmt::format("this is not YAML that can be read: {}", failed.what())};
    }
}

namespace {

/// A code point that means itself between quotes and in blocks.
bool is_yaml_printable(std::uint32_t point) {
    return point >= 0x20 && point != 0x7f && !(point >= 0x80 && point < 0xa0) && point != 0x2028 && point != 0x2029 &&
           point != 0xfeff && point != 0xfffe && point != 0xffff;
}

bool is_plain_yaml(std::string_view text) {
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    constexpr std::string_view inside = "_-./+@=,()~%*& :#<>^$;!?";
    if (text.empty() || text.size() > 500 || text.back() == ' ' || text.back() == ':') return false;
    if (letters.find(text[0]) == std::string_view::npos && text[0] != '/' && text[0] != '_' && text[0] != '.' && text[0] != '+')
        return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (letters.find(c) == std::string_view::npos && inside.find(c) == std::string_view::npos) return false;
        if (c == ':' && text[i + 1] == ' ') return false;
        if (c == '#' && i > 0 && text[i - 1] == ' ') return false;
    }
    if (text.starts_with("...")) return false;
    std::string problem;
    const auto meaning = plain_scalar(text, problem);
    return problem.empty() && meaning.is_string();
}

std::string quoted_yaml(std::string_view text) {
    std::string out = "\"";
    while (!text.empty()) {
        std::uint32_t point = 0;
        auto length = utf8_sequence(text, point);
        if (length == 0) { // not text: nothing we stored
            length = 1;
            out += "\\ufffd";
        } else if (point == '"' || point == '\\') {
            out += '\\';
            out += static_cast<char>(point);
        } else if (point == '\n') {
            out += "\\n";
        } else if (point == '\t') {
            out += "\\t";
        } else if (is_yaml_printable(point)) {
            out += text.substr(0, length);
        } else if (point <= 0xff) {
            out += fmt::format("\\x{:02x}", point);
        } else {
            out += fmt::format("\\u{:04x}", point);
        }
        text.remove_prefix(length);
    }
    return out + '"';
}

/// Whether a text of several lines can be a literal block without loss.
bool is_block_yaml(std::string_view text) {
    if (text.find('\n') == std::string_view::npos || text[0] == ' ' || text[0] == '\n' || text.ends_with("\n\n")) return false;
    bool line_begins = true, only_spaces = false;
    while (!text.empty()) {
        std::uint32_t point = 0;
        const auto length = utf8_sequence(text, point);
        if (length == 0 || (point != '\n' && !is_yaml_printable(point))) return false;
        if (point == '\n') {
            if (only_spaces) return false;
            line_begins = true;
            only_spaces = false;
        } else {
            only_spaces = (line_begins || only_spaces) && point == ' ';
            line_begins = false;
        }
        text.remove_prefix(length);
    }
    return !only_spaces;
}

void append_yaml(const json::value& value, std::string& out, std::size_t indent, bool after_key);

void append_yaml_key(std::string_view key, std::string& out, std::size_t indent) {
    const auto written = is_plain_yaml(key) ? std::string(key) : quoted_yaml(key);
    if (written.size() < 1000) {
        out += written + ':';
        return;
    }
    out += "? " + written + '\n'; // a key before a colon may have 1,024 characters
    out.append(indent, ' ');
    out += ':';
}

void append_yaml_text(std::string_view text, std::string& out, std::size_t indent) {
    if (is_plain_yaml(text)) {
        out += text;
    } else if (is_block_yaml(text)) {
        out += text.back() == '\n' ? "|" : "|-";
        while (!text.empty()) {
            const auto end = text.find('\n');
            const auto line = text.substr(0, end);
            out += '\n';
            if (!line.empty()) out.append(indent, ' ');
            out += line;
            text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        }
    } else {
        out += quoted_yaml(text);
    }
}

/// `indent` is where the lines of a container begin. `after_key`: the line has content already.
void append_yaml(const json::value& value, std::string& out, std::size_t indent, bool after_key) {
    if (const auto* object = value.if_object(); object != nullptr && !object->empty()) {
        bool on_line = !after_key;
        for (const auto& [key, item] : *object) {
            if (!on_line) {
                out += '\n';
                out.append(indent, ' ');
            }
            on_line = false;
            append_yaml_key(std::string_view(key), out, indent);
            append_yaml(item, out, indent + 2, true);
        }
    } else if (const auto* array = value.if_array(); array != nullptr && !array->empty()) {
        bool on_line = !after_key;
        for (const auto& item : *array) {
            if (!on_line) {
                out += '\n';
                out.append(indent, ' ');
            }
            on_line = false;
            const bool nested = (item.is_object() && !item.get_object().empty()) || (item.is_array() && !item.get_array().empty());
            out += nested ? "- " : "-";
            append_yaml(item, out, indent + 2, !nested);
        }
    } else {
        if (after_key) out += ' ';
        if (value.is_string())
            append_yaml_text(std::string_view(value.get_string()), out, indent == 0 ? 2 : indent);
        else
            append_json(value, out);
    }
}

} // namespace

std::string to_yaml(const json::value& value) {
    std::string out;
    append_yaml(value, out, 0, false);
    out += '\n';
    return out;
}

} // namespace orrery
