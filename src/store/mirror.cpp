#include "store/mirror.h"

#include <boost/intrusive/list.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

namespace orrery::store {

namespace {

struct MirrorHash {
    using is_transparent = void;
    using is_avalanching = void; // std::hash of strings is murmur, whose low bits are good enough for flat maps
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

struct Observer {
    std::function<void(const Event&)> callback;
    bool alive = true;
};
using Observers = std::vector<std::shared_ptr<Observer>>;

/// One reader's position in the history. An idle watcher (no unread change) is in its node's list. The first change below its
/// prefix sets `pending` and unlinks it, so that further changes cost nothing until the reader returns.
struct Watcher : boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
    Watcher(asio::any_io_executor executor, std::string_view prefix_) : prefix(prefix_), changed(std::move(executor)) {}
    std::string prefix;
    Notifier changed;
    Revision pending = 0; // the first revision with an unread change; 0: none
    std::uint64_t epoch = 0;
    bool closed = false;
    std::optional<Error> failed;

    bool matches(std::string_view key) const {
        if (prefix.empty()) return true;
        return prefix.back() == '/' ? key.starts_with(prefix) : key == prefix;
    }
};

/// The watches and observers of one prefix or one key.
struct Node {
    boost::intrusive::list<Watcher, boost::intrusive::constant_time_size<false>> idle;
    std::shared_ptr<const Observers> observers; // copy-on-write: callbacks may add or remove observers
    std::size_t watches = 0;
    bool unused() const { return watches == 0 && !observers; }
};

std::size_t memory_of(const RecordPtr& record) { return record ? sizeof(Record) + record->key.size() + record->value.size() : 0; }
std::size_t memory_of(const Event& event) {
    return sizeof(Event) + event.key.size() + memory_of(event.record) + memory_of(event.previous);
}

/// A change and its memory use. The size is stored because computing it again on removal would touch cold records.
struct HistoryEntry {
    Event event;
    std::size_t bytes;
};

std::string_view first_segment(std::string_view key) {
    const auto slash = key.find('/');
    return slash == key.npos ? std::string_view{} : key.substr(0, slash + 1);
}

} // namespace

struct Mirror::State {
    using Tree = std::map<std::string, RecordPtr, std::less<>>;

    State(asio::any_io_executor executor_, Options options_) : executor(std::move(executor_)), options(options_) {}

    asio::any_io_executor executor;
    Options options;
    Tree tree; // for ranges
    boost::unordered_flat_map<std::string_view, Tree::iterator, MirrorHash, std::equal_to<>>
        index; // for lookups; the keys are stored in the tree
    boost::unordered_flat_map<std::string, std::size_t, MirrorHash, std::equal_to<>> segments; // number of keys by first segment
    std::deque<HistoryEntry> history;
    std::size_t history_bytes = 0;
    Revision revision = 0, compacted = 0;
    std::uint64_t epoch = 0; // incremented by each reset, which starts a new history
    std::unordered_map<std::string, Node, MirrorHash, std::equal_to<>> nodes;
    std::size_t watches = 0, overrun = 0;
    std::optional<Error> closed;

    /// Calls `visit` with every node whose prefix or key matches `key`.
    template <class F> void for_each_affected_node(std::string_view key, F&& visit) {
        if (nodes.empty()) return;
        auto at = [&](std::string_view prefix) {
            if (auto node = nodes.find(prefix); node != nodes.end()) visit(node->second);
        };
        at({});
        for (auto slash = key.find('/'); slash != key.npos; slash = key.find('/', slash + 1)) at(key.substr(0, slash + 1));
        if (!key.ends_with('/')) at(key);
    }

    void notify_observers(const Event& event) {
        for_each_affected_node(event.key, [&](Node& node) {
            const auto observers = node.observers;
            if (!observers) return;
            for (const auto& observer : *observers)
                if (observer->alive) observer->callback(event);
        });
    }

