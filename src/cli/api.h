#pragma once

#include "core/task.h"
#include "net/http_client.h"

#include <boost/json/object.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::cli {

namespace json = boost::json;

/// One server-sent event.
struct ServerEvent {
    std::string id, event, data;
};

/// Parser of a text/event-stream that arrives in pieces of any size.
class EventParser {
public:
    /// Adds a piece and returns the events that are complete now. `too_large` if a line or an event exceeds 32 MiB.
    Result<std::vector<ServerEvent>> feed(std::string_view piece);
    /// The id of the last event, including heartbeats, which have nothing but an id.
    const std::string& last_id() const { return last_id_; }

private:
    void line(std::string_view line, std::vector<ServerEvent>& out);
    std::string buffer_, last_id_;
    ServerEvent pending_;
    bool has_data_ = false;
};

struct Answer {
    int status = 0;
    net::Headers headers;
    json::value body; ///< null if the response has no body
};

/// The client of the API for commands. One call at a time; each call blocks until the response, the timeout or an interrupt
/// (SIGINT, SIGTERM). Owns its event loop; use it from one thread.
class Api {
public:
    struct Options {
        std::string server; ///< "https://host:8421"
        std::string ca;     ///< file with the CA certificate; empty: the CAs of the system
        std::string token;
        bool anonymous = false; ///< no token, because the command is a login
        Duration timeout = std::chrono::seconds(30);
    };
    /// Does not connect yet. `invalid` if the URL is not valid or the CA file cannot be read.
    static Result<std::unique_ptr<Api>> make(Options options);
    ~Api();

    /// Sends a request and returns the response if its status is 2xx. A problem document becomes an Error with its detail, remedy
    /// and fields.
    Result<Answer> call(std::string method, std::string target, std::optional<json::value> body = {}, net::Headers headers = {});
    Result<Answer> get(std::string target) { return call("GET", std::move(target)); }
    /// The HTTP status of the last response, also of an error; 0 if there was no response.
    int last_status() const { return last_status_; }
    /// The problem document of the last call; empty if the call succeeded.
    const json::object& last_problem() const { return last_problem_; }

    /// An open event stream. Must not outlive the Api.
    class Stream {
    public:
        virtual ~Stream() = default;
        /// The next event; nullopt when the server ended the stream. `unavailable` if the connection broke, `timeout` if not even a
        /// heartbeat arrived.
        virtual Result<std::optional<ServerEvent>> next() = 0;
        virtual const std::string& last_id() const = 0;
    };
    Result<std::unique_ptr<Stream>> stream(std::string method, std::string target, std::optional<json::value> body = {},
                                           net::Headers headers = {});

    /// Passes a large response to `on_piece` in pieces and returns its headers. An error of `on_piece` ends the download.
    Result<net::Headers> download(std::string method, std::string target, std::function<Result<Unit>(std::string_view)> on_piece);

    /// Waits; `cancelled` if the user interrupts.
    Result<Unit> pause(Duration time);
    bool interrupted() const;
    const Options& options() const { return options_; }

private:
    struct State;
    class OpenStream;
    explicit Api(Options options);
    Result<net::ClientRequest> request(std::string method, std::string target, const std::optional<json::value>& body,
                                       net::Headers headers) const;
    Error problem(int status, const net::Headers& headers, std::string_view body);

    Options options_;
    std::unique_ptr<State> state_;
    int last_status_ = 0;
    json::object last_problem_;
};

} // namespace orrery::cli
