// The connection that keeps the copy current: one list at one revision, then a watch, for the life of the store.

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

/// The end of the range of keys that start with `prefix`.
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
    ActiveCall active(*this);
    pb::RangeRequest request;
    request.set_key(after.empty() ? path(prefix) : path(after) + '\0');
    request.set_range_end(range_end_of(path(prefix)));
    request.set_limit(static_cast<std::int64_t>(limit));
    request.set_keys_only(values == Values::no);
    CO_TRY(auto found, (co_await call_with_retry<pb::RangeRequest, pb::RangeResponse>(
                           ctx, std::move(request),
                           [](MemberConnection& connection, auto& c, auto done) {
                               connection.kv->async()->Range(&c.context, &c.request, &c.response, std::move(done));
                           },
                           10s)));
    Page page;
    page.revision = found.header().revision();
    for (auto& kv : *found.mutable_kvs()) page.records.push_back(record_of(kv, options_.prefix.size()));
    if (found.more() && !page.records.empty()) page.next = page.records.back()->key;
    co_return page;
}

asio::awaitable<void> Engine::run_watch() {
    // Ends through `stopping_`, which every step checks.
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto ctx = Context::background();
    Duration pause = 10ms;
    bool reported = false;
    while (!stopping_ && !fatal_error_) {
        const auto generation = members_->generation();
        const auto connects = counts_.connects;
        auto ended = co_await list_and_watch();
        if (stream_) {
            stream_->cancel();
            co_await stream_->finished();
            stream_.reset();
        }
        const bool was_connected = connected_;
        connected_ = false;
        partial_events_.clear();
        if (stopping_ || fatal_error_) break;
        // If `abandon_watch` ended the watch, it has recorded the reason.
        if (!ended.ok() && generation == members_->generation()) record_failure(ended.error(), false);
        if (counts_.connects > connects) {
            pause = 10ms;
            reported = false;
        }
        if (was_connected)
            log::info(ctx, "etcd watch ended, reconnecting: reason={}", last_failure_);
        else if (!reported && unavailable_since_ && std::chrono::steady_clock::now() - *unavailable_since_ > options_.retry_time) {
            log::warn(ctx, "etcd is unreachable, refusing writes: reason={} read_revision={}", last_failure_, mirror_.revision());
            reported = true;
        }
        changed_.notify_all();
        members_->switch_member(generation);
        ++counts_.failovers;
        std::ignore = co_await real_clock().sleep(jittered(pause));
        pause = std::min<Duration>(pause * 2, 500ms);
    }
    if (fatal_error_) {
        if (listed_) log::error(ctx, "{}", fatal_error_->text()); // before the first list, `start` returns the error
        revision_waiters_.close();
    }
    changed_.notify_all();
}

Task<Unit> Engine::list_and_watch() {
    const auto ctx = Context::background().with_timeout(options_.dial_timeout);
    CO_TRY(std::ignore, co_await check_identity(ctx));
    if (!listed_) {
        CO_TRY(std::ignore, co_await list(Context::background().with_timeout(10min)));
    }
    if (stopping_) co_return Unit{};
    stream_ = std::make_shared<Stream>(executor_);
    stream_generation_ = members_->generation();
    members_->prepare(stream_->context());
    auto connection = members_->watch_connection();
    stream_->open(
        [connection](grpc::ClientContext& context, auto& reactor) { connection->watch->async()->Watch(&context, &reactor); });
    pb::WatchRequest request;
    auto& create = *request.mutable_create_request();
    create.set_key(options_.prefix);
    create.set_range_end(cached_range_end());
    create.set_start_revision(mirror_.revision() + 1);
    create.set_progress_notify(true);
    create.set_fragment(true);
    stream_->write(std::move(request));
    auto first = co_await stream_->next(Context::background().with_timeout(options_.dial_timeout));
    if (!first.ok()) co_return std::move(first).error().within(fmt::format("the watch on etcd at {}", members_->address()));
    if (stopping_) co_return Unit{};
    if (!first->created())
        co_return Error{Code::unavailable, fmt::format("etcd at {} did not create the watch", members_->address())};
    connected_ = true;
    unavailable_since_.reset();
    unreachable_.clear();
    ++counts_.connects;
    changed_.notify_all();
    if (first->canceled()) handle_watch_response(*first);
    co_return co_await read_watch();
}

