#include "drivers/puppet/puppet.h"

#include "core/text.h"
#include "drivers/puppet/report.h"
#include "drivers/puppet/tar.h"
#include "drivers/ssh/body.h"
#include "drivers/ssh/fields.h"
#include "drivers/ssh/ssh.h"
#include "jobs/secrets.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace orrery::drivers {

namespace json = boost::json;
using jobs::Attempt;
using jobs::Outcome;
using jobs::Preview;
using jobs::Step;

namespace {

resource::Field puppet_fields() {
    using namespace resource;
    return object("puppet", "A manifest.")
        .with(text("manifest", "The manifest, below the server's folder of content.").format(Format::one_line).between(1, 1024))
        .with(text("code", "Or the manifest itself."))
        .with(list("modules", "Folders of modules, below the server's folder of content; the last part is the module's name.",
                   text("folder", "One.").format(Format::one_line).between(1, 1024)))
        .with(text("hiera", "A folder with a hiera.yaml and its data, below the server's folder of content.")
                  .format(Format::one_line)
                  .between(1, 1024))
        .with(any("data", "Hiera data, beside the task's values."))
        .with(
            text("phase", "packages: only the packages, which need no other machine; all: everything.").one_of({"packages", "all"}))
        .with(list("tags", "Only resources with one of these tags.", text("tag", "A tag.").format(Format::one_line)))
        .with(boolean("sudo", "As root, by sudo. Left out: as the node says."));
}

// Its standard input is an archive, its arguments the node's name, the line before the report, and further options. Whatever it
// unpacks is for nobody else's eyes and goes when it ends; and, where it is killed, with its attempt.
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

std::string word_at(const json::object& body, std::string_view key) {
    const auto* value = body.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}
std::vector<std::string> words_at(const json::object& body, std::string_view key) {
    std::vector<std::string> out;
    if (const auto* value = body.if_contains(key); value != nullptr && value->is_array())
        for (const auto& item : value->get_array())
            if (item.is_string()) out.emplace_back(std::string_view(item.get_string()));
    return out;
}

/// Splits what a run says into what people see and, after the mark, the report.
class ReportSplitter {
public:
    explicit ReportSplitter(const std::string& mark) : mark_("\n" + mark + "\n") {}
    /// What of these bytes is for people.
    std::string feed(std::string_view bytes) {
        if (found_) {
            report_.append(bytes.substr(0, max_text_size + 1 - std::min(max_text_size + 1, report_.size())));
            return {};
        }
        held_ += bytes;
        const auto at = held_.find(mark_);
        if (at != std::string::npos) {
            found_ = true;
            auto shown = held_.substr(0, at);
            report_ = held_.substr(at + mark_.size());
            held_.clear();
            return shown;
        }
        auto overlap = std::min(held_.size(), mark_.size() - 1);
        while (overlap > 0 && held_.compare(held_.size() - overlap, overlap, mark_, 0, overlap) != 0) --overlap;
        auto shown = held_.substr(0, held_.size() - overlap);
        held_.erase(0, held_.size() - overlap);
        return shown;
    }
    bool found() const { return found_; }
    const std::string& report() const { return report_; }

private:
    std::string mark_, held_, report_;
    bool found_ = false;
};

Result<std::string> content_file(const std::filesystem::path& content, const std::string& name) {
    std::ifstream stream(content / name, std::ios::binary);
    if (!stream)
        return Error{Code::not_found, fmt::format("there is no manifest {} at the server", (content / name).string()),
                     "put it there, or correct its name"};
    return std::string{std::istreambuf_iterator<char>(stream), {}};
}

/// All that travels. Blocks.
Result<std::string> archive_of(const json::object& body, const json::object& data, const std::filesystem::path& content) {
    Tar tar;
    auto manifest = word_at(body, "code");
    if (body.contains("manifest")) {
        TRY(manifest, content_file(content, word_at(body, "manifest")));
    }
    const std::string environment = "environments/orrery/";
    TRY(std::ignore, tar.add(environment + "manifests/site.pp", manifest));
    for (const auto& module : words_at(body, "modules")) {
        TRY(std::ignore,
            tar.add_folder(environment + "modules/" + std::filesystem::path(module).filename().string(), content / module));
    }
    if (const auto hiera = word_at(body, "hiera"); !hiera.empty()) {
        TRY(std::ignore, tar.add_folder(environment.substr(0, environment.size() - 1), content / hiera));
    }
    // The layer above the environment's: what was bound when the task began wins over what lies in files.
    TRY(std::ignore,
        tar.add("conf/hiera.yaml",
                "---\nversion: 5\nhierarchy:\n  - {name: orrery, datadir: data, path: runtime.json, data_hash: json_data}\n"));
    TRY(std::ignore, tar.add("conf/data/runtime.json", to_json_text(data), 0600));
    return base64(tar.finish());
}

class PuppetExecutor final : public jobs::Executor {
public:
    PuppetExecutor(RemoteAttempts& remote, Pool& pool, PuppetOptions options)
        : remote_(remote), pool_(pool), options_(std::move(options)) {}

