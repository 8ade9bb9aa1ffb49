#pragma once

#include "health/probe.h"

#include <utility>

namespace orrery::health {

/// A look that finds what a test says.
class FakeProbe final : public Probe {
public:
    explicit FakeProbe(std::string identity) : identity_(std::move(identity)) {}
    std::string identity() const override { return identity_; }
    std::string host() const override { return at; }
    asio::awaitable<Observation> look(Context) const override {
        ++looks;
        co_return Observation{.outcome = outcome, .text = text};
    }
    Outcome outcome = Outcome::ok;
    std::string text = "as told";
    std::string at; ///< the host
    mutable int looks = 0;

private:
    std::string identity_;
};

} // namespace orrery::health
