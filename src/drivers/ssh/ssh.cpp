#include "drivers/ssh/ssh.h"

#include "core/text.h"
#include "core/truncate.h"
#include "drivers/ssh/body.h"
#include "drivers/ssh/fields.h"
#include "drivers/ssh/program_values.h"
#include "drivers/ssh/programs.h"
#include "jobs/secrets.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace orrery::drivers {

namespace json = boost::json;
using jobs::Attempt;
using jobs::ErrorClass;
using jobs::Outcome;
using jobs::Preview;
using jobs::Step;

jobs::Outcome outcome_of(const Error& error) {
    auto kind = ErrorClass::refused;
    if (error.code == Code::unavailable || error.code == Code::throttled || error.code == Code::timeout) kind = ErrorClass::connect;
    if (error.code == Code::no_space) kind = ErrorClass::no_space;
    if (error.code == Code::cancelled) kind = ErrorClass::cancelled;
    return Outcome::failure(kind, error.remedy.empty() ? error.message : fmt::format("{} ({})", error.message, error.remedy));
}

std::optional<Result<jobs::Reattached>> without_result(const Result<RemoteEnd>& found) {
    using State = jobs::Reattached::State;
    if (!found.ok() && found.error().code == Code::cancelled) return found.error();
    if (!found.ok())
        return jobs::Reattached{State::unknown, {}, fmt::format("it could not be searched for: {}", found.error().message)};
    if (found->state == RemoteEnd::State::not_started) return jobs::Reattached{State::not_started, {}, {}};
    if (found->state == RemoteEnd::State::lost) return jobs::Reattached{State::unknown, {}, found->message};
    return std::nullopt;
}

Result<resource::Node> only_node_of(const jobs::Attempt& attempt, std::string_view executor) {
    if (attempt.targets.size() != 1)
        return Error{Code::invalid,
                     fmt::format("{} tasks run on one node at a time, and this one has {}", executor, attempt.targets.size()),
                     "leave out `together`"};
    return attempt.targets.front().node;
}

bool sudo_of(const jobs::Attempt& attempt, const resource::Node& node) {
    const auto* body = attempt.body.if_object();
    const auto* sudo = body != nullptr ? body->if_contains("sudo") : nullptr;
    return sudo != nullptr && sudo->is_bool() ? sudo->get_bool() : node.ssh_sudo;
}

Result<Unit> no_secret_in(const jobs::Attempt& attempt, std::initializer_list<std::string_view> fields) {
    const auto* body = attempt.body.if_object();
    const Masker masker(attempt.secrets);
    for (const auto field : fields)
        if (const auto* value = body != nullptr ? body->if_contains(field) : nullptr; value != nullptr)
            if (const auto text = to_json_text(*value); masker.mask(text) != text)
                return Error{
                    Code::invalid,
                    fmt::format("{} holds a secret, and every user of the host could read it in the arguments of a process", field),
                    "give it by environment, variables or data"};
    return Unit{};
}

Duration retry_budget_of(const jobs::Attempt& attempt, Duration default_budget) {
    return attempt.timeout > Duration::zero() ? attempt.timeout : default_budget;
}

jobs::Outcome outcome_of(const RemoteEnd& end, std::string_view last_error, const std::function<bool(int)>& succeeded) {
    switch (end.state) {
    case RemoteEnd::State::not_started:
        return Outcome::failure(ErrorClass::connect,
                                "the connection broke before the host had received all of it: nothing was started");
    case RemoteEnd::State::lost: return Outcome::failure(ErrorClass::lost, end.message);
    case RemoteEnd::State::cancelled: return Outcome::failure(ErrorClass::cancelled, "it was killed", end.exit_code);
    case RemoteEnd::State::ended: break;
    }
    if (succeeded(end.exit_code)) {
        auto outcome = Outcome::success(end.change);
        outcome.exit_code = end.exit_code;
        return outcome;
    }
    auto message = end.exit_code > 128 && end.exit_code < 160 ? fmt::format("ended by signal {}", end.exit_code - 128)
                                                              : fmt::format("exit code {}", end.exit_code);
    if (!last_error.empty()) message += fmt::format(": {}", last_error);
    if (end.disk_full) message += "; the host's disk is full";
    auto outcome = Outcome::failure(end.disk_full ? ErrorClass::no_space : ErrorClass::failed, std::move(message), end.exit_code);
    outcome.change = end.change;
    return outcome;
}

