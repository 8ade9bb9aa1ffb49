#pragma once

#include "api/api.h"

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

namespace orrery::api {

/// What the groups of routes share. Private to this folder.
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
    std::string openapi_text; ///< made once, after the routes
    std::string docs_page;
    TaskGroup background; ///< what outlives the request that began it
    int streams = 0;      ///< event streams open now

    /// Event-stream frames made lately: a thousand watchers of one change share one rendering. Holding the record keeps its address
    /// its own.
    struct Frame {
        store::RecordPtr record;
        std::shared_ptr<const std::string> text;
    };
    std::unordered_map<const void*, Frame> frames;
    std::deque<const void*> frame_order;

    store::Store& store() { return resources.store(); }
};

/// Each adds its group of routes.
void add_kind_routes(Api::State& state);
void add_identity_routes(Api::State& state);
void add_store_routes(Api::State& state);
void add_server_routes(Api::State& state);
void add_job_routes(Api::State& state, jobs::Engine& engine);
void add_health_routes(Api::State& state, health::Lookout& lookout);
void add_gslb_routes(Api::State& state, gslb::Controller& controller);
void add_kosmos_routes(Api::State& state);
void add_externaldns_routes(Api::State& state);
constexpr std::string_view externaldns_paths = "/externaldns/";

/// May this principal see and touch it? What belongs to users (tokens) is for its owner, as the same directory knows that one, and
/// for admins.
bool may_touch(const resource::Kind& kind, const identity::Principal& principal, const resource::Object& object);

/// `"12-1a2b..."`: revisions of another store never match.
std::string etag_of(store::Revision revision, const std::string& identity);
/// A position in the history, from an ETag, an event's id or a plain number. `compacted` where it belongs to another store;
/// `invalid` where it is none.
Result<store::Revision> parse_position(std::string_view text, const std::string& identity, std::string_view field);

/// The body as JSON (or, where the content type says so, as YAML).
Task<json::value> read_document(Call& call, std::size_t limit);
/// An object whose members are among `allowed`, all texts or null: the bodies of the small non-resource routes.
Result<std::map<std::string, std::string>> read_texts(const json::value& document, std::vector<std::string_view> required,
                                                      std::vector<std::string_view> optional);

Task<Unit> send_json(Call& call, int status, const json::value& value, net::Headers headers = {});

/// Whoever the request's headers say; nobody where they say nothing. `unauthenticated` where they are wrong.
Task<identity::Principal> who_asks(Api::State& state, Context ctx, const net::Request& request);

/// Serves one kind's changes as server-sent events until the client leaves.
Task<Unit> stream_changes(Api::State& state, Call call, const resource::Kind& kind, std::string name, std::string from);

json::object openapi_document(const Router& router, const resource::Registry& registry, std::string_view version);
std::string api_page(const Router& router, const resource::Registry& registry, std::string_view version);

} // namespace orrery::api