Task<Unit> Engine::check_identity(Context ctx) {
    // One linearizable read shows that the member is up, has a leader, and holds this server's store. In an empty store it creates
    // the identity.
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
        auto outcome = co_await call_once<pb::TxnRequest, pb::TxnResponse>(
            call, *ctx.deadline(), [](MemberConnection& connection, auto& c, auto done) {
                connection.kv->async()->Txn(&c.context, &c.request, &c.response, std::move(done));
            });
        if (outcome.log_in_again && logins < 2) {
            auto logged_in = co_await members_->log_in(ctx);
            if (logged_in.ok()) continue;
            if (logged_in.error().code == Code::unauthenticated && identity_.empty()) fatal_error_ = logged_in.error();
            co_return logged_in.error();
        }
        if (outcome.status == CallOutcome::Status::refused && identity_.empty()) fatal_error_ = outcome.error;
        if (outcome.status != CallOutcome::Status::done) co_return outcome.error;
        const auto& response = call->response;
        const Error wrong_store{
            Code::unavailable,
            fmt::format("etcd at {} does not hold the store that this server was started with", members_->address()),
            "restore etcd, or restart the server to use the store that is there now"};
        if (!response.succeeded()) {
            if (identity_.empty()) continue; // created just now: read it back
            fatal_error_ = wrong_store;
            co_return wrong_store;
        }
        const auto& found = response.responses(0).response_range();
        const auto name = found.kvs_size() > 0 ? found.kvs(0).value() : std::string();
        if ((!identity_.empty() && name != identity_) || response.header().revision() < mirror_.revision()) {
            fatal_error_ = wrong_store;
            co_return wrong_store;
        }
        if (!options_.allow_incomplete && response.responses(1).response_range().kvs_size() > 0 && identity_.empty()) {
            fatal_error_ = incomplete_migration_error(fmt::format("the store below {} on etcd", options_.prefix),
                                                      fmt::format("etcdctl del --prefix {}", options_.prefix));
            co_return *fatal_error_;
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
        request.set_range_end(cached_range_end());
        request.set_limit(limit);
        request.set_revision(at);
        auto page = co_await call_with_retry<pb::RangeRequest, pb::RangeResponse>(
            ctx, std::move(request),
            [](MemberConnection& connection, auto& c, auto done) {
                connection.kv->async()->Range(&c.context, &c.request, &c.response, std::move(done));
            },
            30s);
        if (!page.ok() && page.error().code == Code::compacted) { // during the list: start again
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
        // Adapt the limit to pages of a few megabytes.
        if (bytes > (8u << 20))
            limit = std::max<std::int64_t>(limit / 4, 8);
        else if (bytes < (1u << 20))
            limit = std::min<std::int64_t>(limit * 2, 10'000);
    }
    if (stopping_) co_return Unit{};
    ++counts_.lists;
    for (auto& [number, pending] : pending_writes_)
        if (pending->applied == 0) pending->history_gap = true;
    mirror_.reset(std::move(records), at);
    listed_ = true;
    revision_waiters_.reached(at);
    co_return Unit{};
}

Task<Unit> Engine::read_watch() {
    while (!stopping_) {
        auto response = co_await stream_->next(Context::background());
        if (!response.ok())
            co_return Error{Code::unavailable, fmt::format("etcd at {}: {}", members_->address(), response.error().message)};
        last_response_at_ = std::chrono::steady_clock::now();
        handle_watch_response(*response);
        if (response->canceled())
            co_return Error{Code::unavailable,
                            fmt::format("etcd at {} ended the watch: {}", members_->address(),
                                        response->cancel_reason().empty() ? "compacted" : response->cancel_reason())};
    }
    co_return Unit{};
}

void Engine::handle_watch_response(pb::WatchResponse& response) {
    if (response.canceled()) {
        if (response.compact_revision() > 0) listed_ = false; // the missed changes are compacted: list again
        return;
    }
    for (auto& event : *response.mutable_events()) partial_events_.push_back(std::move(event));
    apply_events(!response.fragment());
    // A progress notification: no key of this store changed up to its revision.
    if (response.events().empty() && !response.created() && !response.fragment() &&
        response.header().revision() > mirror_.revision()) {
        mirror_.apply(response.header().revision(), {});
        revision_waiters_.reached(mirror_.revision());
    }
}

void Engine::apply_events(bool all) {
    if (partial_events_.empty()) return;
    // The last revision of a fragment may continue in the next one.
    const Revision last = partial_events_.back().kv().mod_revision();
    std::size_t taken = 0;
    while (taken < partial_events_.size()) {
        const Revision revision = partial_events_[taken].kv().mod_revision();
        if (!all && revision == last) break;
        std::vector<Event> events;
        for (; taken < partial_events_.size() && partial_events_[taken].kv().mod_revision() == revision; ++taken) {
            auto& event = partial_events_[taken];
            const auto key = std::string_view(event.kv().key()).substr(options_.prefix.size());
            if (key.starts_with('/')) {
                handle_internal_key(key, event.kv());
                continue;
            }
            const bool removed = event.type() == pb::Event::DELETE;
            events.push_back(Event{revision, std::string(key),
                                   removed ? nullptr : record_of(*event.mutable_kv(), options_.prefix.size()), nullptr});
        }
        if (revision <= mirror_.revision()) continue;
        if (revision != mirror_.revision() + 1) foreign_writes_until_ = std::chrono::steady_clock::now() + 10s;
        mirror_.apply(revision, std::move(events));
    }
    partial_events_.erase(partial_events_.begin(), partial_events_.begin() + static_cast<std::ptrdiff_t>(taken));
    revision_waiters_.reached(mirror_.revision());
}

void Engine::handle_internal_key(std::string_view key, const pb::KeyValue& kv) {
    if (key == write_marker_key) {
        const std::string_view mark = kv.value();
        if (mark.size() <= session_.size() || !mark.starts_with(session_)) return;
        std::uint64_t number = 0;
        std::from_chars(mark.data() + session_.size() + 1, mark.data() + mark.size(), number);
        if (auto found = pending_writes_.find(number); found != pending_writes_.end()) found->second->applied = kv.mod_revision();
    } else if (key.starts_with(session_key) && key.substr(session_key.size()) == session_) {
        if (kv.version() > 0) session_revision_ = std::max(session_revision_, static_cast<Revision>(kv.mod_revision()));
    }
}

} // namespace orrery::store::etcd
