#include "health/engine/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace orrery::health {

namespace {

constexpr std::size_t events_at_once = 512;
/// A longer round means that the host stalled or that other processes had the processor.
constexpr auto stall_threshold = std::chrono::milliseconds(100);

} // namespace

Worker::Worker(const Engine::Options& options_, std::size_t max_idle_connections, Resolver& resolver)
    : options(options_), resolver_(resolver), max_idle_(max_idle_connections), buffer_(64 << 10) {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll_ < 0 || wake_fd_ < 0) std::abort(); // at the start of the program, out of files
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_fd_, &event);
    epoch_ = now_ = real_clock().steady();
    thread_ = std::thread([this] { run(); });
}

Worker::~Worker() {
    {
        std::lock_guard lock(mutex_);
        commands_.stop = true;
    }
    wake();
    thread_.join();
    ::close(wake_fd_);
    ::close(epoll_);
}

void Worker::wake() {
    const std::uint64_t one = 1;
    std::ignore = ::write(wake_fd_, &one, sizeof one);
}

void Worker::start(std::vector<Engine::ProbeRequest> requests) {
    bool must_wake = false;
    {
        std::lock_guard lock(mutex_);
        if (commands_.requests.empty())
            commands_.requests = std::move(requests);
        else
            std::move(requests.begin(), requests.end(), std::back_inserter(commands_.requests));
        must_wake = !std::exchange(wake_pending_, true);
    }
    if (must_wake) wake();
}

void Worker::remove(Engine::ProbeTargetPtr target) {
    bool must_wake = false;
    {
        std::lock_guard lock(mutex_);
        commands_.removed.push_back(std::move(target));
        must_wake = !std::exchange(wake_pending_, true);
    }
    if (must_wake) wake();
}

Wheel::Tick Worker::tick_of(SteadyTime time) const { return time <= epoch_ ? 0 : static_cast<Wheel::Tick>((time - epoch_) / tick); }

/// Milliseconds until the next deadline may pass; -1: no deadline.
int Worker::time_to_sleep() const {
    const auto next = deadlines_.next_event();
    if (next == Wheel::never) return -1;
    const auto left = epoch_ + tick * static_cast<std::int64_t>(next) - real_clock().steady();
    return left <= Duration{} ? 0 : static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

void Worker::run() {
    // Signals are for the main thread. A write to a closed connection must be an error, not a signal.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    ::pthread_setname_np(::pthread_self(), "health");
    std::vector<epoll_event> events(events_at_once);
    auto last = now_;
    while (!stopping_) {
        const int sleep = time_to_sleep();
        const auto before = real_clock().steady();
        const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), sleep);
        now_ = real_clock().steady();
        // How long no deadline was checked: the previous round, and the time by which the sleep was too long.
        const auto asleep = now_ - before;
        auto unwatched = before - last;
        if (sleep >= 0 && asleep > std::chrono::milliseconds(sleep)) unwatched += asleep - std::chrono::milliseconds(sleep);
        last = now_;
        if (unwatched > stall_threshold) {
            stalled_ = unwatched;
            stalled_until_ = now_;
        }
        bool commands = false;
        for (int i = 0; i < count; ++i) {
            if (events[static_cast<std::size_t>(i)].data.ptr == nullptr)
                commands = true;
            else
                on_event(*static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr),
                         events[static_cast<std::size_t>(i)].events);
        }
        if (commands) run_commands(fetch_commands());
        poll_fresh();
        // After the events: a response that arrived in time counts, however late this thread is.
        deadlines_.advance(tick_of(now_), [this](Wheel::Waiting& due) { expire(static_cast<ActiveProbe&>(due)); });
        start_waiting_handshakes();
        poll_fresh(); // next addresses of probes whose first address failed
        deliver();
        reap();
    }
    shut_down();
}

Worker::Commands Worker::fetch_commands() {
    std::uint64_t ignored = 0;
    std::ignore = ::read(wake_fd_, &ignored, sizeof ignored);
    std::lock_guard lock(mutex_);
    wake_pending_ = false;
    return std::exchange(commands_, {});
}

void Worker::shut_down() {
    while (!active_.empty()) finish(*active_.back(), Outcome::local_error, "the engine ended");
    for (auto* connection = oldest_; connection != nullptr;) {
        auto* next = connection->newer;
        unpark(*connection);
        drop(*connection);
        connection = next;
    }
    reap();
    for (auto& family : sockets_)
        for (auto* connection : family) {
            ::close(connection->fd);
            delete connection;
        }
}

void Worker::run_commands(Commands commands) {
    stopping_ = commands.stop;
    for (auto& request : commands.requests) begin(std::move(request));
    for (auto& found : commands.resolved) resolved(std::move(found));
    for (const auto& target : commands.removed) {
        target->removed = true;
        if (auto* idle = target->idle_connection) {
            unpark(*idle);
            drop(*idle);
        }
        if (target->session) {
            target->session.reset();
            --counts.sessions;
        }
    }
}

