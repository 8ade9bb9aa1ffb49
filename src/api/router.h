#pragma once

#include "identity/identity.h"
#include "net/http_server.h"
#include "resource/kind.h"

#include <boost/json/object.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::api {

namespace json = boost::json;
using resource::Role;

/// One request on its way through a route's handler.
struct Call {
    Context ctx;
    net::Request& request;
    net::BodyReader& body;
    net::ResponseWriter& out;
    identity::Principal principal;
    std::map<std::string, std::string> path; ///< "{name}" → "n1"

    /// A query parameter that the route declares; nothing where it was not given.
    std::optional<std::string> query(std::string_view name) const { return request.target.param(name); }
    Result<bool> flag(std::string_view name) const; ///< absent: false; "", "true", "1": true; "false", "0": false
    const std::string& name() const { return path.at("name"); }
};

struct Parameter {
    std::string name, doc;
    std::string type = "string"; ///< of JSON Schema
};

/// A way into the server. What it needs is data, so that routing, refusal, OpenAPI and the test that knocks at every door use the
/// same table.
struct Route {
    std::string method;
    std::string pattern; ///< "/v1/nodes/{name}"
    std::string summary;
    std::string group;                    ///< a heading of the API page
    Role role = Role::viewer;             ///< the least role that may; `nobody`: anyone, also without a login
    const resource::Kind* kind = nullptr; ///< the kind it is about, for tokens that are limited to some
    std::vector<Parameter> query;
    json::object request;  ///< JSON Schema of the body; empty: takes none
    json::object response; ///< JSON Schema of a good answer; empty: not JSON
    int status = 200;      ///< of a good answer
    std::function<Task<Unit>(Call)> handler;
};

class Router {
public:
    Router();
    ~Router();
    /// Two routes of the same method and pattern are a bug.
    void add(Route route);
    const std::vector<std::unique_ptr<const Route>>& routes() const { return routes_; }

    struct Match {
        const Route* route;
        std::map<std::string, std::string> path;
    };
    /// `not_found`, or `unsupported` with the methods the path has.
    Result<Match> match(std::string_view method, std::string_view path) const;

private:
    struct Segment;
    std::unique_ptr<Segment> root_;
    std::vector<std::unique_ptr<const Route>> routes_;
};

/// `invalid` for query parameters that the route does not have, with the nearest one it has.
Result<Unit> check_query(const Route& route, const net::Target& target);

} // namespace orrery::api
