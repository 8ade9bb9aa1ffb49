#pragma once

#include "api/facades/consul/dns_answers.h"
#include "api/facades/consul/kv.h"
#include "api/facades/consul/view.h"

#include <boost/json/value.hpp>

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

/// The inside of View, shared by the files that implement it. Nobody else includes it.
namespace orrery::api::consul {

using catalog::CheckView;
using catalog::InstancePtr;
using catalog::InstanceView;
using catalog::NodePtr;
using catalog::NodeView;

/// An answer other than 200: text, as Consul gives it.
struct Refusal {
    int status = 500;
    std::string text;
};

/// On whose behalf the catalog is written to.
struct Writer {
    Context ctx;
    std::string peer; ///< the address of whoever asked; empty: this server itself
    resource::WriteOptions options(std::optional<Revision> if_revision = {}) const;
};

/// One request on its way.
struct Call {
    Context ctx;
    net::Request& request;
    net::BodyReader& body;
    net::ResponseWriter& out;
    std::vector<std::string> rest; ///< what the route's "*" and "**" stand for

    bool has(std::string_view name) const { return request.target.param(name).has_value(); }
    std::string query(std::string_view name) const { return request.target.param(name).value_or(""); }
    std::vector<std::string> queries(std::string_view name) const;
    Writer writer() const { return {ctx, request.peer}; }
};

/// What a read gives: an index to block on, and the JSON made when it is wanted.
struct Reading {
    std::function<Revision()> index;
    std::function<json::value()> make;
    bool catalog = true;                            ///< has X-Consul-Effective-Consistency
    std::function<bool(const json::value&)> absent; ///< then 404 without a body
};

struct View::State {
    State(asio::any_io_executor executor, resource::Resources& resources, catalog::Catalog& catalog, catalog::Checker& checker,
          identity::Identity& identity, store::Leadership& leadership, Clock& clock, ViewOptions options);

    // --- serving (serve.cpp)
    Task<Unit> serve(Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out);
    Task<Unit> answer(Call& call, json::value value, int status = 200, net::Headers headers = {});
    Task<Unit> text(Call& call, int status, std::string body, net::Headers headers = {});
    Task<Unit> nothing(Call& call); ///< 200 without a body
    /// A read that may block: waits until the index passes the one asked for, or the time is over.
    Task<Unit> read(Call& call, Reading reading);
    Result<resource::Role> role_of(const net::Request& request, std::string& actor, std::vector<std::string>& kinds) const;
    Task<std::string> body_of(Call& call, std::size_t limit);
    /// A JSON body whose keys are lower-case letters only, however they were written (ServiceID, service_id).
    Task<json::object> object_of(Call& call);

    // --- what things look like (shapes.cpp)
    json::object node_json(const NodeView& node) const;
    json::object service_json(const InstanceView& instance) const;
    json::object agent_service_json(const InstanceView& instance) const;
    json::object catalog_service_json(const InstanceView& instance) const;
    json::object check_json(const CheckView& check, std::string_view node, const InstanceView* instance) const;
    json::array node_checks(const NodeView& node) const;
    json::array instance_checks(const InstanceView& instance) const;
    json::array all_checks(const InstanceView& instance) const; ///< its node's, then its own
    NodePtr node_of(const InstanceView& instance) const;        ///< never null
    bool has_meta(const NodeView& node, const std::vector<std::string>& wanted) const;

    // --- routes
    void add_catalog_routes();
    void add_health_routes();
    void add_agent_routes();
    void add_kv_routes();
    void add_session_routes();
    void add_status_routes();

    // --- writing to the catalog (registrations.cpp)
    /// Creates it where it stands nowhere (0), replaces it where it stands at that revision.
    Task<resource::Outcome> write(Writer by, const resource::Kind& kind, resource::Object object, Revision stands_at);
    Task<Unit> put_node(Writer by, std::string node, json::object spec, bool keep_checks);
    Task<Unit> put_instance(Writer by, std::string node, std::string id, json::object spec, bool keep_checks);
    Task<Unit> change_instance(Writer by, std::string resource, std::function<void(json::object& spec)> change);
    Task<Unit> change_node(Writer by, std::string node, std::function<void(json::object& spec)> change);
    Task<Unit> remove_resource(Writer by, std::string_view kind, std::string name);
    Task<Unit> deregister_node(Writer by, std::string node);
    /// "instances/x" or "catalognodes/x" of a node's check; "" where there is none.
    std::string holder_of_check(std::string_view node, std::string_view check) const;
    Task<Unit> remove_check(Writer by, std::string holder, std::string check);
    /// What somebody says of a check; an event where that is news. Errors are those of Checker::report.
    Task<Unit> say_of_check(Writer by, std::string holder, std::string check, catalog::CheckStatus status, std::string output);
    Task<Unit> register_from_catalog(Writer by, json::object body);
    Task<Unit> register_agent_service(Writer by, json::object body, bool replace_checks);
    Task<Unit> register_agent_check(Writer by, json::object body);

    struct Route {
        std::string method;
        std::vector<std::string> pattern; ///< words, "*" for one, "**" for all that follow
        resource::Role role;
        std::function<Task<Unit>(Call&)> handler;
    };
    void add(std::string method, std::string_view pattern, std::function<Task<Unit>(Call&)> handler);

    asio::any_io_executor executor;
    resource::Resources& resources;
    catalog::Catalog& catalog;
    catalog::Checker& checker;
    identity::Identity& identity;
    store::Leadership& leadership;
    Clock& clock;
    ViewOptions options;
    KeyValues kv;
    std::vector<std::shared_ptr<void>> observers; ///< wake those who block on the catalog
    std::shared_ptr<DnsAnswers> dns;
    std::vector<Route> routes;
    std::map<std::string, std::size_t> blocked; ///< by address of the client: how many of its queries wait
    std::size_t blocked_in_all = 0;
    std::mt19937_64 random{std::random_device{}()};
};

/// The way Go writes a duration: "10s", "1m30s", "1h0m0s", "500ms".
std::string go_duration(Duration duration);
/// And reads one: "10s", "1h5m", "1.5s", a bare number as nanoseconds where `bare` says so.
std::optional<Duration> parse_go_duration(std::string_view text);
/// An id that is always the same for this text, in the form of a UUID.
std::string uuid_of(std::string_view text);
std::string random_uuid();

/// A selection over what is shown: `Service == web and "v1" in Tags`. `invalid` where it does not read or names what is not there.
class Filter {
public:
    static Result<Filter> parse(std::string_view text);
    bool empty() const { return !matches_; }
    bool matches(const json::value& value) const { return !matches_ || matches_(value); }
    /// Keeps those that match; of an object, its values.
    void apply(json::value& list) const;

private:
    std::function<bool(const json::value&)> matches_;
};

} // namespace orrery::api::consul