namespace {

/// Passes output on and keeps the end of the errors, for the message of the outcome.
class TailingOutput final : public jobs::Output {
public:
    TailingOutput(jobs::Output& to, const jobs::Secrets& secrets) : to_(to), errors_(secrets) {}
    void write(jobs::Stream stream, std::uint64_t offset, std::string_view bytes) override {
        to_.write(stream, offset, bytes);
        if (stream == jobs::Stream::err) errors_.add(bytes);
    }
    void step(Step step) override { to_.step(std::move(step)); }
    void report_problem(std::string message, std::shared_ptr<const std::atomic<bool>> resolved) override {
        to_.report_problem(std::move(message), std::move(resolved));
    }
    std::string last_line() const { return errors_.last_line(); }

private:
    jobs::Output& to_;
    jobs::MaskedTail errors_;
};

/// "= 3 changed file /etc/x: new content", parsed.
struct BlockLine {
    std::size_t number = 0;
    std::string result, message;
};
std::optional<BlockLine> read_block_line(std::string_view line) {
    if (!line.starts_with("= ")) return {};
    line.remove_prefix(2);
    BlockLine out;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), out.number);
    if (error != std::errc{} || out.number == 0) return {};
    line.remove_prefix(std::min(line.size(), static_cast<std::size_t>(end - line.data()) + 1));
    out.result = line.substr(0, line.find(' '));
    out.message = line.substr(std::min(line.size(), out.result.size() + 1));
    return out;
}

void add_environment(Fields& fields, const std::map<std::string, std::string>& environment) {
    fields.add(static_cast<std::int64_t>(environment.size()));
    for (const auto& [name, value] : environment) fields.add(name).add(value);
}

std::string sha256_of(std::string_view bytes) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
    std::string out;
    for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
    return out;
}

std::string blocks_input(const SshBody& body, const Attempt& attempt, bool dry) {
    Fields fields;
    fields.add(dry ? "1" : "");
    add_environment(fields, attempt.environment);
    fields.add(static_cast<std::int64_t>(body.blocks.size()));
    for (const auto& block : body.blocks) {
        fields.add(block.kind).add(static_cast<std::int64_t>(block.fields.size() + 1)).add(block.label);
        for (const auto& field : block.fields) fields.add(field);
    }
    fields.add("end");
    return fields.release();
}

RemoteWork work_of(const SshBody& body, const Attempt& attempt) {
    RemoteWork work;
    if (body.type == SshBody::Type::blocks) {
        work.runner = std::string(runner_prelude) + files_program + blocks_program;
        work.input = std::make_shared<const std::string>(blocks_input(body, attempt, false));
        return work;
    }
    work.runner = std::string(runner_prelude) + (body.type == SshBody::Type::push ? files_program : "") + run_program;
    Fields fields;
    fields.add(body.type == SshBody::Type::command ? "command" : body.type == SshBody::Type::script ? "script" : "push");
    add_environment(fields, attempt.environment);
    if (body.type == SshBody::Type::push) {
        fields.add(body.to).add(body.follow ? "1" : "0").add(body.mode).add(body.owner).add(body.group);
        fields.add(static_cast<std::int64_t>(body.content.size())).add(sha256_of(body.content)).add("end");
        fields.raw(body.content);
    } else {
        fields.add(body.folder).add(body.input ? "1" : "0");
        if (body.input) fields.add(*body.input);
        if (body.type == SshBody::Type::script) fields.add(body.script).add(body.shell);
        fields.add(static_cast<std::int64_t>(body.argv.size()));
        for (const auto& argument : body.argv) fields.add(argument);
        fields.add("end");
    }
    work.input = std::make_shared<const std::string>(fields.release());
    return work;
}

/// The field of the body that would become an argument of a process, visible to every user of the host, and holds a secret; empty:
/// none.
std::string argument_with_secret(const SshBody& body, const jobs::Secrets& secrets) {
    const Masker masker(secrets);
    if (masker.empty()) return {};
    const auto shows = [&masker](const std::string& text) { return masker.mask(text) != text; };
    if (std::any_of(body.argv.begin(), body.argv.end(), shows)) return body.type == SshBody::Type::script ? "arguments" : "command";
    if (shows(body.to) || shows(body.owner) || shows(body.group)) return "push";
    for (std::size_t i = 0; i < body.blocks.size(); ++i) {
        const auto& block = body.blocks[i];
        for (std::size_t field = 0; field < block.fields.size(); ++field) {
            // The content of a file and the text of a line never become arguments.
            const bool hidden = (block.kind == "file" && field == 4) || (block.kind == "line" && (field == 2 || field == 3));
            if (!hidden && shows(block.fields[field])) return fmt::format("blocks[{}]", i);
        }
    }
    return {};
}

