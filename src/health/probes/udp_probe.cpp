#include "health/probes/udp_probe.h"

#include "health/probes/datagram.h"

#include <fmt/format.h>

namespace orrery::health {

namespace {

class UdpProbe final : public Probe {
public:
    explicit UdpProbe(UdpProbeOptions options) : options_(std::move(options)) {}
    std::string identity() const override {
        return fmt::format("udp {} {} {}:{} {}", options_.host, options_.port, options_.send.size(), options_.send,
                           options_.expect.identity());
    }
    std::string host() const override { return options_.host; }
    asio::awaitable<Observation> run(Context ctx) const override {
        auto what = fmt::format("UDP {}:{}", options_.host, options_.port);
        ReplyJudge judge = [expect = options_.expect, what](std::string_view answer, Observation& seen) {
            const bool good = expect.is_in(answer);
            seen.outcome = good ? Outcome::ok : Outcome::bad_body;
            seen.text = good ? fmt::format("{}: Success, {} bytes came back", what, answer.size())
                             : fmt::format("{}: {} is not in the answer", what, expect.description());
            return true;
        };
        return exchange_datagrams(std::move(ctx), options_.host, options_.port, options_.send, std::move(judge), std::move(what),
                                  options_.outbound);
    }

private:
    UdpProbeOptions options_;
};

} // namespace

ProbePtr udp_probe(UdpProbeOptions options) { return std::make_shared<UdpProbe>(std::move(options)); }

} // namespace orrery::health
