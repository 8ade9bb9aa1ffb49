#pragma once

#include "core/clock.h"

#include <memory>
#include <optional>
#include <string>

namespace orrery {

/// Who asked, under which id, until when. The first parameter of everything that works; immutable, one reference count to copy.
/// The id is born at the API, the command line or a controller, and goes through every log line, event, job, remote command
/// and outgoing request that follows from it.
class Context {
public:
    /// A new context with a fresh id, or with the id a caller sent.
    static Context make(std::string actor, std::string id = {});
    /// For code that runs on nobody's behalf: start-up, tests.
    static Context background() { return make("system"); }

    const std::string& id() const { return parts_->id; }
    const std::string& actor() const { return parts_->actor; }
    /// When this must be over; nothing where it may take as long as it needs.
    std::optional<SteadyTime> deadline() const { return parts_->deadline; }

    Context with_actor(std::string actor) const;
    /// Never later than the deadline this context has already.
    Context with_deadline(SteadyTime when) const;
    /// The same without a deadline: for streams, which last as long as both ends want.
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
