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

/// Gives out a stream's lines as they end; `held` is what has come of the one that has not. Longer ones are cut.
template <class F> void feed_lines(std::string& held, std::string_view bytes, std::size_t longest, const F& line) {
    while (!bytes.empty()) {
        const auto end = bytes.find('\n');
        const auto part = bytes.substr(0, end);
        held.append(part.substr(0, longest - std::min(longest, held.size())));
        if (end == std::string_view::npos) return;
        line(held);
        held.clear();
        bytes.remove_prefix(end + 1);
    }
}

/// Takes the last line that our program writes off a stream of errors.
class Trailer {
public:
    explicit Trailer(const std::string& word) : mark_("\n" + word + " ") {}
    /// What is certainly not part of it.
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
    /// Its words, or nothing where it never came; `rest` is then what was held back.
    std::vector<std::string> finish(std::string& rest) {
        std::vector<std::string> words;
        if (!held_.starts_with(mark_) || !held_.ends_with('\n')) {
            rest = std::move(held_);
            return words;
        }
        std::string_view text(held_);
        text = text.substr(mark_.size(), text.size() - mark_.size() - 1);
        while (!text.empty()) {
            const auto end = std::min(text.find(' '), text.size());
            words.emplace_back(text.substr(0, end));
            text.remove_prefix(std::min(text.size(), end + 1));
        }
        return words;
    }

private:
    std::string mark_, held_;
};

std::string first_line(std::string_view text) {
    while (!text.empty() && text.front() == '\n') text.remove_prefix(1);
    return std::string(text.substr(0, std::min(text.find('\n'), std::size_t{300})));
}

