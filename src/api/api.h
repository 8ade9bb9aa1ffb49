#pragma once

#include "api/metrics.h"
#include "api/router.h"
#include "identity/identity.h"
#include "net/http_server.h"
#include "resource/resources.h"
#include "store/store.h"

#include <functional>
#include <memory>
#include <string>

namespace orrery::fleet {
class Planner;
}
namespace orrery::gslb {
class Controller;
}
namespace orrery::health {
class HealthAggregator;
}
namespace orrery::jobs {
class Engine;
class TemplateController;
} // namespace orrery::jobs
namespace orrery::resource {
class Explainers;
}

namespace orrery::api {

/// Port for administration of the store as a whole. `app` implements it, because `app` knows which engine runs.
class StoreAdmin {
public:
    virtual ~StoreAdmin() = default;
    virtual std::string engine() const = 0;   ///< "sqlite" or "etcd"
    virtual std::string location() const = 0; ///< its URL, without credentials
    struct Backup {
        std::string file;
        store::Revision revision = 0;
    };
    /// Writes a consistent copy to a temporary file, which the caller removes. `unsupported` on etcd, which has its own tool.
    virtual Task<Backup> backup(Context ctx) = 0;
    struct Migration {
        std::int64_t keys = 0;
        std::string digest;
    };
    /// Checks whether the store can move to this URL, without a connection to it. The error never repeats credentials.
    virtual Result<Unit> check_target(const std::string& to) const = 0;
    /// Copies all keys to another store and calls `progress(done, total)` meanwhile. After success the server continues with the
    /// new store.
    virtual Task<Migration> migrate(Context ctx, std::string to, std::function<void(std::int64_t, std::int64_t)> progress) = 0;
};

/// The clients that may read a page without a login: none, clients on loopback, all.
enum class Anonymous { never, loopback, always };

struct ApiOptions {
    std::string version;
    Anonymous anonymous_metrics = Anonymous::loopback; ///< /metrics
    Anonymous anonymous_docs = Anonymous::loopback;    ///< /docs and /openapi.json
    Duration heartbeat = std::chrono::seconds(15);     ///< of event streams
    std::size_t max_body = 4 << 20;
    std::string server = {};   ///< name of this server, shown with its log lines
    bool shared_store = false; ///< other servers use the same store; each has its own log lines
};

/// The REST API: a table of routes over resources, identity and the store, and the HTTP handler that serves them. Loop thread only.
class Api {
public:
    Api(asio::any_io_executor executor, resource::Resources& resources, identity::Identity& identity, StoreAdmin& admin,
        Clock& clock, ApiOptions options);
    ~Api();

    /// Adds the routes of jobs and job templates, and of logs. Both kinds must be registered; both objects must outlive the Api.
    void add_jobs(jobs::Engine& engine, jobs::TemplateController& templates);
    /// Adds the routes of load balancers, and the Kosmos and ExternalDNS facades. The controller must outlive the Api.
    void add_gslb(gslb::Controller& controller);
    /// Adds import, preview and the other routes of the fleet. Its kinds must be registered; the planner must outlive the Api.
    void add_fleet(fleet::Planner& planner);

    /// Adds the route of explanations (`orrery why`). The explainers must outlive the Api.
    void add_explanations(const resource::Explainers& explainers);

    /// Adds the routes of vantages and remote checkers. The aggregator must outlive the Api.
    void add_health(health::HealthAggregator& aggregator);

    const Router& router() const;
    /// The handler for a net::HttpServer. The Api must outlive the server.
    net::Handler handler();
    /// Renders errors that the HTTP server finds itself, such as malformed requests.
    std::function<net::Response(const Context&, const Error&)> on_error();
    /// Adds a source of values for /metrics, by full metric name.
    void add_gauges(std::function<std::vector<std::pair<std::string, double>>()> gauges);
    /// Adds a condition of /readyz beside the health of the store.
    void add_readiness(std::function<Result<Unit>()> ready);

    /// Adds a source of degradations for /readyz: one line that names what has failed while the server still accepts writes, or "".
    void add_degradation(std::function<std::string()> degraded);

    /// Waits for background work (a migration). Call it after the HTTP server has stopped.
    asio::awaitable<void> stop();
    /// Counts and logs each finished request.
    std::function<void(const Context&, const net::Request&, int, Duration)> on_done();

    struct State;

private:
    void render_documents();
    std::unique_ptr<State> state_;
};

} // namespace orrery::api
