#include "core/truncate.h"
#include "fleet/facts/match_spec.h"

#include <fmt/format.h>

#include <algorithm>

/// Reads spec files: a list of tuples of quoted texts, in Python's notation.
namespace orrery::fleet {

namespace {

constexpr std::size_t max_spec_errors = 20;

/// A cursor over the text that counts lines and skips white space and comments.
class SpecReader {
public:
    explicit SpecReader(std::string_view text) : text_(text) {}

    int line() const { return line_; }
    bool at_end() {
        skip();
        return at_ == text_.size();
    }
    /// Consumes `c` if it comes next.
    bool accept(char c) {
        skip();
        if (at_ == text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    std::string next_text() {
        skip();
        return at_ == text_.size() ? "the end" : fmt::format("\"{}\"", truncate(text_.substr(at_, 12), 12));
    }
    /// A text in single or double quotes, with Python's common escapes and an optional prefix u or r.
    Result<std::string> quoted() {
        skip();
        bool raw = false;
        if (at_ + 1 < text_.size() && (text_[at_] == 'u' || text_[at_] == 'r') && (text_[at_ + 1] == '\'' || text_[at_ + 1] == '"'))
            raw = text_[at_++] == 'r';
        if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
            return Error{Code::invalid, fmt::format("a quoted text is needed, got {}", next_text())};
        const char quote = text_[at_++];
        std::string out;
        for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
            if (text_[at_] == '\n') break;
            if (text_[at_] == '\\' && !raw && at_ + 1 < text_.size()) {
                append_escape(text_[++at_], out);
                continue;
            }
            out += text_[at_];
        }
        if (at_ == text_.size() || text_[at_] != quote) return Error{Code::invalid, "the text has no closing quote"};
        ++at_;
        return out;
    }

private:
    static void append_escape(char c, std::string& out) {
        if (c == 'n')
            out += '\n';
        else if (c == 't')
            out += '\t';
        else if (c == '\\' || c == '\'' || c == '"')
            out += c;
        else { // Python keeps the backslash of an unknown escape, and regular expressions rely on it
            out += '\\';
            out += c;
        }
    }
    void skip() {
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '#') {
                while (at_ < text_.size() && text_[at_] != '\n') ++at_;
                continue;
            }
            if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return;
            if (c == '\n') ++line_;
            ++at_;
        }
    }
    std::string_view text_;
    std::size_t at_ = 0;
    int line_ = 1;
};

bool is_variable_name(std::string_view name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
}

Result<MatchElement> read_element(std::string text) {
    MatchElement out;
    out.text = text;
    std::string_view rest = out.text;
    if (rest.starts_with('$')) {
        rest.remove_prefix(1);
        out.identifying = rest.starts_with('$');
        if (out.identifying) rest.remove_prefix(1);
        const auto equals = std::min(rest.find('='), rest.size());
        out.variable = rest.substr(0, equals);
        if (!is_variable_name(out.variable))
            return Error{Code::invalid, fmt::format("\"{}\" does not name a variable", truncate(out.text, 64)),
                         "a variable is written $name, with letters, digits and _"};
        if (equals == rest.size()) return out;
        rest.remove_prefix(equals + 1);
        TRY(out.condition, Condition::parse_call(rest));
        return out;
    }
    if (Condition::is_call(rest)) {
        TRY(out.condition, Condition::parse_call(rest));
    } else {
        out.condition = Condition::literal(std::string(rest));
    }
    return out;
}

/// One tuple, after its opening parenthesis. The first error of the entry is reported; what cannot be read at all ends the file.
Result<Unit> read_entry(SpecReader& reader, char close, MatchEntry& entry, Error& errors) {
    entry.line = reader.line();
    const auto report = [&](const std::string& message, const std::string& remedy = {}) {
        errors.fields.push_back(
            {fmt::format("line {}", reader.line()), remedy.empty() ? message : fmt::format("{}; {}", message, remedy)});
    };
    for (std::size_t i = 0; i < 4; ++i) {
        if (i > 0 && !reader.accept(',')) {
            report(fmt::format("an entry needs four texts; after {} of them comes {}", i, reader.next_text()));
            return errors;
        }
        auto text = reader.quoted();
        if (!text.ok()) {
            report(text.error().message);
            return errors;
        }
        auto element = read_element(std::move(*text));
        if (element.ok())
            entry.elements[i] = std::move(*element);
        else
            report(element.error().message, element.error().remedy);
    }
    reader.accept(',');
    if (!reader.accept(close)) {
        report(fmt::format("an entry has four texts and ends with {}, got {}", close, reader.next_text()));
        return errors;
    }
    return Unit{};
}

} // namespace

std::string MatchEntry::text() const {
    return fmt::format("('{}', '{}', '{}', '{}')", elements[0].text, elements[1].text, elements[2].text, elements[3].text);
}

Result<MatchSpec> MatchSpec::parse(std::string_view text) {
    Error errors{Code::invalid, "the match spec is not valid", "write [('disk', '$disk', 'size', 'gt(4)'), ...]"};
    if (text.size() > max_text)
        return Error{Code::too_large, fmt::format("the match spec has {} bytes; at most {} are read", text.size(), max_text)};
    SpecReader reader(text);
    MatchSpec out;
    const auto fail = [&](std::string message) {
        errors.fields.push_back({fmt::format("line {}", reader.line()), std::move(message)});
        return errors;
    };
    if (!reader.accept('[')) return fail(fmt::format("a list is needed, got {}", reader.next_text()));
    while (!reader.accept(']')) {
        if (!out.entries_.empty() && !reader.accept(',')) return fail(fmt::format("a comma is needed, got {}", reader.next_text()));
        if (reader.accept(']')) break;
        const bool round = reader.accept('(');
        if (!round && !reader.accept('[')) return fail(fmt::format("an entry is needed, got {}", reader.next_text()));
        MatchEntry entry;
        auto read = read_entry(reader, round ? ')' : ']', entry, errors);
        if (!read.ok() || errors.fields.size() >= max_spec_errors) return errors;
        out.entries_.push_back(std::move(entry));
        if (out.entries_.size() > max_entries) return fail(fmt::format("there are more than {} entries", max_entries));
    }
    if (!reader.at_end()) return fail(fmt::format("after the list comes {}", reader.next_text()));
    if (!errors.fields.empty()) return errors;
    return out;
}

} // namespace orrery::fleet
