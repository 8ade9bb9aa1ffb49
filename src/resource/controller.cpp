#include "resource/controller.h"

#include "core/log.h"
#include "store/list_watch.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace orrery::resource {

namespace {
constexpr std::size_t keys_a_page = 500;
} // namespace

struct Controller::State {
    store::Store& store;
    store::Leadership& leadership;
    Clock& clock;
    std::vector<std::string> prefixes;
    Reconcile reconcile;
    Options options;

    // State of the current term. A key that changes during its reconciliation is reconciled again.
    std::deque<std::string> queue{};
    std::unordered_set<std::string> queued{}, under_way{};
    std::unordered_map<std::string, int> failures{};
    std::unique_ptr<Notifier> more{};
    TaskGroup* term = nullptr;

    void add(std::string key) {
        if (term == nullptr || !queued.insert(key).second) return;
        queue.push_back(std::move(key));
        more->notify_all();
    }

    void add_all() {
        for (const auto& prefix : prefixes)
            for (std::string after;;) {
                const auto page = store.range(prefix, keys_a_page, after);
                for (const auto& record : page.records) add(record->key);
                if (page.next.empty()) break;
                after = page.next;
            }
    }

    /// The first queued key that is not being reconciled.
    std::optional<std::string> next() {
        const auto at = std::find_if(queue.begin(), queue.end(), [&](const std::string& key) { return !under_way.contains(key); });
        if (at == queue.end()) return std::nullopt;
        auto key = std::move(*at);
        queue.erase(at);
        queued.erase(key);
        return key;
    }

    Duration backoff(int failed) const {
        auto wait = options.first_backoff;
        for (; failed > 1 && wait < options.max_backoff; --failed) wait *= 2;
        return std::min(wait, options.max_backoff);
    }
};

namespace {

/// Each of these is one part of a term, and ends when the term's group is stopped: a wait that fails then is its end.

template <class State> asio::awaitable<void> add_changed(std::shared_ptr<State> state, std::vector<store::Event> changes) {
    for (auto& change : changes) state->add(std::move(change.key));
    co_return;
}

template <class State> asio::awaitable<void> follow_prefix(std::shared_ptr<State> state, Context ctx, std::string prefix) {
    store::ListWatchHandler handler;
    handler.list = [state] { state->add_all(); };
    handler.on_changes = [state](std::vector<store::Event> changes) { return add_changed(state, std::move(changes)); };
    handler.retry_delay = state->options.first_backoff;
    co_await store::list_and_watch(ctx, state->store, state->clock, std::move(prefix), std::move(handler));
}

template <class State> asio::awaitable<void> resync_now_and_then(std::shared_ptr<State> state) {
    for (;;) {
        auto slept = co_await state->clock.sleep(state->options.resync);
        if (!slept.ok()) co_return;
        state->add_all();
    }
}

template <class State> asio::awaitable<void> add_later(std::shared_ptr<State> state, std::string key, Duration wait) {
    auto slept = co_await state->clock.sleep(wait);
    if (slept.ok()) state->add(std::move(key));
}

template <class State> asio::awaitable<void> reconcile_keys(std::shared_ptr<State> state, Context ctx, store::Fence fence) {
    for (;;) {
        auto key = state->next();
        if (!key) {
            auto waited = co_await state->more->wait(ctx);
            if (!waited.ok()) co_return;
            continue;
        }
        state->under_way.insert(*key);
        auto reconciled = co_await state->reconcile(Context::make(ctx.actor()), *key, fence);
        state->under_way.erase(*key);
        if (reconciled.ok()) {
            state->failures.erase(*key);
        } else if (state->term != nullptr && reconciled.error().code != Code::cancelled) {
            const int failed = ++state->failures[*key];
            const auto wait = state->backoff(failed);
            log::warn(ctx, "{} failed {} times, again in {}: {}", *key, failed, to_text(wait), reconciled.error().text());
            state->term->spawn(add_later(state, *key, wait));
        }
        state->more->notify_all(); // it may have changed during its reconciliation
    }
}

template <class State> asio::awaitable<void> forget_term(std::shared_ptr<State> state) {
    state->term = nullptr;
    state->queue.clear();
    state->queued.clear();
    state->under_way.clear();
    state->failures.clear();
    co_return;
}

} // namespace

Controller::Controller(store::Store& store, store::Leadership& leadership, Clock& clock, std::vector<std::string> prefixes,
                       Reconcile reconcile, Options options)
    : state_(std::make_shared<State>(State{store, leadership, clock, std::move(prefixes), std::move(reconcile), options})) {}
Controller::~Controller() = default;

void Controller::enqueue(std::string key) { state_->add(std::move(key)); }
std::size_t Controller::waiting() const { return state_->queue.size(); }
std::size_t Controller::failing() const { return state_->failures.size(); }

asio::awaitable<void> Controller::run(Context ctx) {
    auto state = state_;
    const auto executor = co_await asio::this_coro::executor;
    const auto begin = [state, ctx, executor](TaskGroup& term, store::Fence fence) {
        state->more = std::make_unique<Notifier>(executor);
        state->term = &term;
        for (const auto& prefix : state->prefixes) term.spawn(follow_prefix(state, ctx, prefix));
        term.spawn(resync_now_and_then(state));
        for (std::size_t i = 0; i < std::max<std::size_t>(1, state->options.max_concurrent); ++i)
            term.spawn(reconcile_keys(state, ctx, fence));
    };
    const auto end = [state] { return forget_term(state); };
    co_await state->leadership.for_each_term(ctx, begin, end);
}

} // namespace orrery::resource
