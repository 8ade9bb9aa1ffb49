#pragma once

#include "core/result.h"
#include "jobs/membership.h"
#include "jobs/plan.h"

#include <boost/json/object.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

/// Values that are bound when a task starts, not when its job is written.
namespace orrery::jobs {

/// What stands between the braces of a `${...}`.
///
///     service.mysql.addresses            addresses of those passing; nodes, endpoints (address:port), count, first
///     service.glance:lb.endpoints        with a tag
///     service.mysql.registered.nodes     those that will be there, rather than those that are; also usable
///     hosts.oc.names                     machines of a role in the plan; addresses, count
///     node.name, node.address, node.labels.rack
///     task.build.values.version          what another task published
///     with.members                       what `with` was bound to; in run, check, verify, undo and env
///     secret.db.password                 stays as it is until it is sent
///     job.name
struct Reference {
    enum class What { service, hosts, node, task, with, secret, job };
    What what = What::job;
    std::string name; ///< of the service, role, task, `with` value or secret
    std::string tag;
    MemberState state = MemberState::passing;
    std::string field;
};
Result<Reference> parse_reference(std::string_view text);

/// Where values come from.
struct Scope {
    std::string job;
    const Plan* plan = nullptr;
    const Membership* membership = nullptr;
    std::shared_ptr<const Target> node; ///< null: the task is not about one machine
    std::function<std::string(const std::string& node)> address_of;
    std::function<const json::object*(const std::string& task)> published; ///< null: it has published nothing
    const json::object* with = nullptr;
};

/// Every `${...}` in every text of `value` replaced. A text that is nothing but one reference becomes the value itself (a list
/// stays a list); within a text lists are joined with commas. Lists are sorted. `unavailable`: there is no evidence now, ask again;
/// `invalid`: there is no such value.
Result<json::value> bind(const json::value& value, const Scope& scope);

/// A short digest of a value: the same for the same contents, in whatever order its keys are.
std::string digest_of(const json::value& value);
/// SHA-256, in hexadecimal, its first `digits`.
std::string sha256_text(std::string_view bytes, std::size_t digits = 16);

} // namespace orrery::jobs
