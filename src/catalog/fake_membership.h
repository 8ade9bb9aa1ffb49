#pragma once

#include "catalog/membership.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace orrery::catalog {

/// Who is there, as a test says.
class FakeMembership final : public Membership {
public:
    void set(std::string service, std::vector<Member> members) {
        for (auto& member : members) std::sort(member.tags.begin(), member.tags.end());
        std::sort(members.begin(), members.end(),
                  [](const Member& a, const Member& b) { return std::tie(a.node, a.id) < std::tie(b.node, b.id); });
        services_[service] = {std::move(members), ++revision_};
        tell(service);
    }
    /// From now on there is no answer, or there is one again.
    void set_evidence(std::optional<Error> none) {
        no_evidence_ = std::move(none);
        tell("");
    }
    Result<Members> members(std::string_view service, std::string_view tag) const override {
        if (no_evidence_) return *no_evidence_;
        Members out;
        const auto at = services_.find(std::string(service));
        if (at == services_.end()) return out;
        out.revision = at->second.revision;
        for (const auto& member : at->second.all)
            if (tag.empty() || std::find(member.tags.begin(), member.tags.end(), tag) != member.tags.end())
                out.all.push_back(member);
        return out;
    }
    std::shared_ptr<void> subscribe(std::function<void(const std::string&)> changed) override {
        auto handle = std::make_shared<std::function<void(const std::string&)>>(std::move(changed));
        subscribers_.push_back(handle);
        return handle;
    }
    std::shared_ptr<void> follow(std::string_view) override { return {}; }

private:
    void tell(const std::string& service) {
        const auto all = subscribers_;
        for (const auto& weak : all)
            if (const auto subscriber = weak.lock()) (*subscriber)(service);
    }
    std::map<std::string, Members> services_;
    std::optional<Error> no_evidence_;
    std::vector<std::weak_ptr<std::function<void(const std::string&)>>> subscribers_;
    store::Revision revision_ = 0;
};

} // namespace orrery::catalog
