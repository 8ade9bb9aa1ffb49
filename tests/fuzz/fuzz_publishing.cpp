// Answers of name servers and DNS services to DNS providers: signatures, responses, JSON. The first byte selects the reader.
#include "drivers/designate/designate_messages.h"
#include "drivers/dns/name_servers.h"
#include "drivers/externaldns/externaldns_messages.h"
#include "drivers/powerdns/powerdns_messages.h"
#include "drivers/rfc2136/tsig.h"
#include "drivers/rfc2136/update.h"

#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace orrery;
    if (size == 0) return 0;
    const dns::Bytes bytes(data + 1, size - 1);
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    static const auto key = *drivers::tsig_key("orrery.", "hmac-sha256", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    static const auto name = *dns::Name::from_text("www.gslb.test.");
    switch (data[0] % 6) {
    case 0:
        std::ignore = drivers::tsig_verify(bytes, key, bytes.first(bytes.size() / 2), WallTime(std::chrono::seconds(1700000000)));
        break;
    case 1:
        if (const auto message = dns::read_message(bytes); message.ok())
            if (const auto answered = drivers::read_answers({}, name, *message, *message); answered.ok())
                std::ignore = gslb::text_of(answered->sets);
        break;
    case 2:
        if (const auto zone = drivers::read_powerdns_zone(text); zone.ok())
            for (const auto& [owner, sets] : *zone)
                for (const auto& set : sets) std::ignore = gslb::ownership(set, "site-1");
        break;
    case 3:
        if (const auto page = drivers::read_designate_recordsets(text, 60); page.ok())
            for (const auto& one : page->recordsets) std::ignore = drivers::designate_records(one.name, page->recordsets);
        std::ignore = drivers::read_designate_zones(text);
        std::ignore = drivers::designate_refusal(400, text);
        break;
    case 4:
        if (const auto records = drivers::read_externaldns_records(text); records.ok())
            for (const auto& [at, endpoint] : *records) std::ignore = drivers::externaldns_records(*records, at.first);
        std::ignore = drivers::read_externaldns_filters(text);
        break;
    default:
        if (const auto target = dns::Name::from_text(text); target.ok())
            std::ignore =
                drivers::update_message(1, name, {std::string(text), {}, {{gslb::RecordType::cname, 5, {std::string(text)}, "x"}}});
    }
    return 0;
}
