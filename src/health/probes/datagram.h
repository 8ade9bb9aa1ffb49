#pragma once

#include "core/task.h"
#include "health/observation.h"
#include "net/outbound.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

/// Private to the probes that send datagrams.
namespace orrery::health {

constexpr int datagram_attempts = 3; ///< within the deadline of a probe

/// Judges one reply. True: it is the expected one, and `seen` is filled in. False: wait for another.
using ReplyJudge = std::function<bool(std::string_view reply, Observation& seen)>;

/// Sends the request up to three times until the judge accepts a reply or the deadline passes. `what` begins the text of an error.
asio::awaitable<Observation> exchange_datagrams(Context ctx, std::string host, std::uint16_t port, std::string request,
                                                ReplyJudge judge, std::string what, net::OutboundRulesPtr outbound);

/// What a socket error (errno) means: a fault of the target, or a local error.
Outcome outcome_of_datagram(int error);
/// For the ids and nonces of requests.
std::uint64_t random_number();

} // namespace orrery::health
