#pragma once

#include "core/masker.h"
#include "health/engine/probe_program.h"
#include "health/probes/probe.h"
#include "net/tls.h"

#include <memory>
#include <string>
#include <utility>

/// Private to the probes that the engine executes.
namespace orrery::health {

/// A probe that consists of a program for the engine.
class EngineProbe final : public Probe {
public:
    EngineProbe(std::string identity, ProbeProgram program, std::shared_ptr<const Masker> masker = nullptr)
        : identity_(std::move(identity)),
          program_(std::make_shared<const ProbeProgram>(std::move(program))),
          masker_(std::move(masker)) {
        if (program_->outbound) identity_ += " by rules"; // not shared with canaries, to which no rules apply
    }
    std::string identity() const override { return identity_; }
    std::string host() const override { return program_->host; }
    ProbeProgramPtr program() const override { return program_; }
    const Masker* masker() const override { return masker_.get(); }

private:
    std::string identity_;
    ProbeProgramPtr program_;
    std::shared_ptr<const Masker> masker_;
};

/// The part of a probe's identity that its TLS context makes up. Contexts are few and long-lived, so the address identifies one.
std::string tls_identity(const std::shared_ptr<net::TlsContext>& tls);

} // namespace orrery::health
