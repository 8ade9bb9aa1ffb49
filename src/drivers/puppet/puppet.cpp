#include "drivers/puppet/puppet.h"

#include "core/json_fields.h"
#include "core/text.h"
#include "core/truncate.h"
#include "drivers/puppet/report.h"
#include "drivers/puppet/tar.h"
#include "drivers/ssh/body.h"
#include "drivers/ssh/fields.h"
#include "drivers/ssh/ssh.h"
#include "jobs/job_file.h"
#include "jobs/secrets.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace orrery::drivers {

using jobs::Attempt;
using jobs::Outcome;
using jobs::Preview;
using jobs::Step;

namespace {

resource::Field puppet_fields() {
    using namespace resource;
    return object("puppet", "A manifest.")
        .with(text("manifest", "Path of the manifest below the server's content folder.").format(Format::one_line).between(1, 1024))
        .with(text("code", "The text of the manifest, in place of manifest."))
        .with(list("modules",
                   "Folders of modules below the server's content folder; the last part of the path is the module's name.",
                   text("folder", "A folder.").format(Format::one_line).between(1, 1024)))
        .with(text("hiera", "A folder with a hiera.yaml and its data, below the server's content folder.")
                  .format(Format::one_line)
                  .between(1, 1024))
        .with(any("data", "Hiera data, in addition to the task's values."))
        .with(text("phase", "packages: only packages, which need no other node; all: everything.").one_of({"packages", "all"}))
        .with(list("tags", "Only resources with one of these tags.", text("tag", "A tag.").format(Format::one_line)))
        .with(boolean("sudo", "Run as root with sudo. Default: the node's ssh.sudo."));
}

// Its standard input is an archive; its arguments are the node's name, the line before the report, and further options. The
// unpacked files are private and removed when the program ends or, where it is killed, with its attempt.
constexpr auto apply_program = R"sh(trap : TERM
name=$1 mark=$2; shift 2
d=$(umask 077; if [ -n "$ORRERY_FOLDER" ]; then mkdir -p "$ORRERY_FOLDER"; mktemp -d "$ORRERY_FOLDER/puppet.XXXXXXXX"
  else mktemp -d "${TMPDIR:-/tmp}/orrery-puppet.XXXXXXXX"; fi) || exit 255
PATH=$PATH:/opt/puppetlabs/bin
if ! base64 -d | tar -xf - -C "$d"; then r=255
elif ! command -v puppet >/dev/null 2>&1; then echo 'puppet is not installed' >&2; r=127
else
  puppet apply --detailed-exitcodes --color=false --certname "$name" --confdir "$d/conf" --vardir "$d/var" --rundir "$d/run" --publicdir "$d/public" \
    --environmentpath "$d/environments" --environment orrery "$@" "$d/environments/orrery/manifests/site.pp"
  r=$?
  printf '\n%s\n' "$mark"
  head -c 4194304 "$d/var/state/last_run_report.yaml" 2>/dev/null
fi
rm -rf -- "$d"
exit "$r"
)sh";

/// Splits the output of a run into the text for people and, after the mark, the report.
class ReportSplitter {
public:
    explicit ReportSplitter(const std::string& mark) : mark_("\n" + mark + "\n") {}
    /// Returns the part of these bytes that is for people.
    std::string feed(std::string_view bytes) {
        if (found_) {
            report_.append(bytes.substr(0, max_text_size + 1 - std::min(max_text_size + 1, report_.size())));
            return {};
        }
        pending_ += bytes;
        const auto at = pending_.find(mark_);
        if (at != std::string::npos) {
            found_ = true;
            auto shown = pending_.substr(0, at);
            report_ = pending_.substr(at + mark_.size());
            pending_.clear();
            return shown;
        }
        auto overlap = std::min(pending_.size(), mark_.size() - 1);
        while (overlap > 0 && pending_.compare(pending_.size() - overlap, overlap, mark_, 0, overlap) != 0) --overlap;
        auto shown = pending_.substr(0, pending_.size() - overlap);
        pending_.erase(0, pending_.size() - overlap);
        return shown;
    }
    bool found() const { return found_; }
    const std::string& report() const { return report_; }

private:
    std::string mark_, pending_, report_;
    bool found_ = false;
};

Result<std::string> content_file(const std::filesystem::path& content, const std::string& name) {
    TRY(const auto file, resolve_content(content, "manifest", name));
    std::ifstream stream(file, std::ios::binary);
    if (!stream)
        return Error{Code::denied, fmt::format("the manifest {} cannot be read", (content / name).string()),
                     "give the server's user read access"};
    return std::string{std::istreambuf_iterator<char>(stream), {}};
}