    std::string_view name() const override { return "puppet"; }
    Place place() const override { return Place::node; }

    Result<Unit> check(const json::value& body) const override {
        static const resource::Field declared = puppet_fields();
        std::vector<FieldError> errors;
        json::object copy;
        if (!body.is_object()) {
            errors.push_back({"", "must be an object with a manifest or code"});
        } else {
            copy = body.get_object();
            resource::check_fields(declared, copy, "", errors);
            if (copy.contains("manifest") == copy.contains("code")) errors.push_back({"", "needs either manifest or code"});
            const auto below = [&errors](const std::string& path, const std::string& field) {
                if (path.empty() || path.find("${") != std::string::npos) return;
                if (auto bad = check_content_path(path); !bad.empty()) errors.push_back({field, bad});
            };
            below(word_at(copy, "manifest"), "manifest");
            below(word_at(copy, "hiera"), "hiera");
            for (const auto& module : words_at(copy, "modules")) below(module, "modules");
            if (const auto* data = copy.if_contains("data"); data != nullptr && !data->is_object())
                errors.push_back({"data", "must be an object"});
            if (word_at(copy, "phase") == "packages" && copy.contains("tags"))
                errors.push_back({"tags", "has no meaning in the phase of packages"});
        }
        if (errors.empty()) return Unit{};
        Error error{Code::invalid,
                    errors.size() == 1 ? fmt::format("the puppet task is wrong: {} {}", errors.front().path, errors.front().message)
                                       : fmt::format("the puppet task has {} errors", errors.size()),
                    "docs/executors.md shows what may stand there"};
        error.fields = std::move(errors);
        return error;
    }

    Task<Outcome> start(Context ctx, Attempt attempt, jobs::Output& output) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        CO_TRY(auto work, co_await work_of(attempt, node, {}));
        Reading reading(output, attempt);
        auto ended = co_await remote_.start(ctx, node, sudo_of(attempt, node), attempt.id, std::move(work), reading.out,
                                            patience_of(attempt, options_.patience));
        co_return co_await conclude(std::move(ended), reading, node, output);
    }

