#include "core/json_fields.h"
#include "core/log.h"
#include "core/truncate.h"
#include "health/vantages/aggregator_state.h"
#include "health/wire_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::health {

namespace {

constexpr std::size_t max_reports = 10'000, max_assignments = 1000, max_removed = 100'000;
constexpr std::string_view secrets_need_tls = "is sent to checkers over TLS only: join this server by https://";

/// The parts of a checker's message, validated before anything is applied.
struct CheckerMessage {
    std::string name;
    bool trusted = true, leaving = false;
    const json::array* reports = nullptr; ///< null if leaving
};

Result<CheckerMessage> read_checker_message(const json::object& body) {
    CheckerMessage out;
    out.name = text_at(body, "vantage");
    if (!is_vantage_name(out.name)) return wire_error("vantage", "must be a name of up to 128 printable characters");
    const auto* trusted = body.if_contains("trusted");
    if (trusted == nullptr || !trusted->is_bool()) return wire_error("trusted", "must be true or false");
    out.trusted = trusted->get_bool();
    out.leaving = flag_at(body, "leaving");
    if (out.leaving) return out;
    const auto* reports = body.if_contains("reports");
    if (reports == nullptr || !reports->is_array()) return wire_error("reports", "must be a list");
    const auto& list = reports->get_array();
    if (list.size() > max_reports) return wire_error("reports", fmt::format("may have at most {} entries", max_reports));
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (!list[i].is_object()) return wire_error(fmt::format("reports[{}]", i), "must be an object");
        if (text_at(list[i].get_object(), "key").empty())
            return wire_error(fmt::format("reports[{}].key", i), "must name a target");
    }
    out.reports = &list;
    return out;
}

} // namespace

json::object HealthAggregator::assignments(std::string_view epoch, std::uint64_t after, bool with_secrets) const {
    const auto& state = *state_;
    const bool reset = epoch != state.epoch || after < state.floor || after > state.revision;
    if (reset) after = 0;
    json::array set, removed;
    std::size_t count = 0;
    auto at = state.changes.upper_bound(after);
    for (; at != state.changes.end() && count < max_assignments; ++at, ++count) {
        after = at->first;
        const auto& [key, exists] = at->second;
        if (!exists) {
            removed.emplace_back(key);
            continue;
        }
        const auto& target = state.targets.at(key);
        auto one = with_secrets ? target.resolved_spec().to_json() : target.spec.to_json();
        if (target.resolved && !with_secrets) one["probe"] = without_secret_values(target.spec.probe, secrets_need_tls);
        one["key"] = key;
        one["revision"] = at->first;
        set.emplace_back(std::move(one));
    }
    const bool more = at != state.changes.end();
    return {{"epoch", state.epoch},  {"revision", more ? after : state.revision},
            {"reset", reset},        {"more", more},
            {"set", std::move(set)}, {"removed", std::move(removed)}};
}

Task<Unit> HealthAggregator::assignments_changed(Context ctx, std::uint64_t after) {
    const auto state = state_;
    while (state->revision <= after && !state->closed) {
        CO_TRY(std::ignore, co_await state->assigned.wait(ctx));
    }
    co_return Unit{};
}

void HealthAggregator::State::record_change(const std::string& key, Target* target) {
    const auto old = target != nullptr ? target->revision : 0;
    if (target != nullptr && is_passive(target->spec.probe)) { // only this server knows the external source
        target->revision = 0;
        if (old != 0) {
            changes.erase(old);
            record_change(key, nullptr);
        }
        return;
    }
    if (old != 0) changes.erase(old);
    changes.emplace(++revision, std::pair(key, target != nullptr));
    if (target != nullptr)
        target->revision = revision;
    else if (++removed_count > max_removed)
        forget_oldest_removal();
    assigned.notify_all();
}

void HealthAggregator::State::forget_oldest_removal() {
    for (auto at = changes.begin(); at != changes.end(); ++at)
        if (!at->second.second) {
            floor = at->first;
            changes.erase(at);
            --removed_count;
            return;
        }
}

