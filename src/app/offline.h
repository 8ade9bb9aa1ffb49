#pragma once

#include "cli/cli.h"
#include "core/task.h"
#include "resource/kind.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace orrery::app {

/// `orrery store verify FILE` and `orrery store restore BACKUP [--force] [settings of the server]`: on files, without a server.
int verify_store_file(std::vector<std::string> arguments, cli::Streams& streams);
int restore_store_file(std::vector<std::string> arguments, cli::Streams& streams);
/// `orrery store reset-admin [--password-file FILE] [settings of the server]`: a new password for admin, written to the store
/// directly. The server must be stopped: it holds the lock of its SQLite file.
int reset_admin(std::vector<std::string> arguments, cli::Streams& streams);

/// The kinds that commands without a server need: users, tokens and events.
resource::Registry offline_identity_kinds();

/// Runs a task on the loop until it ends. Exceptions of the task are rethrown.
template <class T> Result<T> run_to_end(asio::io_context& loop, Task<T> task) {
    Result<T> out;
    asio::co_spawn(loop, std::move(task), [&](std::exception_ptr failure, Result<T> result) {
        if (failure) std::rethrow_exception(failure);
        out = std::move(result);
    });
    loop.run();
    return out;
}

} // namespace orrery::app
