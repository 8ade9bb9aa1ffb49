#include "health/vantages/report.h"

#include "core/json_fields.h"
#include "health/wire_fields.h"

namespace orrery::health {

namespace {

/// A message is renewed at most this often while the outcome stays the same: its text may differ with every probe.
constexpr auto message_every = std::chrono::minutes(1);
/// Consecutive local errors after which a vantage cannot check a target that it could check before.
constexpr int max_unable = 3;

} // namespace

json::object Report::to_json() const {
    json::object out{
        {"state", name_of(state)}, {"class", name_of(last)}, {"ms", took.count()}, {"n_fail", failures}, {"stale", stale}};
    if (!message.empty()) out["message"] = message;
    if (!error.empty()) out["error"] = error;
    return out;
}

Report Report::from_json(const json::object& value) {
    Report out;
    out.state = health_state_from(text_at(value, "state"));
    out.last = outcome_from(text_at(value, "class"));
    out.message = evidence_text(text_at(value, "message"));
    out.error = evidence_text(text_at(value, "error"));
    out.took = std::chrono::milliseconds(wire_number(value, "ms", 0, 3'600'000));
    out.failures = static_cast<int>(wire_number(value, "n_fail", 0, 1000));
    out.stale = flag_at(value, "stale");
    return out;
}

bool differs(const Report& left, const Report& right) {
    return left.state != right.state || left.stale != right.stale || left.last != right.last || left.message != right.message ||
           left.error != right.error;
}

void ReportBuilder::update(const HealthStateMachine& verdict, const Observation& observed, bool passive, SteadyTime now) {
    const auto before = report.state;
    report.state = verdict.state();
    report.stale = verdict.stale();
    report.failures = verdict.failures();
    if (!is_evidence(observed.outcome)) {
        if (passive) return;
        if (observed.cannot_run || report.state == HealthState::unknown || ++unable >= max_unable)
            report.error = evidence_text(observed.text);
        return;
    }
    unable = 0;
    report.error.clear();
    if (observed.outcome == Outcome::ok) {
        report.message.clear();
    } else if (report.last != observed.outcome || before != report.state || report.message.empty() ||
               now - message_at >= message_every) {
        report.message = evidence_text(observed.text);
        message_at = now;
    }
    report.last = observed.outcome;
    report.took = std::chrono::duration_cast<std::chrono::milliseconds>(observed.total);
    at = now;
}

} // namespace orrery::health
