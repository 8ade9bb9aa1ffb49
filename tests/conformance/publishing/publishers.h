#pragma once

#include "gslb/publish/dns_provider.h"
#include "net/http_client.h"

#include <boost/json/value.hpp>

#include <memory>

namespace orrery::conformance {

/// The publisher that the settings describe: {"publisher": "powerdns", "url": ..., "key": ...} and the like.
Result<std::unique_ptr<gslb::DnsProvider>> make_publisher(net::HttpClient& client, const boost::json::value& settings);

} // namespace orrery::conformance
