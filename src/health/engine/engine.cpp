#include "health/engine/engine.h"

#include "health/engine/worker.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <optional>
#include <sys/resource.h>

namespace orrery::health {

// --- Results on their way to the loop

Engine::ResultQueue::ResultQueue(asio::any_io_executor executor, std::function<void(std::vector<ProbeResult>)> on_results)
    : executor_(std::move(executor)), on_results_(std::move(on_results)) {}

void Engine::ResultQueue::put(std::vector<ProbeResult>& done) {
    {
        std::lock_guard lock(mutex_);
        if (!open_) return;
        if (waiting_.empty())
            waiting_.swap(done);
        else
            std::move(done.begin(), done.end(), std::back_inserter(waiting_));
        if (std::exchange(posted_, true)) return;
    }
    // Without the lock, which the woken thread takes.
    asio::post(executor_, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->deliver();
    });
}

void Engine::ResultQueue::deliver() {
    std::vector<ProbeResult> taken;
    {
        std::lock_guard lock(mutex_);
        posted_ = false;
        if (!open_) return;
        taken.swap(waiting_);
    }
    on_results_(std::move(taken));
}

void Engine::ResultQueue::close() {
    std::lock_guard lock(mutex_);
    open_ = false;
    waiting_.clear();
}

// --- Targets

Engine::ProbeTarget::ProbeTarget(ProbeProgramPtr program_, ResultQueuePtr results_, Worker& worker_, Addresses literal_,
                                 std::string denial_)
    : program(std::move(program_)),
      results(std::move(results_)),
      worker(worker_),
      literal(std::move(literal_)),
      denial(std::move(denial_)) {}
Engine::ProbeTarget::~ProbeTarget() = default;

void Engine::ProbeTarget::keep(SessionPtr fresh) {
    if (removed || (!session && worker.counts.sessions >= worker.options.max_sessions)) return;
    if (!session) ++worker.counts.sessions;
    session = std::move(fresh);
}

// --- The engine

struct Engine::State {
    explicit State(Options options_) : options(options_) {
        options.threads = std::clamp(options.threads, 1, 64);
        auto max_idle = options.max_idle_connections;
        if (max_idle == 0) {
            rlimit files{};
            max_idle = ::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY ? files.rlim_cur / 2 : 512;
        }
        const auto threads = static_cast<std::size_t>(options.threads);
        options.max_sessions /= threads;
        for (std::size_t i = 0; i < threads; ++i)
            workers.push_back(std::make_unique<Worker>(options, max_idle / threads, resolver));
    }
    Options options;
    Resolver resolver;
    std::vector<std::unique_ptr<Worker>> workers;
    std::size_t next = 0;
};

Engine::Engine() : Engine(Options{}) {}
Engine::Engine(Options options) : state_(std::make_unique<State>(options)) {
    // Not at the first handshake: OpenSSL must outlive an engine that ends with the program, and free its data of our threads.
    ::OPENSSL_init_ssl(0, nullptr);
}
Engine::~Engine() {
    state_->resolver.stop(); // first: its answers go to the workers
    state_->workers.clear();
}

Engine::ResultQueuePtr Engine::result_queue(asio::any_io_executor executor,
                                            std::function<void(std::vector<ProbeResult>)> on_results) {
    auto made = std::make_shared<ResultQueue>(std::move(executor), std::move(on_results));
    auto* raw = made.get();
    // The caller's pointer closes the queue; those of targets only keep it in memory.
    return ResultQueuePtr(raw, [made = std::move(made)](ResultQueue* closed) mutable {
        closed->close();
        made.reset();
    });
}

Engine::ProbeTargetPtr Engine::add(ProbeProgramPtr program, ResultQueuePtr results) {
    auto& worker = *state_->workers[state_->next++ % state_->workers.size()];
    if (program->secure) tls_context_for(*program); // prepared here, before several threads use it
    auto literal = literal_address(program->host, program->port);
    std::string denial; // checked once, so that probes of a literal address need no check
    if (literal)
        if (const auto checked = permitted_addresses(program->outbound.get(), literal); !checked.ok())
            denial = checked.error().text();
    return std::make_shared<ProbeTarget>(std::move(program), results->shared_from_this(), worker, std::move(literal),
                                         std::move(denial));
}

void Engine::remove(const ProbeTargetPtr& target) { target->worker.remove(target); }

void Engine::start(std::vector<ProbeRequest> requests) {
    if (requests.empty()) return;
    if (state_->workers.size() == 1) {
        state_->workers.front()->start(std::move(requests));
        return;
    }
    std::vector<std::vector<ProbeRequest>> parts(state_->workers.size());
    for (auto& request : requests)
        for (std::size_t i = 0; i < parts.size(); ++i)
            if (&request.target->worker == state_->workers[i].get()) {
                parts[i].push_back(std::move(request));
                break;
            }
    for (std::size_t i = 0; i < parts.size(); ++i)
        if (!parts[i].empty()) state_->workers[i]->start(std::move(parts[i]));
}

Engine::Counts Engine::counts() const {
    Counts out;
    for (const auto& worker : state_->workers) {
        const auto& from = worker->counts;
        out.running += from.running;
        out.idle += from.idle;
        out.sessions += from.sessions;
        out.connections += from.connections;
        out.handshakes += from.handshakes;
        out.resumed += from.resumed;
        out.reused += from.reused;
    }
    return out;
}

asio::awaitable<Observation> probe_once(Engine& engine, ProbeProgramPtr program, Context ctx) {
    struct Wait {
        explicit Wait(asio::any_io_executor executor) : came(std::move(executor)) {}
        Notifier came;
        std::optional<Observation> seen;
    };
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto executor = co_await asio::this_coro::executor;
    const auto wait = std::make_shared<Wait>(executor);
    const auto results = engine.result_queue(executor, [wait](std::vector<Engine::ProbeResult> done) {
        wait->seen = std::move(done.front().seen);
        wait->came.notify_all();
    });
    const auto now = real_clock().steady();
    const auto deadline = ctx.deadline().value_or(now + std::chrono::seconds(10));
    const auto target = engine.add(program, results);
    std::vector<Engine::ProbeRequest> requests;
    requests.push_back({target, deadline, 0});
    engine.start(std::move(requests));
    // The engine enforces the deadline. This timeout is a safeguard, and keeps the loop running.
    const auto timeout = Context::background().with_deadline(deadline + std::chrono::seconds(5));
    while (!wait->seen) {
        auto woken = co_await wait->came.wait(timeout);
        if (!woken.ok()) break;
    }
    engine.remove(target);
    if (wait->seen) co_return std::move(*wait->seen);
    co_return Observation{.outcome = Outcome::local_error, .text = program->what + ": the probe was ended"};
}

} // namespace orrery::health
