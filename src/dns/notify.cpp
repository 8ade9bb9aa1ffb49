#include "dns/notify.h"

#include "core/log.h"
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
constexpr auto look_every = std::chrono::milliseconds(250);
constexpr std::size_t most_at_once = 64; ///< messages to one secondary, each time we look

} // namespace

void NotifyPlan::see(const std::vector<Authority::ZoneSerial>& zones, SteadyTime now) {
    std::set<std::string> there;
    for (const auto& one : zones) {
        const auto key = NameKey(one.zone).text();
        there.insert(key);
        const auto [at, is_new] = zones_.try_emplace(key);
        auto& known = at->second;
        if (!is_new && known.serial == one.serial) continue;
        known.zone = one.zone;
        known.serial = one.serial;
        known.settled = false;
        known.tried = 0;
        known.next = known.told ? std::max(now, *known.told + pause) : now;
    }
    std::erase_if(zones_, [&](const auto& one) { return !there.contains(one.first); });
}

NotifyPlan::Due NotifyPlan::due(SteadyTime now, std::size_t most, const std::function<std::uint16_t()>& id) {
    Due out;
    for (auto& [key, known] : zones_) {
        if (out.send.size() == most) break;
        if (known.settled || known.next > now) continue;
        if (known.tried == attempts) {
            known.settled = true;
            out.given_up.push_back(known.zone);
            continue;
        }
        if (known.tried == 0) known.told = now;
        known.next = now + patience * (1 << known.tried);
        ++known.tried;
        known.id = id();
        out.send.push_back({known.zone, known.id});
    }
    return out;
}

std::optional<NotifyPlan::Answer> NotifyPlan::take(Bytes packet) {
    const auto message = read_message(packet);
    if (!message.ok() || !message->response || message->opcode != opcode_notify) return std::nullopt;
    for (auto& [key, known] : zones_) {
        if (known.settled || known.tried == 0 || known.id != message->id) continue;
        // Who complains may leave the question out.
        const bool ours =
            message->has_question ? message->name == known.zone && message->type == type::soa : message->rcode != Rcode::noerror;
        if (!ours) continue;
        known.settled = true; // also where it refuses: asking again changes nothing
        return Answer{known.zone, message->rcode};
    }
    return std::nullopt;
}

std::size_t NotifyPlan::waiting() const {
    return static_cast<std::size_t>(
        std::count_if(zones_.begin(), zones_.end(), [](const auto& one) { return !one.second.settled; }));
}

std::vector<std::uint8_t> NotifyPlan::message(const News& news) {
    auto out = write_query(news.id, news.zone, type::soa);
    out[2] = opcode_notify << 3 | 4; // AA
    out[3] = 0;
    return out;
}

struct Notify::State {
    State(asio::any_io_executor executor_, Clock& clock_, std::shared_ptr<const Authority> authority_, Options options_)
        : executor(std::move(executor_)), clock(clock_), authority(std::move(authority_)), options(std::move(options_)) {
        for (const auto& one : options.secondaries) secondaries.push_back({one, std::nullopt, {}, {}});
    }

    struct Secondary {
        Endpoint at;
        std::optional<asio::ip::udp::socket> socket; ///< connected: nobody else is heard
        NotifyPlan plan;
        std::set<std::string> complained; ///< zones it refused: said once
    };

    asio::any_io_executor executor;
    Clock& clock;
    std::shared_ptr<const Authority> authority;
    Options options;
    std::vector<Secondary> secondaries;
    std::optional<std::uint64_t> seen; ///< of the authority's changes
    std::random_device random;
    Counts counts;

    static std::string text_of(const Endpoint& at) {
        const auto address = at.address().to_string();
        return at.address().is_v6() ? fmt::format("[{}]:{}", address, at.port()) : fmt::format("{}:{}", address, at.port());
    }

    bool open(Secondary& to) {
        if (to.socket) return true;
        boost::system::error_code error;
        asio::ip::udp::socket socket(executor);
        socket.open(to.at.protocol(), error);
        if (!error && options.from && options.from->is_v6() == to.at.address().is_v6()) socket.bind({*options.from, 0}, error);
        if (!error) socket.connect(to.at, error);
        if (!error) socket.non_blocking(true, error);
        if (error) {
            log::warn(Context::background(), "{} cannot be told of changed zones: {}", text_of(to.at), error.message());
            return false;
        }
        to.socket = std::move(socket);
        return true;
    }

    void hear(Context ctx, Secondary& from) {
        std::array<std::uint8_t, 1500> packet;
        for (std::size_t i = 0; from.socket && i < 4 * most_at_once; ++i) {
            boost::system::error_code error;
            const auto size = from.socket->receive(asio::buffer(packet), 0, error);
            if (error == asio::error::would_block) return;
            if (error) continue; // nobody listens there right now
            const auto answer = from.plan.take(Bytes(packet).first(size));
            if (!answer) continue;
            const auto zone = answer->zone.to_text();
            if (answer->rcode == Rcode::noerror) {
                ++counts.confirmed;
                from.complained.erase(zone);
                continue;
            }
            ++counts.refused;
            if (from.complained.insert(zone).second)
                log::warn(ctx,
                          "{} will not be told of the zone {} (code {}): it is no secondary of it, or does not know this server",
                          text_of(from.at), zone, static_cast<int>(answer->rcode));
        }
    }

    void tell(Context ctx, Secondary& to) {
        const auto due = to.plan.due(clock.steady(), most_at_once, [this] { return static_cast<std::uint16_t>(random()); });
        for (const auto& news : due.send) {
            if (!open(to)) break; // counted as an attempt: it is tried again like one that was lost
            const auto message = NotifyPlan::message(news);
            boost::system::error_code ignored;
            to.socket->send(asio::buffer(message), 0, ignored);
            ++counts.sent;
        }
        for (const auto& zone : due.given_up) {
            ++counts.given_up;
            log::warn(ctx, "{} does not answer: it was not told that the zone {} has changed", text_of(to.at), zone.to_text());
            to.socket.reset(); // routes may be others next time
        }
    }

    void look(Context ctx) {
        if (const auto changes = authority->changes(); seen != changes) {
            seen = changes;
            const auto serials = authority->serials();
            for (auto& one : secondaries) one.plan.see(serials, clock.steady());
        }
        for (auto& one : secondaries) {
            hear(ctx, one);
            tell(ctx, one);
        }
    }
};

Notify::Notify(asio::any_io_executor executor, Clock& clock, std::shared_ptr<const Authority> authority, Options options)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(authority), std::move(options))) {}
Notify::~Notify() = default;

asio::awaitable<void> Notify::run(Context ctx) {
    const auto state = state_;
    for (;;) {
        state->look(ctx);
        if (!(co_await state->clock.sleep(look_every)).ok()) co_return;
    }
}

Notify::Counts Notify::counts() const {
    auto out = state_->counts;
    for (const auto& one : state_->secondaries) out.waiting += one.plan.waiting();
    return out;
}

Result<Notify::Endpoint> Notify::parse(std::string_view text) {
    const Error wrong{Code::invalid, fmt::format("\"{}\" is no address of a secondary", text.substr(0, 80)),
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
