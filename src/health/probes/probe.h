#pragma once

#include "core/masker.h"
#include "core/task.h"
#include "health/engine/engine.h"
#include "health/engine/probe_program.h"
#include "health/observation.h"

#include <memory>
#include <string>
#include <vector>

namespace orrery::health {

/// One way to probe one target. Immutable; runs of one probe may overlap. A probe has either a program, which the engine executes,
/// or an implementation of `run`.
class Probe {
public:
    virtual ~Probe() = default;
    /// Equal for two probes that do the same to the same target. The prober runs such probes once for all their checks.
    virtual std::string identity() const = 0;
    /// The host that the prober's limit of concurrent probes per host applies to. Empty: no limit applies.
    virtual std::string host() const { return {}; }
    /// Masks the secrets that the probe sends in what it observes. Null: the probe sends none.
    virtual const Masker* masker() const { return nullptr; }
    /// The program for the engine. Null: the probe implements `run`.
    virtual ProbeProgramPtr program() const { return nullptr; }
    /// Probes once. The context's deadline covers the whole probe: name resolution, connection, handshake, request, response. Never
    /// fails: every result is an observation. The caller sets `at` and `total`.
    virtual asio::awaitable<Observation> run(Context ctx) const;
};
using ProbePtr = std::shared_ptr<const Probe>;

/// Runs a probe once, on the engine if it has a program.
asio::awaitable<Observation> probe_once(Engine& engine, ProbePtr probe, Context ctx);

/// A masker for these values; null if there are none.
std::shared_ptr<const Masker> masker_of(const std::vector<std::string>& secrets);

} // namespace orrery::health
