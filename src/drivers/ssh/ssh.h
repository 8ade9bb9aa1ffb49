#pragma once

#include "drivers/ssh/remote.h"
#include "jobs/artefacts.h"
#include "jobs/executor.h"

#include <filesystem>
#include <initializer_list>
#include <memory>

namespace orrery::drivers {

struct SshExecutorOptions {
    std::filesystem::path content; ///< the folder of files that jobs may push
    Duration retry_budget =
        std::chrono::minutes(10); ///< how long an unreachable host is tried again, for attempts without a timeout
};

/// `run: {ssh: ...}`: commands, scripts, files and idempotent blocks on a node, as attempts that survive the server.
/// docs/executors.md describes the body. `remote` and `pool` (for reading content) must outlive it. Loop thread only.
std::unique_ptr<jobs::Executor> ssh_executor(RemoteAttempts& remote, Pool& pool, SshExecutorOptions options);

/// Fetches artefacts over the connections of attempts, as the user that the task ran as.
std::unique_ptr<jobs::ArtefactFetcher> ssh_artefact_fetcher(RemoteAttempts& remote);

/// The outcome of an attempt on a host. `last_error`: the last line of its errors, or "".
jobs::Outcome outcome_of(const RemoteEnd& end, std::string_view last_error, const std::function<bool(int)>& succeeded);
/// The outcome for an Error that came before anything was started.
jobs::Outcome outcome_of(const Error& error);
/// The result of a re-attach for an attempt without an outcome; nothing where it has one.
std::optional<Result<jobs::Reattached>> without_result(const Result<RemoteEnd>& found);

/// The only node of an attempt. `invalid` where there are several; `executor` is for the message.
Result<resource::Node> only_node_of(const jobs::Attempt& attempt, std::string_view executor);
/// `sudo` of the body, else of the node.
bool sudo_of(const jobs::Attempt& attempt, const resource::Node& node);
/// `invalid` where one of these fields of the body holds a secret: they become arguments of a process, which every user of the host
/// can read.
Result<Unit> no_secret_in(const jobs::Attempt& attempt, std::initializer_list<std::string_view> fields);
/// How long an unreachable host is tried again: the timeout of the attempt, else `default_budget`.
Duration retry_budget_of(const jobs::Attempt& attempt, Duration default_budget);

} // namespace orrery::drivers
