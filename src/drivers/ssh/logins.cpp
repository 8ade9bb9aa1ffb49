#include "drivers/ssh/logins.h"

#include "core/json_fields.h"
#include "core/log.h"

#include <fmt/format.h>

namespace orrery::drivers {

Result<net::SshTarget> ResourceLogins::login(const resource::Node& node) { return login(node, 0); }

Result<net::SshTarget> ResourceLogins::login(const resource::Node& node, int depth) {
    if (depth > 4)
        return Error{Code::invalid, fmt::format("node {} is behind too many jump hosts", node.name),
                     "remove the cycle in ssh.jump"};
    net::SshTarget target;
    target.host = node.address;
    target.port = static_cast<std::uint16_t>(node.ssh_port);
    target.user = node.ssh_user.empty() ? "root" : node.ssh_user;
    target.host_key = node.ssh_host_key;
    if (node.ssh_key.empty())
        return Error{Code::invalid, fmt::format("node {} has no key to log in with", node.name),
                     "name a Secret as spec.ssh.key whose value private_key holds it"};
    TRY(const auto* secrets, resources_.registry().get("Secret"));
    auto key = resources_.reveal(*secrets, node.ssh_key, "spec.values.private_key");
    if (!key.ok()) {
        auto error = std::move(key).error().within(fmt::format("node {} cannot be logged in to", node.name));
        error.remedy = fmt::format("give the Secret {} a value private_key", node.ssh_key);
        return error;
    }
    target.private_key = std::move(*key);
    if (target.host_key.empty() && node.ssh_trust_first_use) {
        TRY(const auto* nodes, resources_.registry().get("Node"));
        if (const auto object = resources_.get(*nodes, node.name); object.ok())
            target.host_key = text_at(object->status, "ssh_host_key");
        if (target.host_key.empty())
            target.on_first_key = [this, name = node.name](Context ctx, std::string shown) {
                return keep_host_key(ctx, name, std::move(shown));
            };
    }
    if (!node.ssh_jump.empty()) {
        TRY(const auto* nodes, resources_.registry().get("Node"));
        auto object = resources_.get(*nodes, node.ssh_jump);
        if (!object.ok()) return std::move(object).error().within(fmt::format("the jump host of node {}", node.name));
        TRY(auto jump, login(resource::Node::from(*object), depth + 1));
        target.jump = std::make_shared<const net::SshTarget>(std::move(jump));
    }
    return target;
}

Task<Unit> ResourceLogins::keep_host_key(Context ctx, std::string node, std::string host_key) {
    CO_TRY(const auto* nodes, resources_.registry().get("Node"));
    CO_TRY(auto object, resources_.get(*nodes, node));
    if (const auto known = text_at(object.status, "ssh_host_key"); !known.empty() && known != host_key)
        co_return Error{Code::denied, fmt::format("node {} presents another host key than the first time", node)};
    object.status["ssh_host_key"] = host_key;
    resource::WriteOptions options;
    options.fence = fence_;
    CO_TRY(std::ignore, co_await resources_.set_status(ctx, *nodes, node, std::move(object.status), options));
    const auto fingerprint = net::ssh_fingerprint(host_key);
    resource::EventDraft event;
    event.subject = "Node/" + node;
    event.action = "host-key-trusted";
    event.reason = "first key that the host presented, and the Node has ssh.trust_first_use";
    event.evidence = boost::json::object{{"fingerprint", fingerprint.ok() ? *fingerprint : ""}};
    CO_TRY(std::ignore, co_await resources_.record(ctx, std::move(event)));
    co_return Unit{};
}

} // namespace orrery::drivers
