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

/// The NOTIFY state of one secondary (RFC 1996): which messages are due, and what the secondary answered. Pure logic
/// without socket and clock; `Notifier` provides those.
class NotifySchedule {
public:
    static constexpr auto min_interval = std::chrono::seconds(5);     ///< between the notifications of two changes of one zone
    static constexpr int max_attempts = 6;                            ///< then the zone is not sent until its next change
    static constexpr auto response_timeout = std::chrono::seconds(1); ///< of the first attempt; doubled for each further one
    /// The serial of the secondary is queried this long after the notification, and then at this interval.
    static constexpr auto check_after = std::chrono::seconds(3), check_every = std::chrono::seconds(300);

    /// Sets the current zones. New zones and zones with a changed serial become due.
    void update_zones(const std::vector<Authority::ZoneSerial>& zones, SteadyTime now);

    struct Request {
        Name zone;
        std::uint16_t id = 0; ///< message id
    };
    struct Due {
        std::vector<Request> notify;
        std::vector<Request> check; ///< zones whose serial at the secondary is to be queried
        std::vector<Name> given_up; ///< zones without a response to any attempt
    };
    /// The messages to send now, at most `max_messages`. They become due again unless the secondary responds. `id` makes
    /// unpredictable message ids.
    Due due(SteadyTime now, std::size_t max_messages, const std::function<std::uint16_t()>& id);

    struct Response {
        Name zone;
        Rcode rcode = Rcode::noerror;
    };
    /// Handles a packet from the secondary. nullopt: it is not a response to a pending notification.
    std::optional<Response> handle_response(Bytes packet);
    /// Handles a packet from the secondary; false if it is not a response to a pending serial query.
    bool handle_serial_response(Bytes packet);

    /// A zone that the secondary does not transfer because its serial is later than ours (RFC 1982).
    struct ZoneAhead {
        Name zone;
        std::uint32_t secondary_serial = 0, our_serial = 0;
    };
    /// `next_serial`: the lowest serial, without the zone's offset, of the next change; 0: compare with the zones' current serials.
    std::vector<ZoneAhead> zones_ahead(std::uint64_t next_serial) const;

    std::size_t pending() const; ///< number of zones without a response
    static std::vector<std::uint8_t> message(const Request& request);
    static std::vector<std::uint8_t> serial_query(const Request& request);

private:
    struct ZoneStatus {
        Name zone;
        std::uint32_t serial = 0, offset = 0;
        bool done = false; ///< confirmed, refused or given up
        int attempts = 0;
        std::uint16_t id = 0;
        SteadyTime next_attempt{};
        std::optional<SteadyTime> notified_at; ///< first attempt of the last notification
        std::optional<SteadyTime> check_at;
        std::optional<std::uint16_t> check_id; ///< of a pending serial query
        std::optional<std::uint32_t> secondary_serial;
    };
    std::map<std::string, ZoneStatus> zones_;
};

/// A secondary with a later serial than our next one: it will not transfer the zone.
struct SecondaryAhead {
    Name zone;
    std::string secondary; ///< its address
    std::uint32_t serial = 0, our_serial = 0;
    std::string message() const; ///< includes the remedy
};

/// Notifies secondaries over UDP of every change of a zone's serial, and of all zones at the start. Retries until they respond.
/// Loop thread only.
class Notifier {
public:
    using Endpoint = asio::ip::udp::endpoint;
    struct Options {
        std::vector<Endpoint> secondaries;
        std::optional<asio::ip::address> from; ///< source address, by which secondaries recognize this server; default: by route
        std::function<std::uint64_t()> upcoming_serial; ///< lowest serial of the next change; unset: the zone's current serial
        std::function<void(std::vector<SecondaryAhead>)> on_ahead; ///< called when the list changes
    };
    Notifier(asio::any_io_executor executor, Clock& clock, std::shared_ptr<const Authority> authority, Options options);
    ~Notifier();

    /// Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx);

    struct Counts {
        std::uint64_t sent = 0, confirmed = 0, refused = 0, given_up = 0;
        std::size_t pending = 0, ahead = 0;
    };
    Counts counts() const;

    /// "192.0.2.53", "192.0.2.53:5353", "2001:db8::53", "[2001:db8::53]:5353"; the default port is 53. `invalid`.
    static Result<Endpoint> parse(std::string_view text);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::dns
