#include "resource/kinds.h"

#include "core/json_fields.h"
#include "resource/account.h"
#include "resource/object.h"
#include "resource/resources.h"

#include <algorithm>

namespace orrery::resource {

bool is_account(std::string_view name) {
    if (name.empty() || !((name[0] >= 'a' && name[0] <= 'z') || (name[0] >= 'A' && name[0] <= 'Z') || name[0] == '_')) return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    });
}

namespace {

Task<Unit> prepare_node(Context, Draft& draft) {
    std::vector<FieldError> errors;
    const auto* ssh = draft.after.spec.if_contains("ssh");
    const auto* user = ssh != nullptr && ssh->is_object() ? ssh->get_object().if_contains("user") : nullptr;
    if (user != nullptr && user->is_string() && !is_account(std::string_view(user->get_string())))
        errors.push_back({"spec.ssh.user", "must be the name of an account: letters, digits, _ - . and a letter or _ first"});
    co_return verdict(*draft.resources->registry().find("Node"), draft.after.name, std::move(errors));
}

} // namespace

Kind node_kind() {
    Kind node("Node", "nodes", "A host that orrery manages.");
    node.spec(text("address", "IP address or host name.").required().format(Format::host).example("192.0.2.11"))
        .spec(
            object("ssh", "SSH login.")
                .with(text("user", "Account.").format(Format::one_line).between(1, 64).default_value("root"))
                .with(integer("port", "Port.").between(1, 65535).default_value(22))
                .with(text("key", "Secret whose value \"private_key\" is the private key.").refers_to("Secret"))
                .with(text("host_key", "Public host key as in known_hosts (\"ssh-ed25519 AAAA...\"). Other host keys are rejected.")
                          .format(Format::one_line)
                          .between(1, 4096))
                .with(boolean("trust_first_use", "Without host_key: pin the first host key that is seen."))
                .with(boolean("sudo", "Run tasks as root with sudo, which must not ask for a password."))
                .with(text("jump", "Node to connect through (jump host).").refers_to("Node")))
        .spec(object("maintenance", "Maintenance mode: no task is started on the node.")
                  .with(boolean("enabled", "Whether the node is in maintenance.").default_value(false))
                  .with(text("reason", "Reason, for other operators.").format(Format::one_line).between(0, 256)))
        .column("NAME", "name")
        .column("ADDRESS", "spec.address")
        .column("MAINTENANCE", "spec.maintenance.enabled")
        .column("LABELS", "labels")
        .column("AGE", "age")
        .wide_column("SSH", "spec.ssh.user")
        .wide_column("PORT", "spec.ssh.port")
        .wide_column("KEY", "spec.ssh.key")
        .also_called({"no"})
        .prepare([](Context ctx, Draft& draft) { return prepare_node(std::move(ctx), draft); })
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
  description: SSH key of the nodes
  values:
    private_key: |
      -----BEGIN OPENSSH PRIVATE KEY-----
      ...
      -----END OPENSSH PRIVATE KEY-----
)");
    return secret;
}

Kind event_kind() {
    Kind event("Event", "events",
               "A record in the audit trail: subject, action, actor, reason and evidence. Only the server writes events.");
    event.spec(text("subject", "The resource, as Kind/name.").required().indexed())
        .spec(text("action", "What happened: created, updated, removed, login-refused ...").required().renamed_from("what"))
        .spec(text("actor", "The principal.").required().indexed())
        .spec(text("context", "Id of the request; all its consequences share it.").required().indexed())
        .spec(text("reason", "The reason that the actor gave, or that the server found.").renamed_from("because"))
        .spec(any("evidence", "Data that supports the event."))
        .spec(time("at", "Time of the event.").required())
        .column("TIME", "spec.at")
        .column("SUBJECT", "spec.subject")
        .column("ACTION", "spec.action")
        .column("ACTOR", "spec.actor")
        .column("REASON", "spec.reason")
        .wide_column("CONTEXT", "spec.context")
        .wide_column("NAME", "name")
        .also_called({"ev"})
        .verbs({Verb::read})
        .access(Role::viewer, Role::admin)
        .unaudited();
    return event;
}

Node Node::from(const Object& object) {
    Node node;
    node.name = object.name;
    node.address = text_at(object.spec, "address");
    const auto& ssh = object_at(object.spec, "ssh");
    node.ssh_user = text_at(ssh, "user");
    node.ssh_key = text_at(ssh, "key");
    node.ssh_host_key = text_at(ssh, "host_key");
    node.ssh_jump = text_at(ssh, "jump");
    node.ssh_trust_first_use = flag_at(ssh, "trust_first_use");
    node.ssh_sudo = flag_at(ssh, "sudo");
    node.ssh_port = static_cast<int>(integer_at(ssh, "port", node.ssh_port));
    const auto& maintenance = object_at(object.spec, "maintenance");
    node.maintenance = flag_at(maintenance, "enabled");
    node.maintenance_reason = text_at(maintenance, "reason");
    return node;
}

} // namespace orrery::resource
