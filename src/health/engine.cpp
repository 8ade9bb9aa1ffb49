#include "health/engine.h"

#include "health/worker.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <optional>
#include <sys/resource.h>

namespace orrery::health {

// --- Results on their way to the loop
// -----------------------------------------------------------------------------------------------

Engine::Inbox::Inbox(asio::any_io_executor executor, std::function<void(std::vector<Done>)> take)
    : executor_(std::move(executor)), take_(std::move(take)) {}

void Engine::Inbox::put(std::vector<Done>& done) {
    {
        std::lock_guard lock(mutex_);
        if (!open_) return;
        if (waiting_.empty())
            waiting_.swap(done);
        else
            std::move(done.begin(), done.end(), std::back_inserter(waiting_));
        if (std::exchange(posted_, true)) return;
    }
    // Without the lock, for who is woken takes it.
    asio::post(executor_, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->hand_over();
    });
}

void Engine::Inbox::hand_over() {
    std::vector<Done> taken;
    {
        std::lock_guard lock(mutex_);
        posted_ = false;
        if (!open_) return;
        taken.swap(waiting_);
    }
    take_(std::move(taken));
}

void Engine::Inbox::close() {
    std::lock_guard lock(mutex_);
    open_ = false;
    waiting_.clear();
}

// --- Targets
// ------------------------------------------------------------------------------------------------------------------------

Engine::Spot::Spot(PlanPtr plan_, InboxPtr inbox_, Worker& worker_, Addresses literal_)
    : plan(std::move(plan_)), inbox(std::move(inbox_)), worker(worker_), literal(std::move(literal_)) {}
Engine::Spot::~Spot() = default;

void Engine::Spot::keep(SessionPtr fresh) {
    if (removed || (!session && worker.counts.sessions >= worker.options.kept_sessions)) return;
    if (!session) ++worker.counts.sessions;
    session = std::move(fresh);
}

// --- The engine
// ---------------------------------------------------------------------------------------------------------------------

struct Engine::State {
    explicit State(Options options_) : options(options_) {
        options.threads = std::clamp(options.threads, 1, 64);
        auto kept = options.kept_connections;
        if (kept == 0) {
            rlimit files{};
            kept = ::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY ? files.rlim_cur / 2 : 512;
        }
        const auto threads = static_cast<std::size_t>(options.threads);
        options.kept_sessions /= threads;
        for (std::size_t i = 0; i < threads; ++i) workers.push_back(std::make_unique<Worker>(options, kept / threads, names));
    }
    Options options;
    Names names;
    std::vector<std::unique_ptr<Worker>> workers;
    std::size_t next = 0;
};

Engine::Engine() : Engine(Options{}) {}
Engine::Engine(Options options) : state_(std::make_unique<State>(options)) {
    // Here and not at the first handshake: OpenSSL then outlives an engine that ends with the program, and frees what it keeps for
    // our threads.
    ::OPENSSL_init_ssl(0, nullptr);
}
Engine::~Engine() {
    state_->names.stop(); // first: its answers go to the workers
    state_->workers.clear();
}

Engine::InboxPtr Engine::inbox(asio::any_io_executor executor, std::function<void(std::vector<Done>)> take) {
    auto made = std::make_shared<Inbox>(std::move(executor), std::move(take));
    auto* raw = made.get();
    // What the caller holds closes it; what targets hold only keeps it in memory.
    return InboxPtr(raw, [made = std::move(made)](Inbox* inbox) mutable {
        inbox->close();
        made.reset();
    });
}

Engine::SpotPtr Engine::add(PlanPtr plan, InboxPtr inbox) {
    auto& worker = *state_->workers[state_->next++ % state_->workers.size()];
    if (plan->secure) tls_context_for(*plan); // prepared here, before several threads use it
    auto literal = literal_address(plan->host, plan->port);
    return std::make_shared<Spot>(std::move(plan), inbox->shared_from_this(), worker, std::move(literal));
}

void Engine::remove(const SpotPtr& spot) { spot->worker.remove(spot); }

void Engine::look(std::vector<Order> orders) {
    if (orders.empty()) return;
    if (state_->workers.size() == 1) {
        state_->workers.front()->order(std::move(orders));
        return;
    }
    std::vector<std::vector<Order>> parts(state_->workers.size());
    for (auto& order : orders)
        for (std::size_t i = 0; i < parts.size(); ++i)
            if (&order.spot->worker == state_->workers[i].get()) {
                parts[i].push_back(std::move(order));
                break;
            }
    for (std::size_t i = 0; i < parts.size(); ++i)
        if (!parts[i].empty()) state_->workers[i]->order(std::move(parts[i]));
}

Engine::Counts Engine::counts() const {
    Counts out;
    for (const auto& worker : state_->workers) {
        const auto& from = worker->counts;
        out.looking += from.looking;
        out.kept += from.kept;
        out.sessions += from.sessions;
        out.connections += from.connections;
        out.handshakes += from.handshakes;
        out.resumed += from.resumed;
        out.reused += from.reused;
    }
    return out;
}

asio::awaitable<Observation> look_once(Engine& engine, PlanPtr plan, Context ctx) {
    struct Wait {
        explicit Wait(asio::any_io_executor executor) : came(std::move(executor)) {}
        Notifier came;
        std::optional<Observation> seen;
    };
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto executor = co_await asio::this_coro::executor;
    const auto wait = std::make_shared<Wait>(executor);
    const auto inbox = engine.inbox(executor, [wait](std::vector<Engine::Done> done) {
        wait->seen = std::move(done.front().seen);
        wait->came.notify_all();
    });
    const auto now = real_clock().steady();
    const auto deadline = ctx.deadline().value_or(now + std::chrono::seconds(10));
    const auto spot = engine.add(plan, inbox);
    std::vector<Engine::Order> orders;
    orders.push_back({spot, deadline, 0});
    engine.look(std::move(orders));
    // The engine keeps the deadline; this is for the day it does not, and keeps the loop running.
    const auto patience = Context::background().with_deadline(deadline + std::chrono::seconds(5));
    while (!wait->seen) {
        auto woken = co_await wait->came.wait(patience);
        if (!woken.ok()) break;
    }
    engine.remove(spot);
    if (wait->seen) co_return std::move(*wait->seen);
    co_return Observation{.outcome = Outcome::local_error, .text = plan->what + ": the look was ended"};
}

} // namespace orrery::health
