#pragma once

#include "jobs/executor.h"
#include "net/http_client.h"

#include <memory>

namespace orrery::drivers {

/// The executor of `run: {http: {url: ..., method: POST, json: {...}}}`: a call to an HTTP API, made by the server. The status
/// decides the outcome; values for later tasks come from the JSON answer. Writes carry the attempt's id as Idempotency-Key. A call
/// does not survive a restart of the server: a GET or HEAD is repeated, and any other call is lost. Loop thread only.
std::unique_ptr<jobs::Executor> http_executor(asio::any_io_executor loop, net::HttpClient& client);

} // namespace orrery::drivers
