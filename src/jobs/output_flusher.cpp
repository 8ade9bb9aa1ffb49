#include "jobs/output_flusher.h"

#include "core/log.h"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>

#include <algorithm>

namespace orrery::jobs {

void OutputFlusher::watch(const std::shared_ptr<JobRun>& run, const std::shared_ptr<OutputLog::Sink>& sink) {
    sink->on_pending = [this, run, weak = std::weak_ptr(sink)] {
        if (auto alive = weak.lock()) unflushed_.emplace_back(run, std::move(alive));
        wake_.notify_all();
    };
}

asio::awaitable<void> OutputFlusher::run(Context ctx) {
    constexpr auto interval = std::chrono::milliseconds(200);
    for (;;) {
        while (unflushed_.empty()) {
            auto waited = co_await wake_.wait(ctx);
            if (!waited.ok()) co_return;
        }
        for (auto& [run, sink] : std::exchange(unflushed_, {})) {
            auto flushed = co_await log_.flush(run->context(), sink, OutputLog::When::soon);
            if (!flushed.ok() && flushed.error().code == Code::cancelled) co_return;
            if (!flushed.ok())
                log::warn(run->context(), "output not stored yet job={} error=\"{}\"", run->name, flushed.error().text());
            if (!flushed.ok() && shared_ && flushed.error().code == Code::conflict) co_return; // another server leads
            run->note_change();
            if (sink->has_pending() && sink->on_pending) unflushed_.emplace_back(run, sink);
        }
        auto slept = co_await engine_.clock.sleep(interval);
        if (!slept.ok()) co_return;
    }
}

asio::awaitable<OutputLog::StoredOutput> OutputFlusher::stored(Context ctx, OutputLog::Name name) {
    constexpr auto retry_after = std::chrono::seconds(1);
    for (;;) {
        auto stored = co_await log_.stored(ctx, name);
        if (stored.ok()) co_return std::move(*stored);
        if (!shared_) co_return OutputLog::StoredOutput{};
        log::warn(ctx, "stored output cannot be read retry_in={} error=\"{}\"", to_text(retry_after), stored.error().text());
        if (!(co_await engine_.clock.sleep(retry_after)).ok()) throw boost::system::system_error(asio::error::operation_aborted);
    }
}

asio::awaitable<void> OutputFlusher::flush_all(Context ctx, RunningAttempt& running) {
    for (Duration wait = std::chrono::milliseconds(100);; wait = std::min<Duration>(wait * 2, std::chrono::seconds(5))) {
        auto flushed = co_await log_.flush(ctx, running.sink, OutputLog::When::now);
        if (flushed.ok()) co_return;
        const auto code = flushed.error().code;
        // The server that leads now re-attaches to the attempt and reads its output.
        if (shared_ && (code == Code::conflict || code == Code::cancelled))
            throw boost::system::system_error(asio::error::operation_aborted);
        log::warn(ctx, "output not stored task={} error=\"{}\"", running.attempt.task, flushed.error().text());
        if (!shared_ || code == Code::invalid || code == Code::too_large) co_return;
        if (!(co_await engine_.clock.sleep(wait)).ok()) throw boost::system::system_error(asio::error::operation_aborted);
    }
}

} // namespace orrery::jobs
