#include "catalog/checker_state.h"
#include "core/log.h"
#include "health/probe_spec.h"
#include "health/probes/tcp_probe.h"

#include <fmt/format.h>

#include <iterator>

namespace orrery::catalog {

namespace {

health::HealthState health_state_of(CheckStatus status) {
    switch (status) {
    case CheckStatus::passing: return health::HealthState::up;
    case CheckStatus::warning: return health::HealthState::degraded;
    case CheckStatus::critical: return health::HealthState::down;
    }
    return health::HealthState::down;
}

CheckStatus status_of(health::HealthState state) {
    switch (state) {
    case health::HealthState::up: return CheckStatus::passing;
    case health::HealthState::degraded: return CheckStatus::warning;
    case health::HealthState::unknown:
    case health::HealthState::down: return CheckStatus::critical;
    }
    return CheckStatus::critical;
}

} // namespace

void Checker::State::found(const std::string& key, const health::HealthStateMachine& verdict, const health::Observation& seen) {
    if (!health::is_evidence(seen.outcome) && !seen.cannot_run) return;
    const auto line = key.find('\n');
    const auto resource_key = key.substr(0, line), check = key.substr(line + 1);
    const auto* known = known_result(resource_key, check);
    if (!health::is_evidence(seen.outcome)) {
        if (known != nullptr && known->error == seen.text) return;
        pending[resource_key][check] = CheckResult{.error = seen.text};
        controller.enqueue(resource_key);
        return;
    }
    const auto status = status_of(verdict.state());
    auto& waiting = pending[resource_key];
    if (known != nullptr && known->status == status && known->error.empty()) {
        // A bad result that does not bring it down yet confirms nothing; a change is confirmed when it is stored.
        if (health::is_good(seen.outcome) == verdict.is_up()) catalog.confirm(resource_key, check);
        waiting.erase(check);
        if (waiting.empty()) pending.erase(resource_key);
        return;
    }
    waiting[check] = CheckResult{status, seen.text, seen.at, {}, {}};
    controller.enqueue(resource_key);
}

const CheckResult* Checker::State::known_result(const std::string& resource_key, std::string_view check) const {
    const auto at = stored.find(resource_key);
    if (at == stored.end()) return nullptr;
    const auto result = at->second.find(std::string(check));
    return result == at->second.end() ? nullptr : &result->second;
}

void Checker::State::note_secrets(const std::string& key, const CheckedTarget& target) {
    for (auto at = secret_users.begin(); at != secret_users.end();) {
        at->second.erase(key);
        at = at->second.empty() ? secret_users.erase(at) : std::next(at);
    }
    if (target.checks == nullptr) return;
    const auto note = [&](const json::value& value) {
        if (const auto named = resource::named_secret(value)) secret_users[named->name].insert(key);
    };
    for (const auto& view : *target.checks) {
        note(view.check.body);
        for (const auto& [name, value] : view.check.headers) note(value);
    }
}

Result<health::ProbePtr> Checker::State::http_probe_of(const Check& check, std::string url) const {
    json::object sent{{"headers", check.headers}, {"body", check.body}};
    if (health::names_secrets(sent)) sent = health::with_secret_values(std::move(sent), options.secrets);
    TRY(auto probe_options, health::http_headers_and_body(sent));
    probe_options.url = std::move(url);
    probe_options.method = check.method;
    probe_options.contains = check.contains;
    probe_options.outbound = options.outbound;
    if (!check.expect.empty())
        if (auto codes = health::parse_status_codes(check.expect); codes.ok()) probe_options.codes = std::move(*codes);
    return health::http_probe(std::move(probe_options), options.tls);
}

bool Checker::State::watch(const std::string& key, const CheckedTarget& target, const Check& check, const CheckResult* known,
                           std::string& error) {
    health::ProbePtr probe;
    const auto address = check.address.empty() ? target.address : check.address;
    const auto port = check.port == 0 ? target.port : check.port;
    switch (check.kind) {
    case Check::Kind::tcp:
        if (address.empty() || port == 0) return false;
        probe = health::tcp_probe({.host = address, .port = port, .outbound = options.outbound});
        break;
    case Check::Kind::http: {
        auto url = check.url;
        if (url.empty()) {
            if (address.empty() || port == 0) return false;
            const bool v6 = address.find(':') != std::string::npos;
            url = fmt::format("http://{}{}{}:{}{}", v6 ? "[" : "", address, v6 ? "]" : "", port, check.path);
        }
        auto made = http_probe_of(check, std::move(url));
        if (!made.ok()) {
            error = made.error().message;
            log::warn(Context::background(), "check {} of {} cannot run: {}", check.id, key, error);
            return false;
        }
        probe = std::move(*made);
        break;
    }
    case Check::Kind::command:
        if (options.commands == nullptr) return false;
        probe = health::command_probe(*options.commands, target.node, check.command);
        break;
    default: return false;
    }
    prober.set(probe_key(key, check.id),
               {.probe = std::move(probe),
                .interval = check.interval,
                .timeout = check.timeout,
                .thresholds = {.rise = check.rise, .fall = check.fall, .forgive = 1},
                .remembered = known == nullptr || known->since == WallTime{} ? health::HealthState::unknown
                                                                             : health_state_of(known->status)});
    return true;
}

} // namespace orrery::catalog
