#pragma once

#include "core/clock.h"

#include <memory>
#include <optional>
#include <string>

namespace orrery {

/// Actor, id and deadline of a request: the first parameter of every operation. Immutable; a copy costs one reference count.
/// The API, the command line or a controller creates the id. All log lines, events, jobs, remote commands and outgoing requests
/// that the request causes carry it.
class Context {
public:
    /// A new context with a new id, or with the id that a caller sent.
    static Context make(std::string actor, std::string id = {});
    /// For work that no principal requested: start-up, tests.
    static Context background() { return make("system"); }

    const std::string& id() const { return parts_->id; }
    const std::string& actor() const { return parts_->actor; }
    /// nullopt: no deadline.
    std::optional<SteadyTime> deadline() const { return parts_->deadline; }

    Context with_actor(std::string actor) const;
    /// The earlier of `when` and the current deadline applies.
    Context with_deadline(SteadyTime when) const;
    /// For streams, which have no deadline.
    Context without_deadline() const;
    Context with_timeout(Duration time, const Clock& clock = real_clock()) const { return with_deadline(clock.steady() + time); }

private:
    struct Parts {
        std::string id, actor;
        std::optional<SteadyTime> deadline;
    };
    explicit Context(Parts parts) : parts_(std::make_shared<const Parts>(std::move(parts))) {}
    std::shared_ptr<const Parts> parts_;
};

} // namespace orrery
