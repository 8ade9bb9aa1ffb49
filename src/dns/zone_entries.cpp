#include "dns/zone_entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace orrery::dns {

namespace {

constexpr std::size_t max_tokens = 100'000;

Error bad_zone_at(int line, int column, std::string message) {
    return bad_zone(ZoneToken{{}, false, line, column}, std::move(message));
}

bool is_time(const ZoneToken& token) {
    return !token.quoted && !token.text.empty() && token.text[0] >= '0' && token.text[0] <= '9' && parse_ttl(token.text).ok();
}

bool is_class(const ZoneToken& token, std::string_view name) {
    return !token.quoted && token.text.size() == name.size() &&
           std::equal(name.begin(), name.end(), token.text.begin(),
                      [](char a, char b) { return lower(static_cast<std::uint8_t>(a)) == lower(static_cast<std::uint8_t>(b)); });
}

/// "300/30": a TTL and its minimum.
std::optional<std::pair<std::uint32_t, std::uint32_t>> ttl_and_minimum(const ZoneToken& token) {
    const auto slash = token.text.find('/');
    if (token.quoted || slash == std::string::npos) return std::nullopt;
    const auto ttl = parse_ttl(std::string_view(token.text).substr(0, slash)),
               minimum = parse_ttl(std::string_view(token.text).substr(slash + 1));
    if (!ttl.ok() || !minimum.ok()) return std::nullopt;
    return std::pair(*ttl, *minimum);
}

} // namespace

Error with_position(Error error, const ZoneToken& token) {
    error.message = fmt::format("line {}, column {}: {}", token.line, token.column, error.message);
    return error;
}

Error bad_zone(const ZoneToken& token, std::string message, std::string remedy) {
    return with_position(Error{Code::invalid, std::move(message), std::move(remedy)}, token);
}

Result<std::optional<ZoneEntry>> ZoneEntryReader::next() {
    for (;;) {
        std::vector<ZoneToken> tokens;
        bool indented = false;
        TRY(const auto more, read_tokens(tokens, indented));
        if (!more) return std::optional<ZoneEntry>();
        if (indented || tokens[0].quoted || !tokens[0].text.starts_with("$")) {
            TRY(auto entry, read_record(std::move(tokens), indented));
            return std::optional(std::move(entry));
        }
        TRY(const auto applied, apply_directive(tokens));
        if (!applied) return std::optional(ZoneEntry{.is_directive = true, .tokens = std::move(tokens), .origin = origin_});
    }
}

/// Reads the tokens up to an end of line that is not within parentheses; false at the end of the file.
Result<bool> ZoneEntryReader::read_tokens(std::vector<ZoneToken>& tokens, bool& indented) {
    const auto at_blank = [&] { return at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t'); };
    indented = at_blank();
    int open = 0, open_line = 0, open_column = 0;
    while (at_ < text_.size()) {
        const char c = text_[at_];
        if (c == '\n') {
            advance();
            if (open == 0) {
                if (!tokens.empty()) return true;
                indented = at_blank();
            }
        } else if (c == ' ' || c == '\t' || c == '\r') {
            advance();
        } else if (c == ';') {
            while (at_ < text_.size() && text_[at_] != '\n') advance();
        } else if (c == '(') {
            open_line = line_, open_column = column_;
            if (++open > 1) return bad_zone_at(line_, column_, "parentheses cannot be nested");
            advance();
        } else if (c == ')') {
            if (--open < 0) return bad_zone_at(line_, column_, "unmatched closing parenthesis");
            advance();
        } else {
            TRY(auto token, read_token());
            tokens.push_back(std::move(token));
            if (tokens.size() > max_tokens)
                return bad_zone_at(line_, column_, fmt::format("a record has over {} tokens", max_tokens));
        }
    }
    if (open > 0) return bad_zone_at(open_line, open_column, "unclosed parenthesis");
    return !tokens.empty();
}

Result<ZoneToken> ZoneEntryReader::read_token() {
    ZoneToken out{{}, text_[at_] == '"', line_, column_};
    if (out.quoted) advance();
    for (;;) {
        if (at_ >= text_.size() || text_[at_] == '\n') {
            if (out.quoted) return bad_zone(out, "unclosed string");
            return out;
        }
        const char c = text_[at_];
        if (out.quoted ? c == '"' : std::strchr(" \t\r;()\"", c) != nullptr && c != 0) {
            if (out.quoted) advance();
            return out;
        }
        if (c == 0) return bad_zone_at(line_, column_, "a zone file cannot contain a zero byte");
        out.text += c;
        advance();
        if (c == '\\' && at_ < text_.size() && text_[at_] != '\n') {
            out.text += text_[at_];
            advance();
        }
    }
}

void ZoneEntryReader::advance() {
    if (text_[at_] == '\n') {
        ++line_;
        column_ = 1;
    } else {
        ++column_;
    }
    ++at_;
}

/// False if the directive is neither $ORIGIN nor $TTL.
Result<bool> ZoneEntryReader::apply_directive(const std::vector<ZoneToken>& tokens) {
    const auto& directive = tokens[0].text;
    if (directive != "$ORIGIN" && directive != "$TTL") return false;
    if (tokens.size() != 2) return bad_zone(tokens[0], fmt::format("{} takes one argument", directive));
    if (directive == "$ORIGIN") {
        auto name = parse_zone_name(tokens[1], origin_);
        if (!name.ok()) return with_position(std::move(name).error(), tokens[1]);
        origin_ = *name;
    } else {
        const auto ttl = parse_ttl(tokens[1].text);
        if (!ttl.ok()) return with_position(ttl.error(), tokens[1]);
        default_ttl_ = *ttl;
    }
    return true;
}

Result<ZoneEntry> ZoneEntryReader::read_record(std::vector<ZoneToken> tokens, bool indented) {
    ZoneEntry out{.origin = origin_};
    std::size_t at = 0;
    if (!indented) {
        auto name = parse_zone_name(tokens[0], origin_);
        if (!name.ok()) return with_position(std::move(name).error(), tokens[0]);
        owner_ = *name;
        at = 1;
    } else if (!owner_) {
        return bad_zone(tokens[0], "the first record has no owner", "start the line with the name, or \"@\" for the origin");
    }
    out.owner = *owner_;
    TRY(at, read_ttl_and_class(tokens, at, out));
    if (at == tokens.size()) return bad_zone(tokens.back(), "the record ends before its type");
    if (!out.ttl) out.ttl = default_ttl_;
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(at));
    out.tokens = std::move(tokens);
    return out;
}

/// Reads the optional TTL and class, in any order; the index of the type.
Result<std::size_t> ZoneEntryReader::read_ttl_and_class(const std::vector<ZoneToken>& tokens, std::size_t at,
                                                        ZoneEntry& out) const {
    bool has_class = false;
    for (; at < tokens.size(); ++at) {
        const auto& token = tokens[at];
        if (!out.ttl && is_time(token)) {
            out.ttl = *parse_ttl(token.text);
        } else if (!has_class && is_class(token, "IN")) {
            has_class = true;
        } else if (is_class(token, "CH") || is_class(token, "HS") || is_class(token, "CS")) {
            return bad_zone(token, fmt::format("class {} is not supported", token.text), "omit the class");
        } else {
            const auto both = options_.ttl_with_minimum && !out.ttl ? ttl_and_minimum(token) : std::nullopt;
            if (!both) break;
            out.ttl = both->first;
            out.min_ttl = both->second;
        }
    }
    return at;
}

} // namespace orrery::dns
