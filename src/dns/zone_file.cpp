#include "dns/zone_file.h"

#include "core/truncate.h"
#include "dns/message.h"
#include "dns/zone_entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace orrery::dns {

namespace {

constexpr std::size_t max_zone_bytes = 256U << 20, max_rrset_records = 4000;

/// Parses the entries of a zone file: types, data and the TTLs that records inherit.
class ZoneParser {
public:
    explicit ZoneParser(const Name& origin) : zone_{origin, {}} {}

    Result<Zone> parse(std::string_view text) {
        ZoneEntryReader reader(text, zone_.origin);
        for (;;) {
            TRY(const auto entry, reader.next());
            if (!entry) return std::move(zone_);
            if (entry->is_directive) return bad_directive(entry->tokens[0]);
            TRY(std::ignore, parse_record(*entry));
        }
    }

private:
    static Error bad_directive(const ZoneToken& directive) {
        if (directive.text == "$INCLUDE" || directive.text == "$GENERATE")
            return with_position(
                Error{Code::unsupported, fmt::format("{} is not supported", directive.text), "put the records into this file"},
                directive);
        return bad_zone(directive, fmt::format("\"{}\" is not a directive", truncate(directive.text, 50)), "use $ORIGIN or $TTL");
    }

    Result<Unit> parse_record(const ZoneEntry& entry) {
        const auto& type_token = entry.tokens[0];
        TRY(const auto record_type, parse_type(type_token));
        const std::vector<ZoneToken> data_tokens(entry.tokens.begin() + 1, entry.tokens.end());
        if (data_tokens.empty()) return bad_zone(type_token, "the record has no data");
        std::size_t bad_at = 0;
        auto data = parse_rdata(record_type, data_tokens, entry.origin, bad_at);
        if (!data.ok()) return with_position(std::move(data).error(), data_tokens[std::min(bad_at, data_tokens.size() - 1)]);
        auto ttl = entry.ttl ? entry.ttl : last_ttl_;
        // RFC 1035 does not define the TTL of a first record without one. Before $TTL existed, it was the SOA's minimum.
        if (!ttl && record_type == type::soa) {
            const auto tail = Bytes(*data).last(4);
            ttl = std::uint32_t{tail[0]} << 24 | std::uint32_t{tail[1]} << 16 | std::uint32_t{tail[2]} << 8 | tail[3];
        }
        if (!ttl) return bad_zone(type_token, "the record has no TTL", "add one, or a $TTL directive above");
        last_ttl_ = ttl;
        zone_.records.push_back({entry.owner, record_type, *ttl, std::move(*data), type_token.line});
        return Unit{};
    }

    static Result<std::uint16_t> parse_type(const ZoneToken& token) {
        const auto record_type = token.quoted ? std::uint16_t{0} : type_from_name(token.text);
        if (record_type == 0)
            return bad_zone(token, fmt::format("\"{}\" is not a record type", truncate(token.text, 50)),
                            "write a type without a known name as TYPE and its number");
        if (record_type == 46 || record_type == 47 || record_type == 50 || record_type == 51)
            return bad_zone(token, fmt::format("{} records are made by the server", type_name(record_type)), "omit them");
        if (record_type == 39) return bad_zone(token, "DNAME is not supported", "write a CNAME for each name, or a wildcard");
        if (record_type == type::opt || (record_type >= 128 && record_type <= 255))
            return bad_zone(token, fmt::format("{} is a query type, not a record type", type_name(record_type)));
        return record_type;
    }

    Zone zone_;
    std::optional<std::uint32_t> last_ttl_;
};

/// Checks the records of a zone one by one.
class ZoneChecker {
public:
    explicit ZoneChecker(const Zone& zone) : zone_(zone) {}