bool is_good_id(std::string_view id) {
    return !id.empty() && id.size() <= 200 &&
           std::all_of(id.begin(), id.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

using Sink = std::function<void(int stream, std::string_view piece)>;

/// The call comes on the transport's thread, what it returns runs on the loop: so the sink is called in here and not before.
Task<Unit> deliver(std::shared_ptr<const Sink> sink, int stream, std::string piece) {
    (*sink)(stream, piece);
    co_return Unit{};
}

} // namespace

Task<net::SshResult> SshRunner::run(Context ctx, resource::Node node, HostCommand command) {
    CO_TRY(auto target, logins_.login(node));
    net::SshCommand out;
    out.argv = std::move(command.argv);
    if (!command.sudo) out.argv.insert(out.argv.begin(), "exec"); // one process less
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
Fields begun_fields(std::string_view kind, const std::map<std::string, std::string>& environment, const std::string& folder,
                    const std::optional<std::string>& input) {
    Fields fields;
    fields.add(kind).add(static_cast<std::int64_t>(environment.size()));
    for (const auto& [name, value] : environment) fields.add(name).add(value);
    fields.add(folder).add(input ? "1" : "0");
    if (input) fields.add(*input);
    return fields;
}
RemoteWork ended_fields(Fields fields, const std::vector<std::string>& argv) {
    fields.add(static_cast<std::int64_t>(argv.size()));
    for (const auto& argument : argv) fields.add(argument);
    fields.add("end");
    return {std::string(runner_prelude) + attributes_program + run_program, std::make_shared<const std::string>(fields.take())};
}
} // namespace

RemoteWork script_work(const std::string& script, const std::vector<std::string>& arguments,
                       const std::map<std::string, std::string>& environment, const std::optional<std::string>& input) {
    auto fields = begun_fields("script", environment, "", input);
    fields.add(script).add("");
    return ended_fields(std::move(fields), arguments);
}

RemoteWork command_work(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment,
                        const std::optional<std::string>& input, const std::string& folder) {
    return ended_fields(begun_fields("command", environment, folder, input), argv);
}

struct RemoteAttempts::Answer {
    std::vector<std::string> words; ///< of the trailer; empty: none came
    std::optional<Error> error;     ///< why none came
    bool begun = false;             ///< the host may have begun to do what we asked
};

asio::awaitable<RemoteAttempts::Answer> RemoteAttempts::ask(Context ctx, const resource::Node& node, bool sudo, std::string what,
                                                            std::string folder, RemoteWork work, RemoteOutput* out,
                                                            std::shared_ptr<std::atomic<bool>> begun) {
    const auto word = random_id();
    const auto at = out != nullptr ? out->at : jobs::Offsets{};
    HostCommand command;
    command.argv = {"sh",
                    "-c",
                    attempt_program,
                    "orrery",
                    what,
                    folder,
                    word,
                    std::to_string(at.out),
                    std::to_string(at.err),
                    std::move(work.runner)};
    command.input = std::move(work.input);
    command.sudo = sudo;
    command.begun = begun;

    struct Sorting {
        explicit Sorting(const std::string& word_) : trailer(word_) {}
        Trailer trailer;
        std::string tail; // of the errors, for messages
    };
    auto sorting = std::make_shared<Sorting>(word);
    const auto keep_errors = [out](Sorting& to, const std::string& bytes) {
        if (bytes.empty()) return;
        to.tail = (to.tail + bytes).substr(to.tail.size() + bytes.size() > 2000 ? to.tail.size() + bytes.size() - 2000 : 0);
        if (out == nullptr) return;
        if (out->on_bytes) out->on_bytes(jobs::Stream::err, out->at.err, bytes);
        out->at.err += bytes.size();
    };
    command.on_output = [sorting, out, keep_errors](int stream, std::string_view piece) {
        if (stream == 2) {
            keep_errors(*sorting, sorting->trailer.feed(piece));
        } else if (out != nullptr) {
            if (out->on_bytes) out->on_bytes(jobs::Stream::out, out->at.out, piece);
            out->at.out += piece.size();
            if (out->on_line) feed_lines(out->at.line, piece, out->longest_line, out->on_line);
        }
    };
    auto ran = co_await runner_.run(ctx, node, std::move(command));
    Answer answer;
    answer.begun = begun->load();
    if (!ran.ok()) {
        answer.error = ran.error();
        co_return answer;
    }
    std::string rest;
    answer.words = sorting->trailer.finish(rest);
    if (!answer.words.empty()) co_return answer;
    keep_errors(*sorting, rest);
    const auto said = first_line(sorting->tail);
    if (sudo && said.starts_with("sudo:")) {
        answer.begun = false;
        answer.error = Error{Code::denied, fmt::format("sudo on {} refused: {}", node.name, said),
                             fmt::format("allow {} to become root without a password: NOPASSWD in its sudoers", node.ssh_user)};
    } else if (ran->exit_code == 126 || ran->exit_code == 127) {
        answer.begun = false;
        answer.error = Error{Code::unsupported, fmt::format("{} cannot run a POSIX shell: {}", node.name, said)};
    } else {
        answer.error = Error{Code::unavailable,
                             fmt::format("{} broke off: {}", node.name,
                                         said.empty() ? fmt::format("exit code {} {}", ran->exit_code, ran->signal) : said)};
    }
    co_return answer;
}

namespace {

Result<RemoteEnd> end_of(const std::vector<std::string>& words, const resource::Node& node) {
    const auto& word = words[0];
    const auto rest = [&words] { return fmt::format("{}", fmt::join(words.begin() + 1, words.end(), " ")); };
    RemoteEnd end;
    if (word == "nospace")
        return Error{Code::no_space, fmt::format("the disk of {} is full: nothing can be begun in {}", node.name, rest()),
                     "make room there"};
    if (word == "cannot")
        return Error{Code::denied, fmt::format("{} cannot {}", node.name, rest()),
                     "check the home folder of the account that logs in"};
    if (word == "never") {
        end.what = RemoteEnd::What::never;
        return end;
    }
    if (word == "lost") {
        end.words = words.size() > 1 && words[1] == "rebooted" ? fmt::format("{} was rebooted while it ran", node.name)
                                                               : fmt::format("it was killed on {} and left no result", node.name);
        return end;
    }
    if ((word != "ended" && word != "cancelled") || words.size() < 4)
        return Error{Code::internal, fmt::format("{} answered {} {}", node.name, word, rest())};
    if (words[1] == "T" || words[1] == "F") { // it had not come whole, or was fenced off
        end.what = RemoteEnd::What::never;
        return end;
    }
    end.what = word == "ended" ? RemoteEnd::What::ended : RemoteEnd::What::cancelled;
    std::from_chars(words[1].data(), words[1].data() + words[1].size(), end.exit_code);
    if (words[2] == "changed") end.change = jobs::Outcome::Change::changed;
    if (words[2] == "unchanged") end.change = jobs::Outcome::Change::unchanged;
    end.disk_full = words[3] == "full";
    return end;
}

bool is_worth_another_try(const Error& error) {
    return error.code == Code::unavailable || error.code == Code::timeout || error.code == Code::throttled;
}

} // namespace

Task<RemoteEnd> RemoteAttempts::start(Context ctx, resource::Node node, bool sudo, std::string id, RemoteWork work,
                                      RemoteOutput& out, Duration patience) {
    if (!is_good_id(id)) co_return Error{Code::invalid, fmt::format("\"{}\" is no attempt's id", id)};
    const auto generation = generations_.find(id);
    auto folder = generation == generations_.end() ? id : fmt::format("{}.{}", id, generation->second);
    auto answer = co_await ask(ctx, node, sudo, "start", std::move(folder), std::move(work), &out);
    if (!answer.words.empty()) co_return end_of(answer.words, node);
    if (!answer.begun || answer.error->code == Code::cancelled) co_return *answer.error;
    log::info(ctx, "the connection broke during attempt {} on {}, it is taken up again: {}", id, node.name, answer.error->message);
    auto end = co_await follow(ctx, node, sudo, std::move(id), out, patience, answer.error->message);
    if (end.ok() || end.error().code == Code::cancelled) co_return end;
    // Nobody knows whether it was begun: it must not pass for something that was not.
    RemoteEnd lost;
    lost.words = fmt::format("{} cannot be asked how it ended: {}", node.name, end.error().message);
    co_return lost;
}

Task<RemoteEnd> RemoteAttempts::follow(Context ctx, resource::Node node, bool sudo, std::string id, RemoteOutput& out,
                                       Duration patience, std::string broke) {
    Duration wait = 500ms;
    auto give_up = clock_.steady() + patience;
    for (;;) {
        const auto before = out.at;
        const auto back = std::make_shared<std::atomic<bool>>(false);
        if (!broke.empty() && out.on_trouble)
            out.on_trouble(fmt::format("{} is out of reach, what runs there goes on and is asked for again: {}", node.name, broke),
                           back);
        auto answer = co_await ask(ctx, node, sudo, "attach", id, {}, &out, back);
        if (!answer.words.empty()) {
            auto end = end_of(answer.words, node);
            if (end.ok() && end->what == RemoteEnd::What::never && answer.words.size() > 1) {
                int fenced = 0;
                std::from_chars(answer.words[1].data(), answer.words[1].data() + answer.words[1].size(), fenced);
                generations_[id] = fenced + 1;
            }
            co_return std::move(end);
        }
        if (!is_worth_another_try(*answer.error)) co_return *answer.error;
        broke = answer.error->message;
        if (answer.begun && (out.at.out != before.out || out.at.err != before.err)) { // it was there meanwhile
            give_up = clock_.steady() + patience;
            wait = 500ms;
        }
        if (clock_.steady() + wait > give_up) co_return *answer.error;
        CO_TRY(std::ignore, co_await clock_.sleep(wait));
        wait = std::min<Duration>(wait * 2, 15s);
    }
}

Task<RemoteEnd> RemoteAttempts::attach(Context ctx, resource::Node node, bool sudo, std::string id, RemoteOutput& out,
                                       Duration patience) {
    if (!is_good_id(id)) co_return Error{Code::invalid, fmt::format("\"{}\" is no attempt's id", id)};
    co_return co_await follow(ctx, std::move(node), sudo, std::move(id), out, patience, {});
}

Task<Unit> RemoteAttempts::cancel(Context ctx, resource::Node node, bool sudo, std::string id) {
    if (!is_good_id(id)) co_return Error{Code::invalid, fmt::format("\"{}\" is no attempt's id", id)};
    auto answer = co_await ask(ctx, node, sudo, "cancel", id, {}, nullptr);
    if (answer.words.empty()) co_return *answer.error;
    if (answer.words[0] == "gone") co_return Unit{};
    auto end = end_of(answer.words, node);
    if (!end.ok()) co_return end.error();
    co_return Unit{};
}

Task<Unit> RemoteAttempts::clean_up(Context ctx, resource::Node node, bool sudo, std::string id) {
    if (!is_good_id(id)) co_return Error{Code::invalid, fmt::format("\"{}\" is no attempt's id", id)};
    generations_.erase(id);
    auto answer = co_await ask(ctx, node, sudo, "clean", std::move(id), {}, nullptr);
    if (answer.words.empty()) co_return *answer.error;
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
