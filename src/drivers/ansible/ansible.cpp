#include "drivers/ansible/ansible.h"

#include "drivers/ansible/events.h"
#include "drivers/ansible/run_folder.h"
#include "drivers/ssh/body.h"
#include "drivers/ssh/ssh.h"
#include "jobs/secrets.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::drivers {

namespace json = boost::json;
using jobs::Attempt;
using jobs::Outcome;
using jobs::Preview;

namespace {

resource::Field ansible_fields() {
    using namespace resource;
    return object("ansible", "A playbook.")
        .with(text("playbook", "The playbook, below the server's folder of content.")
                  .required()
                  .format(Format::one_line)
                  .between(1, 1024))
        .with(list("tags", "Only tasks with one of these tags.", text("tag", "A tag.").format(Format::one_line)))
        .with(list("skip_tags", "Not the tasks with one of these tags.", text("tag", "A tag.").format(Format::one_line)))
        .with(any("variables", "Variables, beside the task's values."))
        .with(integer("forks", "How many machines at once; left out: all, up to 50.").between(1, 500))
        .with(boolean("become", "Become root; left out: as the node says."))
        .with(text("vault", "The password of the vault: name a secret, as in ${secret.vault.password}."));
}

Error wrong_body(std::vector<FieldError> errors) {
    Error error{Code::invalid,
                errors.size() == 1 ? fmt::format("the ansible task is wrong: {} {}", errors.front().path, errors.front().message)
                                   : fmt::format("the ansible task has {} errors", errors.size()),
                "docs/executors.md shows what may stand there"};
    error.fields = std::move(errors);
    return error;
}

bool says(const json::object& body, std::string_view key) {
    const auto* value = body.if_contains(key);
    return value != nullptr && value->is_bool() && value->get_bool();
}
std::string word_of(const json::object& body, std::string_view key) {
    const auto* value = body.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}
std::string joined(const json::object& body, std::string_view key) {
    std::string out;
    if (const auto* value = body.if_contains(key); value != nullptr && value->is_array())
        for (const auto& item : value->get_array())
            if (item.is_string()) out += (out.empty() ? "" : ",") + std::string(std::string_view(item.get_string()));
    return out;
}

// $1 the private folder, which goes with the run however that ends; the rest is the command.
constexpr auto run_and_tidy = R"sh(trap : TERM
d=$1; shift
"$@"; r=$?
rm -rf -- "$d"
exit "$r"
)sh";

/// "the playbook ... could not be found" rather than the advice below it.
std::string last_error(const jobs::MaskedTail& errors) {
    const auto text = errors.text();
    if (const auto at = text.rfind("ERROR! "); at != std::string::npos)
        return text.substr(at + 7, text.find('\n', at) - at - 7).substr(0, 400);
    return errors.last_line();
}

class AnsibleExecutor final : public jobs::Executor {
public:
    AnsibleExecutor(RemoteAttempts& local, Logins& logins, net::Ssh& ssh, Pool& pool, AnsibleOptions options)
        : local_(local), logins_(logins), ssh_(ssh), pool_(pool), options_(std::move(options)) {}

    std::string_view name() const override { return "ansible"; }
    Place place() const override { return Place::node; }
    bool begins_here() const override { return true; }

    Result<Unit> check(const json::value& body) const override {
        static const resource::Field declared = ansible_fields();
        std::vector<FieldError> errors;
        if (!body.is_object()) return wrong_body({{"", "must be an object with a playbook"}});
        auto copy = body.get_object();
        resource::check_fields(declared, copy, "", errors);
        const auto playbook = word_of(copy, "playbook");
        if (!playbook.empty() && playbook.find("${") == std::string::npos)
            if (auto bad = check_content_path(playbook); !bad.empty()) errors.push_back({"playbook", bad});
        if (const auto* variables = copy.if_contains("variables"); variables != nullptr && !variables->is_object())
            errors.push_back({"variables", "must be an object"});
        if (!errors.empty()) return wrong_body(std::move(errors));
        return Unit{};
    }

    Task<Outcome> start(Context ctx, Attempt attempt, jobs::Output& output) override {
        const auto folder = folder_of(attempt.id);
        CO_TRY(auto prepared, co_await prepare(ctx, attempt, folder, Mode::real));
        Reading reading(output, attempt);
        auto work = script_work(run_and_tidy, std::move(prepared.argv), std::move(prepared.environment));
        auto ended = co_await local_.start(ctx, {}, false, attempt.id, std::move(work), reading.out,
                                           patience_of(attempt, options_.patience));
        co_return reading.conclude(ended);
    }