void Worker::begin(Engine::ProbeRequest request) {
    auto& target = *request.target;
    if (target.probe != nullptr || stopping_) { // one probe of a target at a time
        finished_.emplace_back(
            target.results,
            Engine::ProbeResult{request.tag, {.outcome = Outcome::local_error, .text = "the last probe still runs"}});
        return;
    }
    std::unique_ptr<ActiveProbe> owned;
    if (spare_probes_.empty()) {
        owned = std::make_unique<ActiveProbe>();
    } else {
        owned = std::move(spare_probes_.back());
        spare_probes_.pop_back();
    }
    auto& probe = *owned.release();
    probe.target = std::move(request.target);
    probe.program = target.program.get();
    probe.redirect_target.reset();
    probe.tag = request.tag;
    probe.serial = ++serials_;
    probe.begin = now_;
    probe.deadline = request.deadline;
    probe.connection = nullptr;
    probe.on_reused = false;
    probe.next_address = probe.written = 0;
    probe.seen = {};
    probe.answer.begin({});
    probe.index = active_.size();
    active_.push_back(&probe);
    target.probe = &probe;
    ++counts.running;
    deadlines_.add(probe, tick_of(request.deadline) + 1);
    if (target.idle_connection != nullptr) {
        auto& idle = *target.idle_connection;
        unpark(idle);
        idle.probe = &probe;
        probe.connection = &idle;
        probe.on_reused = true;
        ++counts.reused;
        start_exchange(probe);
        return;
    }
    if (!target.denial.empty()) {
        deny(probe, target.denial);
        return;
    }
    probe.addresses = target.literal;
    if (probe.addresses)
        connect_next(probe);
    else
        find_and_connect(probe);
}

/// A local error; no packet is sent.
void Worker::deny(ActiveProbe& probe, std::string_view denial) {
    probe.seen.cannot_run = true;
    finish(probe, Outcome::local_error, denial);
}

void Worker::find_and_connect(ActiveProbe& probe) {
    if (!probe.addresses) {
        probe.phase = ActiveProbe::Phase::resolving;
        probe.addresses = resolver_.find(probe.program->host, probe.program->port, now_,
                                         [this, again = probe.target, serial = probe.serial](Resolver::Answer answer) {
                                             bool must_wake = false;
                                             {
                                                 std::lock_guard lock(mutex_);
                                                 commands_.resolved.push_back({again, serial, std::move(answer)});
                                                 must_wake = !std::exchange(wake_pending_, true);
                                             }
                                             if (must_wake) wake();
                                         });
        if (!probe.addresses) return;
    }
    connect_to_permitted(probe);
}

/// Checks the addresses that are connected to, after the resolution: a name whose records change in between cannot evade the rules.
void Worker::connect_to_permitted(ActiveProbe& probe) {
    auto permitted = permitted_addresses(probe.program->outbound.get(), probe.addresses);
    if (!permitted.ok()) {
        deny(probe, permitted.error().text());
        return;
    }
    probe.addresses = std::move(*permitted);
    connect_next(probe);
}

void Worker::resolved(Resolved found) {
    auto* probe = found.target->probe;
    if (probe == nullptr || probe->serial != found.serial || probe->phase != ActiveProbe::Phase::resolving)
        return; // the probe has ended
    if (!found.answer.ok()) {
        const bool none = found.answer.error().code == Code::not_found;
        finish(*probe, none ? Outcome::dns_error : Outcome::local_error, found.answer.error().message);
        return;
    }
    probe->addresses = std::move(*found.answer);
    connect_to_permitted(*probe);
}

void Worker::expire(ActiveProbe& probe) {
    // A deadline that passed while this thread was stalled is no evidence.
    if (probe.begin < stalled_until_ && stalled_ * 4 > probe.deadline - probe.begin) {
        finish(probe, Outcome::local_error,
               fmt::format("this server was stalled for {} ms",
                           std::chrono::duration_cast<std::chrono::milliseconds>(stalled_).count()));
        return;
    }
    switch (probe.phase) {
    case ActiveProbe::Phase::resolving: finish(probe, Outcome::local_error, "the name was not resolved in time"); return;
    case ActiveProbe::Phase::queueing: finish(probe, Outcome::local_error, "too many concurrent handshakes on this server"); return;
    case ActiveProbe::Phase::connecting: finish(probe, Outcome::timeout_connect, "no answer in time"); return;
    case ActiveProbe::Phase::handshaking: finish(probe, Outcome::timeout_tls, "no handshake in time"); return;
    case ActiveProbe::Phase::writing:
    case ActiveProbe::Phase::reading: finish(probe, Outcome::timeout_read, "no whole answer in time"); return;
    }
}

void Worker::deliver() {
    if (finished_.empty()) return;
    std::vector<Engine::ProbeResult> part;
    for (std::size_t at = 0; at < finished_.size();) {
        const auto results = finished_[at].first;
        for (; at < finished_.size() && finished_[at].first == results; ++at) part.push_back(std::move(finished_[at].second));
        results->put(part);
        part.clear();
    }
    finished_.clear();
}

} // namespace orrery::health