/// Escapes "%{", which Hiera would evaluate in data, also in keys.
std::string as_hiera_text(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i)
        if (text.compare(i, 2, "%{") == 0)
            out += "%{literal('%')}";
        else
            out += text[i];
    return out;
}

json::value as_hiera_data(const json::value& value) {
    if (const auto* text = value.if_string()) return json::value(as_hiera_text(*text));
    if (const auto* list = value.if_array()) {
        json::array out;
        for (const auto& item : *list) out.push_back(as_hiera_data(item));
        return out;
    }
    if (const auto* object = value.if_object()) {
        json::object out;
        for (const auto& [key, item] : *object) out[as_hiera_text(key)] = as_hiera_data(item);
        return out;
    }
    return value;
}

/// The archive for the node: manifest, modules and data. Blocks.
Result<std::string> archive_of(const json::object& body, const json::object& data, const std::filesystem::path& content) {
    Tar tar;
    auto manifest = text_at(body, "code");
    if (body.contains("manifest")) {
        TRY(manifest, content_file(content, text_at(body, "manifest")));
    }
    const std::string environment = "environments/orrery/";
    TRY(std::ignore, tar.add(environment + "manifests/site.pp", manifest));
    for (const auto& module : texts_at(body, "modules")) {
        TRY(const auto folder, resolve_content(content, "modules", module));
        TRY(std::ignore, tar.add_folder(environment + "modules/" + std::filesystem::path(module).filename().string(), folder));
    }
    if (const auto hiera = text_at(body, "hiera"); !hiera.empty()) {
        TRY(const auto folder, resolve_content(content, "hiera", hiera));
        TRY(std::ignore, tar.add_folder(environment.substr(0, environment.size() - 1), folder));
    }
    // The layer above the environment's: values that were bound when the task began override values in files.
    TRY(std::ignore,
        tar.add("conf/hiera.yaml",
                "---\nversion: 5\nhierarchy:\n  - {name: orrery, datadir: data, path: runtime.json, data_hash: json_data}\n"));
    TRY(std::ignore, tar.add("conf/data/runtime.json", to_json_text(as_hiera_data(data)), 0600));
    return base64(tar.finish());
}

class PuppetExecutor final : public jobs::Executor {
public:
    PuppetExecutor(RemoteAttempts& remote, Pool& pool, PuppetOptions options)
        : remote_(remote), pool_(pool), options_(std::move(options)) {}

    std::string_view name() const override { return "puppet"; }
    TargetType target_type() const override { return TargetType::node; }

    std::optional<std::vector<std::string>> published(const json::value&) const override {
        return std::vector<std::string>{"changed", "failed"};
    }
    Task<std::vector<FieldError>> missing_files(Context, json::value body) const override {
        std::vector<FieldError> named;
        if (body.is_object()) {
            for (const auto* field : {"manifest", "hiera"}) named.push_back({field, text_at(body.get_object(), field)});
            for (const auto& module : texts_at(body.get_object(), "modules")) named.push_back({"modules", module});
        }
        co_return co_await missing_content(pool_, options_.content, std::move(named));
    }
    Result<Unit> check(const json::value& body) const override { return check_body(body, BodyStage::written); }
    Result<Unit> check_bound(const json::value& body) const { return check_body(body, BodyStage::bound); }
    Result<Unit> check_body(const json::value& body, BodyStage stage) const {
        static const resource::Field declared = puppet_fields();
        std::vector<FieldError> errors;
        json::object copy;
        if (!body.is_object()) {
            errors.push_back({"", "must be an object with a manifest or code"});
        } else {
            copy = body.get_object();
            resource::check_fields(declared, copy, "", errors);
            if (copy.contains("manifest") == copy.contains("code")) errors.push_back({"", "needs either manifest or code"});
            const auto below = [&errors, stage](const std::string& path, const std::string& field) {
                if (path.empty() || has_reference(path, stage)) return;
                if (auto bad = check_content_path(path); !bad.empty()) errors.push_back({field, bad});
            };
            // A reference of Puppet's own, "${x}", is written "$${x}".
            if (const auto* code = copy.if_contains("code"); code != nullptr && stage == BodyStage::written)
                if (const auto references = jobs::references_in(*code); !references.empty())
                    errors.push_back({"code", fmt::format("contains ${{{}}}, and the value could become code; pass the value in "
                                                          "`with` or `data` and read it with lookup()",
                                                          references.front().substr(0, 128))});
            below(text_at(copy, "manifest"), "manifest");
            below(text_at(copy, "hiera"), "hiera");
            for (const auto& module : texts_at(copy, "modules")) below(module, "modules");
            if (const auto* data = copy.if_contains("data"); data != nullptr && !data->is_object())
                errors.push_back({"data", "must be an object"});
            if (text_at(copy, "phase") == "packages" && copy.contains("tags"))
                errors.push_back({"tags", "cannot be used in the phase packages"});
        }
        if (errors.empty()) return Unit{};
        Error error{Code::invalid,
                    errors.size() == 1
                        ? fmt::format("the puppet task is not valid: {} {}", errors.front().path, errors.front().message)
                        : fmt::format("the puppet task has {} errors", errors.size()),
                    "docs/executors.md lists the fields"};
        error.fields = std::move(errors);
        return error;
    }

