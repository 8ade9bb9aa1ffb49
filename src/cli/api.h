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

/// Takes a text/event-stream apart as it comes, however it is cut.
class EventParser {
public:
    /// The events that are complete now. `too_large` where a line or an event grows beyond all sense.
    Result<std::vector<ServerEvent>> feed(std::string_view piece);
    /// The id of the last event, also of those that carried nothing else (heart-beats).
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
    json::value body; ///< null where there was none
};

/// The API, as a command speaks to it: one call at a time, each blocks until it is answered, times out or the user interrupts.
class Api {
public:
    struct Options {
        std::string server; ///< "https://host:8421"
        std::string ca;     ///< file; empty: the system's
        std::string token;
        bool anonymous = false; ///< has no token because it is about to get one
        Duration timeout = std::chrono::seconds(30);
    };
    /// Only prepares: `invalid` for a URL that is none or a CA file that cannot be read.
    static Result<std::unique_ptr<Api>> make(Options options);
    ~Api();

    /// An answer of 2xx. Problems become Errors with the server's own sentence, remedy and fields.
    Result<Answer> call(std::string method, std::string target, std::optional<json::value> body = {}, net::Headers headers = {});
    Result<Answer> get(std::string target) { return call("GET", std::move(target)); }
    /// Of the last answer, also of a refused one; 0 where there was none.
    int last_status() const { return last_status_; }
    /// The last problem as it came; empty where the last call went well.
    const json::object& last_problem() const { return last_problem_; }

    /// An event stream. Reads with `next_event`.
    class Stream {
    public:
        virtual ~Stream() = default;
        /// The next event; nothing at the stream's regular end. `unavailable` when it broke, `timeout` when not even a heart-beat
        /// came.
        virtual Result<std::optional<ServerEvent>> next() = 0;
        virtual const std::string& last_id() const = 0;
    };
    Result<std::unique_ptr<Stream>> stream(std::string method, std::string target, std::optional<json::value> body = {},
                                           net::Headers headers = {});

    /// A large answer, given to `take` piece by piece; its headers.
    Result<net::Headers> download(std::string method, std::string target, std::function<Result<Unit>(std::string_view)> take);

    /// Waits, unless interrupted.
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
