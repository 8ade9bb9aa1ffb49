#include "resource/kinds.h"

namespace orrery::resource {

Kind node_kind() {
    Kind node("Node", "nodes", "A machine that orrery manages.");
    node.spec(
            text("address", "How to reach it: an IP address or a host name.").required().format(Format::host).example("192.0.2.11"))
        .spec(object("ssh", "How to log in.")
                  .with(text("user", "The account.").format(Format::one_line).between(1, 64).otherwise("root"))
                  .with(integer("port", "The port.").between(1, 65535).otherwise(22))
                  .with(text("key", "The Secret that holds the private key, as its value \"private_key\".").refers_to("Secret"))
                  .with(text("host_key",
                             "The machine's public key, as in a known_hosts file (\"ssh-ed25519 AAAA...\"): no other is accepted.")
                            .format(Format::one_line)
                            .between(1, 4096))
                  .with(boolean("trust_first_use",
                                "Where there is no host_key: trust the one that is seen first, and from then on no other."))
                  .with(boolean("sudo", "Whether tasks become root by sudo, which must not ask for a password."))
                  .with(text("jump", "The Node to go through to reach this one.").refers_to("Node")))
        .spec(object("maintenance", "Whether people work on it: nothing is started there meanwhile.")
                  .with(boolean("enabled", "In maintenance.").otherwise(false))
                  .with(text("reason", "Why, for colleagues.").format(Format::one_line).between(0, 256)))
        .column("NAME", "name")
        .column("ADDRESS", "spec.address")
        .column("MAINTENANCE", "spec.maintenance.enabled")
        .column("LABELS", "labels")
        .column("AGE", "age")
        .wide_column("SSH", "spec.ssh.user")
        .wide_column("PORT", "spec.ssh.port")
        .wide_column("KEY", "spec.ssh.key")
        .also_called({"no"})
        .example(R"(kind: Node
name: n1
labels:
  role: compute
  rack: r12
spec:
  address: 192.0.2.11
  ssh:
    user: root
    port: 22
    key: site-key
)");
    return node;
}

Kind secret_kind() {
    Kind secret("Secret", "secrets", "Named values that are sealed at rest and never given out again.");
    secret.spec(text("description", "What it is for.").format(Format::one_line).between(0, 256))
        .spec(map("values", "The values by name. Write-only: what is read shows their names.", text("value", "A value.").secret())
                  .required()
                  .between(1, 64))
        .column("NAME", "name")
        .column("DESCRIPTION", "spec.description")
        .column("AGE", "age")
        .wide_column("LABELS", "labels")
        .example(R"(kind: Secret
name: site-key
spec:
  description: how we log in to the machines
  values:
    private_key: |
      -----BEGIN OPENSSH PRIVATE KEY-----
      ...
      -----END OPENSSH PRIVATE KEY-----
)");
    return secret;
}

Kind event_kind() {
    Kind event("Event", "events", "Something that happened: to what, by whom, why, on what evidence. Written by the server only.");
    event.spec(text("subject", "What it happened to, as Kind/name.").required().indexed())
        .spec(text("what", "What happened: created, updated, removed, login-refused...").required())
        .spec(text("actor", "Who did it.").required().indexed())
        .spec(text("context", "The id that all that followed from one request shares.").required().indexed())
        .spec(text("because", "The reason that was given."))
        .spec(any("evidence", "What it rests on."))
        .spec(time("at", "When.").required())
        .column("TIME", "spec.at")
        .column("SUBJECT", "spec.subject")
        .column("WHAT", "spec.what")
        .column("ACTOR", "spec.actor")
        .column("BECAUSE", "spec.because")
        .wide_column("CONTEXT", "spec.context")
        .wide_column("NAME", "name")
        .also_called({"ev"})
        .verbs({Verb::read})
        .access(Role::viewer, Role::admin)
        .unaudited();
    return event;
}

namespace {
const json::object& object_at(const json::object& holder, std::string_view key) {
    static const json::object none;
    const auto* value = holder.if_contains(key);
    return value != nullptr && value->is_object() ? value->get_object() : none;
}
std::string text_at(const json::object& holder, std::string_view key) {
    const auto* value = holder.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}
} // namespace

Node Node::from(const Object& object) {
    Node node;
    node.name = object.name;
    node.address = text_at(object.spec, "address");
    const auto& ssh = object_at(object.spec, "ssh");
    node.ssh_user = text_at(ssh, "user");
    node.ssh_key = text_at(ssh, "key");
    node.ssh_host_key = text_at(ssh, "host_key");
    node.ssh_jump = text_at(ssh, "jump");
    const auto flag = [&ssh](std::string_view key) {
        const auto* value = ssh.if_contains(key);
        return value != nullptr && value->is_bool() && value->get_bool();
    };
    node.ssh_trust_first_use = flag("trust_first_use");
    node.ssh_sudo = flag("sudo");
    if (const auto* port = ssh.if_contains("port"); port != nullptr && port->is_int64())
        node.ssh_port = static_cast<int>(port->get_int64());
    const auto& maintenance = object_at(object.spec, "maintenance");
    if (const auto* enabled = maintenance.if_contains("enabled"); enabled != nullptr && enabled->is_bool())
        node.maintenance = enabled->get_bool();
    node.maintenance_reason = text_at(maintenance, "reason");
    return node;
}

} // namespace orrery::resource
