#pragma once

#include "api/facades/consul/consul_facade.h"
#include "api/facades/consul/dns_answers.h"
#include "api/facades/consul/kv.h"

#include <boost/json/value.hpp>

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

/// The state of ConsulFacade, shared by the files that implement it. Private to this folder.
namespace orrery::api::consul {

using catalog::CheckView;
using catalog::InstancePtr;
using catalog::InstanceView;
using catalog::NodePtr;
using catalog::NodeView;

/// The author of a write to the catalog.
struct Writer {
    Context ctx;
    std::string peer; ///< address of the client; empty: this server itself
    resource::WriteOptions options(std::optional<Revision> if_revision = {}) const;
};

/// One request in progress.
struct Call {
    Context ctx;
    net::Request& request;
    net::BodyReader& body;
    net::ResponseWriter& out;
    std::vector<std::string> path; ///< the values of "*" and "**" of the route

    bool has(std::string_view name) const { return request.target.param(name).has_value(); }
    std::string query(std::string_view name) const { return request.target.param(name).value_or(""); }
    std::vector<std::string> queries(std::string_view name) const;
    Writer writer() const { return {ctx, request.peer}; }
};

/// A read that may block: the index to wait on, and the response, which is rendered after the wait.
struct BlockingRead {
    std::function<Revision()> index;
    std::function<json::value()> render;
    bool catalog = true;                               ///< the response has X-Consul-Effective-Consistency
    std::function<bool(const json::value&)> is_absent; ///< true: 404 without a body
};

/// A filter expression over JSON: `Service == web and "v1" in Tags`.
class Filter {
public:
    /// `invalid`: a syntax error, or a selector that does not exist.
    static Result<Filter> parse(std::string_view text);
    bool empty() const { return !matches_; }
    bool matches(const json::value& value) const { return !matches_ || matches_(value); }
    /// Keeps the matching items of an array, or values of an object.
    void apply(json::value& list) const;

private:
    std::function<bool(const json::value&)> matches_;
};

struct ConsulFacade::State {
    using Handler = Task<Unit> (State::*)(Call&);

    State(asio::any_io_executor executor, resource::Resources& resources, catalog::Catalog& catalog, catalog::Checker& checker,
          identity::Identity& identity, store::Leadership& leadership, Clock& clock, ConsulFacadeOptions options);

    // --- routing, authentication and responses (request_dispatch.cpp)
    Task<Unit> serve(Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out);
    Task<Unit> send_json(Call& call, json::value value, int status = 200, net::Headers headers = {});
    Task<Unit> send_text(Call& call, int status, std::string body, net::Headers headers = {});
    Task<Unit> send_empty(Call& call); ///< 200 without a body
    std::string default_acl_policy() const;
    Task<std::string> body_of(Call& call, std::size_t limit);
    /// Reads a JSON object and normalizes its keys to lower case without underscores: ServiceID and service_id give "serviceid".
    Task<json::object> object_of(Call& call);

    struct Route {
        std::string method;
        std::vector<std::string> pattern; ///< segments; "*" matches one, "**" all that follow
        resource::Role role;
        Handler handler;
    };
    struct Match {
        const Route* route = nullptr; ///< null: no route has this path and method
        std::vector<std::string> path;
        std::vector<std::string> methods; ///< that the path has
    };
    Match match(const std::string& method, const std::vector<std::string>& segments) const;
    /// Sets the actor. `denied`: the token is unknown, or lacks the role or the kind.
    Result<Unit> check_access(const Route& route, const net::Request& request, std::string& actor) const;
    /// Fills `routes` (routes.cpp).
    void add_routes();

    // --- blocking queries (blocking_query.cpp)
    /// Waits until the index passes the one in ?index or the time in ?wait has passed, then sends the response.
    Task<Unit> blocking_read(Call& call, BlockingRead read);
    Task<Unit> wait_for_index(Call& call, const BlockingRead& read, std::uint64_t after, Duration wait);
    Task<Unit> send_read(Call& call, const BlockingRead& read, const Filter& filter);

    // --- handlers (catalog_routes.cpp)
    Task<Unit> catalog_datacenters(Call& call);
    Task<Unit> catalog_nodes(Call& call);
    Task<Unit> catalog_services(Call& call);
    Task<Unit> catalog_service(Call& call);
    Task<Unit> catalog_node(Call& call);
    Task<Unit> catalog_node_services(Call& call);
    Task<Unit> catalog_register(Call& call);
    Task<Unit> catalog_deregister(Call& call);
    Task<Unit> health_service(Call& call);
    Task<Unit> health_node(Call& call);
    Task<Unit> health_checks(Call& call);
    Task<Unit> health_state(Call& call);

