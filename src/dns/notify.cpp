#include "dns/notify.h"

#include "core/log.h"
#include "core/truncate.h"
#include "dns/name_key.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <random>
#include <set>

namespace orrery::dns {

namespace {

constexpr std::uint8_t opcode_notify = 4;
constexpr auto poll_interval = std::chrono::milliseconds(250);
constexpr std::size_t max_messages_per_poll = 64; ///< to one secondary

} // namespace

void NotifySchedule::update_zones(const std::vector<Authority::ZoneSerial>& zones, SteadyTime now) {
    std::set<std::string> current;
    for (const auto& one : zones) {
        const auto key = NameKey(one.zone).text();
        current.insert(key);
        const auto [at, is_new] = zones_.try_emplace(key);
        auto& status = at->second;
        if (!is_new && status.serial == one.serial) continue;
        status.zone = one.zone;
        status.serial = one.serial;
        status.offset = one.offset;
        status.done = false;
        status.check_at.reset();
        status.attempts = 0;
        status.next_attempt = status.notified_at ? std::max(now, *status.notified_at + min_interval) : now;
    }
    std::erase_if(zones_, [&](const auto& one) { return !current.contains(one.first); });
}

NotifySchedule::Due NotifySchedule::due(SteadyTime now, std::size_t max_messages, const std::function<std::uint16_t()>& id) {
    Due out;
    for (auto& [key, status] : zones_) {
        if (out.notify.size() + out.check.size() >= max_messages) break;
        if (status.done) {
            if (!status.check_at) status.check_at = now + check_after;
            if (*status.check_at > now) continue;
            status.check_at = now + check_every;
            status.check_id = id();
            out.check.push_back({status.zone, *status.check_id});
            continue;
        }
        if (status.next_attempt > now) continue;
        if (status.attempts == max_attempts) {
            status.done = true;
            out.given_up.push_back(status.zone);
            continue;
        }
        if (status.attempts == 0) status.notified_at = now;
        status.next_attempt = now + response_timeout * (1 << status.attempts);
        ++status.attempts;
        status.id = id();
        out.notify.push_back({status.zone, status.id});
    }
    return out;
}

std::optional<NotifySchedule::Response> NotifySchedule::handle_response(Bytes packet) {
    const auto message = read_message(packet);
    if (!message.ok() || !message->response || message->opcode != opcode_notify) return std::nullopt;
    for (auto& [key, status] : zones_) {
        if (status.done || status.attempts == 0 || status.id != message->id) continue;
        // An error response may omit the question.
        const bool is_for_zone =
            message->has_question ? message->name == status.zone && message->type == type::soa : message->rcode != Rcode::noerror;
        if (!is_for_zone) continue;
        status.done = true; // also if it refused: a retry would not help
        return Response{status.zone, message->rcode};
    }
    return std::nullopt;
}

bool NotifySchedule::handle_serial_response(Bytes packet) {
    constexpr std::size_t serial_from_end = 20;
    const auto message = read_message(packet);
    if (!message.ok() || !message->response || message->opcode != 0 || !message->has_question || message->type != type::soa)
        return false;
    for (auto& [key, status] : zones_) {
        if (status.check_id != message->id || !(message->name == status.zone)) continue;
        status.check_id.reset();
        status.secondary_serial.reset();
        const auto soa = std::find_if(message->answer.begin(), message->answer.end(), [](const Record& one) {
            return one.type == type::soa && one.data.size() >= serial_from_end + 2;
        });
        // Only an authoritative response carries the serial of that server.
        if (!message->authoritative || message->rcode != Rcode::noerror || soa == message->answer.end()) return true;
        std::uint32_t serial = 0;
        for (std::size_t i = 0; i < 4; ++i) serial = serial << 8 | soa->data[soa->data.size() - serial_from_end + i];
        status.secondary_serial = serial;
        return true;
    }
    return false;
}

std::vector<NotifySchedule::ZoneAhead> NotifySchedule::zones_ahead(std::uint64_t next_serial) const {
    const auto is_later = [](std::uint32_t one, std::uint32_t other) { return static_cast<std::int32_t>(one - other) > 0; };
    std::vector<ZoneAhead> out;
    for (const auto& [key, status] : zones_) {
        if (!status.secondary_serial || !is_later(*status.secondary_serial, status.serial)) continue;
        // Another server with the same store may have published the serial; the next change here then has a later one.
        const auto next = static_cast<std::uint32_t>(next_serial) + status.offset;
        if (next_serial == 0 || is_later(*status.secondary_serial, next))
            out.push_back({status.zone, *status.secondary_serial, next_serial == 0 ? status.serial : next});
    }
    return out;
}

std::size_t NotifySchedule::pending() const {
    return static_cast<std::size_t>(std::count_if(zones_.begin(), zones_.end(), [](const auto& one) { return !one.second.done; }));
}

std::vector<std::uint8_t> NotifySchedule::message(const Request& request) {
    auto out = write_query(request.id, request.zone, type::soa);
    out[2] = opcode_notify << 3 | 4; // AA
    out[3] = 0;
    return out;
}

std::vector<std::uint8_t> NotifySchedule::serial_query(const Request& request) {
    auto out = write_query(request.id, request.zone, type::soa);
    out[2] = 0; // no recursion
    return out;
}

std::string SecondaryAhead::message() const {
    return fmt::format(
        "secondary {} has serial {}, later than the next serial of this server ({}), and does not transfer the zone: add "
        "at least {} to spec.serial_offset",
        secondary, serial, our_serial, serial - our_serial + 1);
}

struct Notifier::State {
    State(asio::any_io_executor executor_, Clock& clock_, std::shared_ptr<const Authority> authority_, Options options_)
        : executor(std::move(executor_)), clock(clock_), authority(std::move(authority_)), options(std::move(options_)) {
        for (const auto& one : options.secondaries) secondaries.push_back({one, std::nullopt, {}, {}});
    }