    Task<jobs::Reattached> reattach(Context ctx, Attempt attempt, jobs::Offsets kept, jobs::Output& output) override {
        Reading reading(output, attempt);
        reading.out.at.err = kept.err; // the events are read from the beginning: what they amount to is known only from all of them
        auto ended = co_await local_.attach(ctx, {}, false, attempt.id, reading.out, patience_of(attempt, options_.patience));
        if (ended.ok() && ended->what == RemoteEnd::What::lost) {
            co_await forget(folder_of(attempt.id));
            ended->words = "ansible-playbook was killed, or its machine restarted, while it ran";
        }
        if (auto told = without_result(ended)) co_return std::move(*told);
        co_return jobs::Reattached{jobs::Reattached::What::ended, reading.conclude(ended), {}};
    }

    Task<Unit> cancel(Context ctx, Attempt attempt) override {
        CO_TRY(std::ignore, co_await local_.cancel(ctx, {}, false, attempt.id));
        co_await forget(folder_of(attempt.id));
        co_return Unit{};
    }

    Task<Unit> clean_up(Context ctx, Attempt attempt) override {
        co_await forget(folder_of(attempt.id));
        co_return co_await local_.clean_up(ctx, {}, false, attempt.id);
    }

    Task<Preview> plan(Context ctx, Attempt attempt) override {
        const auto folder = folder_of(attempt.id + "-plan");
        CO_TRY(auto prepared, co_await prepare(ctx, attempt, folder, Mode::check));
        auto work = script_work(run_and_tidy, prepared.argv, prepared.environment);
        auto ran = co_await local_.run(ctx, {}, false, {"sh", "-c", std::move(work.runner), "orrery", ""}, *work.input, 32 << 20);
        co_await forget(folder);
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
        const auto outcome = ansible_outcome(events, ran->exit_code, attempt.targets.size(), last_error(last));
        const jobs::Masker masker(attempt.secrets);
        if (outcome.ended != Outcome::Ended::succeeded)
            co_return Error{Code::invalid, masker.mask(fmt::format("the check of the playbook failed: {}", outcome.words)),
                            "a playbook whose tasks rely on what earlier ones do cannot always be checked"};
        Preview preview;
        preview.change = outcome.change;
        std::int64_t changed = 0;
        for (const auto& [host, stats] : events.stats()) changed += stats.changed;
        preview.words = changed == 0 ? "nothing would change" : fmt::format("{} tasks would change something", changed);
        for (const auto& difference : events.differences())
            preview.differences.push_back(
                {masker.mask(difference.what), masker.mask(difference.before), masker.mask(difference.after)});
        co_return preview;
    }

private:
    enum class Mode { real, check };
    struct Prepared {
        std::vector<std::string> argv; ///< the private folder, then the command
        std::map<std::string, std::string> environment;
    };

    /// Events on their way into a job's tree and log.
    struct Reading {
        Reading(jobs::Output& to, const Attempt& attempt) : output(to), hosts(attempt.targets.size()), last(attempt.secrets) {
            events.on_step = [this](jobs::Step step) { output.step(std::move(step)); };
            events.on_text = [this](std::string_view text) {
                output.write(jobs::Stream::out, written, text);
                written += text.size();
            };
            out.longest_line = 1 << 20;
            out.on_line = [this](std::string_view line) { events.line(line); };
            out.on_bytes = [this](jobs::Stream stream, std::uint64_t offset, std::string_view bytes) {
                if (stream != jobs::Stream::err) return;
                output.write(stream, offset, bytes);
                last.add(bytes);
            };
        }
        Outcome conclude(const Result<RemoteEnd>& ended) const {
            if (!ended.ok()) return outcome_of(ended.error());
            if (ended->what != RemoteEnd::What::ended) return outcome_of(*ended, {}, [](int) { return false; });
            return ansible_outcome(events, ended->exit_code, hosts, last_error(last));
        }
        jobs::Output& output;
        std::size_t hosts;
        AnsibleEvents events;
        jobs::MaskedTail last;
        std::uint64_t written = 0; // of the text made of events: the same events make the same text, so its offsets hold for ever
        RemoteOutput out;
    };