    void wake(Node& node, Revision at) {
        while (!node.idle.empty()) {
            auto& watcher = node.idle.front();
            node.idle.pop_front();
            watcher.pending = at;
            watcher.changed.notify_all();
        }
    }

    void insert(Tree::iterator hint, RecordPtr record) {
        auto position = tree.emplace_hint(hint, record->key, std::move(record));
        index.emplace(std::string_view(position->first), position);
        if (auto segment = first_segment(position->first); !segment.empty()) {
            auto counter = segments.find(segment);
            if (counter == segments.end()) counter = segments.emplace(std::string(segment), 0).first;
            ++counter->second;
        }
    }

    /// Applies the change to the tree and sets `previous`. False if there was nothing to remove.
    bool change(Event& event) {
        const auto found = index.find(std::string_view(event.key));
        if (found == index.end()) {
            event.previous = nullptr;
            if (!event.record) return false;
            insert(tree.lower_bound(event.key), event.record);
            return true;
        }
        auto position = found->second;
        if (event.record) {
            event.previous = std::exchange(position->second, event.record);
            return true;
        }
        event.previous = std::move(position->second);
        index.erase(found);
        if (auto segment = first_segment(position->first); !segment.empty()) {
            auto counter = segments.find(segment);
            if (--counter->second == 0) segments.erase(counter);
        }
        tree.erase(position);
        return true;
    }

    void drop_oldest() {
        history_bytes -= history.front().bytes;
        compacted = std::max(compacted, history.front().event.revision);
        history.pop_front();
    }

    /// Trims the history to its limits. The newest revision always stays: a reader that waits for it is not slow.
    void trim() {
        while ((history.size() > options.max_history_events || history_bytes > options.max_history_bytes) &&
               history.front().event.revision != history.back().event.revision) {
            const auto oldest = history.front().event.revision;
            while (history.front().event.revision == oldest) drop_oldest();
        }
    }

