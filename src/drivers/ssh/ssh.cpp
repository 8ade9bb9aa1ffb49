#include "drivers/ssh/ssh.h"

#include "drivers/ssh/body.h"
#include "drivers/ssh/fields.h"
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
    using What = jobs::Reattached::What;
    if (!found.ok() && found.error().code == Code::cancelled) return found.error();
    if (!found.ok())
        return jobs::Reattached{What::unknown, {}, fmt::format("it could not be looked for: {}", found.error().message)};
    if (found->what == RemoteEnd::What::never) return jobs::Reattached{What::never_began, {}, {}};
    if (found->what == RemoteEnd::What::lost) return jobs::Reattached{What::unknown, {}, found->words};
    return std::nullopt;
}

Result<resource::Node> only_node_of(const jobs::Attempt& attempt, std::string_view executor) {
    if (attempt.targets.size() != 1)
        return Error{Code::invalid,
                     fmt::format("{} tasks work on one machine at a time, and this has {}", executor, attempt.targets.size()),
                     "leave out `together`"};
    return attempt.targets.front().node;
}

bool sudo_of(const jobs::Attempt& attempt, const resource::Node& node) {
    const auto* body = attempt.body.if_object();
    const auto* said = body != nullptr ? body->if_contains("sudo") : nullptr;
    return said != nullptr && said->is_bool() ? said->get_bool() : node.ssh_sudo;
}

Result<Unit> no_secret_in(const jobs::Attempt& attempt, std::initializer_list<std::string_view> fields) {
    const auto* body = attempt.body.if_object();
    for (const auto field : fields)
        if (const auto* value = body != nullptr ? body->if_contains(field) : nullptr; value != nullptr)
            if (jobs::json_with_secrets(*value, attempt.secrets) != *value)
                return Error{Code::invalid,
                             fmt::format("{} holds a secret, and everybody could read it in the arguments of a process", field),
                             "give it by environment, variables or data"};
    return Unit{};
}

Duration patience_of(const jobs::Attempt& attempt, Duration otherwise) {
    return attempt.timeout > Duration::zero() ? attempt.timeout : otherwise;
}

jobs::Outcome outcome_of(const RemoteEnd& end, std::string_view last_error, const std::function<bool(int)>& succeeded) {
    switch (end.what) {
    case RemoteEnd::What::never:
        return Outcome::failure(ErrorClass::connect, "the connection broke before the host had all of it: nothing was begun");
    case RemoteEnd::What::lost: return Outcome::failure(ErrorClass::lost, end.words);
    case RemoteEnd::What::cancelled: return Outcome::failure(ErrorClass::cancelled, "it was ended", end.exit_code);
    case RemoteEnd::What::ended: break;
    }
    if (succeeded(end.exit_code)) {
        auto outcome = Outcome::success(end.change);
        outcome.exit_code = end.exit_code;
        return outcome;
    }
    auto words = end.exit_code > 128 && end.exit_code < 160 ? fmt::format("ended by signal {}", end.exit_code - 128)
                                                            : fmt::format("exit code {}", end.exit_code);
    if (!last_error.empty()) words += fmt::format(": {}", last_error);
    if (end.disk_full) words += "; the host's disk is full";
    auto outcome = Outcome::failure(end.disk_full ? ErrorClass::no_space : ErrorClass::failed, std::move(words), end.exit_code);
    outcome.change = end.change;
    return outcome;
}

namespace {

/// Passes output on and remembers the end of the errors, for the sentence that says how it ended.
class Remembering final : public jobs::Output {
public:
    Remembering(jobs::Output& to, const jobs::Secrets& secrets) : to_(to), errors_(secrets) {}
    void write(jobs::Stream stream, std::uint64_t offset, std::string_view bytes) override {
        to_.write(stream, offset, bytes);
        if (stream == jobs::Stream::err) errors_.add(bytes);
    }
    void step(Step step) override { to_.step(std::move(step)); }
    void troubled(std::string words, std::shared_ptr<const std::atomic<bool>> over) override {
        to_.troubled(std::move(words), std::move(over));
    }
    std::string last_line() const { return errors_.last_line(); }

private:
    jobs::Output& to_;
    jobs::MaskedTail errors_;
};

/// "= 3 changed file /etc/x: new content", read.
struct BlockLine {
    std::size_t number = 0;
    std::string result, words;
};
std::optional<BlockLine> read_block_line(std::string_view line) {
    if (!line.starts_with("= ")) return {};
    line.remove_prefix(2);
    BlockLine out;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), out.number);
    if (error != std::errc{} || out.number == 0) return {};
    line.remove_prefix(std::min(line.size(), static_cast<std::size_t>(end - line.data()) + 1));
    out.result = line.substr(0, line.find(' '));
    out.words = line.substr(std::min(line.size(), out.result.size() + 1));
    return out;
}

