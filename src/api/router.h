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

/// Is the client address a loopback address?
bool is_from_loopback(const net::Request& request);

struct Parameter {
    std::string name, doc;
    std::string type = "string";                    ///< of JSON Schema
    std::optional<std::int64_t> min = {}, max = {}; ///< of an integer
    std::vector<std::string> choices = {};
    /// Further validation: returns "must be ..." or "". May be empty.
    std::function<std::string(std::string_view)> check = {};
};

/// A route of the API. Its requirements are data, so that routing, access checks, OpenAPI, /docs and the test of all routes
/// (route_access_test.cpp) use the same table.
struct Route {
    std::string method;
    std::string pattern; ///< "/v1/nodes/{name}"
    std::string summary;
    std::string group;                    ///< heading on the /docs page
    Role role = Role::viewer;             ///< minimum role; the lowest role requires no login
    const resource::Kind* kind = nullptr; ///< the kind of the route, for tokens that are limited to some kinds
    std::vector<Parameter> query;
    json::object request;             ///< JSON Schema of the body; empty: no body
    bool body_optional = false;       ///< an empty body is read as {}
    json::object response;            ///< JSON Schema of a successful response; empty: not JSON
    std::string media_type;           ///< of a response that is not JSON, or an alternative to JSON
    int status = 200;                 ///< of a successful response
    int other_status = 0;             ///< an alternative successful status with the same body; 0: none
    std::vector<std::string> headers; ///< conditional request headers; the response then has an ETag
    std::function<Task<Unit>(Call)> handler;
};

class Router {
public:
    Router();
    ~Router();
    /// The method and pattern must be unique.
    void add(Route route);
    const std::vector<std::unique_ptr<const Route>>& routes() const { return routes_; }
    /// Adds a JSON Schema that routes reference as "#/components/schemas/NAME".
    void add_schema(std::string name, json::object schema) { schemas_[name] = std::move(schema); }
    const json::object& schemas() const { return schemas_; }

    struct Match {
        const Route* route;
        std::map<std::string, std::string> path;
    };
    /// `not_found`: no route has the path. `unsupported`: the path has other methods; the remedy lists them.
    Result<Match> match(std::string_view method, std::string_view path) const;
    /// The methods of a path, including HEAD.
    std::vector<std::string_view> methods(std::string_view path) const;

private:
    struct Segment;
    const Segment* find(std::string_view path, std::map<std::string, std::string>& parameters) const;
    std::unique_ptr<Segment> root_;
    std::vector<std::unique_ptr<const Route>> routes_;
    json::object schemas_;
};

/// Checks the query against the parameters of the route. `invalid` lists all unknown parameters, each with the nearest known one,
/// and all invalid values.
Result<Unit> check_query(const Route& route, const net::Target& target);

} // namespace orrery::api
