#include "publishers.h"

#include "core/clock.h"
#include "drivers/designate/designate.h"
#include "drivers/externaldns/externaldns.h"
#include "drivers/powerdns/powerdns.h"
#include "drivers/rest/rest.h"
#include "drivers/rfc2136/rfc2136.h"

#include <fmt/format.h>

namespace orrery::conformance {

using namespace drivers;

Result<std::unique_ptr<gslb::DnsProvider>> make_publisher(net::HttpClient& client, const boost::json::value& settings) {
    const auto which = text_at(as_object(settings), "publisher");
    if (which == "powerdns")
        return powerdns_publisher(client, {.url = text_at(as_object(settings), "url"), .key = text_at(as_object(settings), "key")});
    if (which == "rfc2136") {
        Rfc2136Options options{.server = text_at(as_object(settings), "server")};
        if (const auto key = text_at(as_object(settings), "key"); !key.empty()) {
            TRY(options.key, tsig_key(key, text_at(as_object(settings), "algorithm"), text_at(as_object(settings), "secret")));
        }
        return rfc2136_publisher(real_clock(), std::move(options));
    }
    if (which == "externaldns") return externaldns_publisher(client, {.url = text_at(as_object(settings), "url")});
    if (which == "designate") {
        OpenstackLogin login;
        login.url = text_at(as_object(settings), "keystone");
        login.user = text_at(as_object(settings), "user");
        login.password = text_at(as_object(settings), "password");
        login.project = text_at(as_object(settings), "project");
        login.credential = text_at(as_object(settings), "credential");
        login.credential_secret = text_at(as_object(settings), "credential_secret");
        TRY(auto session, OpenstackSession::make(client, real_clock(), "designate.keystone", std::move(login)));
        return designate_publisher(std::move(session), {.endpoint = text_at(as_object(settings), "endpoint")});
    }
    return Error{Code::invalid, fmt::format("there is no publisher \"{}\"", which)};
}

} // namespace orrery::conformance
