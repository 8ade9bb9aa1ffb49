#include "drivers/local/local.h"

#include "core/json_fields.h"
#include "core/nearest.h"
#include "drivers/ssh/ssh.h"
#include "jobs/secrets.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <set>

namespace orrery::drivers {

using jobs::Attempt;
using jobs::Outcome;

namespace {

resource::Field local_fields() {
    using namespace resource;
    return object("local", "A program on the server.")
        .with(text("program", "Name of the program in the setting jobs.programs.")
                  .required()
                  .format(Format::one_line)
                  .between(1, 128))
        .with(list("arguments", "Arguments; no shell interprets them.", text("argument", "An argument.").format(Format::data)))
        .with(text("input", "Standard input.").format(Format::data))
        .with(list("success", "Exit codes that mean success.", integer("code", "An exit code.").between(0, 255)).between(1, 256));
}

class LocalExecutor final : public jobs::Executor {
public:
    LocalExecutor(RemoteAttempts& local, LocalOptions options) : local_(local), options_(std::move(options)) {}

    std::string_view name() const override { return "local"; }
    TargetType target_type() const override { return TargetType::server; }
    bool runs_on_server() const override { return true; }

    Result<Unit> check(const json::value& body) const override {
        static const resource::Field declared = local_fields();
        std::vector<FieldError> errors;
        if (!body.is_object()) {
            errors.push_back({"", "must be an object with a program"});
        } else {
            auto copy = body.get_object();
            resource::check_fields(declared, copy, "", errors);
            const auto program = text_at(copy, "program");
            if (!program.empty() && !options_.programs.contains(program)) errors.push_back({"program", unknown(program)});
        }
        if (errors.empty()) return Unit{};
        Error error{Code::invalid,
                    errors.size() == 1
                        ? fmt::format("the local task is not valid: {} {}", errors.front().path, errors.front().message)
                        : fmt::format("the local task has {} errors", errors.size()),
                    "the setting jobs.programs lists the programs that jobs may run"};
        error.fields = std::move(errors);
        return error;
    }

    std::optional<std::vector<std::string>> published(const json::value&) const override { return std::vector<std::string>{}; }

    Task<Outcome> start(Context ctx, const Attempt& attempt, jobs::Output& output) override {
        CO_TRY(std::ignore, check(attempt.body));
        const auto& body = attempt.body.get_object();
        std::vector<std::string> argv{options_.programs.at(text_at(body, "program"))};
        for (auto& argument : texts_at(body, "arguments")) argv.push_back(std::move(argument));
        // Every user of the server's host can read the arguments of processes.
        if (auto masker = Masker(attempt.secrets); !masker.empty())
            for (const auto& argument : argv)
                if (masker.mask(argument) != argument)
                    co_return Error{Code::invalid, "an argument holds a secret, which every user of the server's host could read",
                                    "pass the secret in env or input"};
        std::optional<std::string> input;
        if (body.contains("input")) input = text_at(body, "input");
        Reading reading(output, attempt.secrets);
        auto ended = co_await local_.start(ctx, {}, false, attempt.id, command_work(argv, attempt.environment, input, "/"),
                                           reading.out, retry_budget_of(attempt, options_.retry_budget));
        co_return conclude(ended, reading, attempt);
    }

    Task<jobs::Reattached> reattach(Context ctx, const Attempt& attempt, jobs::Offsets kept, jobs::Output& output) override {
        Reading reading(output, attempt.secrets);
        reading.out.at = kept;
        auto ended =
            co_await local_.attach(ctx, {}, false, attempt.id, reading.out, retry_budget_of(attempt, options_.retry_budget));
        if (ended.ok() && ended->state == RemoteEnd::State::lost)
            ended->message = "the program was killed, or the server's host restarted, while it ran";
        if (auto reattached = without_result(ended)) co_return std::move(*reattached);
        co_return jobs::Reattached{jobs::Reattached::State::ended, conclude(ended, reading, attempt), {}};
    }

    Task<Unit> cancel(Context ctx, const Attempt& attempt) override {
        co_return co_await local_.cancel(ctx, {}, false, attempt.id);
    }
    Task<Unit> clean_up(Context ctx, const Attempt& attempt) override {
        co_return co_await local_.clean_up(ctx, {}, false, attempt.id);
    }
    Task<jobs::Preview> plan(Context ctx, const Attempt& attempt) override {
        co_return Error{Code::unsupported, "a program on the server has no dry run"};
    }

private:
    struct Reading {
        Reading(jobs::Output& to, const jobs::Secrets& secrets) : errors(secrets) {
            out.on_bytes = [this, &to](jobs::Stream stream, std::uint64_t offset, std::string_view bytes) {
                to.write(stream, offset, bytes);
                if (stream == jobs::Stream::err) errors.add(bytes);
            };
        }
        RemoteOutput out;
        jobs::MaskedTail errors;
    };

    std::string unknown(const std::string& program) const {
        std::vector<std::string_view> names;
        for (const auto& [name, path] : options_.programs) names.push_back(name);
        if (names.empty()) return "cannot be run: the setting jobs.programs is empty";
        const auto near = nearest(program, names.data(), names.data() + names.size());
        return near.empty() ? fmt::format("must be one of the programs in the setting jobs.programs: {}", fmt::join(names, ", "))
                            : fmt::format("is not in the setting jobs.programs; did you mean \"{}\"?", near);
    }

    static Outcome conclude(const Result<RemoteEnd>& ended, const Reading& reading, const Attempt& attempt) {
        if (!ended.ok()) return outcome_of(ended.error());
        std::set<int> good;
        if (attempt.body.is_object())
            for (const auto& code : array_at(attempt.body.get_object(), "success"))
                if (code.is_int64()) good.insert(static_cast<int>(code.get_int64()));
        if (good.empty()) good.insert(0);
        return outcome_of(*ended, reading.errors.last_line(), [&good](int code) { return good.contains(code); });
    }

    RemoteAttempts& local_;
    LocalOptions options_;
};

} // namespace

std::unique_ptr<jobs::Executor> local_executor(RemoteAttempts& local, LocalOptions options) {
    return std::make_unique<LocalExecutor>(local, std::move(options));
}

} // namespace orrery::drivers
