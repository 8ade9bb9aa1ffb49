#pragma once

#include "api/api.h"

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

namespace orrery::api {

/// State that the groups of routes share. Private to api.
struct Api::State {
    resource::Resources& resources;
    identity::Identity& identity;
    StoreAdmin& admin;
    Clock& clock;
    ApiOptions options;
    Router router;
    Metrics metrics;
    std::vector<std::function<std::vector<std::pair<std::string, double>>()>> gauges;
    std::vector<std::function<Result<Unit>()>> readiness;
    std::vector<std::function<std::string()>> degradations;
    std::string openapi_text; ///< rendered after each change of the route table
    std::string docs_page;
    TaskGroup background; ///< work that outlives its request
    int streams = 0;      ///< open event streams

    /// Cache of rendered event-stream frames: all watchers of a change share one rendering. The frame holds the record, so that its
    /// address, which is the key, is not reused.
    struct Frame {
        store::RecordPtr record;
        std::shared_ptr<const std::string> text;
    };
    std::unordered_map<const void*, Frame> frames;
    std::deque<const void*> frame_order;

    store::Store& store() { return resources.store(); }
};

// Each function adds one group of routes.
void add_kind_routes(Api::State& state);
void add_identity_routes(Api::State& state);
void add_store_routes(Api::State& state);
void add_server_routes(Api::State& state);
void add_job_routes(Api::State& state, jobs::Engine& engine);
void add_log_routes(Api::State& state, jobs::Engine& engine);
void add_why_routes(Api::State& state, const resource::Explainers& explainers);
void add_job_template_routes(Api::State& state, jobs::Engine& engine, jobs::TemplateController& templates);
/// Plans a Job without submitting it and sends the plan; the query parameters are those of /v1/job-plans.
Task<Unit> send_job_plan(Api::State& state, jobs::Engine& engine, Call call, resource::Object job);
std::vector<Parameter> job_plan_query();
void add_health_routes(Api::State& state, health::HealthAggregator& aggregator);
void add_gslb_routes(Api::State& state, gslb::Controller& controller);
void add_fleet_routes(Api::State& state, fleet::Planner& planner);
void add_kosmos_routes(Api::State& state);
void add_externaldns_routes(Api::State& state);
/// Prefix of the paths that contain a token.
constexpr std::string_view externaldns_paths = "/externaldns/";

/// Can this principal read and change the object? Objects of a kind with an owner (tokens) are restricted to admins and to the
/// owner as identified by the same directory.
bool can_access(const resource::Kind& kind, const identity::Principal& principal, const resource::Object& object);

/// The ETag of a revision, `"12-1a2b..."`. It contains the identity of the store, so that ETags of other stores never match.
std::string etag_of(store::Revision revision, const std::string& identity);
/// Parses a position in the history: an ETag, an event id or a number. `compacted`: it belongs to a different store. `invalid`: it
/// is malformed.
Result<store::Revision> parse_position(std::string_view text, const std::string& identity, std::string_view field);

/// Treatment of an empty body: as {}, or as an error.
enum class EmptyBody { object, refuse };
/// Reads the body as JSON, or as YAML by its content type.
Task<json::value> read_document(Call& call, std::size_t limit, EmptyBody empty = EmptyBody::object);
/// Reads an object of strings, for the bodies of routes that are not about a resource. `invalid` names missing and unknown members.
Result<std::map<std::string, std::string>> read_texts(const json::value& document, std::vector<std::string_view> required,
                                                      std::vector<std::string_view> optional);

/// Responses from a stale copy of the store have its age in seconds in this header.
constexpr std::string_view copy_age_header = "Orrery-Copy-Age";
/// Adds that header if the copy is stale.
void add_copy_age(const Api::State& state, net::Headers& headers);

Task<Unit> send_json(Call& call, int status, const json::value& value, net::Headers headers = {});

/// The principal of the credentials in the headers; without credentials, a principal without a role. `unauthenticated`: the
/// credentials are invalid.
Task<identity::Principal> authenticate(Api::State& state, Context ctx, const net::Request& request);

/// Streams the changes of a kind, or of one object, as server-sent events until the client disconnects.
Task<Unit> stream_changes(Api::State& state, Call call, const resource::Kind& kind, std::string name, std::string from);

/// The query parameters of paged lists.
Parameter limit_parameter(std::int64_t default_value, std::int64_t max);
Parameter continue_parameter(std::string list);

json::object openapi_document(const Router& router, const resource::Registry& registry, std::string_view version);
/// Describes a conditional header of a route.
std::string_view header_doc(const Route& route, std::string_view name);
std::string api_page(const Router& router, const resource::Registry& registry, std::string_view version);

} // namespace orrery::api
