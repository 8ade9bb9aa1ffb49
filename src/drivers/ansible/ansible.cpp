#include "drivers/ansible/ansible.h"

#include "core/json_fields.h"
#include "core/truncate.h"
#include "drivers/ansible/playbook_outcome.h"
#include "drivers/ansible/run_folder.h"
#include "drivers/ssh/body.h"
#include "drivers/ssh/ssh.h"
#include "jobs/secrets.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::drivers {

using jobs::Attempt;
using jobs::Outcome;
using jobs::Preview;

namespace {

resource::Field ansible_fields() {
    using namespace resource;
    return object("ansible", "A playbook.")
        .with(text("playbook", "Path of the playbook below the server's content folder.")
                  .required()
                  .format(Format::one_line)
                  .between(1, 1024))
        .with(list("tags", "Only tasks with one of these tags.", text("tag", "A tag.").format(Format::one_line)))
        .with(list("skip_tags", "Skip tasks with one of these tags.", text("tag", "A tag.").format(Format::one_line)))
        .with(any("variables", "Variables, in addition to the task's values."))
        .with(integer("forks", "Number of nodes at once. Default: all, at most 50.").between(1, 500))
        .with(boolean("become", "Become root. Default: the node's ssh.sudo."))
        .with(text("vault", "The password of the vault, as a reference to a Secret: ${secret.vault.password}."));
}

Error wrong_body(std::vector<FieldError> errors) {
    Error error{Code::invalid,
                errors.size() == 1
                    ? fmt::format("the ansible task is not valid: {} {}", errors.front().path, errors.front().message)
                    : fmt::format("the ansible task has {} errors", errors.size()),
                "docs/executors.md lists the fields"};
    error.fields = std::move(errors);
    return error;
}

/// Variables that only the server sets: with them a job could run its playbook on the server, or as another user.
bool is_reserved_variable(std::string_view name) { return name.starts_with("ansible_") || name.starts_with("orrery_"); }
constexpr auto reserved_variable = "is reserved: names that begin with ansible_ or orrery_ are set by the server";

// $1 is the private folder, which is removed when the run ends, however it ends; the rest is the command.
constexpr auto run_and_remove_folder = R"sh(trap : TERM
d=$1; shift
"$@"; r=$?
rm -rf -- "$d"
exit "$r"
)sh";

/// The last line with "ERROR!", such as "the playbook ... could not be found", rather than the hints below it.
std::string last_error(const jobs::MaskedTail& errors) {
    const auto text = errors.text();
    if (const auto at = text.rfind("ERROR! "); at != std::string::npos)
        return truncate(text.substr(at + 7, text.find('\n', at) - at - 7), 400);
    return errors.last_line();
}

class AnsibleExecutor final : public jobs::Executor {
public:
    AnsibleExecutor(RemoteAttempts& local, Logins& logins, net::Ssh& ssh, Pool& pool, AnsibleOptions options)
        : local_(local), logins_(logins), ssh_(ssh), pool_(pool), options_(std::move(options)) {}

    std::string_view name() const override { return "ansible"; }
    TargetType target_type() const override { return TargetType::node; }
    bool runs_on_server() const override { return true; }

    std::optional<std::vector<std::string>> published(const json::value&) const override { return std::vector<std::string>{}; }
    Task<std::vector<FieldError>> missing_files(Context, json::value body) const override {
        const auto playbook = body.is_object() ? text_at(body.get_object(), "playbook") : std::string();
        std::vector<FieldError> named{FieldError{"playbook", playbook}};
        co_return co_await missing_content(pool_, options_.content, std::move(named));
    }
    Result<Unit> check(const json::value& body) const override { return check_body(body, BodyStage::written); }
    Result<Unit> check_bound(const json::value& body) const { return check_body(body, BodyStage::bound); }
    Result<Unit> check_body(const json::value& body, BodyStage stage) const {
        static const resource::Field declared = ansible_fields();
        std::vector<FieldError> errors;
        if (!body.is_object()) return wrong_body({{"", "must be an object with a playbook"}});
        auto copy = body.get_object();
        resource::check_fields(declared, copy, "", errors);
        const auto playbook = text_at(copy, "playbook");
        if (!playbook.empty() && !has_reference(playbook, stage))
            if (auto bad = check_content_path(playbook); !bad.empty()) errors.push_back({"playbook", bad});
        if (const auto* variables = copy.if_contains("variables"); variables != nullptr && !variables->is_object())
            errors.push_back({"variables", "must be an object"});
        else if (variables != nullptr)
            for (const auto& [key, value] : variables->get_object())
                if (is_reserved_variable(key))
                    errors.push_back({fmt::format("variables.{}", std::string_view(key)), reserved_variable});
        if (!errors.empty()) return wrong_body(std::move(errors));
        return Unit{};
    }

