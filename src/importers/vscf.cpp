#include "importers/vscf.h"

#include "core/json_fields.h"
#include "core/truncate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::importers {

namespace json = boost::json;

namespace {

/// Commas are optional everywhere, like white space.
class VscfReader {
public:
    explicit VscfReader(std::string_view text) : text_(text) {}

    Result<json::object> read() {
        json::object out;
        skip();
        const bool braces = !at_end() && text_[at_] == '{';
        if (braces) ++at_;
        TRY(out, table(braces ? '}' : '\0', 0));
        skip();
        if (!at_end()) return error_here("text after the closing brace");
        return out;
    }

private:
    bool at_end() const { return at_ >= text_.size(); }
    Error error_here(std::string_view message) const {
        const auto line =
            1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
        return Error{Code::invalid, fmt::format("line {}: {}", line, message)};
    }
    void skip() {
        while (!at_end()) {
            if (text_[at_] == '#')
                at_ = std::min(text_.find('\n', at_), text_.size());
            else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == ',')
                ++at_;
            else
                return;
        }
    }

    Result<json::object> table(char end, int depth) {
        json::object out;
        while (true) {
            skip();
            if (at_end()) {
                if (end == '\0') return out;
                return error_here("unclosed {");
            }
            if (text_[at_] == end) {
                ++at_;
                return out;
            }
            if (text_.substr(at_).starts_with("$include"))
                return error_here("$include is not supported: put everything into one file");
            TRY(const auto key, scalar());
            skip();
            if (!text_.substr(at_).starts_with("=>")) return error_here(fmt::format("expected => after \"{}\"", truncate(key, 40)));
            at_ += 2;
            TRY(auto one, value(depth));
            out[key] = std::move(one);
        }
    }

    Result<json::value> value(int depth) {
        if (depth > 16) return error_here("more than 16 levels of nesting");
        skip();
        if (at_end()) return error_here("missing value");
        if (text_[at_] == '{') {
            ++at_;
            TRY(auto out, table('}', depth + 1));
            return json::value(std::move(out));
        }
        if (text_[at_] == '[') {
            ++at_;
            json::array out;
            while (true) {
                skip();
                if (at_end()) return error_here("unclosed [");
                if (text_[at_] == ']') {
                    ++at_;
                    return json::value(std::move(out));
                }
                TRY(auto one, value(depth + 1));
                out.push_back(std::move(one));
            }
        }
        TRY(const auto text, scalar());
        return json::value(text);
    }

    Result<std::string> scalar() {
        std::string out;
        if (text_[at_] == '"' || text_[at_] == '\'') {
            const char quote = text_[at_++];
            while (!at_end() && text_[at_] != quote) {
                if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
                out += text_[at_++];
            }
            if (at_end()) return error_here("unclosed string");
            ++at_;
            return out;
        }
        while (!at_end() && std::string_view(" \t\r\n,[]{}#").find(text_[at_]) == std::string_view::npos &&
               !text_.substr(at_).starts_with("=>"))
            out += text_[at_++];
        if (out.empty()) return error_here(fmt::format("unexpected \"{}\"", text_[at_]));
        return out;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

} // namespace

Result<json::object> parse_vscf(std::string_view text) { return VscfReader(text).read(); }

std::vector<std::string> vscf_list(const json::object& table, std::string_view key) {
    std::vector<std::string> out;
    const auto* value = table.if_contains(key);
    if (value == nullptr) return out;
    if (value->is_string()) out.emplace_back(std::string_view(value->get_string()));
    if (value->is_array())
        for (const auto& item : value->get_array())
            if (item.is_string()) out.emplace_back(std::string_view(item.get_string()));
    return out;
}
int vscf_number(const json::object& table, std::string_view key, int default_value) {
    const auto text = text_at(table, key);
    int out = default_value;
    if (!text.empty()) std::from_chars(text.data(), text.data() + text.size(), out);
    return out;
}

} // namespace orrery::importers
