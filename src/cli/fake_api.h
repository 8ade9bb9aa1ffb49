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

/// For tests: an in-memory server of the API on its own thread. Answers come from three sources: recorded_answers.h for errors (a
/// lab compares it with a real server), the kinds in fake_api.cpp, and what a test sets in `intercept`. The labs run the client
/// against the real server.
class FakeApi {
public:
    explicit FakeApi(std::shared_ptr<net::TlsContext> tls = nullptr);
    ~FakeApi();

    std::string url() const { return url_; }

    /// Stores an object as after a write; created one hour before the time of `NoonClock`.
    void put(std::string_view plural, json::object object);
    json::object stored(std::string_view plural, std::string_view name);
    bool has(std::string_view plural, std::string_view name);

    /// Called first for each request; if it returns a response, that is sent.
    std::function<std::optional<net::Response>(const net::Request&, const std::string& body)> intercept;
    /// The event streams of the next watch requests. Further requests stay open until the client disconnects.
    std::deque<std::string> streams;

    struct Seen {
        std::string method, target, body;
        net::Headers headers;
    };
    std::vector<Seen> seen();
    /// "GET /v1/nodes?limit=500", in order, without GET /v1/kinds.
    std::vector<std::string> lines();

    static net::Response problem(int status, std::string_view code, std::string_view detail, std::string_view remedy = {},
                                 json::array fields = {});
    /// A response of the real server, by its name in recorded_answers.h.
    static net::Response recorded(std::string_view name, std::string_view path);
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
