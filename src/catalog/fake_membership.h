#pragma once

#include "catalog/membership.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace orrery::catalog {

/// For tests: an instance that a check observes. Its id is the name of its node.
inline Member fake_member(std::string node, std::string address, std::uint16_t port, State state, std::string why = {}) {
    Member out;
    out.id = node;
    out.node = std::move(node);
    out.address = std::move(address);
    out.port = port;
    out.state = state;
    out.why = std::move(why);
    out.checked = true;
    return out;
}

/// For tests: a catalog whose members the test sets. The only fake of this port.
class FakeMembership final : public Membership {
public:
    /// Replaces all members of a service.
    void set_all(const std::string& service, std::vector<Member> members) {
        for (auto& member : members) std::sort(member.tags.begin(), member.tags.end());
        std::sort(members.begin(), members.end(),
                  [](const Member& a, const Member& b) { return std::tie(a.node, a.id) < std::tie(b.node, b.id); });
        services_[service] = {std::move(members), ++revision_};
        notify(service);
    }
    /// Adds a member, or replaces the one on its node.
    void set(const std::string& service, Member member, std::vector<std::string> tags = {}) {
        member.tags = std::move(tags);
        auto members = services_[service].all;
        std::erase_if(members, [&](const Member& other) { return other.node == member.node; });
        members.push_back(std::move(member));
        set_all(service, std::move(members));
    }
    /// A passing member with an address made of its node's name.
    void pass(const std::string& service, const std::string& node, std::vector<std::string> tags = {}) {
        set(service, fake_member(node, "addr-" + node, 80, State::passing), std::move(tags));
    }
    void remove(const std::string& service, const std::string& node) {
        auto members = services_[service].all;
        std::erase_if(members, [&](const Member& other) { return other.node == node; });
        set_all(service, std::move(members));
    }
    /// Declares a Service.
    void declare(const std::string& service, DeclaredService spec = {.port = 80, .checked = true, .wanted = {}}) {
        declared_[service] = spec;
    }
    /// Only instances of declared Services are members, as in the built-in catalog.
    bool declared_only = false;
    /// From now on there is no answer, or there is one again.
    void set_evidence(std::optional<Error> none) {
        no_evidence_ = std::move(none);
        notify("");
    }

    Result<Members> members(std::string_view service, std::string_view tag) const override {
        if (no_evidence_) return *no_evidence_;
        Members out;
        const auto at = services_.find(service);
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
    std::optional<DeclaredService> declared(std::string_view service) const override {
        const auto found = declared_.find(service);
        return found == declared_.end() ? std::nullopt : std::optional(found->second);
    }
    bool requires_declaration() const override { return declared_only; }

private:
    void notify(const std::string& service) {
        const auto all = subscribers_;
        for (const auto& weak : all)
            if (const auto subscriber = weak.lock()) (*subscriber)(service);
    }
    std::map<std::string, Members, std::less<>> services_;
    std::map<std::string, DeclaredService, std::less<>> declared_;
    std::optional<Error> no_evidence_;
    std::vector<std::weak_ptr<std::function<void(const std::string&)>>> subscribers_;
    store::Revision revision_ = 0;
};

} // namespace orrery::catalog
