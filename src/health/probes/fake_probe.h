#pragma once

#include "health/probes/probe.h"

#include <utility>

namespace orrery::health {

/// A probe with the result that a test sets.
class FakeProbe final : public Probe {
public:
    explicit FakeProbe(std::string identity) : identity_(std::move(identity)) {}
    std::string identity() const override { return identity_; }
    std::string host() const override { return at; }
    asio::awaitable<Observation> run(Context) const override {
        ++runs;
        co_return Observation{.outcome = outcome, .text = text};
    }
    Outcome outcome = Outcome::ok;
    std::string text = "as set";
    std::string at; ///< the host
    mutable int runs = 0;

private:
    std::string identity_;
};

} // namespace orrery::health
