#include "drivers/dns/name_servers.h"

#include "core/for_each_concurrent.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace orrery::drivers {

namespace {

constexpr std::size_t names_at_once = 16;

/// The RRset of one type at `name`, from the answer section.
std::optional<gslb::RecordSet> set_of(const dns::Message& message, const dns::Name& name, gslb::RecordType wanted) {
    const auto type = wanted == gslb::RecordType::a      ? dns::type::a
                      : wanted == gslb::RecordType::aaaa ? dns::type::aaaa
                                                         : dns::type::cname;
    std::vector<std::string> values;
    auto ttl = std::numeric_limits<std::uint32_t>::max();
    for (const auto& record : message.answer) {
        if (record.type != type || record.dns_class != dns::dns_class::in || !(record.owner == name)) continue;
        ttl = std::min(ttl, record.ttl);
        if (type == dns::type::a && record.data.size() == 4) {
            values.push_back(fmt::format("{}.{}.{}.{}", record.data[0], record.data[1], record.data[2], record.data[3]));
        } else if (type == dns::type::aaaa && record.data.size() == 16) {
            asio::ip::address_v6::bytes_type bytes;
            std::copy(record.data.begin(), record.data.end(), bytes.begin());
            values.push_back(asio::ip::address_v6(bytes).to_string());
        } else if (type == dns::type::cname) {
            dns::Name target;
            std::size_t at = 0;
            if (target.read(record.data, at, dns::Name::Pointers::no)) values.push_back(target.lowered() + ".");
        }
    }
    if (values.empty()) return std::nullopt;
    return gslb::foreign_record_set(wanted, ttl, std::move(values));
}

class QueriedNameServers final : public gslb::NameServers {
public:
    Task<std::vector<Result<gslb::Answered>>> ask(Context ctx, std::string server, std::vector<std::string> names) override {
        CO_TRY(const auto endpoint, parse_dns_server(server));
        std::vector<Result<gslb::Answered>> out(names.size(), Result<gslb::Answered>(Error{Code::cancelled, "not queried"}));
        CO_TRY(std::ignore, co_await for_each_concurrent(names.size(), names_at_once,
                                                         [&](std::size_t i) { return ask_into(ctx, endpoint, names[i], out[i]); }));
        co_return out;
    }

private:
    static asio::awaitable<void> ask_into(Context ctx, DnsServer server, std::string name, Result<gslb::Answered>& out) {
        auto answered = co_await ask_one(std::move(ctx), server, std::move(name));
        out = std::move(answered);
    }
    static Task<gslb::Answered> ask_one(Context ctx, DnsServer server, std::string text) {
        CO_TRY(const auto name, dns::Name::from_text(text));
        CO_TRY(const auto v4, co_await query(ctx, server, name, dns::type::a));
        CO_TRY(const auto v6, co_await query(ctx, server, name, dns::type::aaaa));
        co_return read_answers(server, name, v4, v6);
    }
};

} // namespace

std::string rcode_text(dns::Rcode rcode) {
    constexpr std::array names{"noerror",  "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED",
                               "YXDOMAIN", "YXRRSET", "NXRRSET",  "NOTAUTH",  "NOTZONE"};
    const auto number = static_cast<std::size_t>(rcode);
    return number < names.size() ? names[number] : fmt::format("rcode {}", number);
}

Result<gslb::Answered> read_answers(const DnsServer& server, const dns::Name& name, const dns::Message& v4,
                                    const dns::Message& v6) {
    gslb::Answered out;
    out.authoritative = v4.authoritative && v6.authoritative;
    for (const auto* message : {&v4, &v6}) {
        if (message->rcode != dns::Rcode::noerror && message->rcode != dns::Rcode::nxdomain)
            return Error{Code::unavailable,
                         fmt::format("the name server {} answers {}", text_of(server), rcode_text(message->rcode))};
        if (message->answer.empty() && !message->authoritative && !message->recursion_available)
            return Error{Code::unavailable,
                         fmt::format("the name server {} is not authoritative for {}", text_of(server), name.to_text())};
    }
    for (const auto type : {gslb::RecordType::a, gslb::RecordType::aaaa, gslb::RecordType::cname})
        if (auto set = set_of(type == gslb::RecordType::aaaa ? v6 : v4, name, type)) out.sets.push_back(std::move(*set));
    return out;
}

std::unique_ptr<gslb::NameServers> name_servers() { return std::make_unique<QueriedNameServers>(); }

} // namespace orrery::drivers