    // --- handlers (agent_routes.cpp)
    Task<Unit> status_leader(Call& call);
    Task<Unit> status_peers(Call& call);
    Task<Unit> agent_self(Call& call);
    Task<Unit> agent_members(Call& call);
    Task<Unit> agent_services(Call& call);
    Task<Unit> agent_service(Call& call);
    Task<Unit> agent_checks(Call& call);
    Task<Unit> agent_service_register(Call& call);
    Task<Unit> agent_service_deregister(Call& call);
    Task<Unit> agent_service_maintenance(Call& call);
    Task<Unit> agent_maintenance(Call& call);
    Task<Unit> agent_check_register(Call& call);
    Task<Unit> agent_check_deregister(Call& call);
    Task<Unit> agent_check_pass(Call& call);
    Task<Unit> agent_check_warn(Call& call);
    Task<Unit> agent_check_fail(Call& call);
    Task<Unit> agent_check_update(Call& call);
    Task<Unit> agent_health_by_id(Call& call);
    Task<Unit> agent_health_by_name(Call& call);
    Task<Unit> report_check(Call& call, catalog::CheckStatus status, std::string output);
    json::object agent_health_json(const InstanceView& instance) const;

    // --- handlers (kv_routes.cpp)
    Task<Unit> kv_get(Call& call);
    Task<Unit> kv_put(Call& call);
    Task<Unit> kv_delete(Call& call);
    Task<Unit> txn(Call& call);
    Task<Unit> session_create(Call& call);
    Task<Unit> session_destroy(Call& call);
    Task<Unit> session_renew(Call& call);
    Task<Unit> session_info(Call& call);
    Task<Unit> session_list(Call& call);
    Task<Unit> session_node(Call& call);
    Task<Unit> kv_read_tree(Call& call); ///< kv_get with ?keys or ?recurse

    // --- JSON of catalog entities (json_views.cpp)
    json::object node_json(const NodeView& node) const;
    json::object service_json(const InstanceView& instance) const;
    json::object agent_service_json(const InstanceView& instance) const;
    json::object catalog_service_json(const InstanceView& instance) const;
    json::object check_json(const CheckView& check, std::string_view node, const InstanceView* instance) const;
    json::array node_checks(const NodeView& node) const;
    json::array instance_checks(const InstanceView& instance) const;
    json::array all_checks(const InstanceView& instance) const; ///< those of the node, then those of the instance
    NodePtr node_of(const InstanceView& instance) const;        ///< never null
    bool has_meta(const NodeView& node, const std::vector<std::string>& wanted) const;

    // --- writes to the catalog (registrations.cpp, agent_registrations.cpp)
    /// Creates the object if `expected` is 0; otherwise replaces the revision `expected`.
    Task<resource::Outcome> write(Writer by, const resource::Kind& kind, resource::Object object, Revision expected);
    Task<Unit> put_instance(Writer by, std::string node, std::string id, json::object spec, bool keep_checks);
    Task<Unit> change_instance(Writer by, std::string resource, std::function<void(json::object& spec)> change);
    Task<Unit> change_node(Writer by, std::string node, std::function<void(json::object& spec)> change);
    Task<Unit> remove_resource(Writer by, std::string_view kind, std::string name);
    Task<Unit> deregister_node(Writer by, std::string node);
    /// The holder of a check of a node: "instances/x" or "catalognodes/x"; "": no such check.
    std::string holder_of_check(std::string_view node, std::string_view check) const;
    Task<Unit> remove_check(Writer by, std::string holder, std::string check);
    /// Records a reported check result, with an event if the status changes. Errors are those of Checker::report.
    Task<Unit> record_check(Writer by, std::string holder, std::string check, catalog::CheckStatus status, std::string output);
    /// Validates a body of catalog/register before anything is written.
    Result<Unit> check_registration(const json::object& body) const;
    /// Writes a node, its service and its checks in one transaction.
    Task<Unit> register_from_catalog(Writer by, json::object body);
    Task<Unit> register_agent_service(Writer by, json::object body, bool replace_checks);
    Task<Unit> register_agent_check(Writer by, json::object body);

    // --- background work (consul_facade.cpp)
    Task<Unit> register_own_node(Context ctx);
    Task<Unit> end_lost_sessions(Context ctx);

    asio::any_io_executor executor;
    resource::Resources& resources;
    catalog::Catalog& catalog;
    catalog::Checker& checker;
    identity::Identity& identity;
    store::Leadership& leadership;
    Clock& clock;
    ConsulFacadeOptions options;
    KeyValues kv;
    std::vector<std::shared_ptr<void>> observers; ///< wake blocking queries when the catalog changes
    std::shared_ptr<DnsAnswers> dns;
    std::vector<Route> routes;
    std::map<std::string, std::size_t> blocked; ///< waiting queries by address of the client
    std::size_t blocked_total = 0;
    std::mt19937_64 random{std::random_device{}()};
};

/// Splits a path at slashes; "a/" has an empty last segment.
std::vector<std::string> split_path(std::string_view path);

/// {"checks": [...]}.
json::object list_of(const std::vector<catalog::Check>& checks);
/// The checks of a spec, with the ids that the catalog shows.
std::vector<catalog::Check> own_checks(const json::object& spec, std::string_view id);
/// The fields that a service has in both kinds of registration.
Result<json::object> service_spec(const json::object& body, const std::string& name, const std::string& node,
                                  const std::string& id);

/// Formats a duration as Go does: "10s", "1m30s", "1h0m0s", "500ms".
std::string go_duration(Duration duration);
/// Parses a duration of Go: "10s", "1h5m", "1.5s".
std::optional<Duration> parse_go_duration(std::string_view text);
/// A UUID that depends on the text only.
std::string uuid_of(std::string_view text);
std::string random_uuid();

} // namespace orrery::api::consul
