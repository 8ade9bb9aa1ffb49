#include "dns/zone_file.h"

#include "dns/message.h"
#include "dns/rdata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

namespace orrery::dns {

namespace {

constexpr std::size_t longest_zone = 256U << 20, most_words = 100'000;

Error at_place(Error error, int line, int column) {
    error.message = fmt::format("line {}, column {}: {}", line, column, error.message);
    return error;
}
Error bad_zone(int line, int column, std::string message, std::string remedy = {}) {
    return at_place(Error{Code::invalid, std::move(message), std::move(remedy)}, line, column);
}

/// Entries of a zone file: words up to the end of a line that is not in parentheses.
class ZoneReader {
public:
    explicit ZoneReader(std::string_view text) : text_(text) {}

    struct Line {
        std::vector<ZoneToken> words;
        bool indented = false; ///< the owner is the last one
    };
    /// False at the end.
    Result<bool> next(Line& out) {
        out.words.clear();
        out.indented = at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t');
        int open = 0, open_line = 0, open_column = 0;
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '\n') {
                step();
                if (open == 0) {
                    if (!out.words.empty()) return true;
                    out.indented = at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t');
                }
            } else if (c == ' ' || c == '\t' || c == '\r') {
                step();
            } else if (c == ';') {
                while (at_ < text_.size() && text_[at_] != '\n') step();
            } else if (c == '(') {
                open_line = line_, open_column = column_;
                if (++open > 1) return bad_zone(line_, column_, "parentheses do not nest");
                step();
            } else if (c == ')') {
                if (--open < 0) return bad_zone(line_, column_, "this parenthesis was not opened");
                step();
            } else {
                TRY(auto word, this->word());
                out.words.push_back(std::move(word));
                if (out.words.size() > most_words) return bad_zone(line_, column_, "one record has too many words");
            }
        }
        if (open > 0) return bad_zone(open_line, open_column, "this parenthesis is not closed");
        return !out.words.empty();
    }

private:
    void step() {
        if (text_[at_] == '\n') {
            ++line_;
            column_ = 1;
        } else {
            ++column_;
        }
        ++at_;
    }
    Result<ZoneToken> word() {
        ZoneToken out{{}, text_[at_] == '"', line_, column_};
        if (out.quoted) step();
        for (;;) {
            if (at_ >= text_.size() || text_[at_] == '\n') {
                if (out.quoted) return bad_zone(out.line, out.column, "this string is not closed on its line");
                return out;
            }
            const char c = text_[at_];
            if (out.quoted ? c == '"' : std::strchr(" \t\r;()\"", c) != nullptr && c != 0) {
                if (out.quoted) step();
                return out;
            }
            if (c == 0) return bad_zone(line_, column_, "a zero byte has no place in a zone file");
            out.text += c;
            step();
            if (c == '\\' && at_ < text_.size() && text_[at_] != '\n') {
                out.text += text_[at_];
                step();
            }
        }
    }

    std::string_view text_;
    std::size_t at_ = 0;
    int line_ = 1, column_ = 1;
};

bool is_time(const ZoneToken& word) {
    return !word.quoted && !word.text.empty() && word.text[0] >= '0' && word.text[0] <= '9' && zone_time(word.text).ok();
}

bool is_class(const ZoneToken& word, std::string_view name) {
    return !word.quoted && word.text.size() == name.size() &&
           std::equal(name.begin(), name.end(), word.text.begin(),
                      [](char a, char b) { return lower(static_cast<std::uint8_t>(a)) == lower(static_cast<std::uint8_t>(b)); });
}

} // namespace

