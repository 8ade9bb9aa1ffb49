#pragma once

#include "drivers/ssh/remote.h"
#include "jobs/artefacts.h"
#include "jobs/executor.h"

#include <filesystem>
#include <initializer_list>
#include <memory>

namespace orrery::drivers {

struct SshExecutorOptions {
    std::filesystem::path content;                ///< files that jobs may push lie below this folder of the server
    Duration patience = std::chrono::minutes(10); ///< with a host that went away, where the attempt has no timeout of its own
};

/// `run: {ssh: ...}`: commands, scripts, files and idempotent blocks on a machine, as attempts that outlive the server.
/// docs/executors.md has the body by example. `remote` and `pool` (for reading content) must outlive it. Loop thread only.
std::unique_ptr<jobs::Executor> ssh_executor(RemoteAttempts& remote, Pool& pool, SshExecutorOptions options);

/// Fetches artefacts over the connections of attempts, as whoever the task ran as.
std::unique_ptr<jobs::Collector> ssh_collector(RemoteAttempts& remote);

/// How an attempt on a host ended, in the engine's words. `out` is where its errors' last line may be found.
jobs::Outcome outcome_of(const RemoteEnd& end, std::string_view last_error, const std::function<bool(int)>& succeeded);
/// An Error that came before anything was begun, in the engine's words.
jobs::Outcome outcome_of(const Error& error);
/// What to tell the engine of an attempt that was looked for and has no result; nothing where it has one.
std::optional<Result<jobs::Reattached>> without_result(const Result<RemoteEnd>& found);

/// The one machine of an attempt; `executor` is for the words where there are several.
Result<resource::Node> only_node_of(const jobs::Attempt& attempt, std::string_view executor);
/// What its body says of sudo, else what the node says.
bool sudo_of(const jobs::Attempt& attempt, const resource::Node& node);
/// `invalid` where one of these fields of its body names a secret: they become arguments of a process, which everybody there can
/// read.
Result<Unit> no_secret_in(const jobs::Attempt& attempt, std::initializer_list<std::string_view> fields);
/// How long a host that cannot be reached is tried again.
Duration patience_of(const jobs::Attempt& attempt, Duration otherwise);

} // namespace orrery::drivers