void add_environment(Fields& fields, const std::map<std::string, std::string>& environment, const jobs::Secrets& secrets) {
    fields.add(static_cast<std::int64_t>(environment.size()));
    for (const auto& [name, value] : environment) fields.add(name).add(jobs::with_secrets(value, secrets));
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
    add_environment(fields, attempt.environment, attempt.secrets);
    fields.add(static_cast<std::int64_t>(body.blocks.size()));
    for (const auto& block : body.blocks) {
        fields.add(block.kind).add(static_cast<std::int64_t>(block.fields.size() + 1)).add(block.label);
        for (const auto& field : block.fields) fields.add(field);
    }
    fields.add("end");
    return fields.take();
}

RemoteWork work_of(const SshBody& body, const Attempt& attempt) {
    RemoteWork work;
    if (body.what == SshBody::What::blocks) {
        work.runner = std::string(runner_prelude) + attributes_program + blocks_program;
        work.input = std::make_shared<const std::string>(blocks_input(body, attempt, false));
        return work;
    }
    work.runner = std::string(runner_prelude) + attributes_program + run_program;
    Fields fields;
    fields.add(body.what == SshBody::What::command ? "command" : body.what == SshBody::What::script ? "script" : "push");
    add_environment(fields, attempt.environment, attempt.secrets);
    if (body.what == SshBody::What::push) {
        fields.add(body.to).add(body.mode).add(body.owner).add(body.group);
        fields.add(static_cast<std::int64_t>(body.content.size())).add(sha256_of(body.content)).add("end");
        fields.raw(body.content);
    } else {
        fields.add(body.folder).add(body.input ? "1" : "0");
        if (body.input) fields.add(*body.input);
        if (body.what == SshBody::What::script) fields.add(body.script).add(body.shell);
        fields.add(static_cast<std::int64_t>(body.argv.size()));
        for (const auto& word : body.argv) fields.add(word);
        fields.add("end");
    }
    work.input = std::make_shared<const std::string>(fields.take());
    return work;
}

