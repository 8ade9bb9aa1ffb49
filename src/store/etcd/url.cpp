#include "core/truncate.h"
#include "core/url_text.h"
#include "store/etcd/etcd_store.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::store {

namespace {

Result<std::string> etcd_endpoint(std::string_view text) {
    const Error bad{Code::invalid, fmt::format("\"{}\" is not an etcd endpoint", truncate(text, 80)), "write it as host:port"};
    std::string_view port = "2379";
    std::string_view host = text;
    const auto bracket = text.rfind(']');
    const auto colon = text.rfind(':');
    if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
        host = text.substr(0, colon);
        port = text.substr(colon + 1);
    }
    if (host.empty() || port.empty() || port.size() > 5 || !std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; }))
        return bad;
    if (host.find_first_of("@/?# \t") != std::string_view::npos) return bad;
    if (host.front() != '[' && host.find(':') != std::string_view::npos) return bad; // an IPv6 address without its brackets
    const int number = std::stoi(std::string(port));
    if (number < 1 || number > 65535) return bad;
    return fmt::format("{}:{}", host, number);
}

} // namespace

Result<EtcdOptions> parse_etcd_url(std::string_view url) {
    EtcdOptions options;
    // First of all, and without repeating the URL: nothing below may show a password.
    if (url.find('@') != std::string_view::npos)
        return Error{Code::invalid, "the URL of etcd holds a user or a password, which would be stored and logged with it",
                     "leave them out, and set store.etcd.user and store.etcd.password_file"};
    if (url.starts_with("etcds://"))
        options.tls = true;
    else if (!url.starts_with("etcd://"))
        return Error{Code::invalid, fmt::format("\"{}\" is not the address of an etcd cluster", truncate(mask_userinfo(url), 120)),
                     "write it as etcd://host1:2379,host2:2379/prefix, or etcds:// for TLS"};
    url.remove_prefix(url.find("://") + 3);
    const auto slash = url.find('/');
    auto hosts = url.substr(0, slash);
    if (slash != std::string_view::npos && url.size() > slash + 1) {
        options.prefix = std::string(url.substr(slash));
        if (options.prefix.back() != '/') options.prefix += '/';
        if (options.prefix.find_first_of("?#") != std::string::npos || options.prefix.find("//") != std::string::npos)
            return Error{Code::invalid, fmt::format("\"{}\" is not a prefix for etcd", options.prefix), "use path segments only"};
    }
    for (;;) {
        const auto comma = hosts.find(',');
        TRY(auto endpoint, etcd_endpoint(hosts.substr(0, comma)));
        options.endpoints.push_back(std::move(endpoint));
        if (comma == std::string_view::npos) return options;
        hosts.remove_prefix(comma + 1);
    }
}

Result<Unit> check_etcd_plaintext(const EtcdOptions& options) {
    if (options.tls || options.allow_plaintext) return Unit{};
    for (const auto& endpoint : options.endpoints)
        if (!is_loopback_host(std::string_view(endpoint).substr(0, endpoint.rfind(':'))))
            return Error{
                Code::invalid,
                fmt::format("etcd at {} is beyond loopback and would be spoken to without TLS: all that this server stores "
                            "could be read and changed on the way",
                            endpoint),
                "write etcds:// (with store.etcd.ca, store.etcd.certificate and store.etcd.key), or allow it with "
                "store.etcd.allow_plaintext"};
    return Unit{};
}

} // namespace orrery::store