    Task<jobs::Reattached> reattach(Context ctx, Attempt attempt, jobs::Offsets kept, jobs::Output& output) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        Reading reading(output, attempt); // from the beginning, for the report's sake; what is kept already is not kept twice
        reading.out.at.err = kept.err;
        auto ended = co_await remote_.attach(ctx, node, sudo_of(attempt, node), attempt.id, reading.out,
                                             patience_of(attempt, options_.patience));
        if (auto told = without_result(ended)) co_return std::move(*told);
        CO_TRY(auto outcome, co_await conclude(std::move(ended), reading, node, output));
        co_return jobs::Reattached{jobs::Reattached::What::ended, std::move(outcome), {}};
    }

    Task<Unit> cancel(Context ctx, Attempt attempt) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        co_return co_await remote_.cancel(ctx, node, sudo_of(attempt, node), attempt.id);
    }
    Task<Unit> clean_up(Context ctx, Attempt attempt) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        co_return co_await remote_.clean_up(ctx, node, sudo_of(attempt, node), attempt.id);
    }

    Task<Preview> plan(Context ctx, Attempt attempt) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        CO_TRY(auto work, co_await work_of(attempt, node, {"--noop"}));
        auto ran =
            co_await remote_.run(ctx, node, sudo_of(attempt, node), {"sh", "-c", work.runner, "orrery", ""}, *work.input, 8 << 20);
        if (!ran.ok()) co_return ran.error();
        ReportSplitter splitter(mark_of(attempt));
        splitter.feed(ran->output);
        auto report = co_await read(splitter);
        const jobs::Masker masker(attempt.secrets);
        const auto outcome = puppet_outcome(report, ran->exit_code, last_error_of(masker.mask(ran->errors)));
        if (outcome.ended != Outcome::Ended::succeeded || !report.ok())
            co_return Error{Code::invalid,
                            masker.mask(fmt::format("the dry run failed: {}",
                                                    report.ok() ? outcome.words : outcome.words + report.error().message))};
        Preview preview;
        std::size_t pending = 0;
        for (const auto& resource : report->resources) {
            if (!resource.out_of_sync) continue;
            ++pending;
            for (const auto& difference : resource.differences)
                preview.differences.push_back(
                    {masker.mask(difference.what), masker.mask(difference.before), masker.mask(difference.after)});
        }
        // Exit code 0 also where changes are pending: only the report knows.
        preview.change = report->noop_pending || pending > 0 ? Outcome::Change::changed : Outcome::Change::unchanged;
        preview.words =
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
                // What is shown is a beginning of the stream itself, so its offsets are the stream's.
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

    /// The first line that says Error, for that is the cause; Facter's complaints about the machine are not.
    static std::string last_error_of(std::string_view text) {
        std::string found;
        while (!text.empty()) {
            const auto line = text.substr(0, text.find('\n'));
            text.remove_prefix(std::min(text.size(), line.size() + 1));
            if (line.starts_with("Error: ") && !line.starts_with("Error: Facter") && found.empty())
                found = line.substr(7).substr(0, 500);
        }
        return found;
    }

    Task<RemoteWork> work_of(const Attempt& attempt, const resource::Node& node, std::vector<std::string> more) {
        const auto bound = jobs::json_with_secrets(attempt.body, attempt.secrets);
        CO_TRY(std::ignore, check(bound));
        auto body = bound.get_object();
        auto data = jobs::json_with_secrets(json::value(attempt.values), attempt.secrets).get_object();
        if (const auto* given = body.if_contains("data"))
            for (const auto& [key, value] : given->get_object()) data[key] = value;
        CO_TRY(std::ignore, no_secret_in(attempt, {"tags"}));
        std::vector<std::string> arguments{node.name, mark_of(attempt)};
        if (word_at(body, "phase") == "packages") arguments.insert(arguments.end(), {"--tags", "package"});
        if (const auto tags = words_at(body, "tags"); !tags.empty())
            arguments.insert(arguments.end(), {"--tags", fmt::format("{}", fmt::join(tags, ","))});
        arguments.insert(arguments.end(), more.begin(), more.end());
        CO_TRY(auto archive,
               co_await blocking(
                   pool_, [body = std::move(body), data = std::move(data), content = options_.content]() -> Result<std::string> {
                       return archive_of(body, data, content);
                   }));
        std::map<std::string, std::string> environment;
        for (const auto& [name, value] : attempt.environment) environment[name] = jobs::with_secrets(value, attempt.secrets);
        co_return script_work(apply_program, arguments, environment, std::move(archive));
    }

    Task<PuppetReport> read(const ReportSplitter& splitter) {
        if (!splitter.found() || splitter.report().empty()) co_return Error{Code::not_found, "there is none"};
        co_return co_await blocking(pool_,
                                    [text = splitter.report()]() -> Result<PuppetReport> { return read_puppet_report(text); });
    }

    Task<Outcome> conclude(Result<RemoteEnd> ended, const Reading& reading, const resource::Node& node, jobs::Output& output) {
        if (!ended.ok()) co_return outcome_of(ended.error());
        if (ended->what != RemoteEnd::What::ended) co_return outcome_of(*ended, {}, [](int) { return false; });
        auto report = co_await read(reading.splitter);
        auto outcome = puppet_outcome(report, ended->exit_code, last_error_of(reading.errors.text()));
        if (ended->disk_full) outcome.error = jobs::ErrorClass::no_space;
        if (!report.ok()) co_return outcome;
        std::size_t changed = 0, failed = 0;
        for (const auto& resource : report->resources) {
            Step step;
            step.host = node.name;
            step.name = resource.name;
            step.words = resource.words;
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
