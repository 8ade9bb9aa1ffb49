#include "importers/zone_records.h"

#include "core/truncate.h"

#include <fmt/format.h>

namespace orrery::importers {

namespace {

std::string absolute(const dns::Name& name) { return name.is_root() ? "." : name.lowered() + "."; }

/// The tokens from `at` on as they are in a zone file.
std::string tokens_text(const std::vector<dns::ZoneToken>& tokens, std::size_t at = 0) {
    std::string out;
    for (; at < tokens.size(); ++at) {
        const auto* quote = tokens[at].quoted ? "\"" : "";
        out += fmt::format("{}{}{}{}", out.empty() ? "" : " ", quote, tokens[at].text, quote);
    }
    return out;
}

/// The records of a Zone and its name servers.
class ZoneDraft {
public:
    explicit ZoneDraft(const dns::Name& apex) : apex_(apex), origin_(apex) {}

    Result<Unit> add(const dns::ZoneEntry& entry) {
        const auto type = to_lower(entry.tokens[0].text);
        if (type == "soa") return Unit{};
        if (type == "ns" && entry.owner == apex_ && entry.tokens.size() > 1) {
            auto server = dns::parse_zone_name(entry.tokens[1], entry.origin);
            if (!server.ok()) return dns::with_position(std::move(server).error(), entry.tokens[1]);
            servers_.emplace_back(server->lowered());
            return Unit{};
        }
        // Names in the data are relative to the origin in effect.
        if (!(entry.origin == origin_)) records_ += fmt::format("$ORIGIN {}\n", absolute(entry.origin));
        origin_ = entry.origin;
        records_ += fmt::format("{} {}{} {}\n", absolute(entry.owner), entry.ttl ? fmt::format("{} ", *entry.ttl) : "",
                                entry.tokens[0].text, tokens_text(entry.tokens, 1));
        return Unit{};
    }

    void add_to(ResourceSet& out) {
        const auto zone = apex_.lowered();
        if (servers_.empty()) {
            servers_.emplace_back("ns1." + zone);
            out.warn(
                fmt::format("zone {}: the file has no NS records at the apex; set spec.nameservers to your name servers", zone));
        }
        json::object spec{{"origin", zone}, {"nameservers", std::move(servers_)}};
        if (!records_.empty()) spec["records"] = records_;
        out.add("Zone", zone, std::move(spec));
    }

private:
    dns::Name apex_, origin_;
    json::array servers_;
    std::string records_;
};

Error about_zone(std::string_view zone, Error error) {
    error.message = fmt::format("zone {}: {}", zone, error.message);
    return error;
}

} // namespace

Result<Unit> import_zone(ResourceSet& out, std::string_view text, std::string_view zone, dns::ZoneEntryReader::Options options,
                         const TakeRecord& take_record) {
    auto apex = dns::Name::from_text(zone);
    if (!apex.ok()) return about_zone(zone, std::move(apex).error());
    ZoneDraft draft(*apex);
    dns::ZoneEntryReader reader(text, *apex, options);
    for (;;) {
        auto entry = reader.next();
        if (!entry.ok()) return about_zone(zone, std::move(entry).error());
        if (!*entry) break;
        if ((*entry)->is_directive) {
            out.warn(fmt::format("zone {}, line {}: directive {} is not imported", zone, (*entry)->tokens[0].line,
                                 truncate(tokens_text((*entry)->tokens), 80)));
        } else if (!take_record(**entry)) {
            if (auto added = draft.add(**entry); !added.ok()) return about_zone(zone, std::move(added).error());
        }
    }
    draft.add_to(out);
    return Unit{};
}

} // namespace orrery::importers