    struct Secondary {
        Endpoint endpoint;
        std::optional<asio::ip::udp::socket> socket; ///< connected: receives only from this secondary
        NotifySchedule schedule;
        std::set<std::string> refused_zones; ///< a refusal is logged once
    };

    asio::any_io_executor executor;
    Clock& clock;
    std::shared_ptr<const Authority> authority;
    Options options;
    std::vector<Secondary> secondaries;
    std::optional<std::uint64_t> seen_changes; ///< Authority::change_count() of the last poll
    std::random_device random;
    Counts counts;
    bool has_new_serial = false; ///< a secondary reported its serial since the last poll
    std::vector<SecondaryAhead> reported;

    static std::string text_of(const Endpoint& at) {
        const auto address = at.address().to_string();
        return at.address().is_v6() ? fmt::format("[{}]:{}", address, at.port()) : fmt::format("{}:{}", address, at.port());
    }

    bool open(Secondary& to) {
        if (to.socket) return true;
        boost::system::error_code error;
        asio::ip::udp::socket socket(executor);
        socket.open(to.endpoint.protocol(), error);
        if (!error && options.from && options.from->is_v6() == to.endpoint.address().is_v6())
            socket.bind({*options.from, 0}, error);
        if (!error) socket.connect(to.endpoint, error);
        if (!error) socket.non_blocking(true, error);
        if (error) {
            log::warn(Context::background(), "cannot notify secondary {} of changed zones: {}", text_of(to.endpoint),
                      error.message());
            return false;
        }
        to.socket = std::move(socket);
        return true;
    }

    void receive(Context ctx, Secondary& from) {
        std::array<std::uint8_t, 1500> packet;
        for (std::size_t i = 0; from.socket && i < 4 * max_messages_per_poll; ++i) {
            boost::system::error_code error;
            const auto size = from.socket->receive(asio::buffer(packet), 0, error);
            if (error == asio::error::would_block) return;
            if (error) continue; // ICMP port unreachable: the secondary does not listen
            const auto response = from.schedule.handle_response(Bytes(packet).first(size));
            if (!response) {
                has_new_serial = from.schedule.handle_serial_response(Bytes(packet).first(size)) || has_new_serial;
                continue;
            }
            const auto zone = response->zone.to_text();
            if (response->rcode == Rcode::noerror) {
                ++counts.confirmed;
                from.refused_zones.erase(zone);
                continue;
            }
            ++counts.refused;
            if (from.refused_zones.insert(zone).second)
                log::warn(ctx,
                          "secondary {} refused the NOTIFY for zone {} (rcode {}): it is not a secondary of the zone, or does not "
                          "accept this server",
                          text_of(from.endpoint), zone, static_cast<int>(response->rcode));
        }
    }