    Task<Outcome> start(Context ctx, const Attempt& attempt, jobs::Output& output) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        CO_TRY(auto work, co_await work_of(attempt, node, {}));
        Reading reading(output, attempt);
        auto ended = co_await remote_.start(ctx, node, sudo_of(attempt, node), attempt.id, std::move(work), reading.out,
                                            retry_budget_of(attempt, options_.retry_budget));
        co_return co_await conclude(std::move(ended), reading, node, output);
    }

    Task<jobs::Reattached> reattach(Context ctx, const Attempt& attempt, jobs::Offsets kept, jobs::Output& output) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        Reading reading(output, attempt); // reads from the beginning, because of the report; the job's log drops what it has
        reading.out.at.err = kept.err;
        auto ended = co_await remote_.attach(ctx, node, sudo_of(attempt, node), attempt.id, reading.out,
                                             retry_budget_of(attempt, options_.retry_budget));
        if (auto reattached = without_result(ended)) co_return std::move(*reattached);
        CO_TRY(auto outcome, co_await conclude(std::move(ended), reading, node, output));
        co_return jobs::Reattached{jobs::Reattached::State::ended, std::move(outcome), {}};
    }

    Task<Unit> cancel(Context ctx, const Attempt& attempt) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        co_return co_await remote_.cancel(ctx, node, sudo_of(attempt, node), attempt.id);
    }
    Task<Unit> clean_up(Context ctx, const Attempt& attempt) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        co_return co_await remote_.clean_up(ctx, node, sudo_of(attempt, node), attempt.id);
    }

    Task<Preview> plan(Context ctx, const Attempt& attempt) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        CO_TRY(auto work, co_await work_of(attempt, node, {"--noop"}));
        auto ran =
            co_await remote_.run(ctx, node, sudo_of(attempt, node), {"sh", "-c", work.runner, "orrery", ""}, *work.input, 8 << 20);
        if (!ran.ok()) co_return ran.error();
        ReportSplitter splitter(mark_of(attempt));
        splitter.feed(ran->output);
        auto report = co_await read(splitter);
        const Masker masker(attempt.secrets);
        const auto outcome = puppet_outcome(report, ran->exit_code, last_error_of(masker.mask(ran->errors)));
        if (outcome.ended != Outcome::Ended::succeeded || !report.ok())
            co_return Error{Code::invalid,
                            masker.mask(fmt::format("the dry run failed: {}",
                                                    report.ok() ? outcome.message : outcome.message + report.error().message))};
        Preview preview;
        std::size_t pending = 0;
        for (const auto& resource : report->resources) {
            if (!resource.out_of_sync) continue;
            ++pending;
            for (const auto& difference : resource.differences)
                preview.differences.push_back(
                    {masker.mask(difference.name), masker.mask(difference.before), masker.mask(difference.after)});
        }
        // The exit code is 0 even where changes are pending; only the report shows them.
        preview.change = report->noop_pending || pending > 0 ? Outcome::Change::changed : Outcome::Change::unchanged;
        preview.message =
            pending == 0 ? "nothing would change" : fmt::format("{} resource{} would change", pending, pending == 1 ? "" : "s");
        co_return preview;
    }

