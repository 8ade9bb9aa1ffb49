#include "api/facades/consul/facade_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

/// Blocking queries, as Consul defines them: a read with ?index=N waits until the index of what it reads is greater than N, or
/// until ?wait has passed, and then returns the current state with its index in X-Consul-Index. An index is a revision of the
/// store.
///
/// A waiting query occupies a coroutine and a connection. It recomputes its index after each change of the catalog or of a key, and
/// ends when its client disconnects. The number of waiting queries is limited, in total and for one client.
namespace orrery::api::consul {

namespace {

using namespace std::chrono_literals;

constexpr Duration default_wait = 5min, max_wait = 10min;

/// Counts a query while it waits.
class BlockedQuery {
public:
    BlockedQuery(ConsulFacade::State& state, std::string peer) : state_(state), peer_(std::move(peer)) {
        ++state_.blocked[peer_];
        ++state_.blocked_total;
    }
    ~BlockedQuery() {
        --state_.blocked_total;
        if (const auto mine = state_.blocked.find(peer_); mine != state_.blocked.end() && --mine->second == 0)
            state_.blocked.erase(mine);
    }
    BlockedQuery(const BlockedQuery&) = delete;
    BlockedQuery& operator=(const BlockedQuery&) = delete;

private:
    ConsulFacade::State& state_;
    std::string peer_;
};

net::Headers index_headers(const BlockingRead& read) {
    return {{"X-Consul-Index", std::to_string(std::max<Revision>(1, read.index()))},
            {"X-Consul-Knownleader", "true"},
            {"X-Consul-Lastcontact", "0"}};
}

bool has_passed(const BlockingRead& read, std::uint64_t after) { return static_cast<std::uint64_t>(read.index()) > after; }

} // namespace

Task<Unit> ConsulFacade::State::blocking_read(Call& call, BlockingRead read) {
    std::uint64_t after = 0;
    if (const auto text = call.query("index"); !text.empty()) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), after);
        if (error != std::errc{} || end != text.data() + text.size()) co_return co_await send_text(call, 400, "Invalid index");
    }
    Duration wait = default_wait;
    if (const auto text = call.query("wait"); !text.empty()) {
        const auto parsed = parse_go_duration(text);
        if (!parsed) co_return co_await send_text(call, 400, "Invalid wait time");
        if (*parsed > Duration::zero()) wait = std::min(*parsed, max_wait);
    }
    const auto filter = Filter::parse(call.query("filter"));
    // With the index, as all reads: clients start their next blocking query from it.
    if (!filter.ok()) co_return co_await send_text(call, 500, filter.error().message, index_headers(read));
    if (after > 0 && !has_passed(read, after)) {
        const auto& peer = call.request.peer;
        const auto own = blocked.contains(peer) ? blocked.at(peer) : 0;
        if (blocked_total >= options.max_blocked || own >= std::max<std::size_t>(1, options.max_blocked / 4))
            co_return co_await send_text(
                call, 429,
                fmt::format("Too many blocking queries: {} of {}, {} in total; send fewer at once, or without \"index\"", own, peer,
                            blocked_total),
                {{"Retry-After", "5"}});
        CO_TRY(std::ignore, co_await wait_for_index(call, read, after, wait));
    }
    co_return co_await send_read(call, read, *filter);
}

Task<Unit> ConsulFacade::State::wait_for_index(Call& call, const BlockingRead& read, std::uint64_t after, Duration wait) {
    const BlockedQuery counted(*this, call.request.peer);
    // Up to a sixteenth longer, as in Consul, so that clients do not all return at once.
    wait += Duration(std::uniform_int_distribution<std::int64_t>(0, wait.count() / 16)(random));
    const auto ctx = call.ctx.without_deadline().with_deadline(real_clock().steady() + wait);
    call.out.will_wait();
    while (!has_passed(read, after)) {
        const auto woken = co_await kv.changed().wait(ctx);
        if (woken.ok()) continue;
        if (woken.error().code == Code::timeout || call.out.stopping()) break;
        co_return woken.error(); // the client has disconnected
    }
    co_return Unit{};
}

Task<Unit> ConsulFacade::State::send_read(Call& call, const BlockingRead& read, const Filter& filter) {
    auto headers = index_headers(read);
    auto value = read.render();
    filter.apply(value);
    if (read.catalog)
        headers.add("X-Consul-Effective-Consistency", call.has("stale")        ? "stale"
                                                      : call.has("consistent") ? "consistent"
                                                                               : "leader");
    headers.add("X-Consul-Query-Backend", "blocking-query");
    if (read.is_absent && read.is_absent(value)) {
        headers.add("X-Consul-Default-Acl-Policy", default_acl_policy());
        co_return co_await call.out.send(call.ctx, net::Response{404, std::move(headers), ""});
    }
    co_return co_await send_json(call, std::move(value), 200, std::move(headers));
}

} // namespace orrery::api::consul