    void send_due(Context ctx, Secondary& to) {
        const auto due =
            to.schedule.due(clock.steady(), max_messages_per_poll, [this] { return static_cast<std::uint16_t>(random()); });
        for (const auto& request : due.notify) {
            if (!open(to)) break; // counts as an attempt and is retried like a lost message
            const auto message = NotifySchedule::message(request);
            boost::system::error_code ignored;
            to.socket->send(asio::buffer(message), 0, ignored);
            ++counts.sent;
        }
        for (const auto& check : due.check) {
            if (!open(to)) break;
            const auto query = NotifySchedule::serial_query(check);
            boost::system::error_code ignored;
            to.socket->send(asio::buffer(query), 0, ignored);
        }
        for (const auto& zone : due.given_up) {
            ++counts.given_up;
            log::warn(ctx, "secondary {} does not respond: it does not know that zone {} has changed", text_of(to.endpoint),
                      zone.to_text());
            to.socket.reset(); // routes may have changed at the next attempt
        }
    }

    /// Logs and reports changes of the list of secondaries that are ahead.
    void report_ahead(Context ctx) {
        const auto next_serial = options.upcoming_serial ? options.upcoming_serial() : 0;
        std::vector<SecondaryAhead> now;
        for (const auto& one : secondaries)
            for (const auto& ahead : one.schedule.zones_ahead(next_serial))
                now.push_back({ahead.zone, text_of(one.endpoint), ahead.secondary_serial, ahead.our_serial});
        const auto same = [](const SecondaryAhead& a, const SecondaryAhead& b) {
            return a.zone == b.zone && a.secondary == b.secondary && a.serial == b.serial;
        };
        if (std::equal(now.begin(), now.end(), reported.begin(), reported.end(), same)) return;
        for (const auto& one : now)
            if (std::none_of(reported.begin(), reported.end(), [&](const SecondaryAhead& old) { return same(old, one); }))
                log::warn(ctx, "zone {}: {}", one.zone.to_text(), one.message());
        for (const auto& old : reported)
            if (std::none_of(now.begin(), now.end(), [&](const SecondaryAhead& one) { return same(old, one); }))
                log::info(ctx, "zone {}: secondary {} is no longer ahead of this server", old.zone.to_text(), old.secondary);
        reported = now;
        if (options.on_ahead) options.on_ahead(std::move(now));
    }

    void poll(Context ctx) {
        if (const auto changes = authority->change_count(); seen_changes != changes) {
            seen_changes = changes;
            const auto serials = authority->serials();
            for (auto& one : secondaries) one.schedule.update_zones(serials, clock.steady());
        }
        for (auto& one : secondaries) {
            receive(ctx, one);
            send_due(ctx, one);
        }
        // A report ends as soon as the next serial is later than the secondary's.
        if (std::exchange(has_new_serial, false) || !reported.empty()) report_ahead(ctx);
    }
};

Notifier::Notifier(asio::any_io_executor executor, Clock& clock, std::shared_ptr<const Authority> authority, Options options)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(authority), std::move(options))) {}
Notifier::~Notifier() = default;

asio::awaitable<void> Notifier::run(Context ctx) {
    const auto state = state_;
    for (;;) {
        state->poll(ctx);
        if (!(co_await state->clock.sleep(poll_interval)).ok()) co_return;
    }
}

Notifier::Counts Notifier::counts() const {
    auto out = state_->counts;
    for (const auto& one : state_->secondaries) out.pending += one.schedule.pending();
    out.ahead = state_->reported.size();
    return out;
}

Result<Notifier::Endpoint> Notifier::parse(std::string_view text) {
    const Error wrong{Code::invalid, fmt::format("\"{}\" is not an address of a secondary", truncate(text, 80)),
                      "write 192.0.2.53, 192.0.2.53:5353, 2001:db8::53 or [2001:db8::53]:5353"};
    auto address = text;
    std::string_view port = "53";
    if (text.starts_with('[')) {
        const auto end = text.find(']');
        if (end == std::string_view::npos) return wrong;
        address = text.substr(1, end - 1);
        if (const auto rest = text.substr(end + 1); !rest.empty()) {
            if (rest[0] != ':') return wrong;
            port = rest.substr(1);
        }
    } else if (const auto colon = text.find(':');
               colon != std::string_view::npos && text.find(':', colon + 1) == std::string_view::npos) {
        address = text.substr(0, colon);
        port = text.substr(colon + 1);
    }
    std::uint16_t number = 0;
    const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), number);
    boost::system::error_code error;
    const auto parsed = asio::ip::make_address(std::string(address), error);
    if (error || failed != std::errc{} || end != port.data() + port.size() || number == 0 || parsed.is_unspecified()) return wrong;
    return Endpoint(parsed, number);
}

} // namespace orrery::dns
