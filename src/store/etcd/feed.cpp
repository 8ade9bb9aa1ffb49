// How the copy follows the cluster: one list at one revision, then a watch, for as long as the store lives.

#include "core/ids.h"
#include "core/log.h"
#include "store/etcd/engine.h"
#include "store/migrate.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <charconv>
#include <random>

namespace orrery::store::etcd {

using namespace std::chrono_literals;

namespace {

/// The end of the range of all keys that begin with `prefix`, which is not all 0xff.
std::string range_end_of(std::string prefix) {
    while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
    if (!prefix.empty()) ++prefix.back();
    return prefix;
}

RecordPtr record_of(pb::KeyValue& kv, std::size_t prefix_size) {
    auto record = std::make_shared<Record>();
    record->key = kv.key().substr(prefix_size);
    record->value = std::move(*kv.mutable_value());
    record->created = kv.create_revision();
    record->modified = kv.mod_revision();
    record->version = kv.version();
    record->lease = kv.lease();
    return record;
}

Duration jittered(Duration pause) {
    static std::mt19937 random{std::random_device{}()};
    return std::chrono::duration_cast<Duration>(pause * std::uniform_real_distribution<>(0.5, 1.0)(random));
}

} // namespace

Task<Page> Engine::fetch(Context ctx, std::string prefix, std::size_t limit, std::string after, Values values) {
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    Visit visit(*this);
    pb::RangeRequest request;
    request.set_key(after.empty() ? path(prefix) : path(after) + '\0');
    request.set_range_end(range_end_of(path(prefix)));
    request.set_limit(static_cast<std::int64_t>(limit));
    request.set_keys_only(values == Values::no);
    CO_TRY(auto found, (co_await ask<pb::RangeRequest, pb::RangeResponse>(
                           ctx, std::move(request),
                           [](Line& line, auto& c, auto done) {
                               line.kv->async()->Range(&c.context, &c.request, &c.response, std::move(done));
                           },
                           10s)));
    Page page;
    page.revision = found.header().revision();
    for (auto& kv : *found.mutable_kvs()) page.records.push_back(record_of(kv, options_.prefix.size()));
    if (found.more() && !page.records.empty()) page.next = page.records.back()->key;
    co_return page;
}

asio::awaitable<void> Engine::feed() {
    // Ends by `stopping_`, which every step looks at.
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto ctx = Context::background();
    Duration pause = 10ms;
    bool said = false;
    while (!stopping_ && !fatal_) {
        const auto generation = members_->generation();
        const auto connects = counts_.connects;
        auto ended = co_await follow();
        if (stream_) {
            stream_->cancel();
            co_await stream_->finished();
            stream_.reset();
        }
        const bool was_connected = connected_;
        connected_ = false;
        pending_.clear();
        if (stopping_ || fatal_) break;
        if (!ended.ok()) note_loss(ended.error(), false);
        if (counts_.connects > connects) {
            pause = 10ms;
            said = false;
        }
        if (was_connected)
            log::info(ctx, "the watch on etcd ended ({}); going on with another member", lost_reason_);
        else if (!said && lost_since_ && std::chrono::steady_clock::now() - *lost_since_ > options_.patience) {
            log::warn(ctx, "etcd is out of reach ({}); writes are refused, reads go on at revision {}", lost_reason_,
                      mirror_.revision());
            said = true;
        }
        changed_.notify_all();
        members_->leave(generation);
        ++counts_.failovers;
        std::ignore = co_await real_clock().sleep(jittered(pause));
        pause = std::min<Duration>(pause * 2, 500ms);
    }
    if (fatal_) {
        if (listed_) log::error(ctx, "{}", fatal_->text()); // before that, whoever opens the store is told
        gate_.close();
    }
    changed_.notify_all();
}

Task<Unit> Engine::follow() {
    const auto ctx = Context::background().with_timeout(options_.dial_timeout);
    CO_TRY(std::ignore, co_await greet(ctx));
    if (!listed_) {
        CO_TRY(std::ignore, co_await list(Context::background().with_timeout(10min)));
    }
    if (stopping_) co_return Unit{};
    stream_ = std::make_shared<Stream>(executor_);
    stream_generation_ = members_->generation();
    members_->prepare(stream_->context());
    auto line = members_->watch_line();
    stream_->open([line](grpc::ClientContext& context, auto& reactor) { line->watch->async()->Watch(&context, &reactor); });
    pb::WatchRequest request;
    auto& create = *request.mutable_create_request();
    create.set_key(options_.prefix);
    create.set_range_end(copied_end());
    create.set_start_revision(mirror_.revision() + 1);
    create.set_progress_notify(true);
    create.set_fragment(true);
    stream_->write(std::move(request));
    auto first = co_await stream_->next(Context::background().with_timeout(options_.dial_timeout));
    if (!first.ok()) co_return std::move(first).error().within(fmt::format("the watch on etcd at {}", members_->address()));
    if (stopping_) co_return Unit{};
    if (!first->created())
        co_return Error{Code::unavailable, fmt::format("etcd at {} did not begin the watch", members_->address())};
    connected_ = true;
    lost_since_.reset();
    unreachable_.clear();
    ++counts_.connects;
    changed_.notify_all();
    if (first->canceled()) take(*first);
    co_return co_await pump();
}

Task<Unit> Engine::greet(Context ctx) {
    // One linearizable read: the member is up, has a leader, and holds the store we mean. It makes the store's name where there is
    // none.
    for (int logins = 0;; ++logins) {
        auto call = std::make_shared<TxnCall>();
        auto& compare = *call->request.add_compare();
        compare.set_key(path(identity_key));
        compare.set_target(pb::Compare::CREATE);
        compare.set_result(pb::Compare::GREATER);
        compare.set_create_revision(0);
        call->request.add_success()->mutable_request_range()->set_key(path(identity_key));
        call->request.add_success()->mutable_request_range()->set_key(path(migration_key));
        if (identity_.empty()) {
            auto& put = *call->request.add_failure()->mutable_request_put();
            put.set_key(path(identity_key));
            put.set_value(random_id());
        }
        auto outcome = co_await attempt<pb::TxnRequest, pb::TxnResponse>(call, *ctx.deadline(), [](Line& line, auto& c, auto done) {
            line.kv->async()->Txn(&c.context, &c.request, &c.response, std::move(done));
        });
        if (outcome.log_in_again && logins < 2) {
            auto entered = co_await members_->log_in(ctx);
            if (entered.ok()) continue;
            if (entered.error().code == Code::unauthenticated && identity_.empty()) fatal_ = entered.error();
            co_return entered.error();
        }
        if (outcome.what == Outcome::What::refused && identity_.empty()) fatal_ = outcome.error;
        if (outcome.what != Outcome::What::done) co_return outcome.error;
        const auto& response = call->response;
        const Error stranger{Code::unavailable,
                             fmt::format("the etcd at {} does not hold the store this server was started on", members_->address()),
                             "restart the server to begin anew on what is there now, or restore etcd"};
        if (!response.succeeded()) {
            if (identity_.empty()) continue; // made just now; read it back
            fatal_ = stranger;
            co_return stranger;
        }
        const auto& found = response.responses(0).response_range();
        const auto name = found.kvs_size() > 0 ? found.kvs(0).value() : std::string();
        if ((!identity_.empty() && name != identity_) || response.header().revision() < mirror_.revision()) {
            fatal_ = stranger;
            co_return stranger;
        }
        if (!options_.allow_incomplete && response.responses(1).response_range().kvs_size() > 0 && identity_.empty()) {
            fatal_ = incomplete_migration_error(fmt::format("the store below {} on etcd", options_.prefix),
                                                fmt::format("etcdctl del --prefix {}", options_.prefix));
            co_return *fatal_;
        }
        identity_ = name;
        co_return Unit{};
    }
}

Task<Unit> Engine::list(Context ctx) {
    std::vector<RecordPtr> records;
    Revision at = 0;
    std::string from = options_.prefix;
    std::int64_t limit = 256;
    for (bool more = true; more && !stopping_;) {
        pb::RangeRequest request;
        request.set_key(from);
        request.set_range_end(copied_end());
        request.set_limit(limit);
        request.set_revision(at);
        auto page = co_await ask<pb::RangeRequest, pb::RangeResponse>(
            ctx, std::move(request),
            [](Line& line, auto& c, auto done) { line.kv->async()->Range(&c.context, &c.request, &c.response, std::move(done)); },
            30s);
        if (!page.ok() && page.error().code == Code::compacted) { // while we were reading: begin again
            records.clear();
            at = 0;
            from = options_.prefix;
            continue;
        }
        if (!page.ok()) co_return page.error();
        if (at == 0) at = page->header().revision();
        std::size_t bytes = 0;
        for (auto& kv : *page->mutable_kvs()) {
            bytes += kv.value().size();
            from = kv.key() + '\0';
            if (std::string_view(kv.key()).substr(options_.prefix.size()).starts_with('/')) continue;
            records.push_back(record_of(kv, options_.prefix.size()));
        }
        more = page->more() && page->kvs_size() > 0;
        // Pages of some megabytes, whatever the size of values.
        if (bytes > (8u << 20))
            limit = std::max<std::int64_t>(limit / 4, 8);
        else if (bytes < (1u << 20))
            limit = std::min<std::int64_t>(limit * 2, 10'000);
    }
    if (stopping_) co_return Unit{};
    ++counts_.lists;
    for (auto& [number, underway] : underway_)
        if (underway->applied == 0) underway->blind = true;
    mirror_.reset(std::move(records), at);
    listed_ = true;
    gate_.reached(at);
    co_return Unit{};
}

Task<Unit> Engine::pump() {
    while (!stopping_) {
        auto response = co_await stream_->next(Context::background());
        if (!response.ok())
            co_return Error{Code::unavailable, fmt::format("etcd at {}: {}", members_->address(), response.error().message)};
        heard_at_ = std::chrono::steady_clock::now();
        take(*response);
        if (response->canceled())
            co_return Error{Code::unavailable,
                            fmt::format("etcd at {} ended the watch: {}", members_->address(),
                                        response->cancel_reason().empty() ? "it was compacted" : response->cancel_reason())};
    }
    co_return Unit{};
}

void Engine::take(pb::WatchResponse& response) {
    if (response.canceled()) {
        if (response.compact_revision() > 0) listed_ = false; // what we missed is gone: list again
        return;
    }
    for (auto& event : *response.mutable_events()) pending_.push_back(std::move(event));
    apply_pending(!response.fragment());
    // An empty answer is etcd's word that nothing of ours happened up to its revision.
    if (response.events().empty() && !response.created() && !response.fragment() &&
        response.header().revision() > mirror_.revision()) {
        mirror_.apply(response.header().revision(), {});
        gate_.reached(mirror_.revision());
    }
}

void Engine::apply_pending(bool all) {
    if (pending_.empty()) return;
    // The last revision of a fragment may go on in the next one.
    const Revision last = pending_.back().kv().mod_revision();
    std::size_t taken = 0;
    while (taken < pending_.size()) {
        const Revision revision = pending_[taken].kv().mod_revision();
        if (!all && revision == last) break;
        std::vector<Event> events;
        for (; taken < pending_.size() && pending_[taken].kv().mod_revision() == revision; ++taken) {
            auto& event = pending_[taken];
            const auto key = std::string_view(event.kv().key()).substr(options_.prefix.size());
            if (key.starts_with('/')) {
                see_hidden(key, event.kv());
                continue;
            }
            const bool removed = event.type() == pb::Event::DELETE;
            events.push_back(Event{revision, std::string(key),
                                   removed ? nullptr : record_of(*event.mutable_kv(), options_.prefix.size()), nullptr});
        }
        if (revision <= mirror_.revision()) continue;
        if (revision != mirror_.revision() + 1) strangers_until_ = std::chrono::steady_clock::now() + 10s;
        mirror_.apply(revision, std::move(events));
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(taken));
    gate_.reached(mirror_.revision());
}

void Engine::see_hidden(std::string_view key, const pb::KeyValue& kv) {
    if (key == mark_key) {
        const std::string_view mark = kv.value();
        if (mark.size() <= session_.size() || !mark.starts_with(session_)) return;
        std::uint64_t number = 0;
        std::from_chars(mark.data() + session_.size() + 1, mark.data() + mark.size(), number);
        if (auto found = underway_.find(number); found != underway_.end()) found->second->applied = kv.mod_revision();
    } else if (key.starts_with(session_key) && key.substr(session_key.size()) == session_) {
        if (kv.version() > 0) epoch_ = std::max(epoch_, static_cast<Revision>(kv.mod_revision()));
    }
}

} // namespace orrery::store::etcd
