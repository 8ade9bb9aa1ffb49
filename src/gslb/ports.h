#pragma once

#include "gslb/decide.h"

#include <boost/json/object.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace orrery::dns {
struct Tailored;
}

/// What this module needs from outside, in its own words.
namespace orrery::gslb {

/// Port: looks at members and says what that amounts to. Loop thread only.
class Watcher {
public:
    virtual ~Watcher() = default;
    struct Target {
        Addresses addresses;
        std::uint16_t port = 0; ///< for monitors that do not say
        struct Check {
            std::string monitor;
            json::object spec; ///< the Monitor's
            bool operator==(const Check&) const = default;
        };
        std::vector<Check> checks;           ///< all must be good
        Health remembered = Health::unknown; ///< what stood before a restart
        bool operator==(const Target&) const = default;
    };
    /// Begins to look at a member, or goes on in another way.
    virtual void watch(const std::string& member, Target target) = 0;
    virtual void forget(const std::string& member) = 0;
    /// Called whenever what is known of a member is another. Set before the first `watch`.
    using OnSignal = std::function<void(const std::string& member, Signal signal)>;
    virtual void report_to(OnSignal on_signal) = 0;
};

/// Port: who answers for names. Loop thread only.
class NameSink {
public:
    virtual ~NameSink() = default;
    struct Change {
        std::string fqdn, zone;
        std::shared_ptr<const dns::Tailored> answers; ///< null: the name is no more
        std::shared_ptr<const Decision> decision;     ///< null with it
        std::int64_t number = 0;                      ///< counts the decisions about the name
    };
    /// All that changed, at once. It must neither wait nor fail: what cannot be served is its own to say.
    virtual void serve(std::vector<Change> changes) = 0;
    /// How a name stands there, one for each way out: {"path", "state", "why"...}. The state is IN_SYNC, PENDING, DRIFT or ERROR.
    virtual json::array standing(const std::string& fqdn) const { return {}; }
    /// How long it has taken, at worst, from a decision until every name server of the slowest way out gave that answer.
    virtual Duration slowest_publication(const std::string& fqdn) const { return {}; }
    /// Called whenever that is another. It may only note.
    using OnStanding = std::function<void(const std::string& fqdn)>;
    virtual void report_to(OnStanding on_standing) {}
};

/// Several as one. All must outlive it.
class NameSinks final : public NameSink {
public:
    void add(NameSink& sink) { all_.push_back(&sink); }
    void serve(std::vector<Change> changes) override {
        for (auto* sink : all_) sink->serve(changes);
    }
    json::array standing(const std::string& fqdn) const override {
        json::array out;
        for (const auto* sink : all_)
            for (auto& one : sink->standing(fqdn)) out.push_back(std::move(one));
        return out;
    }
    Duration slowest_publication(const std::string& fqdn) const override {
        Duration out{};
        for (const auto* sink : all_) out = std::max(out, sink->slowest_publication(fqdn));
        return out;
    }
    void report_to(OnStanding on_standing) override {
        for (auto* sink : all_) sink->report_to(on_standing);
    }

private:
    std::vector<NameSink*> all_;
};

} // namespace orrery::gslb
