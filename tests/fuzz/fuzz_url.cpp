// Request targets and URLs: an accepted one keeps its invariants and reads back from its text.
#include "net/http_client.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace orrery::net;

void demand(bool holds) {
    if (!holds) std::abort();
}

void check_target(std::string_view text) {
    const auto target = parse_target(text);
    if (!target.ok()) return;
    demand(text.starts_with('/'));
    demand(target->path.starts_with('/') && target->path.find('\0') == std::string::npos);
    const auto path = target->path + "/";
    demand(path.find("/../") == std::string::npos && path.find("/./") == std::string::npos);

    std::string again;
    for (const char c : target->path) again += c == '/' ? "/" : percent_encode({&c, 1});
    for (std::size_t at = 0; at < target->query.size(); ++at)
        again += (at == 0 ? "?" : "&") + percent_encode(target->query[at].first) + "=" + percent_encode(target->query[at].second);
    const auto second = parse_target(again);
    demand(second.ok() && second->path == target->path && second->query == target->query);
}

void check_url(std::string_view text) {
    const auto url = parse_url(text);
    if (!url.ok()) return;
    demand(url->scheme == "http" || url->scheme == "https");
    demand(url->port != 0 && !url->host.empty() && url->target.starts_with('/'));
    demand(url->host.find_first_of("/@?#\\ \r\n") == std::string::npos);
    const auto second = parse_url(url->text());
    demand(second.ok() && second->text() == url->text());
    demand(second->scheme == url->scheme && second->host == url->host && second->port == url->port &&
           second->target == url->target);
}

/// What a peer says in a Location: it leads to a URL that can be asked for in one line, or nowhere.
void check_location(std::string_view text) {
    const Url base{.scheme = "https", .host = "www.example", .port = 8443, .target = "/a/b?c=d"};
    const auto url = resolve_location(base, text);
    if (!url.ok()) return;
    demand(url->port != 0 && !url->host.empty() && url->target.starts_with('/'));
    demand(url->target.find_first_of(" \r\n\t") == std::string::npos && url->target.find('\0') == std::string::npos);
    demand(url->host.find_first_of("/@?#\\ \r\n") == std::string::npos);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check_target(text);
    check_url(text);
    check_target("/x?" + percent_encode(text) + "=" + percent_encode(text));
    check_url("http://" + std::string(text));
    check_location(text);
    return 0;
}
