#include "api/facades/consul/facade_state.h"

/// The route table of the facade. Handlers are named after the routes of Consul's HTTP API.
namespace orrery::api::consul {

void ConsulFacade::State::add_routes() {
    struct Row {
        std::string_view method, pattern;
        Handler handler;
    };
    const Row table[] = {
        {"GET", "status/leader", &State::status_leader},
        {"GET", "status/peers", &State::status_peers},
        {"GET", "catalog/datacenters", &State::catalog_datacenters},
        {"GET", "catalog/nodes", &State::catalog_nodes},
        {"GET", "catalog/services", &State::catalog_services},
        {"GET", "catalog/service/*", &State::catalog_service},
        {"GET", "catalog/node/*", &State::catalog_node},
        {"GET", "catalog/node-services/*", &State::catalog_node_services},
        {"PUT", "catalog/register", &State::catalog_register},
        {"PUT", "catalog/deregister", &State::catalog_deregister},
        {"GET", "health/service/*", &State::health_service},
        {"GET", "health/node/*", &State::health_node},
        {"GET", "health/checks/*", &State::health_checks},
        {"GET", "health/state/*", &State::health_state},
        {"GET", "agent/self", &State::agent_self},
        {"GET", "agent/members", &State::agent_members},
        {"GET", "agent/services", &State::agent_services},
        {"GET", "agent/service/*", &State::agent_service},
        {"GET", "agent/checks", &State::agent_checks},
        {"PUT", "agent/service/register", &State::agent_service_register},
        {"PUT", "agent/service/deregister/**", &State::agent_service_deregister},
        {"PUT", "agent/service/maintenance/**", &State::agent_service_maintenance},
        {"PUT", "agent/maintenance", &State::agent_maintenance},
        {"PUT", "agent/check/register", &State::agent_check_register},
        {"PUT", "agent/check/deregister/**", &State::agent_check_deregister},
        {"PUT", "agent/check/pass/**", &State::agent_check_pass},
        {"PUT", "agent/check/warn/**", &State::agent_check_warn},
        {"PUT", "agent/check/fail/**", &State::agent_check_fail},
        {"PUT", "agent/check/update/**", &State::agent_check_update},
        {"GET", "agent/health/service/id/**", &State::agent_health_by_id},
        {"GET", "agent/health/service/name/**", &State::agent_health_by_name},
        {"GET", "kv/**", &State::kv_get},
        {"PUT", "kv/**", &State::kv_put},
        {"DELETE", "kv/**", &State::kv_delete},
        {"PUT", "txn", &State::txn},
        {"PUT", "session/create", &State::session_create},
        {"PUT", "session/destroy/*", &State::session_destroy},
        {"PUT", "session/renew/*", &State::session_renew},
        {"GET", "session/info/*", &State::session_info},
        {"GET", "session/list", &State::session_list},
        {"GET", "session/node/*", &State::session_node},
    };
    for (const auto& row : table) {
        const auto role = row.method == "GET" ? resource::Role::viewer : resource::Role::operator_;
        routes.push_back({std::string(row.method), split_path(row.pattern), role, row.handler});
    }
}

} // namespace orrery::api::consul