private:
    struct Reading {
        Reading(jobs::Output& to, const Attempt& attempt) : splitter(mark_of(attempt)), errors(attempt.secrets) {
            out.on_bytes = [this, &to](jobs::Stream stream, std::uint64_t offset, std::string_view bytes) {
                if (stream == jobs::Stream::err) {
                    to.write(stream, offset, bytes);
                    errors.add(bytes);
                    return;
                }
                // The text for people is a prefix of the stream, so its offsets are those of the stream.
                const auto shown = splitter.feed(bytes);
                if (!shown.empty()) to.write(stream, written, shown);
                written += shown.size();
            };
        }
        ReportSplitter splitter;
        jobs::MaskedTail errors;
        std::uint64_t written = 0;
        RemoteOutput out;
    };

    static std::string mark_of(const Attempt& attempt) { return fmt::format("--- report of attempt {} ---", attempt.id); }

    /// The first line with "Error:", which is the cause; errors of Facter are not.
    static std::string last_error_of(std::string_view text) {
        std::string found;
        while (!text.empty()) {
            const auto line = text.substr(0, text.find('\n'));
            text.remove_prefix(std::min(text.size(), line.size() + 1));
            if (line.starts_with("Error: ") && !line.starts_with("Error: Facter") && found.empty())
                found = truncate(line.substr(7), 500);
        }
        return found;
    }

    Task<RemoteWork> work_of(const Attempt& attempt, const resource::Node& node, std::vector<std::string> more) {
        CO_TRY(std::ignore, check_bound(attempt.body));
        auto body = attempt.body.get_object();
        auto data = attempt.values;
        if (const auto* given = body.if_contains("data"))
            for (const auto& [key, value] : given->get_object()) data[key] = value;
        CO_TRY(std::ignore, no_secret_in(attempt, {"tags"}));
        std::vector<std::string> arguments{node.name, mark_of(attempt)};
        if (text_at(body, "phase") == "packages") arguments.insert(arguments.end(), {"--tags", "package"});
        if (const auto tags = texts_at(body, "tags"); !tags.empty())
            arguments.insert(arguments.end(), {"--tags", fmt::format("{}", fmt::join(tags, ","))});
        arguments.insert(arguments.end(), more.begin(), more.end());
        CO_TRY(auto archive,
               co_await blocking(
                   pool_, [body = std::move(body), data = std::move(data), content = options_.content]() -> Result<std::string> {
                       return archive_of(body, data, content);
                   }));
        auto environment = attempt.environment;
        if (const auto context = environment.find("ORRERY_CONTEXT"); context != environment.end())
            environment["FACTER_orrery_context"] = context->second; // Facter makes it the fact orrery_context
        co_return script_work(apply_program, arguments, environment, std::move(archive));
    }

    Task<PuppetReport> read(const ReportSplitter& splitter) {
        if (!splitter.found() || splitter.report().empty()) co_return Error{Code::not_found, "the run left no report"};
        co_return co_await blocking(pool_,
                                    [text = splitter.report()]() -> Result<PuppetReport> { return read_puppet_report(text); });
    }

    Task<Outcome> conclude(Result<RemoteEnd> ended, const Reading& reading, const resource::Node& node, jobs::Output& output) {
        if (!ended.ok()) co_return outcome_of(ended.error());
        if (ended->state != RemoteEnd::State::ended) co_return outcome_of(*ended, {}, [](int) { return false; });
        auto report = co_await read(reading.splitter);
        auto outcome = puppet_outcome(report, ended->exit_code, last_error_of(reading.errors.text()));
        if (ended->disk_full) outcome.error = jobs::ErrorClass::no_space;
        if (!report.ok()) co_return outcome;
        std::size_t changed = 0, failed = 0;
        for (const auto& resource : report->resources) {
            Step step;
            step.host = node.name;
            step.name = resource.name;
            step.message = resource.message;
            step.took = resource.took;
            step.result = resource.failed    ? Step::Result::failed
                          : resource.skipped ? Step::Result::skipped
                          : resource.changed ? Step::Result::changed
                                             : Step::Result::ok;
            changed += resource.changed ? 1 : 0;
            failed += resource.failed ? 1 : 0;
            output.step(std::move(step));
        }
        outcome.values = {{"changed", changed}, {"failed", failed}};
        co_return outcome;
    }

    RemoteAttempts& remote_;
    Pool& pool_;
    PuppetOptions options_;
};

} // namespace

std::unique_ptr<jobs::Executor> puppet_executor(RemoteAttempts& remote, Pool& pool, PuppetOptions options) {
    return std::make_unique<PuppetExecutor>(remote, pool, std::move(options));
}

} // namespace orrery::drivers