    /// True if the record is a duplicate of an earlier one.
    Result<bool> check(const ZoneRecord& record) {
        TRY(std::ignore, check_alone(record));
        auto& here = names_[record.owner.lowered()];
        (record.type == type::cname ? here.cname : here.other) = &record;
        auto rrset =
            std::find_if(here.rrsets.begin(), here.rrsets.end(), [&](const auto& one) { return one.front()->type == record.type; });
        if (rrset == here.rrsets.end()) {
            here.rrsets.push_back({&record});
        } else {
            if (rrset->front()->ttl != record.ttl)
                return bad(&record,
                           fmt::format("{} {} has TTL {}, but an earlier record has TTL {}: all records of an RRset need the "
                                       "same TTL",
                                       record.owner.to_text(), type_name(record.type), record.ttl, rrset->front()->ttl));
            if (std::any_of(rrset->begin(), rrset->end(), [&](const auto* one) { return one->data == record.data; })) return true;
            if (rrset->size() >= max_rrset_records)
                return bad(&record, fmt::format("{} {} has over {} records", record.owner.to_text(), type_name(record.type),
                                                max_rrset_records));
            if (record.type == type::cname) return bad(&record, fmt::format("{} has a second CNAME", record.owner.to_text()));
            rrset->push_back(&record);
        }
        if (here.cname != nullptr && here.other != nullptr)
            return bad(&record, fmt::format("{} has a CNAME and other records", record.owner.to_text()),
                       "a CNAME allows no other records at its name");
        return false;
    }

    /// Call after the last record.
    Result<Unit> check_complete() const {
        if (soa_ == nullptr) return bad(nullptr, fmt::format("the zone {} has no SOA", zone_.origin.to_text()));
        if (!has_ns_) return bad(nullptr, fmt::format("the zone {} has no NS at its origin", zone_.origin.to_text()));
        return Unit{};
    }

private:
    struct RecordsAtName {
        const ZoneRecord* cname = nullptr;
        const ZoneRecord* other = nullptr;
        std::vector<std::vector<const ZoneRecord*>> rrsets;
    };

    static Error bad(const ZoneRecord* record, std::string message, std::string remedy = {}) {
        const auto where = record != nullptr && record->line > 0 ? fmt::format("line {}: ", record->line) : std::string();
        return Error{Code::invalid, fmt::format("{}{}", where, message), std::move(remedy)};
    }

    Result<Unit> check_alone(const ZoneRecord& record) {
        if (!record.owner.is_within(zone_.origin))
            return bad(&record, fmt::format("{} is not within {}", record.owner.to_text(), zone_.origin.to_text()));
        if (!is_well_formed(record.type, record.data))
            return bad(&record, fmt::format("the data of {} {} is malformed", record.owner.to_text(), type_name(record.type)));
        if (record.ttl > 0x7FFFFFFF) return bad(&record, fmt::format("the TTL {} is over 2147483647", record.ttl));
        const bool at_apex = record.owner == zone_.origin;
        if (record.type == type::ns && at_apex) has_ns_ = true;
        if (record.type == type::cname && at_apex)
            return bad(&record, "the origin of a zone cannot have a CNAME", "write its addresses, or make it a dynamic name");
        if (record.type != type::soa) return Unit{};
        if (!at_apex)
            return bad(&record, fmt::format("the SOA is at {}, not at {}", record.owner.to_text(), zone_.origin.to_text()));
        if (soa_ != nullptr && soa_->data != record.data) return bad(&record, "there is a second SOA");
        if (soa_ == nullptr) soa_ = &record;
        return Unit{};
    }

    const Zone& zone_;
    std::unordered_map<std::string, RecordsAtName> names_;
    const ZoneRecord* soa_ = nullptr;
    bool has_ns_ = false;
};

} // namespace

Result<Zone> parse_zone(std::string_view text, const Name& origin) {
    if (text.size() > max_zone_bytes)
        return Error{Code::too_large, fmt::format("a zone file can have at most {} bytes", max_zone_bytes)};
    TRY(auto zone, ZoneParser(origin).parse(text));
    TRY(std::ignore, check_zone(zone));
    return zone;
}

Result<Unit> check_zone(Zone& zone) {
    ZoneChecker checker(zone);
    std::vector<bool> is_duplicate(zone.records.size());
    for (std::size_t i = 0; i < zone.records.size(); ++i) {
        TRY(is_duplicate[i], checker.check(zone.records[i]));
    }
    TRY(std::ignore, checker.check_complete());
    if (std::find(is_duplicate.begin(), is_duplicate.end(), true) == is_duplicate.end()) return Unit{};
    std::vector<ZoneRecord> unique;
    for (std::size_t i = 0; i < zone.records.size(); ++i)
        if (!is_duplicate[i]) unique.push_back(std::move(zone.records[i]));
    zone.records = std::move(unique);
    return Unit{};
}

} // namespace orrery::dns