void HealthAggregator::State::forget_vantage(std::map<std::string, Vantage>::iterator at) {
    for (auto& [key, target] : targets) target.seen.erase(at->first);
    vantages.erase(at);
    detect_mass_failure();
    aggregate_all();
}

void HealthAggregator::State::apply_report(const std::string& vantage, const json::object& one, std::vector<std::string>& changed) {
    const auto at = targets.find(text_at(one, "key"));
    if (at == targets.end()) return;
    auto& target = at->second;
    // A report about an earlier spec is ignored.
    if (one.contains("revision") && wire_number(one, "revision", 0, INT64_MAX) != static_cast<std::int64_t>(target.revision))
        return;
    auto& seen = target.seen[vantage];
    seen.report = Report::from_json(one);
    seen.report.vantage = vantage;
    seen.at = clock.steady() - std::chrono::milliseconds(wire_number(one, "age_ms", 0, 86'400'000));
    const auto& thresholds = target.spec.thresholds;
    seen.until_change =
        seen.report.state == HealthState::down ? thresholds.rise : std::max(1, thresholds.fall - seen.report.failures);
    if (is_good(seen.report.last)) seen.rtt = static_cast<double>(seen.report.took.count());
    if (aggregate(at->first, target)) changed.push_back(at->first);
}

Result<Unit> HealthAggregator::receive_reports(const json::value& body) {
    auto& state = *state_;
    if (!state.disabled_reason.empty())
        return Error{Code::unavailable, state.disabled_reason, "join a server that runs controllers"};
    if (!body.is_object()) return wire_error("body", "must be an object");
    const auto& fields = body.get_object();
    TRY(const auto message, read_checker_message(fields));
    const auto known = state.vantages.find(message.name);
    const bool is_new = known == state.vantages.end();
    if (!is_new && known->second.kind != VantageKind::checker)
        return wire_error("vantage", fmt::format("\"{}\" is a {} already", message.name, name_of(known->second.kind)));
    if (message.leaving) {
        if (is_new) return Unit{};
        log::info(Context::background(), "checker signed off vantage={}", message.name);
        state.forget_vantage(known);
        return Unit{};
    }
    if (is_new) {
        const auto checkers = std::count_if(state.vantages.begin(), state.vantages.end(),
                                            [](const auto& one) { return one.second.kind == VantageKind::checker; });
        if (static_cast<std::size_t>(checkers) >= state.options.max_checkers)
            return Error{Code::throttled, fmt::format("{} checkers have joined already, which is the limit", checkers)};
    }
    auto& vantage = state.vantages[message.name];
    vantage.kind = VantageKind::checker;
    const bool was_silent = !is_new && std::exchange(vantage.known_silent, false);
    vantage.last_report_at = state.clock.steady();
    vantage.heartbeat = std::chrono::milliseconds(std::clamp<std::int64_t>(
        wire_number(fields, "heartbeat_ms", default_heartbeat / std::chrono::milliseconds(1), 20'000), 100, 20'000));
    vantage.targets = static_cast<std::size_t>(wire_number(fields, "targets", 0, 10'000'000));
    const bool was_trusted = vantage.diagnosis.trusted;
    vantage.diagnosis = {.trusted = message.trusted, .message = {}};
    if (!message.trusted) {
        vantage.diagnosis.message = truncate(text_at(fields, "message"), 256);
        vantage.diagnosis.cause = quarantine_cause_named(text_at(fields, "cause"));
    }
    const bool mass_failure_before = state.mass_failure;
    state.detect_mass_failure();
    std::vector<std::string> changed;
    for (const auto& one : *message.reports) state.apply_report(message.name, one.get_object(), changed);
    if (was_silent) log::info(Context::background(), "checker reports again vantage={}", message.name);
    if (was_trusted != message.trusted) state.log_trust(message.name, vantage.diagnosis);
    if (was_silent || was_trusted != message.trusted || mass_failure_before != state.mass_failure) state.aggregate_all();
    for (const auto& key : changed) state.notify(key);
    return Unit{};
}

} // namespace orrery::health
