#include "gslb/serve/zone_records.h"

#include "core/json_fields.h"
#include "dns/message.h"
#include "gslb/model/specs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::gslb {

namespace {

/// Names in the text are below the origin unless they end with a dot; names in fields are always whole.
std::string whole(std::string_view name) { return lowered_name(name) + "."; }

/// "hostmaster@example.org" in the form of an SOA record; dots before the @ are escaped.
std::string mailbox(std::string_view contact, std::string_view origin) {
    const auto at = contact.find('@');
    if (at == std::string_view::npos) return contact.empty() ? "hostmaster." + whole(origin) : whole(contact);
    std::string out;
    for (const char c : contact.substr(0, at)) {
        if (c == '.') out += '\\';
        out += c;
    }
    return out + "." + whole(contact.substr(at + 1));
}

/// There is one line of ours before the text.
void count_from_the_text(Error& error) {
    constexpr std::string_view word = "line ";
    if (!error.message.starts_with(word)) return;
    int line = 0;
    const auto* begin = error.message.data() + word.size();
    const auto [end, failed] = std::from_chars(begin, error.message.data() + error.message.size(), line);
    if (failed == std::errc{}) error.message = fmt::format("line {}{}", line - 1, std::string(end));
}

} // namespace

Result<dns::Zone> zone_of(const json::object& spec) {
    const auto origin = lowered_name(text_at(spec, "origin"));
    TRY(const auto name, dns::Name::from_text(origin));
    const auto seconds = [&](std::string_view key, int otherwise) {
        return std::chrono::duration_cast<std::chrono::seconds>(duration_at(spec, key, std::chrono::seconds(otherwise))).count();
    };
    const auto ttl = seconds("ttl", 3600);
    const auto servers = texts_at(spec, "nameservers");
    auto text = fmt::format("$TTL {}\n{}\n$ORIGIN {}\n$TTL {}\n", ttl, text_at(spec, "records"), whole(origin), ttl);
    text += fmt::format("@ IN SOA {} {} 1 3600 600 1209600 {}\n", servers.empty() ? "." : whole(servers.front()),
                        mailbox(text_at(spec, "contact"), origin), seconds("negative_ttl", 30));
    for (const auto& server : servers) text += fmt::format("@ IN NS {}\n", whole(server));
    auto zone = dns::parse_zone(text, name);
    if (!zone.ok()) {
        auto error = std::move(zone).error();
        count_from_the_text(error);
        return error;
    }
    zone->serial_offset = static_cast<std::uint32_t>(number_at(spec, "serial_offset", 0));
    return zone;
}

Result<std::shared_ptr<const dns::SigningKey>> signing_key_of(const resource::Resources& resources, const std::string& secret) {
    const auto& kind = *resources.registry().find("Secret");
    if (!resources.exists(kind, secret)) return Error{Code::not_found, fmt::format("there is no Secret {}", secret)};
    const auto pem = resources.reveal(kind, secret, "spec.values.private_key");
    if (!pem.ok())
        return Error{Code::invalid, fmt::format("Secret {} has no value \"private_key\": put a P-256 key in PEM there", secret)};
    auto key = dns::SigningKey::from_pem(*pem);
    if (!key.ok())
        return Error{Code::invalid,
                     fmt::format("the value \"private_key\" of Secret {} cannot sign: {}", secret, key.error().message)};
    return key;
}

std::vector<dns::Name> servers_without_address(const dns::Zone& zone) {
    std::vector<dns::Name> out;
    for (const auto& record : zone.records) {
        if (record.type != dns::type::ns || !(record.owner == zone.origin)) continue;
        dns::Name server;
        std::size_t at = 0;
        if (!server.read(record.data, at, dns::Name::Pointers::no) || !server.is_within(zone.origin)) continue;
        const bool found = std::any_of(zone.records.begin(), zone.records.end(), [&](const auto& one) {
            return (one.type == dns::type::a || one.type == dns::type::aaaa) && one.owner == server;
        });
        if (!found) out.push_back(server);
    }
    return out;
}

} // namespace orrery::gslb
