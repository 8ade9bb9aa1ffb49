#include "drivers/ssh/remote.h"

#include "core/ids.h"
#include "core/log.h"
#include "drivers/ssh/fields.h"
#include "drivers/ssh/programs.h"
#include "net/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <memory>
#include <optional>
#include <vector>

namespace orrery::drivers {

using namespace std::chrono_literals;

namespace {

/// Calls `line` for each complete line of a stream; `held` has the beginning of the incomplete one. Longer lines are cut.
template <class F> void feed_lines(std::string& held, std::string_view bytes, std::size_t max_line, const F& line) {
    while (!bytes.empty()) {
        const auto end = bytes.find('\n');
        const auto part = bytes.substr(0, end);
        held.append(part.substr(0, max_line - std::min(max_line, held.size())));
        if (end == std::string_view::npos) return;
        line(held);
        held.clear();
        bytes.remove_prefix(end + 1);
    }
}

/// Separates the status line, which attempt_program writes last, from a stream of errors.
class StatusTrailer {
public:
    explicit StatusTrailer(const std::string& token) : mark_("\n" + token + " ") {}
    /// Returns the bytes that cannot be part of the status line.
    std::string feed(std::string_view bytes) {
        held_ += bytes;
        auto keep = held_.find(mark_);
        if (keep == std::string::npos) {
            auto overlap = std::min(held_.size(), mark_.size() - 1);
            while (overlap > 0 && held_.compare(held_.size() - overlap, overlap, mark_, 0, overlap) != 0) --overlap;
            keep = held_.size() - overlap;
        }
        auto out = held_.substr(0, keep);
        held_.erase(0, keep);
        return out;
    }
    /// The fields of the status line; empty where none came: then `rest` has the bytes that were held back.
    std::vector<std::string> finish(std::string& rest) {
        std::vector<std::string> fields;
        if (!held_.starts_with(mark_) || !held_.ends_with('\n')) {
            rest = std::move(held_);
            return fields;
        }
        std::string_view text(held_);
        text = text.substr(mark_.size(), text.size() - mark_.size() - 1);
        while (!text.empty()) {
            const auto end = std::min(text.find(' '), text.size());
            fields.emplace_back(text.substr(0, end));
            text.remove_prefix(std::min(text.size(), end + 1));
        }
        return fields;
    }

private:
    std::string mark_, held_;
};

/// Distributes what a command prints: output and errors of the attempt to `out`, the status line to the caller.
class StreamDemux {
public:
    /// `out` may be null: the output is dropped.
    StreamDemux(const std::string& token, RemoteOutput* out) : trailer_(token), out_(out) {}

    void feed(int stream, std::string_view piece) {
        if (stream == 2) return add_errors(trailer_.feed(piece));
        if (out_ == nullptr) return;
        if (out_->on_bytes) out_->on_bytes(jobs::Stream::out, out_->at.out, piece);
        out_->at.out += piece.size();
        if (out_->on_line) feed_lines(out_->at.line, piece, out_->max_line, out_->on_line);
    }
    /// The fields of the status line; empty where none came.
    std::vector<std::string> finish() {
        std::string rest;
        auto status = trailer_.finish(rest);
        if (status.empty()) add_errors(rest);
        return status;
    }
    /// The end of the errors, for messages.
    const std::string& errors() const { return tail_; }

private:
    void add_errors(const std::string& bytes) {
        constexpr std::size_t max_tail = 2000;
        if (bytes.empty()) return;
        tail_ += bytes;
        if (tail_.size() > max_tail) tail_.erase(0, tail_.size() - max_tail);
        if (out_ == nullptr) return;
        if (out_->on_bytes) out_->on_bytes(jobs::Stream::err, out_->at.err, bytes);
        out_->at.err += bytes.size();
    }

