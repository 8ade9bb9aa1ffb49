#pragma once

#include "dns/choice.h"
#include "gslb/ports.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orrery::gslb {

/// Says of members what a test tells it to.
class FakeWatcher final : public Watcher {
public:
    void watch(const std::string& member, Target target) override { watched.insert_or_assign(member, std::move(target)); }
    void forget(const std::string& member) override { watched.erase(member); }
    void report_to(OnSignal on_signal) override { on_signal_ = std::move(on_signal); }
    void report_places_to(OnPlace on_place) override { on_place_ = std::move(on_place); }
    void find(const std::string& member, const std::vector<std::string>& at) {
        Addresses addresses;
        for (const auto& one : at) std::ignore = addresses.add(one);
        on_place_(member, std::move(addresses));
    }
    void say(const std::string& member, Health health, std::string words = {}) {
        Signal signal;
        signal.monitored = true;
        signal.standing = health;
        signal.words = std::move(words);
        on_signal_(member, std::move(signal));
    }
    void say(const std::string& member, Signal signal) { on_signal_(member, std::move(signal)); }
    std::map<std::string, Target> watched;

private:
    OnSignal on_signal_;
    OnPlace on_place_;
};

/// Keeps what it is to serve.
class FakeSink final : public NameSink {
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