    Tree::const_iterator first_of(std::string_view prefix, std::string_view after) const {
        return after.empty() || after < prefix ? tree.lower_bound(prefix) : tree.upper_bound(after);
    }
};

Mirror::Mirror(asio::any_io_executor executor, Options options) : state_(std::make_shared<State>(std::move(executor), options)) {}
Mirror::~Mirror() { close(Error{Code::cancelled, "the store was closed"}); }

Revision Mirror::revision() const { return state_->revision; }
Revision Mirror::compacted() const { return state_->compacted; }

RecordPtr Mirror::find(std::string_view key) const {
    const auto found = state_->index.find(key);
    return found == state_->index.end() ? nullptr : found->second->second;
}

Page Mirror::range(std::string_view prefix, std::size_t limit, std::string_view after) const {
    Page page;
    page.revision = state_->revision;
    auto at = state_->first_of(prefix, after);
    for (; at != state_->tree.end() && at->first.starts_with(prefix); ++at) {
        if (limit != 0 && page.records.size() == limit) {
            page.next = page.records.back()->key;
            break;
        }
        page.records.push_back(at->second);
    }
    return page;
}

std::size_t Mirror::count(std::string_view prefix) const {
    if (prefix.empty()) return state_->tree.size();
    if (first_segment(prefix) == prefix) {
        const auto counter = state_->segments.find(prefix);
        return counter == state_->segments.end() ? 0 : counter->second;
    }
    std::size_t found = 0;
    for (auto at = state_->tree.lower_bound(prefix); at != state_->tree.end() && at->first.starts_with(prefix); ++at) ++found;
    return found;
}

void Mirror::apply(Revision revision, std::vector<Event> events) {
    auto& state = *state_;
    assert(revision > state.revision);
    state.revision = revision;
    const auto first = state.history.size();
    for (auto& event : events) {
        event.revision = revision;
        if (!state.change(event)) continue;
        const auto bytes = memory_of(event);
        state.history_bytes += bytes;
        state.history.push_back({std::move(event), bytes});
    }
    // By index: an observer may read the mirror while this loop runs.
    for (auto i = first; i < state.history.size(); ++i) state.notify_observers(state.history[i].event);
    for (auto i = first; i < state.history.size(); ++i)
        state.for_each_affected_node(state.history[i].event.key, [&](Node& node) { state.wake(node, revision); });
    state.trim();
}

void Mirror::reset(std::vector<RecordPtr> records, Revision revision) {
    auto& state = *state_;
    std::vector<Event> differences;
    if (state.tree.empty()) {
        state.index.reserve(records.size());
        if (!state.nodes.empty())
            for (const auto& record : records) differences.push_back({record->modified, record->key, record, nullptr});
        for (auto& record : records) state.insert(state.tree.end(), std::move(record));
    } else {
        auto there = state.tree.begin();
        for (auto& record : records) {
            for (; there != state.tree.end() && there->first < record->key; ++there)
                differences.push_back({revision, there->first, nullptr, nullptr});
            const bool same_key = there != state.tree.end() && there->first == record->key;
            if (!same_key || there->second->modified != record->modified)
                differences.push_back({record->modified, record->key, record, nullptr});
            if (same_key) ++there;
        }
        for (; there != state.tree.end(); ++there) differences.push_back({revision, there->first, nullptr, nullptr});
        for (auto& event : differences) state.change(event);
    }
    state.revision = state.compacted = revision;
    state.history.clear();
    state.history_bytes = 0;
    ++state.epoch;
    for (const auto& event : differences) state.notify_observers(event);
    for (auto& [prefix, node] : state.nodes) state.wake(node, revision);
}

void Mirror::compact(Revision revision) {
    auto& state = *state_;
    revision = std::min(revision, state.revision);
    while (!state.history.empty() && state.history.front().event.revision <= revision) state.drop_oldest();
    state.compacted = std::max(state.compacted, revision);
}

void Mirror::close(Error reason) {
    if (state_->closed) return;
    state_->closed = std::move(reason);
    for (auto& [prefix, node] : state_->nodes) state_->wake(node, state_->revision);
}

class Mirror::Cursor final : public Watch {
public:
    Cursor(std::shared_ptr<State> state, std::string_view prefix, Revision from) : state_(std::move(state)) {
        watcher_ = std::make_shared<Watcher>(state_->executor, prefix);
        watcher_->epoch = state_->epoch;
        auto& node = state_->nodes[watcher_->prefix];
        ++node.watches;
        ++state_->watches;
        if (from < state_->compacted)
            watcher_->failed =
                Error{Code::compacted,
                      fmt::format("changes since revision {} are compacted; the history starts at {}", from, state_->compacted),
                      "list again and watch from the revision of that list"};
        else if (from > state_->revision)
            watcher_->failed =
                Error{Code::compacted,
                      fmt::format("revision {} does not exist yet, this store is at revision {}", from, state_->revision),
                      "list again and watch from the revision of that list"};
        else if (from < state_->revision)
            watcher_->pending = from + 1;
        else
            node.idle.push_back(*watcher_);
    }
    ~Cursor() override {
        watcher_->closed = true;
        watcher_->unlink();
        watcher_->changed.notify_all();
        --state_->watches;
        const auto node = state_->nodes.find(watcher_->prefix);
        --node->second.watches;
        if (node->second.unused()) state_->nodes.erase(node);
    }
    Task<std::vector<Event>> next(Context ctx) override { return next_of(state_, watcher_, std::move(ctx)); }
    Revision position() const override { return watcher_->pending ? watcher_->pending - 1 : state_->revision; }

private:
    /// Takes shared ownership: the watch may be destroyed while a coroutine waits in it.
    static Task<std::vector<Event>> next_of(std::shared_ptr<State> state, std::shared_ptr<Watcher> watcher, Context ctx) {
        for (;;) {
            if (watcher->closed) co_return Error{Code::cancelled, "the watch was closed"};
            if (state->closed) co_return *state->closed;
            if (watcher->epoch != state->epoch && !watcher->failed)
                watcher->failed =
                    Error{Code::compacted, "the copy of the store was listed again; the changes in between are unknown",
                          "list again and watch from the revision of that list"};
            if (watcher->failed) co_return *watcher->failed;
            if (watcher->pending) {
                auto events = collect(*state, *watcher);
                if (watcher->failed) co_return *watcher->failed;
                if (!events.empty()) co_return events;
            }
            CO_TRY(std::ignore, co_await watcher->changed.wait(ctx));
        }
    }

