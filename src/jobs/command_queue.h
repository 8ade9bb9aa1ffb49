#pragma once

#include "jobs/live_job.h"

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// A command of an operator as the leader reads it from the store.
struct ReceivedCommand {
    std::string key, job;
    JobCommand command;
    std::string actor, context;
};

/// Commands for jobs travel through the store, so that every server accepts them and the leader executes them:
///
///     jobs.orders/<job>/<time-ordered id>     {"action", "task", "digest", "reason", "undo", "actor", "context"}
///
/// The leader removes the record when it has executed the command, or replaces it by {"error"}. Private to the engine.
class CommandQueue {
public:
    /// `on_received` is called when `take_received` has something new.
    CommandQueue(EngineContext& engine, std::function<void()> on_received)
        : engine_(engine), on_received_(std::move(on_received)) {}

    /// On the leader: receives commands until it is cancelled.
    asio::awaitable<void> run(Context ctx);
    std::deque<ReceivedCommand> take_received() { return std::exchange(received_, {}); }
    void clear() { received_.clear(); }

    /// On any server: stores a command and waits until the leader has executed it. Returns after ten seconds without a leader: the
    /// command stays stored, and the next leader executes it.
    Task<Unit> submit(Context ctx, std::string job, JobCommand command);

    /// The record of a refused command.
    static std::string refusal(const Error& error);
    /// Reads a stored command; nothing where it is not one. Accepts `what` and `because`, which earlier versions wrote.
    static std::optional<ReceivedCommand> parse(std::string_view key, std::string_view value);

private:
    void receive(const store::Record& record);
    asio::awaitable<void> on_changes(std::vector<store::Event> changes);

    EngineContext& engine_;
    std::function<void()> on_received_;
    std::deque<ReceivedCommand> received_;
};

} // namespace orrery::jobs
