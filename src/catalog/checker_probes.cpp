#include "catalog/checker_state.h"
#include "core/log.h"
#include "health/look_spec.h"

#include <fmt/format.h>

namespace orrery::catalog {

namespace {

health::Standing standing_of(CheckStatus status) {
    switch (status) {
    case CheckStatus::passing: return health::Standing::up;
    case CheckStatus::warning: return health::Standing::degraded;
    case CheckStatus::critical: return health::Standing::down;
    }
    return health::Standing::down;
}

CheckStatus status_of(health::Standing standing) {
    switch (standing) {
    case health::Standing::up: return CheckStatus::passing;
    case health::Standing::degraded: return CheckStatus::warning;
    case health::Standing::unknown:
    case health::Standing::down: return CheckStatus::critical;
    }
    return CheckStatus::critical;
}

} // namespace

void Checker::State::found(const std::string& key, const health::Verdict& verdict, const health::Observation& seen) {
    if (!health::is_evidence(seen.outcome)) return;
    const auto line = key.find('\n');
    const auto resource_key = key.substr(0, line), check = key.substr(line + 1);
    catalog.confirm(resource_key, check);
    const auto status = status_of(verdict.standing());
    const auto* known = known_result(resource_key, check);
    auto& waiting = pending[resource_key];
    if (known != nullptr && known->status == status) {
        waiting.erase(check);
        if (waiting.empty()) pending.erase(resource_key);
        return;
    }
    waiting[check] = CheckResult{status, seen.text, seen.at, {}};
    controller.poke(resource_key);
}

const CheckResult* Checker::State::known_result(const std::string& resource_key, std::string_view check) const {
    const auto at = stored.find(resource_key);
    if (at == stored.end()) return nullptr;
    const auto result = at->second.find(std::string(check));
    return result == at->second.end() ? nullptr : &result->second;
}

bool Checker::State::watch(const std::string& key, const Place& place, const Check& check, const CheckResult* known) {
    health::ProbePtr probe;
    const auto address = check.address.empty() ? place.address : check.address;
    const auto port = check.port == 0 ? place.port : check.port;
    switch (check.kind) {
    case Check::Kind::tcp:
        if (address.empty() || port == 0) return false;
        probe = health::tcp_probe({address, port});
        break;
    case Check::Kind::http: {
        health::HttpLook look;
        look.url = check.url;
        if (look.url.empty()) {
            if (address.empty() || port == 0) return false;
            const bool v6 = address.find(':') != std::string::npos;
            look.url = fmt::format("http://{}{}{}:{}{}", v6 ? "[" : "", address, v6 ? "]" : "", port, check.path);
        }
        look.method = check.method;
        look.headers = check.headers;
        look.body = check.body;
        look.contains = check.contains;
        if (!check.expect.empty())
            if (auto codes = health::parse_status_codes(check.expect); codes.ok()) look.codes = std::move(*codes);
        auto made = health::http_probe(std::move(look), options.tls);
        if (!made.ok()) {
            log::warn(Context::background(), "check {} of {} cannot be run: {}", check.id, key, made.error().message);
            return false;
        }
        probe = std::move(*made);
        break;
    }
    case Check::Kind::command:
        if (options.commands == nullptr) return false;
        probe = health::command_probe(*options.commands, place.node, check.command);
        break;
    default: return false;
    }
    prober.set(probe_key(key, check.id), {.probe = std::move(probe),
                                          .interval = check.interval,
                                          .timeout = check.timeout,
                                          .thresholds = {.rise = check.rise, .fall = check.fall, .forgive = 1},
                                          .remembered = known == nullptr ? health::Standing::unknown : standing_of(known->status)});
    return true;
}

} // namespace orrery::catalog
