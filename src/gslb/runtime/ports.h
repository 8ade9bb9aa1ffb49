#pragma once

#include "gslb/decide/decision.h"

#include <boost/json/object.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace orrery::dns {
struct DynamicName;
}

/// The ports of the controller: the source of member health, and the destination of answers.
namespace orrery::gslb {

/// Port: watches the health of members. Loop thread only.
class Watcher {
public:
    virtual ~Watcher() = default;
    struct Target {
        Addresses addresses;
        std::uint16_t port = 0; ///< for monitors without a port
        struct Check {
            std::string monitor;
            json::object spec;        ///< of the Monitor
            std::vector<Check> parts; ///< calculated: the Monitors of the formula
            bool operator==(const Check&) const = default;
        };
        std::vector<Check> checks;                     ///< a member is up if all of them are good
        HealthState last_known = HealthState::unknown; ///< before a restart
        bool operator==(const Target&) const = default;
    };
    /// Starts to watch a member, or changes how it is watched.
    virtual void watch(const std::string& member, Target target) = 0;
    virtual void forget(const std::string& member) = 0;
    /// Called when the health of a member changes. To be set before the first `watch`.
    using OnHealth = std::function<void(const std::string& member, MemberHealth health)>;
    virtual void report_to(OnHealth on_health) = 0;
    /// Called when a source reports other addresses of a member. To be set before the first `watch`.
    using OnAddresses = std::function<void(const std::string& member, Addresses addresses)>;
    virtual void report_addresses_to(OnAddresses) {}
    /// How long the reports of a dead vantage count; 0: there is one vantage only.
    virtual Duration vantage_expiry() const { return {}; }
};

/// Port: brings answers to DNS clients. Loop thread only.
class AnswerPublisher {
public:
    virtual ~AnswerPublisher() = default;
    struct Change {
        std::string fqdn, zone;
        std::shared_ptr<const dns::DynamicName> answers; ///< null: the name is removed
        std::shared_ptr<const Decision> decision;        ///< null if the name is removed
        std::int64_t number = 0;                         ///< of the decision
    };
    /// All changes of one evaluation. Must neither block nor fail; errors belong into `publication_status`.
    virtual void serve(std::vector<Change> changes) = 0;
    /// The state of a name at each publication target: {"target", "state", "message"...}. The state is IN_SYNC, PENDING, DRIFT or
    /// ERROR.
    virtual json::array publication_status(const std::string& fqdn) const { return {}; }
    /// The worst time so far from a decision until every name server of the slowest publication target gave the answer.
    virtual Duration slowest_publication(const std::string& fqdn) const { return {}; }
    /// Called when the publication status changes. The callback must not block or re-enter; only enqueue work.
    using OnStatusChange = std::function<void(const std::string& fqdn)>;
    virtual void report_to(OnStatusChange on_status_change) {}
};

/// Several publishers as one. All must outlive it.
class AnswerPublishers final : public AnswerPublisher {
public:
    void add(AnswerPublisher& publisher) { all_.push_back(&publisher); }
    void serve(std::vector<Change> changes) override {
        for (auto* publisher : all_) publisher->serve(changes);
    }
    json::array publication_status(const std::string& fqdn) const override {
        json::array out;
        for (const auto* publisher : all_)
            for (auto& one : publisher->publication_status(fqdn)) out.push_back(std::move(one));
        return out;
    }
    Duration slowest_publication(const std::string& fqdn) const override {
        Duration out{};
        for (const auto* publisher : all_) out = std::max(out, publisher->slowest_publication(fqdn));
        return out;
    }
    void report_to(OnStatusChange on_status_change) override {
        for (auto* publisher : all_) publisher->report_to(on_status_change);
    }

private:
    std::vector<AnswerPublisher*> all_;
};

} // namespace orrery::gslb