Result<Zone> parse_zone(std::string_view text, const Name& zone_origin) {
    if (text.size() > longest_zone)
        return Error{Code::too_large, fmt::format("a zone file may have {} bytes at most", longest_zone)};
    Zone out{zone_origin, {}};
    Name origin = zone_origin;
    std::optional<std::uint32_t> default_ttl, last_ttl;
    std::optional<Name> owner;
    ZoneReader reader(text);
    ZoneReader::Line line;
    for (;;) {
        TRY(const auto more, reader.next(line));
        if (!more) break;
        auto& words = line.words;
        const auto& first = words[0];
        if (!line.indented && !first.quoted && first.text.starts_with("$")) {
            const auto placed = [&](Error error, std::size_t at) {
                return at_place(std::move(error), words[at].line, words[at].column);
            };
            if ((first.text == "$ORIGIN" || first.text == "$TTL") && words.size() != 2)
                return placed(Error{Code::invalid, fmt::format("{} takes one word", first.text)}, 0);
            if (first.text == "$ORIGIN") {
                auto name = zone_name(words[1], origin);
                if (!name.ok()) return placed(std::move(name).error(), 1);
                origin = *name;
            } else if (first.text == "$TTL") {
                const auto ttl = zone_time(words[1].text);
                if (!ttl.ok()) return placed(ttl.error(), 1);
                default_ttl = *ttl;
            } else if (first.text == "$INCLUDE" || first.text == "$GENERATE") {
                return placed(Error{Code::unsupported, fmt::format("{} is not read", first.text), "put the records into this file"},
                              0);
            } else {
                return placed(
                    Error{Code::invalid, fmt::format("\"{}\" is no directive", first.text.substr(0, 50)), "use $ORIGIN or $TTL"},
                    0);
            }
            continue;
        }
        std::size_t at = 0;
        if (!line.indented) {
            auto name = zone_name(first, origin);
            if (!name.ok()) return at_place(std::move(name).error(), first.line, first.column);
            owner = *name;
            at = 1;
        } else if (!owner) {
            return bad_zone(first.line, first.column, "the first record has no owner",
                            "begin the line with the name, or \"@\" for the origin");
        }
        std::optional<std::uint32_t> ttl;
        bool has_class = false;
        for (; at < words.size(); ++at) {
            if (!ttl && is_time(words[at])) {
                ttl = *zone_time(words[at].text);
            } else if (!has_class && is_class(words[at], "IN")) {
                has_class = true;
            } else if (is_class(words[at], "CH") || is_class(words[at], "HS") || is_class(words[at], "CS")) {
                return bad_zone(words[at].line, words[at].column, fmt::format("class {} is not served", words[at].text),
                                "leave the class out");
            } else {
                break;
            }
        }
        if (at == words.size()) return bad_zone(words.back().line, words.back().column, "the record ends before its type");
        const auto& type_word = words[at];
        const auto record_type = type_word.quoted ? std::uint16_t{0} : type_named(type_word.text);
        if (record_type == 0)
            return bad_zone(type_word.line, type_word.column, fmt::format("\"{}\" is no type", type_word.text.substr(0, 50)),
                            "types that have no name here are written as TYPE and a number");
        if (record_type == 46 || record_type == 47 || record_type == 50 || record_type == 51)
            return bad_zone(type_word.line, type_word.column,
                            fmt::format("{} records are made by the server", type_name(record_type)), "leave them out");
        if (record_type == 39)
            return bad_zone(type_word.line, type_word.column, "DNAME is not served", "write a CNAME for each name, or a wildcard");
        if (record_type == type::opt || (record_type >= 128 && record_type <= 255))
            return bad_zone(type_word.line, type_word.column,
                            fmt::format("{} is a type of questions, not of records", type_name(record_type)));
        const std::vector<ZoneToken> data_words(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
        if (data_words.empty()) return bad_zone(type_word.line, type_word.column, "the record has no data");
        std::size_t bad_at = 0;
        auto data = parse_rdata(record_type, data_words, origin, bad_at);
        if (!data.ok()) {
            const auto& where = data_words[std::min(bad_at, data_words.size() - 1)];
            return at_place(std::move(data).error(), where.line, where.column);
        }
        if (!ttl) ttl = default_ttl ? default_ttl : last_ttl;
        // RFC 1035 has nothing to say for a first record without one; an SOA's own minimum is what was meant before there was $TTL.
        if (!ttl && record_type == type::soa) {
            const auto tail = Bytes(*data).last(4);
            ttl = std::uint32_t{tail[0]} << 24 | std::uint32_t{tail[1]} << 16 | std::uint32_t{tail[2]} << 8 | tail[3];
        }
        if (!ttl) return bad_zone(type_word.line, type_word.column, "the record has no TTL", "write one, or $TTL above");
        last_ttl = ttl;
        out.records.push_back({*owner, record_type, *ttl, std::move(*data), type_word.line});
    }
    TRY(std::ignore, check_zone(out));
    return out;
}

Result<Unit> check_zone(Zone& zone) {
    const auto bad = [&](const ZoneRecord* record, std::string message, std::string remedy = {}) {
        auto where = record != nullptr && record->line > 0 ? fmt::format("line {}: ", record->line) : std::string();
        return Error{Code::invalid, fmt::format("{}{}", where, message), std::move(remedy)};
    };
    struct At {
        const ZoneRecord* alias = nullptr;
        const ZoneRecord* other = nullptr;
        std::vector<std::pair<const ZoneRecord*, std::vector<const ZoneRecord*>>> sets;
    };
    std::unordered_map<std::string, At> names;
    std::vector<ZoneRecord> kept;
    std::vector<bool> twice(zone.records.size());
    const ZoneRecord* soa = nullptr;
    bool has_ns = false;
    for (std::size_t i = 0; i < zone.records.size(); ++i) {
        const auto& record = zone.records[i];
        if (!record.owner.is_within(zone.origin))
            return bad(&record, fmt::format("{} is not within {}", record.owner.to_text(), zone.origin.to_text()));
        if (!is_well_formed(record.type, record.data))
            return bad(&record, fmt::format("the data of {} {} is malformed", record.owner.to_text(), type_name(record.type)));
        if (record.ttl > 0x7FFFFFFF) return bad(&record, fmt::format("the TTL {} is over 2147483647", record.ttl));
        const bool at_apex = record.owner == zone.origin;
        auto& here = names[record.owner.lowered()];
        (record.type == type::cname ? here.alias : here.other) = &record;
        auto set =
            std::find_if(here.sets.begin(), here.sets.end(), [&](const auto& one) { return one.first->type == record.type; });
        if (set == here.sets.end()) set = here.sets.insert(here.sets.end(), {&record, {}});
        if (set->first->ttl != record.ttl)
            return bad(&record, fmt::format("{} {} has TTL {} here and {} before: one set has one TTL", record.owner.to_text(),
                                            type_name(record.type), record.ttl, set->first->ttl));
        if (std::any_of(set->second.begin(), set->second.end(), [&](const auto* one) { return one->data == record.data; })) {
            twice[i] = true;
            continue;
        }
        if (set->second.size() >= 4000)
            return bad(&record, fmt::format("{} {} has over 4000 records", record.owner.to_text(), type_name(record.type)));
        set->second.push_back(&record);
        if (record.type == type::soa) {
            if (!at_apex)
                return bad(&record, fmt::format("the SOA is at {}, not at {}", record.owner.to_text(), zone.origin.to_text()));
            if (soa != nullptr) return bad(&record, "there is a second SOA");
            soa = &record;
        }
        if (record.type == type::ns && at_apex) has_ns = true;
        if (record.type == type::cname && at_apex)
            return bad(&record, "the origin of a zone cannot have a CNAME", "write its addresses, or make it a dynamic name");
        if (record.type == type::cname && set->second.size() > 1)
            return bad(&record, fmt::format("{} has a second CNAME", record.owner.to_text()));
        if (here.alias != nullptr && here.other != nullptr)
            return bad(&record, fmt::format("{} has a CNAME and other records", record.owner.to_text()), "a CNAME stands alone");
    }
    if (soa == nullptr) return bad(nullptr, fmt::format("the zone {} has no SOA", zone.origin.to_text()));
    if (!has_ns) return bad(nullptr, fmt::format("the zone {} has no NS at its origin", zone.origin.to_text()));
    if (std::any_of(twice.begin(), twice.end(), [](bool one) { return one; })) {
        for (std::size_t i = 0; i < zone.records.size(); ++i)
            if (!twice[i]) kept.push_back(std::move(zone.records[i]));
        zone.records = std::move(kept);
    }
    return Unit{};
}

} // namespace orrery::dns