    Task<Outcome> start(Context ctx, const Attempt& attempt, jobs::Output& output) override {
        const auto folder = folder_of(attempt.id);
        CO_TRY(auto prepared, co_await prepare(ctx, attempt, folder, Mode::real));
        Reading reading(output, attempt);
        auto work = script_work(run_and_remove_folder, prepared.argv, prepared.environment);
        auto ended = co_await local_.start(ctx, {}, false, attempt.id, std::move(work), reading.out,
                                           retry_budget_of(attempt, options_.retry_budget));
        co_return reading.conclude(ended);
    }

    Task<jobs::Reattached> reattach(Context ctx, const Attempt& attempt, jobs::Offsets kept, jobs::Output& output) override {
        Reading reading(output, attempt);
        reading.out.at.err = kept.err; // events are read from the beginning: the outcome follows from all of them
        auto ended =
            co_await local_.attach(ctx, {}, false, attempt.id, reading.out, retry_budget_of(attempt, options_.retry_budget));
        if (ended.ok() && ended->state == RemoteEnd::State::lost) {
            co_await remove_folder(folder_of(attempt.id));
            ended->message = "ansible-playbook was killed, or the server's host restarted, while it ran";
        }
        if (auto reattached = without_result(ended)) co_return std::move(*reattached);
        co_return jobs::Reattached{jobs::Reattached::State::ended, reading.conclude(ended), {}};
    }

    Task<Unit> cancel(Context ctx, const Attempt& attempt) override {
        CO_TRY(std::ignore, co_await local_.cancel(ctx, {}, false, attempt.id));
        co_await remove_folder(folder_of(attempt.id));
        co_return Unit{};
    }

    Task<Unit> clean_up(Context ctx, const Attempt& attempt) override {
        co_await remove_folder(folder_of(attempt.id));
        co_return co_await local_.clean_up(ctx, {}, false, attempt.id);
    }

    Task<Preview> plan(Context ctx, const Attempt& attempt) override {
        const auto folder = folder_of(attempt.id + "-plan");
        CO_TRY(auto prepared, co_await prepare(ctx, attempt, folder, Mode::check));
        auto work = script_work(run_and_remove_folder, prepared.argv, prepared.environment);
        auto ran = co_await local_.run(ctx, {}, false, {"sh", "-c", std::move(work.runner), "orrery", ""}, *work.input, 32 << 20);
        co_await remove_folder(folder);
        if (!ran.ok()) co_return ran.error();
        AnsibleEvents events;
        std::string_view rest(ran->output);
        while (!rest.empty()) {
            const auto line = rest.substr(0, rest.find('\n'));
            events.line(line);
            rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        }
        jobs::MaskedTail last(attempt.secrets);
        last.add(ran->errors);
        const auto outcome = playbook_outcome(events, ran->exit_code, attempt.targets.size(), last_error(last));
        const Masker masker(attempt.secrets);
        if (outcome.ended != Outcome::Ended::succeeded)
            co_return Error{Code::invalid, masker.mask(fmt::format("the dry run of the playbook failed: {}", outcome.message)),
                            "a playbook whose tasks depend on the effects of earlier tasks cannot always be checked"};
        Preview preview;
        preview.change = outcome.change;
        std::int64_t changed = 0;
        for (const auto& [host, stats] : events.stats()) changed += stats.changed;
        preview.message = changed == 0 ? "nothing would change" : fmt::format("{} tasks would make changes", changed);
        for (const auto& difference : events.differences())
            preview.differences.push_back(
                {masker.mask(difference.name), masker.mask(difference.before), masker.mask(difference.after)});
        co_return preview;
    }

private:
    enum class Mode { real, check };
    struct Prepared {
        std::vector<std::string> argv; ///< the private folder, then the command with its arguments
        std::map<std::string, std::string> environment;
    };

