#include "drivers/local/local.h"

#include "core/ids.h"
#include "drivers/ssh/ssh.h"
#include "jobs/secrets.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <set>

namespace orrery::drivers {

namespace json = boost::json;
using jobs::Attempt;
using jobs::Outcome;

namespace {

resource::Field local_fields() {
    using namespace resource;
    return object("local", "A program at the server.")
        .with(
            text("program", "Its name in the server's setting jobs.programs.").required().format(Format::one_line).between(1, 128))
        .with(list("arguments", "Its arguments; no shell sees them.", text("word", "A word.")))
        .with(text("input", "Its standard input."))
        .with(list("success", "Exit codes that mean success.", integer("code", "One.").between(0, 255)).between(1, 256));
}

std::string local_text(const json::object& body, std::string_view key) {
    const auto* value = body.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}

class LocalExecutor final : public jobs::Executor {
public:
    LocalExecutor(RemoteAttempts& local, LocalOptions options) : local_(local), options_(std::move(options)) {}

    std::string_view name() const override { return "local"; }
    Place place() const override { return Place::server; }
    bool begins_here() const override { return true; }

    Result<Unit> check(const json::value& body) const override {
        static const resource::Field declared = local_fields();
        std::vector<FieldError> errors;
        if (!body.is_object()) {
            errors.push_back({"", "must be an object with a program"});
        } else {
            auto copy = body.get_object();
            resource::check_fields(declared, copy, "", errors);
            const auto program = local_text(copy, "program");
            if (!program.empty() && !options_.programs.contains(program)) errors.push_back({"program", unknown(program)});
        }
        if (errors.empty()) return Unit{};
        Error error{Code::invalid,
                    errors.size() == 1 ? fmt::format("the local task is wrong: {} {}", errors.front().path, errors.front().message)
                                       : fmt::format("the local task has {} errors", errors.size()),
                    "programs that jobs may run are named in the server's setting jobs.programs"};
        error.fields = std::move(errors);
        return error;
    }

    Task<Outcome> start(Context ctx, Attempt attempt, jobs::Output& output) override {
        const auto bound = jobs::json_with_secrets(attempt.body, attempt.secrets);
        CO_TRY(std::ignore, check(bound));
        const auto& body = bound.get_object();
        std::vector<std::string> argv{options_.programs.at(local_text(body, "program"))};
        if (const auto* arguments = body.if_contains("arguments"))
            for (const auto& word : arguments->get_array()) argv.emplace_back(std::string_view(word.get_string()));
        // An argument is seen by everybody at this machine.
        if (auto shown = jobs::Masker(attempt.secrets); !shown.empty())
            for (const auto& word : argv)
                if (shown.mask(word) != word)
                    co_return Error{Code::invalid, "a secret would be an argument, which everybody at the server could read",
                                    "give it by environment or input"};
        std::map<std::string, std::string> environment;
        for (const auto& [name, value] : attempt.environment) environment[name] = jobs::with_secrets(value, attempt.secrets);
        std::optional<std::string> input;
        if (body.contains("input")) input = local_text(body, "input");
        Reading reading(output, attempt.secrets);
        auto ended = co_await local_.start(ctx, {}, false, attempt.id, command_work(argv, environment, input, "/"), reading.out,
                                           patience_of(attempt, options_.patience));
        co_return conclude(ended, reading, attempt);
    }

    Task<jobs::Reattached> reattach(Context ctx, Attempt attempt, jobs::Offsets kept, jobs::Output& output) override {
        Reading reading(output, attempt.secrets);
        reading.out.at = kept;
        auto ended = co_await local_.attach(ctx, {}, false, attempt.id, reading.out, patience_of(attempt, options_.patience));
        if (ended.ok() && ended->what == RemoteEnd::What::lost)
            ended->words = "the program was killed, or the machine restarted, while it ran";
        if (auto told = without_result(ended)) co_return std::move(*told);
        co_return jobs::Reattached{jobs::Reattached::What::ended, conclude(ended, reading, attempt), {}};
    }

    Task<Unit> cancel(Context ctx, Attempt attempt) override { co_return co_await local_.cancel(ctx, {}, false, attempt.id); }
    Task<Unit> clean_up(Context ctx, Attempt attempt) override { co_return co_await local_.clean_up(ctx, {}, false, attempt.id); }
    Task<jobs::Preview> plan(Context ctx, Attempt attempt) override {
        co_return Error{Code::unsupported, "a program at the server has no dry run"};
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
        if (names.empty()) return "cannot be run: this server allows no programs";
        const auto near = nearest(program, names.data(), names.data() + names.size());
        return near.empty() ? fmt::format("is not one of those this server allows: {}", fmt::join(names, ", "))
                            : fmt::format("is not allowed; did you mean \"{}\"?", near);
    }

    static Outcome conclude(const Result<RemoteEnd>& ended, const Reading& reading, const Attempt& attempt) {
        if (!ended.ok()) return outcome_of(ended.error());
        std::set<int> good{0};
        if (const auto* codes = attempt.body.is_object() ? attempt.body.get_object().if_contains("success") : nullptr;
            codes != nullptr && codes->is_array()) {
            good.clear();
            for (const auto& code : codes->get_array())
                if (code.is_int64()) good.insert(static_cast<int>(code.get_int64()));
        }
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
