#pragma once

#include "jobs/membership.h"
#include "jobs/plan.h"
#include "jobs/records.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::jobs {

/// The groups of a plan that provide a service; with `tag`, where it is not empty.
std::vector<std::uint32_t> providers_of(const Plan& plan, std::string_view service, std::string_view tag);

/// The catalog as one job sees it. An instance without checks, on a node where a task of the job provides the service, is passing
/// only after that task has succeeded: before that, there is no evidence that it was started.
class PlannedMembership final : public Membership {
public:
    PlannedMembership(const Membership& catalog, const Plan& plan, const std::vector<TaskRecord>& records)
        : catalog_(catalog), plan_(plan), records_(records) {}
    Result<Members> members(std::string_view service, std::string_view tag) const override;
    std::optional<DeclaredService> declared(std::string_view service) const override { return catalog_.declared(service); }
    bool requires_declaration() const override { return catalog_.requires_declaration(); }
    /// The catalog itself reports changes.
    std::shared_ptr<void> subscribe(std::function<void(const std::string&)>) override { return {}; }
    std::shared_ptr<void> follow(std::string_view) override { return {}; }

private:
    const Membership& catalog_;
    const Plan& plan_;
    const std::vector<TaskRecord>& records_;
};

} // namespace orrery::jobs