    /// Converts the events of a run into the job's steps and log.
    struct Reading {
        Reading(jobs::Output& to, const Attempt& attempt) : output(to), hosts(attempt.targets.size()), last(attempt.secrets) {
            events.on_step = [this](jobs::Step step) { output.step(std::move(step)); };
            events.on_text = [this](std::string_view text) {
                output.write(jobs::Stream::out, written, text);
                written += text.size();
            };
            out.max_line = 1 << 20;
            out.on_line = [this](std::string_view line) { events.line(line); };
            out.on_bytes = [this](jobs::Stream stream, std::uint64_t offset, std::string_view bytes) {
                if (stream != jobs::Stream::err) return;
                output.write(stream, offset, bytes);
                last.add(bytes);
            };
        }
        Outcome conclude(const Result<RemoteEnd>& ended) const {
            if (!ended.ok()) return outcome_of(ended.error());
            if (ended->state != RemoteEnd::State::ended) return outcome_of(*ended, {}, [](int) { return false; });
            return playbook_outcome(events, ended->exit_code, hosts, last_error(last));
        }
        jobs::Output& output;
        std::size_t hosts;
        AnsibleEvents events;
        jobs::MaskedTail last;
        std::uint64_t written = 0; // bytes of text made of events; the same events make the same text, so offsets stay valid
        RemoteOutput out;
    };

    std::filesystem::path folder_of(const std::string& id) const { return options_.runs / "private" / id; }
    asio::awaitable<void> remove_folder(std::filesystem::path folder) {
        std::ignore = co_await blocking(pool_, [folder]() -> Result<Unit> {
            std::error_code ignored;
            std::filesystem::remove_all(folder, ignored);
            return Unit{};
        });
    }

    /// Prepares a run: checks the task, writes the private folder, returns the command and its environment.
    Task<Prepared> prepare(Context ctx, const Attempt& attempt, std::filesystem::path folder, Mode mode) {
        if (attempt.targets.empty())
            co_return Error{Code::invalid, "the ansible task has no nodes", "name the nodes of the playbook in `on`"};
        CO_TRY(std::ignore, check_bound(attempt.body));
        CO_TRY(std::ignore, no_secret_in(attempt, {"playbook", "tags", "skip_tags"}));
        CO_TRY(std::ignore, no_secret_in_environment(attempt));
        CO_TRY(auto run, co_await run_of(ctx, attempt));
        Prepared out{command_line(attempt.body.get_object(), folder, !run.vault_password.empty(), mode), {}};
        // The task's environment is for the programs that plays run on nodes. In the environment of ansible-playbook itself a
        // PYTHONPATH or LD_PRELOAD would be code that runs on the server, so only variables of the server's own are there.
        for (const auto& [name, value] : attempt.environment)
            if (name.starts_with("ORRERY_")) out.environment[name] = value;
        out.environment["ANSIBLE_CONFIG"] = (folder / "ansible.cfg").string();
        out.environment["HOME"] = (folder / "home").string();
        out.environment["LANG"] = "C.UTF-8";
        auto name = text_at(attempt.body.get_object(), "playbook");
        CO_TRY(std::ignore, co_await blocking(pool_, [folder, name = std::move(name), run = std::move(run)]() -> Result<Unit> {
                   TRY(const auto playbook, resolve_content(run.content, "playbook", name));
                   std::error_code error;
                   if (!std::filesystem::is_regular_file(playbook, error))
                       return Error{Code::not_found, fmt::format("there is no playbook {} on the server", playbook.string()),
                                    "put the playbook there, or correct its name"};
                   return write_run_folder(folder, run);
               }));
        co_return out;
    }

