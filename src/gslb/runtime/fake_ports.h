#pragma once

#include "dns/dynamic_name.h"
#include "gslb/runtime/ports.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orrery::gslb {

/// Reports the health that a test sets.
class FakeWatcher final : public Watcher {
public:
    void watch(const std::string& member, Target target) override { watched.insert_or_assign(member, std::move(target)); }
    void forget(const std::string& member) override { watched.erase(member); }
    void report_to(OnHealth on_health) override { on_health_ = std::move(on_health); }
    void report_addresses_to(OnAddresses on_addresses) override { on_addresses_ = std::move(on_addresses); }
    void set_addresses(const std::string& member, const std::vector<std::string>& at) {
        Addresses addresses;
        for (const auto& one : at) std::ignore = addresses.add(one);
        on_addresses_(member, addresses);
    }
    void set_health(const std::string& member, HealthState state, std::string message = {}) {
        MemberHealth health;
        health.monitored = true;
        health.state = state;
        health.message = std::move(message);
        on_health_(member, std::move(health));
    }
    void set_health(const std::string& member, MemberHealth health) { on_health_(member, std::move(health)); }
    std::map<std::string, Target> watched;

private:
    OnHealth on_health_;
    OnAddresses on_addresses_;
};

/// Keeps the changes that it is to serve.
class FakeAnswerPublisher final : public AnswerPublisher {
public:
    void serve(std::vector<Change> changes) override {
        ++calls;
        for (auto& change : changes)
            if (change.answers)
                names.insert_or_assign(change.fqdn, std::move(change));
            else
                names.erase(change.fqdn);
    }
    std::vector<std::string> addresses(const std::string& fqdn) const {
        std::vector<std::string> out;
        if (const auto found = names.find(fqdn); found != names.end())
            for (const auto& one : found->second.decision->answers.front().candidates)
                for (const auto& text : one.addresses.texts()) out.push_back(text);
        return out;
    }
    std::map<std::string, Change> names;
    int calls = 0;
};

} // namespace orrery::gslb
