#pragma once

#include "core/result.h"
#include "jobs/membership.h"
#include "jobs/plan.h"

#include <boost/json/object.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

/// Values that are bound when a task starts, not when its job is submitted.
namespace orrery::jobs {

/// A parsed reference: the text between the braces of `${...}`.
///
///     service.mysql.addresses            addresses of passing instances; also nodes, endpoints (address:port), count, first
///     service.glance:lb.endpoints        with a tag
///     service.mysql.registered.nodes     registered instances, which may not run yet; also usable
///     hosts.oc.names                     nodes of a role in the plan; also addresses, count
///     node.name, node.address, node.labels.rack
///     task.build.values.version          published by another task
///     with.members                       a bound value of `with`; in run, check, verify, undo and env
///     secret.db.password                 replaced only when it is sent
///     param.version                      a parameter of the run of a JobTemplate
///     job.name
struct Reference {
    enum class Type { service, hosts, node, task, with, secret, param, job };
    Type type = Type::job;
    std::string name; ///< of the service, role, task, `with` value, secret or parameter
    std::string tag;
    MemberState state = MemberState::passing;
    std::string field;
};
Result<Reference> parse_reference(std::string_view text);

/// The sources of values.
struct Scope {
    std::string job;
    const Plan* plan = nullptr;
    const Membership* membership = nullptr;
    std::shared_ptr<const Membership> own_membership; ///< where `membership` belongs to this scope
    std::shared_ptr<const Target> node;               ///< null: the task has no node of its own
    std::function<std::string(const std::string& node)> address_of;
    std::function<const json::object*(const std::string& task)> published; ///< null: the task has published nothing
    const json::object* with = nullptr;
};

/// Replaces every `${...}` in every text of `value`. A text that is one reference becomes the value itself (a list stays a list);
/// within a longer text, lists are joined with commas. Lists are sorted. `unavailable`: not known now, try again; `invalid`: the
/// value does not exist.
///
/// The result is a *bound* value. `${secret.NAME.KEY}` stays where the job itself names a secret, and every other `$` is doubled,
/// so that no part of an external value (a member, a label, a response) can be taken for a reference. `with_secrets` (secrets.h)
/// makes the text to send of a bound text.
Result<json::value> bind(const json::value& value, const Scope& scope);
/// The same for one text. The result is always a text, also where it is one reference to a list.
Result<std::string> bind_text(std::string_view text, const Scope& scope);

/// Whether no text in it has a "$": binding returns such a value as it is.
bool is_plain(const json::value& value);

/// A short digest of a value, independent of the order of keys.
std::string digest_of(const json::value& value);
/// The first `digits` hexadecimal digits of the SHA-256.
std::string sha256_text(std::string_view bytes, std::size_t digits = 16);

} // namespace orrery::jobs
