#pragma once

#include "net/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/json/object.hpp>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace orrery::cli {

namespace json = boost::json;

/// For tests only: a server that speaks the API's words from memory, on a thread of its own. What it says is the contract as the
/// client understands it; the lab tests hold the client to the real one.
class FakeApi {
public:
    explicit FakeApi(std::shared_ptr<net::TlsContext> tls = nullptr);
    ~FakeApi();

    std::string url() const { return url_; }

    /// An object as it would stand after a write; its time is one hour before `noon`.
    void put(std::string_view plural, json::object object);
    json::object stored(std::string_view plural, std::string_view name);
    bool has(std::string_view plural, std::string_view name);

    /// Looked at before anything else: an answer here is the answer.
    std::function<std::optional<net::Response>(const net::Request&, const std::string& body)> intercept;
    /// What one watch request after the other is given; then they hang until the client leaves.
    std::deque<std::string> streams;

    struct Seen {
        std::string method, target, body;
        net::Headers headers;
    };
    std::vector<Seen> seen();
    /// "GET /v1/nodes?limit=500", in order, without GET /v1/kinds.
    std::vector<std::string> lines();

    static net::Response problem(int status, std::string_view code, std::string_view detail, std::string_view remedy = {},
                                 json::array fields = {}, std::string_view reason = {});
    static net::Response ok(const json::value& body, int status = 200, net::Headers headers = {});

private:
    Task<Unit> serve(Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out);
    net::Response answer(const net::Request& request, const std::string& body);
    net::Response answer_kind(const net::Request& request, const std::string& plural, const std::string& name,
                              const std::string& body);
    net::Response write(const std::string& plural, const std::string& name, json::object wanted, bool dry_run);
    net::Response list(const net::Request& request, const std::string& plural);

    std::mutex mutex_;
    std::map<std::string, std::map<std::string, json::object>, std::less<>> objects_;
    std::vector<Seen> seen_;
    std::int64_t revision_ = 10;
    asio::io_context loop_{1};
    std::unique_ptr<net::HttpServer> server_;
    std::string url_;
    std::thread thread_;
};

} // namespace orrery::cli