class SshExecutor final : public jobs::Executor {
public:
    SshExecutor(RemoteAttempts& remote, Pool& pool, SshExecutorOptions options)
        : remote_(remote), pool_(pool), options_(std::move(options)) {}

    std::string_view name() const override { return "ssh"; }
    TargetType target_type() const override { return TargetType::node; }
    Result<Unit> check(const json::value& body) const override { return check_ssh_body(body); }
    std::optional<std::vector<std::string>> published(const json::value&) const override { return std::vector<std::string>{}; }
    Result<jobs::SeparatedBody> separate_values(const json::value& body) const override { return separate_ssh_values(body); }

    Task<Outcome> start(Context ctx, const Attempt& attempt, jobs::Output& output) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        CO_TRY(const auto body, co_await read(attempt));
        TailingOutput tailing(output, attempt.secrets);
        Blocks blocks{node.name, body.blocks.size()};
        auto out = output_to(tailing, blocks, {});
        auto ended = co_await remote_.start(ctx, node, sudo_of(attempt, node), attempt.id, work_of(body, attempt), out,
                                            retry_budget_of(attempt, options_.retry_budget));
        co_return conclude(ended, tailing, blocks, attempt);
    }

    Task<jobs::Reattached> reattach(Context ctx, const Attempt& attempt, jobs::Offsets kept, jobs::Output& output) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        TailingOutput tailing(output, attempt.secrets);
        Blocks blocks{node.name, 0};
        auto out = output_to(tailing, blocks, kept);
        auto ended = co_await remote_.attach(ctx, node, sudo_of(attempt, node), attempt.id, out,
                                             retry_budget_of(attempt, options_.retry_budget));
        if (auto result = without_result(ended)) co_return std::move(*result);
        co_return jobs::Reattached{jobs::Reattached::State::ended, conclude(ended, tailing, blocks, attempt), {}};
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
        CO_TRY(const auto body, co_await read(attempt));
        if (body.type == SshBody::Type::push) co_return co_await plan_push(ctx, node, attempt, body);
        if (body.type != SshBody::Type::blocks)
            co_return Error{Code::unsupported, "a command or script has no dry run", "use blocks where you need one"};
        auto ran = co_await remote_.run(ctx, node, sudo_of(attempt, node),
                                        {"sh", "-c", std::string(runner_prelude) + files_program + blocks_program, "orrery", ""},
                                        blocks_input(body, attempt, true), 8 << 20);
        if (!ran.ok()) co_return ran.error();
        co_return preview_of(body, *ran, attempt.secrets);
    }

