#pragma once

#include "net/tls.h"

#include <boost/asio/ssl/context.hpp>

namespace orrery::net {

/// For the wires only: see tls.h.
class TlsContext {
public:
    explicit TlsContext(boost::asio::ssl::context::method method) : context(method) {}
    boost::asio::ssl::context context;
};

} // namespace orrery::net
