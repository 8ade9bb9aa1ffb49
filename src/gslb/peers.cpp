#include "gslb/peers.h"

#include "core/log.h"
#include "core/text.h"
#include "gslb/read.h"
#include "health/forced.h"

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace orrery::gslb {

namespace {

constexpr std::string_view peers_prefix = "sys/vantages/";
constexpr std::size_t words_at_once = 100;
/// What is new is looked at soon: nobody is told that it has not been yet.
constexpr auto unknown_for = std::chrono::seconds(15);
constexpr auto pause_after_failure = std::chrono::seconds(1);

std::string text_of(const health::Word& word) {
    return to_json_text(json::object{{"standing", health::name_of(word.report.standing)},
                                     {"class", health::name_of(word.report.last)},
                                     {"ms", word.report.took.count()},
                                     {"n_fail", word.report.failures},
                                     {"stale", word.report.stale},
                                     {"how", word.how}});
}

std::int64_t whole_at(const json::object& from, std::string_view key) {
    const auto* value = from.if_contains(key);
    if (value == nullptr || !value->is_number()) return 0;
    boost::system::error_code error;
    const auto out = value->to_number<std::int64_t>(error);
    return error ? 0 : out;
}

health::Word word_in(const json::object& value) {
    health::Word out;
    out.report.standing = health::standing_from(text_at(value, "standing"));
    out.report.last = health::outcome_from(text_at(value, "class"));
    out.report.took = std::chrono::milliseconds(std::clamp<std::int64_t>(whole_at(value, "ms"), 0, 3'600'000));
    out.report.failures = static_cast<int>(std::clamp<std::int64_t>(whole_at(value, "n_fail"), 0, 1000));
    out.report.stale = flag_at(value, "stale");
    out.how = static_cast<std::uint64_t>(whole_at(value, "how"));
    return out;
}

} // namespace

struct Peers::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor, store::Store& store_, Clock& clock_, health::Lookout& lookout_, Options options_)
        : store(store_),
          clock(clock_),
          lookout(lookout_),
          options(std::move(options_)),
          to_write(executor),
          began(clock_.steady()),
          heard(clock_.steady()) {
        std::replace(options.server.begin(), options.server.end(), '/', '_');
    }

    std::string own_key() const { return std::string(peers_prefix) + options.server; }

    // --- What others say

    void take(const store::Event& event) {
        const auto rest = std::string_view(event.key).substr(peers_prefix.size());
        const auto cut = rest.find('/');
        const std::string server(rest.substr(0, cut));
        if (server == options.server) return;
        json::object value;
        if (event.record)
            if (auto parsed = parse_json(event.record->value); parsed.ok() && parsed->is_object()) value = parsed->get_object();
        if (cut != std::string_view::npos) {
            const std::string key(rest.substr(cut + 1));
            lookout.set_peer_word(server, key, event.record ? std::optional(word_in(value)) : std::nullopt);
            return;
        }
        if (!event.record) {
            others.erase(server);
            lookout.remove_peer(server);
            return;
        }
        lookout.set_peer(server, {.fit = flag_at(value, "fit"),
                                  .because = text_at(value, "because"),
                                  .reason = text_at(value, "reason"),
                                  .ready = flag_at(value, "ready"),
                                  .targets = static_cast<std::size_t>(std::max<std::int64_t>(0, whole_at(value, "targets")))});
        if (!others.insert(server).second || others.size() > 1) return;
        for (const auto& [key, said] : words) dirty.insert(key); // now there is somebody to tell
        to_write.notify_all();
    }

    // --- What this server says

    struct Said {
        health::Word word;
        SteadyTime since;
    };

    void note(const std::string& key, const health::Word* word) {
        if (word == nullptr)
            known.erase(key);
        else
            known.insert(key);
        if (word == nullptr || word->is_well()) {
            if (words.erase(key) == 0) return;
        } else {
            const auto [at, is_new] = words.try_emplace(key, Said{*word, clock.steady()});
            const auto& before = at->second.word;
            if (!is_new && before.report.standing == word->report.standing && before.report.stale == word->report.stale &&
                before.report.last == word->report.last && before.how == word->how)
                return;
            at->second.word = *word;
            if (!word->is_known() && !written.contains(key)) return; // `look_over` tells what stays so
        }
        dirty.insert(key);
        to_write.notify_all();
    }

    /// Ready when all has been looked at, or nothing more will come of waiting.
    void look_over() {
        const auto now = clock.steady();
        targets = known.size();
        bool unknown = false;
        for (const auto& [key, said] : words) {
            if (said.word.is_known()) continue;
            unknown = true;
            if (ready && now - said.since > unknown_for && !written.contains(key)) dirty.insert(key);
        }
        if (ready || (unknown && now - began < options.ready_after)) return;
        ready = true;
        for (const auto& [key, said] : words)
            if (!said.word.is_known()) dirty.insert(key);
    }

    std::string sign_of_life() const {
        json::object out{{"fit", own.fit}, {"ready", ready}, {"targets", targets}};
        if (!own.fit) {
            out["because"] = own.words;
            if (const auto* reason = own.data.if_contains("reason")) out["reason"] = *reason;
        }
        return to_json_text(out);
    }

    asio::awaitable<void> keep(Context ctx) {
        while (true) {
            const auto within = ctx.without_deadline().with_deadline(clock.steady() + options.ttl / 2);
            if (lease == 0) {
                if (const auto granted = co_await store.grant(within, options.ttl); granted.ok()) {
                    lease = *granted;
                    heard = clock.steady();
                    sign.clear();
                    written.clear();
                    for (const auto& [key, said] : words) dirty.insert(key);
                }
            } else if (const auto kept = co_await store.keep_alive(within, lease); kept.ok()) {
                heard = clock.steady();
            } else if (kept.error().code == Code::not_found) {
                lease = 0;
                continue;
            }
            lookout.hear_peers(clock.steady() - heard < options.ttl);
            look_over();
            to_write.notify_all();
            if (!(co_await clock.sleep(options.ttl / 3)).ok()) co_return;
        }
    }

    asio::awaitable<void> write(Context ctx) {
        while ((co_await to_write.wait(ctx)).ok()) {
            if (!(co_await clock.sleep(options.gather)).ok()) co_return;
            while (lease != 0 && (sign != sign_of_life() || (!dirty.empty() && !others.empty()))) {
                const auto done = co_await write_some(ctx);
                if (done.ok()) continue;
                if (done.error().code == Code::cancelled) co_return;
                log::debug(ctx, "what this server finds waits to be told to others: {}", done.error().text());
                if (!(co_await clock.sleep(pause_after_failure)).ok()) co_return;
                break;
            }
        }
    }

    Task<Unit> write_some(Context ctx) {
        store::Transaction transaction;
        auto next = sign_of_life();
        if (next != sign) transaction.put(own_key(), next, lease);
        std::vector<std::string> now;
        while (!dirty.empty() && !others.empty() && now.size() < words_at_once)
            now.push_back(std::move(dirty.extract(dirty.begin()).value()));
        std::vector<std::string> put, removed;
        for (const auto& key : now) {
            const auto at = own_key() + "/" + key;
            const auto said = words.find(key);
            const bool tell = said != words.end() && (ready || said->second.word.is_known()) && at.size() <= store::max_key_size;
            if (tell) {
                transaction.put(at, text_of(said->second.word), lease);
                put.push_back(key);
            } else if (written.contains(key)) {
                transaction.remove(at);
                removed.push_back(key);
            }
        }
        if (transaction.changes.empty()) co_return Unit{};
        const auto under = lease;
        auto applied = co_await store.apply(ctx, std::move(transaction));
        if (!applied.ok()) {
            for (auto& key : now) dirty.insert(std::move(key));
            if (applied.error().code == Code::not_found && lease == under) lease = 0; // it has expired
            co_return std::move(applied).error();
        }
        if (lease != under) co_return Unit{};
        sign = std::move(next);
        for (auto& key : put) written.insert(std::move(key));
        for (const auto& key : removed) written.erase(key);
        co_return Unit{};
    }

    store::Store& store;
    Clock& clock;
    health::Lookout& lookout;
    Options options;
    Notifier to_write;
    std::shared_ptr<void> observed;
    std::set<std::string> others; ///< that are there
    health::Diagnosis own;
    bool ready = false;
    std::size_t targets = 0;                     ///< as told
    std::unordered_set<std::string> known;       ///< targets
    std::unordered_map<std::string, Said> words; ///< of what is not well
    std::set<std::string> dirty;
    std::unordered_set<std::string> written; ///< under the present lease
    std::string sign;
    store::LeaseId lease = 0;
    SteadyTime began, heard;
};

Peers::Peers(asio::any_io_executor executor, store::Store& store, Clock& clock, health::Lookout& lookout, Options options)
    : state_(std::make_shared<State>(std::move(executor), store, clock, lookout, std::move(options))) {
    auto* state = state_.get();
    lookout.tell_others([state](const std::string& key, const health::Word* word) { state->note(key, word); },
                        [state](const health::Diagnosis& own) {
                            state->own = own;
                            state->to_write.notify_all();
                        });
    state->observed = store.observe(peers_prefix, [state](const store::Event& event) { state->take(event); });
}

Peers::~Peers() {
    state_->observed.reset();
    state_->lookout.tell_others({}, {});
}

asio::awaitable<void> Peers::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    state->began = state->heard = state->clock.steady();
    TaskGroup group(co_await asio::this_coro::executor);
    group.spawn(state->keep(ctx));
    group.spawn(state->write(ctx));
    Notifier never(co_await asio::this_coro::executor);
    std::ignore = co_await never.wait(ctx.without_deadline());
    co_await group.stop();
    if (state->lease != 0)
        std::ignore = co_await state->store.revoke(
            ctx.without_deadline().with_deadline(state->clock.steady() + std::chrono::seconds(2)), state->lease);
}

} // namespace orrery::gslb
