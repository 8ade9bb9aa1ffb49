#pragma once

#include "core/task.h"
#include "dns/authority.h"

#include <boost/asio/ip/udp.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orrery::dns {

/// What one secondary knows of our zones, and what it is to be told when (RFC 1996). No socket, no clock: `Notify` has those.
class NotifyPlan {
public:
    static constexpr auto pause = std::chrono::seconds(5);    ///< at least so long between two changes told of one zone
    static constexpr int attempts = 6;                        ///< then it is given up until the next change
    static constexpr auto patience = std::chrono::seconds(1); ///< for the first answer; twice as long for each further one

    /// The zones as they are now. One that is new, or whose serial is another than before, is to be told.
    void see(const std::vector<Authority::ZoneSerial>& zones, SteadyTime now);

    struct News {
        Name zone;
        std::uint16_t id = 0;
    };
    struct Due {
        std::vector<News> send;
        std::vector<Name> given_up; ///< that nobody confirmed, each time it was sent
    };
    /// What is to be sent now, at most `most`; it is due again when nobody answers. `id` makes numbers that cannot be guessed.
    Due due(SteadyTime now, std::size_t most, const std::function<std::uint16_t()>& id);

    /// A packet from the secondary: what it says to which of our messages. Nothing: it answers none that waits.
    struct Answer {
        Name zone;
        Rcode rcode = Rcode::noerror;
    };
    std::optional<Answer> take(Bytes packet);

    std::size_t waiting() const; ///< zones that it has not answered for
    static std::vector<std::uint8_t> message(const News& news);

private:
    struct Known {
        Name zone;
        std::uint32_t serial = 0;
        bool settled = false; ///< confirmed, refused or given up
        int tried = 0;
        std::uint16_t id = 0;
        SteadyTime next{};
        std::optional<SteadyTime> told; ///< when it was last told of a change, the first time it was sent
    };
    std::map<std::string, Known> zones_;
};

/// Tells secondaries of every change of a zone's serial, over UDP, again until they answer. At its start it tells of all zones.
/// Loop thread only.
class Notify {
public:
    using Endpoint = asio::ip::udp::endpoint;
    struct Options {
        std::vector<Endpoint> secondaries;
        std::optional<asio::ip::address> from; ///< where we answer, so that secondaries know us; else what the routes say
    };
    Notify(asio::any_io_executor executor, Clock& clock, std::shared_ptr<const Authority> authority, Options options);
    ~Notify();

    /// Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);

    struct Counts {
        std::uint64_t sent = 0, confirmed = 0, refused = 0, given_up = 0;
        std::size_t waiting = 0;
    };
    Counts counts() const;

    /// "192.0.2.53", "192.0.2.53:5353", "[2001:db8::53]:5353"; port 53 unless said. `invalid` for anything else.
    static Result<Endpoint> parse(std::string_view text);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::dns
