#include "identity/throttle.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>
#include <utility>

namespace orrery::identity {

Throttle::Throttle(Options options, const Clock& clock) : options_(options), clock_(clock) {}

Throttle::Attempt::Attempt(Attempt&& other) noexcept
    : throttle_(std::exchange(other.throttle_, nullptr)), key_(std::move(other.key_)) {}

Throttle::Attempt::~Attempt() {
    if (throttle_) throttle_->end(key_, 0, false);
}

void Throttle::Attempt::failed() {
    if (auto* throttle = std::exchange(throttle_, nullptr)) throttle->end(key_, 1, false);
}

void Throttle::Attempt::succeeded() {
    if (auto* throttle = std::exchange(throttle_, nullptr)) throttle->end(key_, 0, true);
}

Throttle::Entry* Throttle::touch(const std::string& key) {
    const auto now = clock_.steady();
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
        entries_.splice(entries_.end(), entries_, found->second);
        auto& entry = *found->second;
        if (now - entry.last_used > options_.reset_after) entry.failures = 0;
        entry.last_used = now;
        return &entry;
    }
    if (by_key_.size() >= options_.max_keys) {
        const auto oldest =
            std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.in_progress == 0; });
        if (oldest == entries_.end()) return nullptr;
        by_key_.erase(oldest->key);
        entries_.erase(oldest);
    }
    const auto position = entries_.insert(entries_.end(), Entry{key, 0, 0, {}, now});
    by_key_.emplace(key, position);
    return &*position;
}

bool Throttle::is_at_capacity(const Entry& entry) const {
    return entry.in_progress >=
           (entry.failures >= options_.max_failures ? 1 : std::max(1, options_.max_concurrent - entry.failures));
}

Result<Throttle::Attempt> Throttle::admit(std::string key) {
    auto* entry = touch(key);
    Duration wait{};
    if (!entry || (!is_blocked(*entry) && is_at_capacity(*entry)))
        wait = std::chrono::seconds(1);
    else if (is_blocked(*entry))
        wait = entry->blocked_until - clock_.steady();
    if (wait > Duration{}) {
        const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait);
        return Error{Code::throttled, "too many failed attempts", fmt::format("try again in {}", to_text(seconds))};
    }
    ++entry->in_progress;
    return Attempt(*this, std::move(key));
}

Task<Throttle::Attempt> Throttle::admit_or_wait(Context ctx, std::string key) {
    for (;;) {
        const auto found = by_key_.find(key);
        const bool must_wait = found != by_key_.end() && !is_blocked(*found->second) && is_at_capacity(*found->second);
        if (!must_wait || waiting_.size() >= options_.max_waiting) co_return admit(std::move(key));
        Notifier attempt_ended(co_await asio::this_coro::executor);
        struct QueueEntry { // leaves the queue when the coroutine ends
            std::list<Notifier*>& queue;
            std::list<Notifier*>::iterator at;
            ~QueueEntry() { queue.erase(at); }
        } entry{waiting_, waiting_.insert(waiting_.end(), &attempt_ended)};
        CO_TRY(std::ignore, co_await attempt_ended.wait(ctx));
    }
}

void Throttle::end(const std::string& key, int failures, bool forgive) {
    auto* entry = touch(key); // exists: entries with attempts in progress are never dropped
    --entry->in_progress;
    if (forgive) entry->failures = 0;
    entry->failures += failures;
    if (failures > 0 && entry->failures >= options_.max_failures) {
        auto wait = options_.initial_delay;
        for (int i = options_.max_failures; i < entry->failures && wait < options_.max_delay; ++i) wait *= 2;
        entry->blocked_until = clock_.steady() + std::min(wait, options_.max_delay);
    }
    for (auto* each : waiting_) each->notify_all();
    if (entry->failures == 0 && entry->in_progress == 0) {
        const auto found = by_key_.find(key);
        entries_.erase(found->second);
        by_key_.erase(found);
    }
}

std::string peer_key(std::string_view address) {
    in6_addr six{};
    if (::inet_pton(AF_INET6, std::string(address).c_str(), &six) != 1) return std::string(address.substr(0, 64));
    if (IN6_IS_ADDR_V4MAPPED(&six))
        return fmt::format("{}.{}.{}.{}", six.s6_addr[12], six.s6_addr[13], six.s6_addr[14], six.s6_addr[15]);
    std::memset(&six.s6_addr[8], 0, 8);
    char text[INET6_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET6, &six, text, sizeof text);
    return fmt::format("{}/64", text);
}

} // namespace orrery::identity
