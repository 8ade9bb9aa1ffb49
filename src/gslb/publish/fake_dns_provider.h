#pragma once

#include "gslb/publish/dns_provider.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::gslb {

/// For tests: a DNS service in memory with injectable faults. Tests may change its records directly.
class FakeDnsProvider final : public DnsProvider {
public:
    std::string description() const override { return "a service in memory"; }

    Task<std::vector<ProviderRecords>> read(Context, std::string, std::vector<std::string> names) override {
        ++reads;
        if (before_read) before_read();
        if (failing) co_return *failing;
        std::vector<ProviderRecords> out;
        for (auto& name : names) {
            auto found = zone.find(name);
            out.push_back({name, found == zone.end() ? RecordSets{} : found->second, !not_propagated, error});
        }
        co_return out;
    }

    Task<std::vector<Result<Accepted>>> publish(Context, std::string, std::vector<Change> changes) override {
        ++publishes;
        if (before_publish) before_publish();
        if (failing) co_return *failing;
        std::vector<Result<Accepted>> out;
        for (auto& change : changes) {
            batch_sizes.push_back(changes.size());
            if (auto guarded = guard_against_emptying(change); !guarded.ok()) {
                out.emplace_back(guarded.error());
            } else if (refused.contains(change.name)) {
                out.emplace_back(refused.at(change.name));
            } else if (!same_data(zone[change.name], change.before)) {
                out.emplace_back(Error{Code::conflict, "it is not as it was read"});
            } else {
                if (drop_marks)
                    for (auto& set : change.after) set.mark.clear();
                zone[change.name] = change.after;
                log.push_back(change.name + " " + text_of(change.after));
                out.emplace_back(Accepted{!not_propagated});
            }
        }
        if (lost_answer) co_return Error{Code::timeout, "the answer did not come"};
        co_return out;
    }

    std::map<std::string, RecordSets> zone;
    std::vector<std::string> log;         ///< all writes, in order
    std::vector<std::size_t> batch_sizes; ///< for each change, the size of its batch
    std::optional<Error> failing;         ///< the result of every call
    std::map<std::string, Error> refused; ///< the result of changes to these names
    bool lost_answer = false;             ///< changes are made, but the response is lost
    bool not_propagated = false, drop_marks = false;
    std::string error;
    std::function<void()> before_read, before_publish; ///< hooks for concurrent changes
    int reads = 0, publishes = 0;
};

/// For tests: name servers that answer from a fake DNS provider, or with outdated records.
class FakeNameServers final : public NameServers {
public:
    explicit FakeNameServers(FakeDnsProvider& of) : of_(of) {}
    Task<std::vector<Result<Answered>>> ask(Context, std::string server, std::vector<std::string> names) override {
        ++rounds;
        std::vector<Result<Answered>> out;
        for (const auto& name : names) {
            if (silent.contains(server)) {
                out.emplace_back(Error{Code::timeout, "no answer"});
                continue;
            }
            auto stale = behind.find(server);
            out.emplace_back(Answered{stale != behind.end() ? stale->second : of_.zone[name], true});
        }
        co_return out;
    }
    std::map<std::string, RecordSets> behind; ///< by server: outdated records
    std::map<std::string, bool> silent;
    int rounds = 0;

private:
    FakeDnsProvider& of_;
};

} // namespace orrery::gslb