    /// Returns up to max_events_per_read unread events of this reader, and makes it idle if these were all.
    static std::vector<Event> collect(State& state, Watcher& watcher) {
        std::vector<Event> events;
        if (watcher.pending <= state.compacted) {
            ++state.overrun;
            watcher.failed = Error{
                Code::compacted,
                fmt::format("the watch was too slow: its next change, at revision {} or later, has left the history of {} changes",
                            watcher.pending, state.history.size()),
                "list again and watch from the revision of that list; read faster, or watch a smaller prefix"};
            return events;
        }
        const auto& history = state.history;
        auto at = std::partition_point(history.begin(), history.end(),
                                       [&](const HistoryEntry& entry) { return entry.event.revision < watcher.pending; });
        for (; at != history.end(); ++at) {
            if (events.size() >= state.options.max_events_per_read && at->event.revision != events.back().revision) break;
            if (watcher.matches(at->event.key)) events.push_back(at->event);
        }
        if (at != history.end()) {
            watcher.pending = at->event.revision;
        } else {
            watcher.pending = 0;
            state.nodes.find(watcher.prefix)->second.idle.push_back(watcher);
        }
        return events;
    }

    std::shared_ptr<State> state_;
    std::shared_ptr<Watcher> watcher_;
};

std::unique_ptr<Watch> Mirror::watch(std::string_view prefix, Revision from) {
    return std::make_unique<Cursor>(state_, prefix, from);
}

std::shared_ptr<void> Mirror::observe(std::string_view prefix, std::function<void(const Event&)> callback) {
    auto observer = std::make_shared<Observer>(Observer{std::move(callback)});
    const bool below = prefix.empty() || prefix.ends_with('/');
    for (auto at = state_->tree.lower_bound(prefix); at != state_->tree.end(); ++at) {
        if (below ? !at->first.starts_with(prefix) : at->first != prefix) break;
        observer->callback(Event{at->second->modified, at->first, at->second, nullptr});
    }
    auto& node = state_->nodes[std::string(prefix)];
    auto observers = node.observers ? *node.observers : Observers{};
    observers.push_back(observer);
    node.observers = std::make_shared<const Observers>(std::move(observers));

    auto unregister = [state = std::weak_ptr(state_), prefix = std::string(prefix)](Observer* removed) {
        removed->alive = false;
        const auto locked = state.lock();
        if (!locked) return;
        const auto found = locked->nodes.find(prefix);
        auto remaining = *found->second.observers;
        std::erase_if(remaining, [&](const auto& one) { return one.get() == removed; });
        found->second.observers = remaining.empty() ? nullptr : std::make_shared<const Observers>(std::move(remaining));
        if (found->second.unused()) locked->nodes.erase(found);
    };
    return std::shared_ptr<void>(observer.get(), [observer, unregister](void*) { unregister(observer.get()); });
}

std::vector<std::pair<std::string, double>> Mirror::metrics() const {
    return {{"keys", static_cast<double>(state_->tree.size())},
            {"watches", static_cast<double>(state_->watches)},
            {"history_events", static_cast<double>(state_->history.size())},
            {"history_bytes", static_cast<double>(state_->history_bytes)},
            {"watches_overrun_total", static_cast<double>(state_->overrun)}};
}

} // namespace orrery::store