private:
    struct Blocks {
        std::string host;
        std::size_t count = 0;
        std::size_t changed = 0;
        std::string failed; // label and message of the failed block
    };

    Task<SshBody> read(const Attempt& attempt) {
        CO_TRY(auto body,
               co_await blocking(pool_,
                                 [body = attempt.body, values = attempt.values, content = options_.content]() -> Result<SshBody> {
                                     return read_ssh_body(body, values, content);
                                 }));
        if (const auto field = argument_with_secret(body, attempt.secrets); !field.empty())
            co_return Error{
                Code::invalid,
                fmt::format("{} holds a secret, and every user of the host could read it in the arguments of a process", field),
                "pass it in env, input, or the content of a file"};
        co_return body;
    }

    static RemoteOutput output_to(TailingOutput& to, Blocks& blocks, jobs::Offsets kept) {
        RemoteOutput out;
        out.on_bytes = [&to](jobs::Stream stream, std::uint64_t offset, std::string_view bytes) {
            to.write(stream, offset, bytes);
        };
        out.at = std::move(kept);
        out.on_unreachable = [&to](std::string message, std::shared_ptr<const std::atomic<bool>> back) {
            to.report_problem(std::move(message), std::move(back));
        };
        out.on_line = [&to, &blocks](std::string_view line) {
            const auto read = read_block_line(line);
            if (!read) return;
            Step step;
            step.host = blocks.host;
            const auto colon = read->message.find(": ");
            step.name = read->message.substr(0, colon);
            step.key = std::to_string(read->number);
            step.message = colon == std::string::npos ? "" : read->message.substr(colon + 2);
            step.result = read->result == "changed"  ? Step::Result::changed
                          : read->result == "failed" ? Step::Result::failed
                                                     : Step::Result::ok;
            if (step.result == Step::Result::changed) ++blocks.changed;
            if (step.result == Step::Result::failed) blocks.failed = read->message;
            to.step(std::move(step));
        };
        return out;
    }

    static Outcome conclude(const Result<RemoteEnd>& ended, const TailingOutput& tailing, Blocks& blocks, const Attempt& attempt) {
        if (!ended.ok()) return outcome_of(ended.error());
        blocks.failed = Masker(attempt.secrets).mask_cut(blocks.failed); // before anything is appended
        const auto* success = attempt.body.is_object() ? attempt.body.get_object().if_contains("success") : nullptr;
        auto outcome = outcome_of(*ended, blocks.failed.empty() ? tailing.last_line() : blocks.failed, [success](int code) {
            if (success == nullptr || !success->is_array()) return code == 0;
            for (const auto& good : success->get_array())
                if (good.is_int64() && good.get_int64() == code) return true;
            return false;
        });
        if (!blocks.failed.empty() && outcome.error == ErrorClass::failed) outcome.message = blocks.failed;
        return outcome;
    }

    Task<Preview> plan_push(Context ctx, const resource::Node& node, const Attempt& attempt, const SshBody& body) {
        auto ran = co_await remote_.run(ctx, node, sudo_of(attempt, node), {"sha256sum", "--", body.to});
        if (!ran.ok()) co_return ran.error();
        Preview preview;
        const auto sum = sha256_of(body.content);
        const bool same = ran->exit_code == 0 && ran->output.find(sum) != std::string::npos;
        preview.change = same ? Outcome::Change::unchanged : Outcome::Change::changed;
        preview.message = same ? fmt::format("{} is unchanged", body.to)
                               : fmt::format("would put {} bytes into {}", body.content.size(), body.to);
        if (!same) {
            auto before = ran->exit_code == 0 ? ran->output.substr(0, ran->output.find(' ')) : std::string("absent");
            preview.differences.push_back({body.to, before.starts_with('\\') ? before.substr(1) : before, sum});
        }
        co_return preview;
    }

    static Result<Preview> preview_of(const SshBody& body, const net::SshResult& ran, const jobs::Secrets& secrets) {
        const Masker masker(secrets);
        Preview preview;
        preview.change = Outcome::Change::unchanged;
        std::string before, after;
        bool has_content = false;
        std::size_t changes = 0;
        std::string_view rest(ran.output);
        while (!rest.empty()) {
            const auto line = rest.substr(0, rest.find('\n'));
            rest.remove_prefix(std::min(rest.size(), line.size() + 1));
            if (line.starts_with("<64 ")) {
                before = from_base64(line.substr(4));
                has_content = true;
            } else if (line.starts_with("< ") && !has_content) {
                before = line.substr(2);
            } else if (line.starts_with("> ") && !has_content) {
                after = line.substr(2);
            } else if (const auto read = read_block_line(line)) {
                if (read->number > body.blocks.size())
                    return Error{Code::internal, "the host reported a block that it was not given"};
                const auto& block = body.blocks[read->number - 1];
                if (read->result == "failed")
                    return Error{Code::invalid, fmt::format("it would fail: {}", masker.mask(read->message))};
                if (read->result == "changed") {
                    ++changes;
                    const bool whole = block.kind == "file" && block.fields[1] == "present" && block.fields[2] == "1";
                    if (has_content || (whole && before.empty() && after.empty())) after = block.after;
                    // The current content may hold an earlier value of the secret, which no masker knows.
                    if (masker.mask(block.after) != block.after) before = after = "(holds a secret: not shown)";
                    preview.differences.push_back({block.label, masker.mask(before), masker.mask(after)});
                }
                before.clear();
                after.clear();
                has_content = false;
            }
        }
        if (ran.exit_code != 0)
            return Error{Code::invalid, fmt::format("the dry run ended with exit code {}: {}", ran.exit_code,
                                                    masker.mask(truncate(ran.errors, 300)))};
        if (changes > 0) preview.change = Outcome::Change::changed;
        preview.message = changes == 0 ? fmt::format("all {} are unchanged", body.blocks.size())
                                       : fmt::format("{} of {} would change", changes, body.blocks.size());
        return preview;
    }

    RemoteAttempts& remote_;
    Pool& pool_;
    SshExecutorOptions options_;
};

} // namespace

std::unique_ptr<jobs::Executor> ssh_executor(RemoteAttempts& remote, Pool& pool, SshExecutorOptions options) {
    return std::make_unique<SshExecutor>(remote, pool, std::move(options));
}

} // namespace orrery::drivers