    StatusTrailer trailer_;
    RemoteOutput* out_;
    std::string tail_;
};

std::string first_line(std::string_view text) {
    while (!text.empty() && text.front() == '\n') text.remove_prefix(1);
    return std::string(text.substr(0, std::min(text.find('\n'), std::size_t{300})));
}

bool is_valid_id(std::string_view id) {
    return !id.empty() && id.size() <= 200 &&
           std::all_of(id.begin(), id.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

using Sink = std::function<void(int stream, std::string_view piece)>;

/// The transport calls this on its own thread; the coroutine runs on the loop. So the sink is called inside, not before.
Task<Unit> deliver(std::shared_ptr<const Sink> sink, int stream, std::string piece) {
    (*sink)(stream, piece);
    co_return Unit{};
}

} // namespace

Task<net::SshResult> SshRunner::run(Context ctx, resource::Node node, HostCommand command) {
    CO_TRY(auto target, logins_.login(node));
    net::SshCommand out;
    out.argv = std::move(command.argv);
    if (!command.sudo) out.argv.insert(out.argv.begin(), "exec"); // saves a process
    out.input = std::move(command.input);
    out.sudo = command.sudo;
    out.max_output = command.max_output;
    out.begun = std::move(command.begun);
    if (command.on_output) {
        out.on_output = [sink = std::make_shared<const Sink>(std::move(command.on_output))](int stream, std::string piece) {
            return deliver(sink, stream, std::move(piece));
        };
    }
    co_return co_await ssh_.run(ctx, std::move(target), std::move(out));
}

Task<net::SshResult> LocalRunner::run(Context ctx, resource::Node node, HostCommand command) {
    net::ProcessSpec spec;
    spec.argv = std::move(command.argv);
    spec.environment = {{"HOME", home_.string()}, {"LANG", "C.UTF-8"}};
    if (command.input) spec.input = *command.input;
    spec.max_output = command.on_output ? 0 : command.max_output;
    spec.on_output = std::move(command.on_output);
    if (command.begun) *command.begun = true;
    auto ran = co_await net::run_process(ctx, std::move(spec));
    if (!ran.ok()) co_return ran.error();
    net::SshResult result;
    result.exit_code = ran->exit_code;
    if (ran->signal != 0) result.signal = std::to_string(ran->signal);
    result.output = std::move(ran->output);
    result.errors = std::move(ran->errors);
    result.truncated = ran->truncated;
    co_return result;
}

namespace {
Fields first_fields(std::string_view kind, const std::map<std::string, std::string>& environment, const std::string& folder,
                    const std::optional<std::string>& input) {
    Fields fields;
    fields.add(kind).add(static_cast<std::int64_t>(environment.size()));
    for (const auto& [name, value] : environment) fields.add(name).add(value);
    fields.add(folder).add(input ? "1" : "0");
    if (input) fields.add(*input);
    return fields;
}
RemoteWork with_arguments(Fields fields, const std::vector<std::string>& argv) {
    fields.add(static_cast<std::int64_t>(argv.size()));
    for (const auto& argument : argv) fields.add(argument);
    fields.add("end");
    return {std::string(runner_prelude) + run_program, std::make_shared<const std::string>(fields.release())};
}
} // namespace

RemoteWork script_work(const std::string& script, const std::vector<std::string>& arguments,
                       const std::map<std::string, std::string>& environment, const std::optional<std::string>& input) {
    auto fields = first_fields("script", environment, "", input);
    fields.add(script).add("");
    return with_arguments(std::move(fields), arguments);
}

RemoteWork command_work(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment,
                        const std::optional<std::string>& input, const std::string& folder) {
    return with_arguments(first_fields("command", environment, folder, input), argv);
}

struct RemoteAttempts::Answer {
    std::vector<std::string> status; ///< the fields of the status line; empty: none came
    std::optional<Error> error;      ///< why none came
    bool begun = false;              ///< the host may have started the operation
};

asio::awaitable<RemoteAttempts::Answer> RemoteAttempts::ask(Context ctx, const resource::Node& node, bool sudo,
                                                            std::string operation, std::string folder, RemoteWork work,
                                                            RemoteOutput* out, std::shared_ptr<std::atomic<bool>> begun) {
    const auto token = random_id();
    const auto at = out != nullptr ? out->at : jobs::Offsets{};
    HostCommand command;
    command.argv = {"sh",
                    "-c",
                    attempt_program,
                    "orrery",
                    operation,
                    folder,
                    token,
                    std::to_string(at.out),
                    std::to_string(at.err),
                    std::move(work.runner)};
    command.input = std::move(work.input);
    command.sudo = sudo;
    command.begun = begun;

    auto demux = std::make_shared<StreamDemux>(token, out);
    command.on_output = [demux](int stream, std::string_view piece) { demux->feed(stream, piece); };
    auto ran = co_await runner_.run(ctx, node, std::move(command));
    Answer answer;
    answer.begun = begun->load();
    if (!ran.ok()) {
        answer.error = ran.error();
        co_return answer;
    }
    answer.status = demux->finish();
    if (!answer.status.empty()) co_return answer;
    const auto message = first_line(demux->errors());
    if (sudo && message.starts_with("sudo:")) {
        answer.begun = false;
        answer.error = Error{Code::denied, fmt::format("sudo on {} refused: {}", node.name, message),
                             fmt::format("allow {} to become root without a password: NOPASSWD in its sudoers", node.ssh_user)};
    } else if (ran->exit_code == 126 || ran->exit_code == 127) {
        answer.begun = false;
        answer.error = Error{Code::unsupported, fmt::format("{} cannot run a POSIX shell: {}", node.name, message)};
    } else {
        answer.error = Error{Code::unavailable,
                             fmt::format("the command on {} broke off: {}", node.name,
                                         message.empty() ? fmt::format("exit code {} {}", ran->exit_code, ran->signal) : message)};
    }
    co_return answer;
}

namespace {

/// The status line of attempt_program, parsed.
Result<RemoteEnd> end_of(const std::vector<std::string>& status, const resource::Node& node) {
    const auto& state = status[0];
    const auto rest = [&status] { return fmt::format("{}", fmt::join(status.begin() + 1, status.end(), " ")); };
    RemoteEnd end;
    if (state == "nospace")
        return Error{Code::no_space, fmt::format("the disk of {} is full: nothing can be started in {}", node.name, rest()),
                     "free space there"};
    if (state == "cannot")
        return Error{Code::denied, fmt::format("{} cannot {}", node.name, rest()),
                     "check the home folder of the account that logs in"};
    if (state == "never") {
        end.state = RemoteEnd::State::not_started;
        return end;
    }
    if (state == "lost") {
        end.message = status.size() > 1 && status[1] == "rebooted"
                          ? fmt::format("{} was rebooted while it ran", node.name)
                          : fmt::format("it was killed on {} and left no result", node.name);
        return end;
    }
    if ((state != "ended" && state != "cancelled") || status.size() < 4)
        return Error{Code::internal, fmt::format("{} answered {} {}", node.name, state, rest())};
    if (status[1] == "T" || status[1] == "F") { // its input was incomplete (torn), or it was fenced
        end.state = RemoteEnd::State::not_started;
        return end;
    }
    end.state = state == "ended" ? RemoteEnd::State::ended : RemoteEnd::State::cancelled;
    std::from_chars(status[1].data(), status[1].data() + status[1].size(), end.exit_code);
    if (status[2] == "changed") end.change = jobs::Outcome::Change::changed;
    if (status[2] == "unchanged") end.change = jobs::Outcome::Change::unchanged;
    end.disk_full = status[3] == "full";
    return end;
}

bool is_retryable(const Error& error) {
    return error.code == Code::unavailable || error.code == Code::timeout || error.code == Code::throttled;
}

} // namespace

Task<RemoteEnd> RemoteAttempts::start(Context ctx, resource::Node node, bool sudo, std::string id, RemoteWork work,
                                      RemoteOutput& out, Duration retry_budget) {
    if (!is_valid_id(id)) co_return Error{Code::invalid, fmt::format("\"{}\" is not the id of an attempt", id)};
    const auto generation = generations_.find(id);
    auto folder = generation == generations_.end() ? id : fmt::format("{}.{}", id, generation->second);
    auto answer = co_await ask(ctx, node, sudo, "start", std::move(folder), std::move(work), &out);
    if (!answer.status.empty()) co_return end_of(answer.status, node);
    if (!answer.begun || answer.error->code == Code::cancelled) co_return *answer.error;
    log::info(ctx, "connection broke, reattaching attempt={} node={} error=\"{}\"", id, node.name, answer.error->message);
    auto end = co_await follow(ctx, node, sudo, std::move(id), out, retry_budget, answer.error->message);
    if (end.ok() || end.error().code == Code::cancelled) co_return end;
    // Whether it was started is unknown: it must not be reported as not started.
    RemoteEnd lost;
    lost.message = fmt::format("{} cannot be asked for the outcome: {}", node.name, end.error().message);
    co_return lost;
}

Task<RemoteEnd> RemoteAttempts::follow(Context ctx, resource::Node node, bool sudo, std::string id, RemoteOutput& out,
                                       Duration retry_budget, std::string broke) {
    Duration wait = 500ms;
    auto give_up = clock_.steady() + retry_budget;
    for (;;) {
        const auto before = out.at;
        const auto back = std::make_shared<std::atomic<bool>>(false);
        if (!broke.empty() && out.on_unreachable)
            out.on_unreachable(fmt::format("{} is unreachable; the attempt continues there, and orrery tries to reach it again: {}",
                                           node.name, broke),
                               back);
        auto answer = co_await ask(ctx, node, sudo, "attach", id, {}, &out, back);
        if (!answer.status.empty()) {
            auto end = end_of(answer.status, node);
            if (end.ok() && end->state == RemoteEnd::State::not_started && answer.status.size() > 1) {
                int fenced = 0;
                std::from_chars(answer.status[1].data(), answer.status[1].data() + answer.status[1].size(), fenced);
                generations_[id] = fenced + 1;
            }
            co_return std::move(end);
        }
        if (!is_retryable(*answer.error)) co_return *answer.error;
        broke = answer.error->message;
        if (answer.begun && (out.at.out != before.out || out.at.err != before.err)) { // the host was reachable meanwhile
            give_up = clock_.steady() + retry_budget;
            wait = 500ms;
        }
        if (clock_.steady() + wait > give_up) co_return *answer.error;
        CO_TRY(std::ignore, co_await clock_.sleep(wait));
        wait = std::min<Duration>(wait * 2, 15s);
    }
}

Task<RemoteEnd> RemoteAttempts::attach(Context ctx, resource::Node node, bool sudo, std::string id, RemoteOutput& out,
                                       Duration retry_budget) {
    if (!is_valid_id(id)) co_return Error{Code::invalid, fmt::format("\"{}\" is not the id of an attempt", id)};
    co_return co_await follow(ctx, std::move(node), sudo, std::move(id), out, retry_budget, {});
}

Task<Unit> RemoteAttempts::cancel(Context ctx, resource::Node node, bool sudo, std::string id) {
    if (!is_valid_id(id)) co_return Error{Code::invalid, fmt::format("\"{}\" is not the id of an attempt", id)};
    auto answer = co_await ask(ctx, node, sudo, "cancel", id, {}, nullptr);
    if (answer.status.empty()) co_return *answer.error;
    if (answer.status[0] == "gone") co_return Unit{};
    auto end = end_of(answer.status, node);
    if (!end.ok()) co_return end.error();
    co_return Unit{};
}

Task<Unit> RemoteAttempts::clean_up(Context ctx, resource::Node node, bool sudo, std::string id) {
    if (!is_valid_id(id)) co_return Error{Code::invalid, fmt::format("\"{}\" is not the id of an attempt", id)};
    generations_.erase(id);
    auto answer = co_await ask(ctx, node, sudo, "clean", std::move(id), {}, nullptr);
    if (answer.status.empty()) co_return *answer.error;
    co_return Unit{};
}

Task<net::SshResult> RemoteAttempts::run(Context ctx, resource::Node node, bool sudo, std::vector<std::string> argv,
                                         std::string input, std::size_t max_output) {
    HostCommand command;
    command.argv = std::move(argv);
    command.sudo = sudo;
    command.max_output = max_output;
    if (!input.empty()) command.input = std::make_shared<const std::string>(std::move(input));
    co_return co_await runner_.run(ctx, std::move(node), std::move(command));
}

} // namespace orrery::drivers
