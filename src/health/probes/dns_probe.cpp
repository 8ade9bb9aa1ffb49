#include "health/probes/dns_probe.h"

#include "dns/message.h"
#include "health/probes/datagram.h"

#include <fmt/format.h>

#include <map>

namespace orrery::health {

namespace {

const std::map<std::string, std::uint16_t, std::less<>> known_types{
    {"A", dns::type::a},   {"AAAA", dns::type::aaaa}, {"CNAME", dns::type::cname}, {"MX", dns::type::mx},
    {"NS", dns::type::ns}, {"SOA", dns::type::soa},   {"SRV", dns::type::srv},     {"TXT", dns::type::txt}};

class DnsProbe final : public Probe {
public:
    DnsProbe(DnsProbeOptions options, dns::Name name, std::uint16_t type)
        : options_(std::move(options)), name_(name), type_(type) {}
    std::string identity() const override {
        return fmt::format("dns {} {} {} {} {} {} {}", options_.host, options_.port, options_.name, options_.type, options_.rcode,
                           options_.authoritative, options_.contains);
    }
    std::string host() const override { return options_.host; }
    asio::awaitable<Observation> run(Context ctx) const override {
        auto what = fmt::format("DNS {} {} at {}:{}", options_.name, options_.type, options_.host, options_.port);
        const auto id = static_cast<std::uint16_t>(random_number());
        const auto query = dns::write_query(id, name_, type_, 1232);
        ReplyJudge judge = [probe = *this, id, what](std::string_view answer, Observation& seen) {
            const auto message = dns::read_message(dns::Bytes(reinterpret_cast<const std::uint8_t*>(answer.data()), answer.size()));
            if (!message.ok()) {
                seen = {.outcome = Outcome::protocol, .text = what + ": the answer is no DNS message"};
                return true;
            }
            if (message->id != id || !message->response) return false; // not a response to this query
            seen = probe.judge(*message, what);
            return true;
        };
        return exchange_datagrams(std::move(ctx), options_.host, options_.port, std::string(query.begin(), query.end()),
                                  std::move(judge), std::move(what), options_.outbound);
    }

private:
    Observation judge(const dns::Message& message, const std::string& what) const {
        const auto rcode = static_cast<std::uint16_t>(message.rcode);
        if (rcode != options_.rcode)
            return {.outcome = Outcome::bad_status, .text = fmt::format("{}: rcode {}, wanted {}", what, rcode, options_.rcode)};
        if (options_.authoritative && !message.authoritative)
            return {.outcome = Outcome::bad_status, .text = what + ": the answer is not authoritative"};
        std::string shown;
        bool found = options_.contains.empty();
        for (const auto& record : message.answer) {
            const auto text = record.to_text();
            if (!found && text.find(options_.contains) != std::string::npos) found = true;
            if (shown.size() < 1024) shown += (shown.empty() ? "" : ", ") + text;
        }
        if (!found)
            return {.outcome = Outcome::bad_body,
                    .text = fmt::format("{}: \"{}\" is in no record of: {}", what, options_.contains, shown)};
        return {.outcome = Outcome::ok,
                .text = fmt::format("{}: rcode {}, {} records {}", what, rcode, message.answer.size(), shown)};
    }
    DnsProbeOptions options_;
    dns::Name name_;
    std::uint16_t type_;
};

} // namespace

Result<ProbePtr> dns_probe(DnsProbeOptions options) {
    TRY(auto name, dns::Name::from_text(options.name));
    const auto type = known_types.find(options.type);
    if (type == known_types.end())
        return Error{Code::invalid, fmt::format("type \"{}\" cannot be asked for", options.type),
                     "use A, AAAA, CNAME, MX, NS, SOA, SRV or TXT"};
    return ProbePtr(std::make_shared<DnsProbe>(std::move(options), name, type->second));
}

} // namespace orrery::health
