#pragma once

#include "jobs/executor.h"
#include "net/http_client.h"

#include <memory>

namespace orrery::drivers {

/// `run: {http: {url: ..., method: POST, json: {...}}}`: a call to an API from the server. The status decides; values for later
/// tasks are taken from the JSON answer. Writes carry the attempt's id as Idempotency-Key. Nothing outlives the server: after a
/// crash a GET or HEAD is made again, of anything else nobody knows. Loop thread only.
std::unique_ptr<jobs::Executor> http_executor(asio::any_io_executor loop, net::HttpClient& client);

} // namespace orrery::drivers
