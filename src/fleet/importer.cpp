#include "fleet/importer.h"

#include "core/json_fields.h"
#include "fleet/inventory.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::fleet {

namespace {

/// Each write of a resource with its event and the guards of its references needs a few changes of a transaction.
constexpr std::size_t batch_size = 20;

using Writes = std::vector<resource::Resources::JointWrite>;

Result<std::vector<InventoryEntry>> stored_inventory(const resource::Resources& resources) {
    std::vector<InventoryEntry> out;
    for (const auto& record : FleetRecords::collect(resources).machines) {
        TRY(auto object, resource::from_stored(*record));
        out.push_back({object.name, std::move(object.spec)});
    }
    return out;
}

/// Does the Secret have this user and password already?
bool holds_credentials(const resource::Resources& resources, const std::string& secret, const ImportAction& action) {
    const auto username = resources.reveal_named(secret + ".username"), password = resources.reveal_named(secret + ".password");
    return username.ok() && password.ok() && *username == action.username && *password == action.password;
}

/// One import on its way into the store.
class Importer {
public:
    Importer(resource::Resources& resources, resource::WriteOptions options)
        : resources_(resources),
          options_(std::move(options)),
          machine_kind_(*resources.registry().find("Machine")),
          secret_kind_(*resources.registry().find("Secret")) {}

    Task<json::object> run(Context ctx, std::string text) {
        CO_TRY(const auto entries, parse_import(text));
        CO_TRY(const auto inventory, stored_inventory(resources_));
        CO_TRY(auto plan, plan_import(entries, inventory));
        CO_TRY(std::ignore, prepare(plan));
        if (!options_.dry_run) {
            CO_TRY(std::ignore, co_await write(ctx, std::move(secrets_)));
            CO_TRY(std::ignore, co_await write(ctx, std::move(machines_)));
        }
        co_return report(plan);
    }

private:
    /// Validates all and collects the writes. An object that its kind refuses is an error of its position in the file.
    Result<Unit> prepare(ImportPlan& plan) {
        Error errors{Code::invalid, "the import file describes machines that cannot be stored",
                     "correct them and import the file again; nothing was changed"};
        for (auto& action : plan.actions) {
            choose_secret(action);
            auto machine =
                resource::read_object(machine_kind_, action.machine, json::object{{"name", action.machine}, {"spec", action.spec}});
            if (!machine.ok()) {
                for (const auto& field : machine.error().fields)
                    errors.fields.push_back({action.position, fmt::format("{}: {}", field.path, field.message)});
                if (machine.error().fields.empty()) errors.fields.push_back({action.position, machine.error().message});
                continue;
            }
            if (action.op != ImportAction::Op::unchanged) add_machine(std::move(*machine));
        }
        if (!errors.fields.empty()) return errors;
        return Unit{};
    }

    /// A Secret that the import did not make may serve other machines: it is used where it has the right values, and never changed.
    void choose_secret(ImportAction& action) {
        if (action.secret.empty()) return;
        const auto own = "bmc-" + action.machine;
        if (action.secret != own && !holds_credentials(resources_, action.secret, action)) {
            action.secret = own;
            action.spec["bmc"].as_object()["credentials"] = own;
            if (action.op == ImportAction::Op::unchanged) action.op = ImportAction::Op::update;
        }
        if (holds_credentials(resources_, action.secret, action)) return;
        if (action.op == ImportAction::Op::unchanged) action.op = ImportAction::Op::update;
        resource::Object secret;
        secret.kind = secret_kind_.name();
        secret.name = action.secret;
        secret.spec = {{"description", fmt::format("BMC of machine {}", action.machine)},
                       {"values", json::object{{"username", action.username}, {"password", action.password}}}};
        const auto stored = resources_.find(secret_kind_, action.secret);
        if (stored)
            if (const auto before = resource::from_stored(*stored); before.ok()) secret.labels = before->labels;
        secrets_.push_back({&secret_kind_, std::move(secret), stored ? stored->modified : 0, {}});
    }

    void add_machine(resource::Object machine) {
        const auto stored = resources_.find(machine_kind_, machine.name);
        if (stored)
            if (const auto before = resource::from_stored(*stored); before.ok()) machine.labels = before->labels;
        machine.kind = machine_kind_.name();
        machines_.push_back({&machine_kind_, std::move(machine), stored ? stored->modified : 0, {}});
    }

    Task<Unit> write(Context ctx, Writes writes) {
        for (std::size_t at = 0; at < writes.size(); at += batch_size) {
            const auto end = std::min(writes.size(), at + batch_size);
            Writes batch(std::make_move_iterator(writes.begin() + static_cast<std::ptrdiff_t>(at)),
                         std::make_move_iterator(writes.begin() + static_cast<std::ptrdiff_t>(end)));
            CO_TRY(std::ignore, co_await resources_.write_together(ctx, std::move(batch), {}, options_));
        }
        co_return Unit{};
    }

    json::object report(const ImportPlan& plan) const {
        json::array machines, absent;
        std::map<ImportAction::Op, std::int64_t> counts;
        for (const auto& action : plan.actions) {
            ++counts[action.op];
            json::object one{{"machine", action.machine}, {"outcome", name_of(action.op)}, {"position", action.position}};
            if (!action.name_in_file.empty() && action.name_in_file != action.machine) one["name_in_file"] = action.name_in_file;
            machines.push_back(std::move(one));
        }
        for (const auto& name : plan.absent) absent.emplace_back(name);
        return {{"machines", std::move(machines)},
                {"absent", std::move(absent)},
                {"created", counts[ImportAction::Op::create]},
                {"updated", counts[ImportAction::Op::update]},
                {"unchanged", counts[ImportAction::Op::unchanged]},
                {"dry_run", options_.dry_run}};
    }

    resource::Resources& resources_;
    resource::WriteOptions options_;
    const resource::Kind &machine_kind_, &secret_kind_;
    Writes secrets_, machines_;
};

} // namespace

Task<json::object> import_machines(Context ctx, resource::Resources& resources, std::string text, resource::WriteOptions options) {
    Importer importer(resources, std::move(options));
    co_return co_await importer.run(std::move(ctx), std::move(text));
}

} // namespace orrery::fleet
