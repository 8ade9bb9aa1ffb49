#pragma once

#include "jobs/membership.h"

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// For tests: a catalog that says what it was told.
class FakeMembership final : public Membership {
public:
    struct Entry {
        Member member;
        std::set<std::string> tags;
    };
    void set(const std::string& service, Member member, std::set<std::string> tags = {}) {
        services_[service][member.node] = {member, std::move(tags)};
        tell(service);
    }
    /// An instance at "<node>" with an address made of its name.
    void pass(const std::string& service, const std::string& node, std::set<std::string> tags = {}) {
        set(service, {node, "addr-" + node, 80, MemberState::passing, {}}, std::move(tags));
    }
    void remove(const std::string& service, const std::string& node) {
        services_[service].erase(node);
        tell(service);
    }
    /// From now on nobody can be asked, or everybody again.
    void lose(bool lost) {
        lost_ = lost;
        tell("");
    }

    Result<std::vector<Member>> members(std::string_view service, std::string_view tag) const override {
        if (lost_) return Error{Code::unavailable, "the catalog cannot be asked"};
        std::vector<Member> out;
        if (const auto found = services_.find(std::string(service)); found != services_.end())
            for (const auto& [node, entry] : found->second)
                if (tag.empty() || entry.tags.contains(std::string(tag))) out.push_back(entry.member);
        // In no order that means anything: whoever uses it must sort.
        std::reverse(out.begin(), out.end());
        return out;
    }
    std::shared_ptr<void> watch(std::function<void(std::string_view)> changed) override {
        auto place = watchers_->insert(watchers_->end(), std::move(changed));
        return {nullptr, [watchers = watchers_, place](void*) { watchers->erase(place); }};
    }

private:
    void tell(std::string_view service) {
        const auto copy = *watchers_;
        for (const auto& watcher : copy) watcher(service);
    }
    std::map<std::string, std::map<std::string, Entry>> services_;
    std::shared_ptr<std::list<std::function<void(std::string_view)>>> watchers_ =
        std::make_shared<std::list<std::function<void(std::string_view)>>>();
    bool lost_ = false;
};

} // namespace orrery::jobs
