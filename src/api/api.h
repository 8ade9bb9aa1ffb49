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

namespace orrery::gslb {
class Controller;
}
namespace orrery::health {
class Lookout;
}
namespace orrery::jobs {
class Engine;
}

namespace orrery::api {

/// Port: what an administrator does to the store as a whole. The app implements it, because it knows which engine runs.
class StoreAdmin {
public:
    virtual ~StoreAdmin() = default;
    virtual std::string engine() const = 0;   ///< "sqlite" or "etcd"
    virtual std::string location() const = 0; ///< its URL, without credentials
    /// A consistent copy in a temporary file that the caller removes. `unsupported` on etcd, which has its own tool.
    struct Backup {
        std::string file;
        store::Revision revision = 0;
    };
    virtual Task<Backup> backup(Context ctx) = 0;
    struct Migration {
        std::int64_t keys = 0;
        std::string digest;
    };
    /// Moves everything to another store; `progress(done, total)` is told on the way. After success the server goes on with the new
    /// one.
    virtual Task<Migration> migrate(Context ctx, std::string to, std::function<void(std::int64_t, std::int64_t)> progress) = 0;
};

struct ApiOptions {
    std::string version;
    Duration heartbeat = std::chrono::seconds(15); ///< of event streams
    std::size_t max_body = 4 << 20;
};

/// The REST API: a table of routes over resources, identity and the store, and the handler that serves it. Loop thread only.
class Api {
public:
    Api(asio::any_io_executor executor, resource::Resources& resources, identity::Identity& identity, StoreAdmin& admin,
        Clock& clock, ApiOptions options);
    ~Api();

    /// Adds what jobs have beyond the routes of every kind. The kind Job must be registered; the engine must outlive this.
    void add_jobs(jobs::Engine& engine);
    /// The same for load balancers.
    void add_gslb(gslb::Controller& controller);

    /// Adds the doors for vantages. The lookout must outlive this.
    void add_health(health::Lookout& lookout);

    const Router& router() const;
    /// For net::HttpServer; the Api must outlive the server.
    net::Handler handler();
    std::function<net::Response(const Context&, const Error&)> on_error();
    /// Further values for /metrics, by full name.
    void add_gauges(std::function<std::vector<std::pair<std::string, double>>()> gauges);
    /// What /readyz adds to the store's health.
    void add_readiness(std::function<Result<Unit>()> ready);

    /// Waits for what runs beside requests (a migration). After the server has stopped.
    asio::awaitable<void> stop();
    std::function<void(const Context&, const net::Request&, int, Duration)> on_done();

    struct State;

private:
    std::unique_ptr<State> state_;
};

} // namespace orrery::api