    std::filesystem::path folder_of(const std::string& id) const { return options_.runs / "private" / id; }
    asio::awaitable<void> forget(std::filesystem::path folder) {
        std::ignore = co_await blocking(pool_, [folder]() -> Result<Unit> {
            std::error_code ignored;
            std::filesystem::remove_all(folder, ignored);
            return Unit{};
        });
    }

    Task<Prepared> prepare(Context ctx, const Attempt& attempt, std::filesystem::path folder, Mode mode) {
        if (attempt.targets.empty()) co_return Error{Code::invalid, "a playbook needs machines", "say `on` which"};
        const auto bound = jobs::json_with_secrets(attempt.body, attempt.secrets);
        CO_TRY(std::ignore, check(bound));
        const auto& body = bound.get_object();
        AnsibleRun run;
        run.content = options_.content;
        run.plugins = options_.plugins;
        run.vault_password = word_of(body, "vault");
        run.variables = jobs::json_with_secrets(json::value(attempt.values), attempt.secrets).get_object();
        if (const auto* variables = body.if_contains("variables"))
            for (const auto& [key, value] : variables->get_object()) run.variables[key] = value;
        run.variables["orrery_context"] = ctx.id();
        run.variables["orrery_job"] = attempt.job;
        for (const auto& target : attempt.targets) {
            AnsibleHost host;
            host.name = target.node.name;
            host.labels = target.labels;
            host.sudo = body.contains("become") ? says(body, "become") : target.node.ssh_sudo;
            CO_TRY(host.target, logins_.login(target.node));
            CO_TRY(std::ignore, co_await know(ctx, host.target));
            run.hosts.push_back(std::move(host));
        }
        CO_TRY(std::ignore, no_secret_in(attempt, {"playbook", "tags", "skip_tags"}));
        const auto* forks = body.if_contains("forks");
        run.forks = forks != nullptr ? forks->to_number<int>() : static_cast<int>(std::min<std::size_t>(run.hosts.size(), 50));

        Prepared out;
        const auto playbook = options_.content / word_of(body, "playbook");
        out.argv = {folder.string(),
                    options_.program,
                    "-i",
                    (folder / "inventory.json").string(),
                    "--extra-vars",
                    "@" + (folder / "variables.json").string()};
        if (const auto tags = joined(body, "tags"); !tags.empty()) out.argv.insert(out.argv.end(), {"--tags", tags});
        if (const auto tags = joined(body, "skip_tags"); !tags.empty()) out.argv.insert(out.argv.end(), {"--skip-tags", tags});
        if (!run.vault_password.empty()) out.argv.insert(out.argv.end(), {"--vault-password-file", (folder / "vault").string()});
        if (mode == Mode::check) out.argv.insert(out.argv.end(), {"--check", "--diff"});
        out.argv.push_back(playbook.string());
        for (const auto& [name, value] : attempt.environment) out.environment[name] = jobs::with_secrets(value, attempt.secrets);
        // A task's environment is for what it runs; what steers Ansible itself is ours.
        std::erase_if(out.environment, [](const auto& item) { return item.first.starts_with("ANSIBLE_"); });
        out.environment["ANSIBLE_CONFIG"] = (folder / "ansible.cfg").string();
        out.environment["HOME"] = (folder / "home").string();
        out.environment["LANG"] = "C.UTF-8";
        CO_TRY(std::ignore, co_await blocking(pool_, [folder, playbook, run = std::move(run)]() -> Result<Unit> {
                   std::error_code error;
                   if (!std::filesystem::is_regular_file(playbook, error))
                       return Error{Code::not_found, fmt::format("there is no playbook {} at the server", playbook.string()),
                                    "put it there, or correct its name"};
                   return write_run_folder(folder, run);
               }));
        co_return out;
    }

    /// ssh, the program, trusts nobody it does not know; so whom we trust at first sight we look at first.
    Task<Unit> know(Context ctx, net::SshTarget& target) {
        if (target.host_key.empty()) {
            if (!target.on_first_key)
                co_return Error{Code::denied, fmt::format("the host key of {} is not known", target.text()),
                                "pin it as ssh.host_key, or say ssh.trust_first_use"};
            CO_TRY(auto shown, co_await ssh_.shown_host_key(ctx, target));
            CO_TRY(std::ignore, co_await target.on_first_key(ctx, shown));
            target.host_key = shown;
        }
        if (!target.jump) co_return Unit{};
        auto jump = *target.jump;
        CO_TRY(std::ignore, co_await know(ctx, jump));
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
