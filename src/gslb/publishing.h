#pragma once

#include "core/task.h"
#include "gslb/ports.h"
#include "gslb/publication.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <string>

namespace orrery::gslb {

/// Port: makes what speaks to a DNS service from what a Publisher says. Implemented where drivers are known.
class PublisherMaker {
public:
    virtual ~PublisherMaker() = default;
    /// `invalid`, `not_found`: why it cannot be, in words, without anything of a secret.
    virtual Result<std::shared_ptr<Publisher>> make(const std::string& name, const json::object& spec) = 0;
};

/// What a decision is to a DNS service outside: what clients of no network of their own get, all of it. Weights are lost there.
Desired desired_of(const Decision& decision, std::int64_t number);

/// Brings decisions to every Publisher of their zone while this server leads, a path for each publisher and zone, and says in their
/// status how they stand. A Publisher that is removed leaves what it wrote; a LoadBalancer that is removed does not. Loop thread
/// only.
class Publishing final : public NameSink {
public:
    /// `servers` may be null. All must outlive this.
    Publishing(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Clock& clock,
               PublisherMaker& maker, NameServers* servers);
    ~Publishing() override;

    void serve(std::vector<Change> changes) override;
    json::array standing(const std::string& fqdn) const override;
    Duration slowest_publication(const std::string& fqdn) const override;
    void report_to(OnStanding on_standing) override;

    /// Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
