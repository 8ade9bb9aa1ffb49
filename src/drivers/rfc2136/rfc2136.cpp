#include "drivers/rfc2136/rfc2136.h"

#include "core/for_each_concurrent.h"
#include "drivers/dns/name_servers.h"
#include "drivers/rfc2136/update.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace orrery::drivers {

namespace {

constexpr std::size_t names_at_once = 16;
constexpr std::size_t max_datagram = 512; // the size that every server accepts (RFC 1035); larger messages go over TCP

class Rfc2136Publisher final : public gslb::DnsProvider {
public:
    Rfc2136Publisher(Clock& clock, DnsServer server, Rfc2136Options options)
        : clock_(clock), server_(std::move(server)), options_(std::move(options)) {}

    std::string description() const override { return fmt::format("the name server {} (RFC 2136)", text_of(server_)); }

    Task<std::vector<gslb::ProviderRecords>> read(Context ctx, std::string, std::vector<std::string> names) override {
        std::vector<Result<gslb::ProviderRecords>> found(names.size());
        CO_TRY(std::ignore, co_await for_each_concurrent(names.size(), names_at_once,
                                                         [&](std::size_t i) { return read_into(ctx, names[i], found[i]); }));
        std::vector<gslb::ProviderRecords> out;
        for (auto& one : found) {
            CO_TRY(auto records, std::move(one));
            out.push_back(std::move(records));
        }
        co_return out;
    }

    Task<std::vector<Result<gslb::Accepted>>> publish(Context ctx, std::string zone, std::vector<gslb::Change> changes) override {
        CO_TRY(const auto zone_name, dns::Name::from_text(zone));
        std::vector<Result<gslb::Accepted>> out(changes.size());
        CO_TRY(std::ignore, co_await for_each_concurrent(changes.size(), names_at_once, [&](std::size_t i) {
                   return update_into(ctx, zone_name, changes[i], out[i]);
               }));
        co_return out;
    }

private:
    asio::awaitable<void> read_into(Context ctx, std::string name, Result<gslb::ProviderRecords>& out) {
        auto records = co_await read_one(std::move(ctx), std::move(name));
        out = std::move(records);
    }
    Task<gslb::ProviderRecords> read_one(Context ctx, std::string text) {
        CO_TRY(const auto name, dns::Name::from_text(text));
        CO_TRY(const auto marks_at, mark_name(name));
        CO_TRY(const auto v4, co_await query(ctx, server_, name, dns::type::a));
        CO_TRY(const auto v6, co_await query(ctx, server_, name, dns::type::aaaa));
        CO_TRY(const auto marks, co_await query(ctx, server_, marks_at, dns::type::txt));
        CO_TRY(auto answered, read_answers(server_, name, v4, v6));
        if (!answered.authoritative)
            co_return Error{Code::not_found, fmt::format("the name server {} is not authoritative for {}", text_of(server_), text),
                            "use the primary server, and a zone that it serves"};
        for (auto& set : answered.sets)
            for (const auto& record : marks.answer) {
                if (record.type != dns::type::txt || !(record.owner == marks_at) || record.data.empty()) continue;
                const auto size = std::min<std::size_t>(record.data[0], record.data.size() - 1);
                auto mark = mark_for(set.type, std::string_view(reinterpret_cast<const char*>(record.data.data()) + 1, size));
                if (!mark.empty()) set.mark = std::move(mark);
            }
        co_return gslb::ProviderRecords{std::move(text), std::move(answered.sets), true, {}};
    }

    asio::awaitable<void> update_into(Context ctx, dns::Name zone, const gslb::Change& change, Result<gslb::Accepted>& out) {
        auto done = co_await update_one(std::move(ctx), zone, change);
        if (done.ok())
            out = gslb::Accepted{};
        else
            out = std::move(done).error();
    }
    Task<Unit> update_one(Context ctx, dns::Name zone, const gslb::Change& change) {
        CO_TRY(std::ignore, gslb::guard_against_emptying(change));
        const auto id = random_dns_id();
        CO_TRY(auto message, update_message(id, zone, change));
        std::vector<std::uint8_t> mac;
        if (options_.key) mac = tsig_sign(message, *options_.key, clock_.wall());
        const auto transport = message.size() <= max_datagram ? DnsTransport::udp : DnsTransport::tcp;
        // The message is sent again where the answer is lost; the prerequisites make that harmless.
        const IsAnswer is_answer = [id](dns::Bytes bytes) {
            // Only the header and the signature of an answer matter; the rest depends on the server.
            return bytes.size() >= 12 && bytes[0] == id >> 8 && bytes[1] == (id & 0xFF) && (bytes[2] & 0xF8) == 0xA8;
        };
        CO_TRY(const auto bytes, co_await exchange(ctx, server_, transport, std::move(message), is_answer));
        auto outcome = update_outcome(static_cast<dns::Rcode>(bytes[3] & 0xF), description(), zone);
        if (!options_.key) co_return outcome;
        const auto verdict = tsig_verify(bytes, *options_.key, mac, clock_.wall());
        switch (verdict.status) {
        case TsigVerdict::Status::valid: co_return outcome;
        case TsigVerdict::Status::rejected:
            co_return Error{Code::unauthenticated, fmt::format("{}: {}", description(), verdict.message),
                            "use the same name, algorithm and secret of the key on both sides, and the right time"};
        case TsigVerdict::Status::unsigned_:
            // A refusal need not be signed. An unsigned success could be forged and does not count.
            if (!outcome.ok() && outcome.error().code != Code::conflict) co_return outcome;
            [[fallthrough]];
        case TsigVerdict::Status::invalid: break;
        }
        co_return Error{Code::unavailable, fmt::format("{}: {}, so the answer does not count", description(), verdict.message)};
    }

    Clock& clock_;
    DnsServer server_;
    Rfc2136Options options_;
};

} // namespace

Result<std::unique_ptr<gslb::DnsProvider>> rfc2136_publisher(Clock& clock, Rfc2136Options options) {
    auto server = parse_dns_server(options.server);
    if (!server.ok()) {
        auto error = std::move(server).error();
        error.fields.push_back({"rfc2136.server", error.message});
        return error;
    }
    return std::unique_ptr<gslb::DnsProvider>(std::make_unique<Rfc2136Publisher>(clock, *server, std::move(options)));
}

} // namespace orrery::drivers