    /// The nodes, logins and variables of a run.
    Task<AnsibleRun> run_of(Context ctx, const Attempt& attempt) {
        const auto& body = attempt.body.get_object();
        AnsibleRun run;
        run.content = options_.content;
        run.vault_password = text_at(body, "vault");
        run.environment = attempt.environment;
        run.variables = attempt.values;
        for (const auto& [key, value] : run.variables)
            if (is_reserved_variable(key))
                co_return Error{Code::invalid, fmt::format("with.{} {}", std::string_view(key), reserved_variable),
                                "choose another name"};
        for (const auto& [key, value] : object_at(body, "variables")) run.variables[key] = value;
        run.variables["orrery_context"] = ctx.id();
        run.variables["orrery_job"] = attempt.job;
        for (const auto& target : attempt.targets) {
            AnsibleHost host;
            host.name = target.node.name;
            host.labels = target.labels;
            host.sudo = flag_at(body, "become", target.node.ssh_sudo);
            CO_TRY(host.target, logins_.login(target.node));
            CO_TRY(std::ignore, co_await pin_host_key(ctx, host.target));
            run.hosts.push_back(std::move(host));
        }
        const auto default_forks = static_cast<std::int64_t>(std::min<std::size_t>(run.hosts.size(), 50));
        run.forks = static_cast<int>(integer_at(body, "forks", default_forks));
        co_return run;
    }

    /// The private folder, then the command.
    std::vector<std::string> command_line(const json::object& body, const std::filesystem::path& folder, bool has_vault,
                                          Mode mode) const {
        std::vector<std::string> out{folder.string(),
                                     options_.program,
                                     "-i",
                                     (folder / "inventory.json").string(),
                                     "--extra-vars",
                                     "@" + (folder / "variables.json").string()};
        const auto add_tags = [&](std::string_view key, const char* flag) {
            if (const auto tags = texts_at(body, key); !tags.empty())
                out.push_back(fmt::format("{}={}", flag, fmt::join(tags, ",")));
        };
        add_tags("tags", "--tags");
        add_tags("skip_tags", "--skip-tags");
        if (has_vault) out.insert(out.end(), {"--vault-password-file", (folder / "vault").string()});
        if (mode == Mode::check) out.insert(out.end(), {"--check", "--diff"});
        out.push_back((options_.content / text_at(body, "playbook")).string());
        return out;
    }

    /// Ansible writes the environment of a task into the arguments of a process on the node, which every user of the node can read.
    static Result<Unit> no_secret_in_environment(const Attempt& attempt) {
        const Masker masker(attempt.secrets);
        for (const auto& [variable, value] : attempt.environment)
            if (masker.mask(value) != value)
                return Error{Code::invalid,
                             fmt::format("env.{} holds a secret, which every user of the node could read in the arguments of a "
                                         "process",
                                         variable),
                             "pass the secret in variables or with, and use it in a task with no_log"};
        return Unit{};
    }

    /// Fills in the host keys of the target and its jump hosts. The program ssh accepts pinned keys only, so a key that is trusted
    /// on first use is read and stored before ssh starts.
    Task<Unit> pin_host_key(Context ctx, net::SshTarget& target) {
        if (target.host_key.empty()) {
            if (!target.on_first_key)
                co_return Error{Code::denied, fmt::format("the host key of {} is not known", target.text()),
                                "pin it as ssh.host_key, or set ssh.trust_first_use"};
            CO_TRY(auto shown, co_await ssh_.shown_host_key(ctx, target));
            CO_TRY(std::ignore, co_await target.on_first_key(ctx, shown));
            target.host_key = shown;
        }
        if (!target.jump) co_return Unit{};
        auto jump = *target.jump;
        CO_TRY(std::ignore, co_await pin_host_key(ctx, jump));
        target.jump = std::make_shared<const net::SshTarget>(std::move(jump));
        co_return Unit{};
    }

    RemoteAttempts& local_;
    Logins& logins_;
    net::Ssh& ssh_;
    Pool& pool_;
    AnsibleOptions options_;
};

} // namespace

std::unique_ptr<jobs::Executor> ansible_executor(RemoteAttempts& local, Logins& logins, net::Ssh& ssh, Pool& pool,
                                                 AnsibleOptions options) {
    return std::make_unique<AnsibleExecutor>(local, logins, ssh, pool, std::move(options));
}

} // namespace orrery::drivers