/// Which word of the task would be an argument of a process, and so be seen by everybody there, and holds a secret; empty: none.
std::string word_with_secret(const SshBody& body, const jobs::Secrets& secrets) {
    const jobs::Masker masker(secrets);
    if (masker.empty()) return {};
    const auto shows = [&masker](const std::string& word) { return masker.mask(word) != word; };
    if (std::any_of(body.argv.begin(), body.argv.end(), shows)) return body.what == SshBody::What::script ? "arguments" : "command";
    if (shows(body.to) || shows(body.owner) || shows(body.group)) return "push";
    for (std::size_t i = 0; i < body.blocks.size(); ++i) {
        const auto& block = body.blocks[i];
        for (std::size_t field = 0; field < block.fields.size(); ++field) {
            // What a file holds and what a line says never become arguments.
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
    Place place() const override { return Place::node; }
    Result<Unit> check(const json::value& body) const override { return check_ssh_body(body); }

    Task<Outcome> start(Context ctx, Attempt attempt, jobs::Output& output) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        CO_TRY(const auto body, co_await read(attempt));
        Remembering remembering(output, attempt.secrets);
        Blocks blocks{node.name, body.blocks.size()};
        auto out = output_to(remembering, blocks, {});
        auto ended = co_await remote_.start(ctx, node, sudo_of(attempt, node), attempt.id, work_of(body, attempt), out,
                                            patience_of(attempt, options_.patience));
        co_return conclude(ended, remembering, blocks, attempt);
    }

    Task<jobs::Reattached> reattach(Context ctx, Attempt attempt, jobs::Offsets kept, jobs::Output& output) override {
        CO_TRY(const auto node, only_node_of(attempt, name()));
        Remembering remembering(output, attempt.secrets);
        Blocks blocks{node.name, 0};
        auto out = output_to(remembering, blocks, kept);
        auto ended =
            co_await remote_.attach(ctx, node, sudo_of(attempt, node), attempt.id, out, patience_of(attempt, options_.patience));
        if (auto told = without_result(ended)) co_return std::move(*told);
        co_return jobs::Reattached{jobs::Reattached::What::ended, conclude(ended, remembering, blocks, attempt), {}};
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
        CO_TRY(const auto body, co_await read(attempt));
        if (body.what == SshBody::What::push) co_return co_await plan_push(ctx, node, attempt, body);
        if (body.what != SshBody::What::blocks)
            co_return Error{Code::unsupported, "a command or script has no dry run", "use blocks where one is wanted"};
        auto ran =
            co_await remote_.run(ctx, node, sudo_of(attempt, node),
                                 {"sh", "-c", std::string(runner_prelude) + attributes_program + blocks_program, "orrery", ""},
                                 blocks_input(body, attempt, true), 8 << 20);
        if (!ran.ok()) co_return ran.error();
        co_return preview_of(body, *ran, attempt.secrets);
    }

private:
    struct Blocks {
        std::string host;
        std::size_t count = 0;
        std::size_t changed = 0;
        std::string failed; // the label and words of the one that failed
    };

    Task<SshBody> read(const Attempt& attempt) {
        auto bound = jobs::json_with_secrets(attempt.body, attempt.secrets);
        auto values = jobs::json_with_secrets(json::value(attempt.values), attempt.secrets).get_object();
        CO_TRY(auto body,
               co_await blocking(
                   pool_, [bound = std::move(bound), values = std::move(values), content = options_.content]() -> Result<SshBody> {
                       return read_ssh_body(bound, values, content);
                   }));
        if (const auto word = word_with_secret(body, attempt.secrets); !word.empty())
            co_return Error{
                Code::invalid,
                fmt::format("{} holds a secret, and everybody on the machine could read it in the arguments of a process", word),
                "give it by environment, input, or the content of a file"};
        co_return body;
    }

    static RemoteOutput output_to(Remembering& to, Blocks& blocks, jobs::Offsets kept) {
        RemoteOutput out;
        out.on_bytes = [&to](jobs::Stream stream, std::uint64_t offset, std::string_view bytes) {
            to.write(stream, offset, bytes);
        };
        out.at = std::move(kept);
        out.on_trouble = [&to](std::string words, std::shared_ptr<const std::atomic<bool>> over) {
            to.troubled(std::move(words), std::move(over));
        };
        out.on_line = [&to, &blocks](std::string_view line) {
            const auto read = read_block_line(line);
            if (!read) return;
            Step step;
            step.host = blocks.host;
            const auto colon = read->words.find(": ");
            step.name = read->words.substr(0, colon);
            step.key = std::to_string(read->number);
            step.words = colon == std::string::npos ? "" : read->words.substr(colon + 2);
            step.result = read->result == "changed"  ? Step::Result::changed
                          : read->result == "failed" ? Step::Result::failed
                                                     : Step::Result::ok;
            if (step.result == Step::Result::changed) ++blocks.changed;
            if (step.result == Step::Result::failed) blocks.failed = read->words;
            to.step(std::move(step));
        };
        return out;
    }

    static Outcome conclude(const Result<RemoteEnd>& ended, const Remembering& remembering, Blocks& blocks,
                            const Attempt& attempt) {
        if (!ended.ok()) return outcome_of(ended.error());
        blocks.failed = jobs::Masker(attempt.secrets).mask_cut(blocks.failed); // before anything stands behind it
        const auto* success = attempt.body.is_object() ? attempt.body.get_object().if_contains("success") : nullptr;
        auto outcome = outcome_of(*ended, blocks.failed.empty() ? remembering.last_line() : blocks.failed, [success](int code) {
            if (success == nullptr || !success->is_array()) return code == 0;
            for (const auto& good : success->get_array())
                if (good.is_int64() && good.get_int64() == code) return true;
            return false;
        });
        if (!blocks.failed.empty() && outcome.error == ErrorClass::failed) outcome.words = blocks.failed;
        return outcome;
    }

    Task<Preview> plan_push(Context ctx, const resource::Node& node, const Attempt& attempt, const SshBody& body) {
        auto ran = co_await remote_.run(ctx, node, sudo_of(attempt, node), {"sha256sum", "--", body.to});
        if (!ran.ok()) co_return ran.error();
        Preview preview;
        const auto sum = sha256_of(body.content);
        const bool same = ran->exit_code == 0 && ran->output.find(sum) != std::string::npos;
        preview.change = same ? Outcome::Change::unchanged : Outcome::Change::changed;
        preview.words = same ? fmt::format("{} is there already", body.to)
                             : fmt::format("would put {} bytes into {}", body.content.size(), body.to);
        if (!same) {
            auto before = ran->exit_code == 0 ? ran->output.substr(0, ran->output.find(' ')) : std::string("absent");
            preview.differences.push_back({body.to, before.starts_with('\\') ? before.substr(1) : before, sum});
        }
        co_return preview;
    }

    static Result<Preview> preview_of(const SshBody& body, const net::SshResult& ran, const jobs::Secrets& secrets) {
        const jobs::Masker masker(secrets);
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
                    return Error{Code::internal, "the host spoke of a block that it was not given"};
                const auto& block = body.blocks[read->number - 1];
                if (read->result == "failed")
                    return Error{Code::invalid, fmt::format("it would fail: {}", masker.mask(read->words))};
                if (read->result == "changed") {
                    ++changes;
                    const bool whole = block.kind == "file" && block.fields[1] == "present" && block.fields[2] == "1";
                    if (has_content || (whole && before.empty() && after.empty())) after = block.after;
                    // What is there now may hold the secret that was: no mask knows it.
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
                                                    masker.mask(ran.errors.substr(0, 300)))};
        if (changes > 0) preview.change = Outcome::Change::changed;
        preview.words = changes == 0 ? fmt::format("all {} are so already", body.blocks.size())
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
