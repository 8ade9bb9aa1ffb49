#pragma once

#include "net/tls.h"

#include <boost/asio/ssl/context.hpp>

namespace orrery::net {

/// The definition behind tls.h, private to net.
class TlsContext {
public:
    explicit TlsContext(boost::asio::ssl::context::method method) : context(method) {}
    boost::asio::ssl::context context;
};

} // namespace orrery::net
