#pragma once

#include "core/task.h"
#include "jobs/executor.h"

#include <boost/asio/experimental/awaitable_operators.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace orrery::jobs {

/// For tests: an executor whose attempts follow a script, on a clock. It represents the hosts, not the server: it outlives an
/// engine that is killed, attempts go on, and another engine re-attaches to them.
class FakeExecutor final : public Executor {
public:
    /// The behaviour of an attempt. `values`, `out` and `steps` appear when it ends.
    struct Script {
        Duration takes{};
        Outcome outcome = Outcome::success(Outcome::Change::changed);
        std::string out, err;
        std::vector<Step> steps;
    };
    struct Begun {
        Attempt attempt;
        SteadyTime at{}, until{};
        Script script;
        bool killed = false, cleaned = false;
        int starts = 0; ///< calls of `start` with this id: more than one is a duplicate effect
    };

    FakeExecutor(asio::any_io_executor executor, Clock& clock, std::string name = "fake", TargetType target_type = TargetType::node)
        : clock_(clock), changed_(std::move(executor)), name_(std::move(name)), target_type_(target_type) {}

    /// Called once for an attempt, when it starts. Without it every attempt succeeds at once.
    std::function<Script(const Attempt&)> script;
    /// Called at the end of an attempt, before the engine learns of it; for example to register services.
    std::function<void(const Begun&)> when_done;
    /// Only the server that started an attempt can re-attach to it.
    bool here = false;
    /// The number of calls of `clean_up` that fail because the node is unreachable.
    int out_of_reach = 0;
    std::string out_of_reach_id; ///< only for attempts whose id ends with this
    /// By task: the number of calls of `start` that fail because the host cannot be reached.
    std::map<std::string, int> unreachable;

    const std::vector<std::string>& order() const { return order_; } ///< task names, in the order of their starts
    const std::map<std::string, Begun>& attempts() const { return attempts_; }
    std::size_t running() const { return running_; }
    std::size_t max_running() const { return max_running_; }
    /// The host loses an attempt half way (a reboot).
    void forget(const std::string& id) { forgotten_.push_back(id); }

    /// The names of the values that all attempts publish; nothing: unknown before they have run.
    std::optional<std::vector<std::string>> publishes;

    std::optional<std::vector<std::string>> published(const json::value&) const override { return publishes; }
    std::string_view name() const override { return name_; }
    TargetType target_type() const override { return target_type_; }
    bool runs_on_server() const override { return here; }
    Result<Unit> check(const json::value& body) const override {
        if (const auto* object = body.if_object(); object != nullptr && object->contains("bad")) {
            Error error{Code::invalid, "the body is not right"};
            error.fields.push_back({"bad", "must not be there"});
            return error;
        }
        return Unit{};
    }
    Task<Outcome> start(Context ctx, const Attempt& attempt, Output& output) override {
        if (auto found = unreachable.find(attempt.task); found != unreachable.end() && found->second > 0) {
            --found->second;
            co_return Outcome::failure(ErrorClass::connect, "no route to host");
        }
        auto& begun = attempts_[attempt.id];
        ++begun.starts;
        begun.attempt = attempt;
        begun.at = clock_.steady();
        if (script) begun.script = script(attempt);
        begun.until = begun.at + begun.script.takes;
        order_.push_back(attempt.task);
        max_running_ = std::max(max_running_, ++running_);
        auto outcome = co_await finish(begun, {}, output);
        co_return outcome;
    }
    Task<Reattached> reattach(Context ctx, const Attempt& attempt, Offsets stored, Output& output) override {
        const auto found = attempts_.find(attempt.id);
        if (found == attempts_.end()) co_return Reattached{Reattached::State::not_started, {}, {}};
        if (std::find(forgotten_.begin(), forgotten_.end(), attempt.id) != forgotten_.end())
            co_return Reattached{Reattached::State::unknown, {}, "the host was rebooted meanwhile"};
        CO_TRY(auto outcome, co_await finish(found->second, stored, output));
        co_return Reattached{Reattached::State::ended, std::move(outcome), {}};
    }
    Task<Unit> cancel(Context ctx, const Attempt& attempt) override {
        if (const auto found = attempts_.find(attempt.id); found != attempts_.end() && clock_.steady() < found->second.until) {
            found->second.killed = true;
            changed_.notify_all();
        }
        co_return Unit{};
    }
    Task<Unit> clean_up(Context ctx, const Attempt& attempt) override {
        if (out_of_reach > 0 && attempt.id.ends_with(out_of_reach_id)) {
            --out_of_reach;
            co_return Error{Code::unavailable, "no route to host"};
        }
        if (const auto found = attempts_.find(attempt.id); found != attempts_.end()) found->second.cleaned = true;
        co_return Unit{};
    }
    Task<Preview> plan(Context ctx, const Attempt& attempt) override {
        Preview preview;
        preview.change = Outcome::Change::changed;
        preview.message = "would run " + attempt.task;
        preview.differences.push_back({"/etc/" + attempt.task, "", "new\n"});
        co_return preview;
    }

private:
    Task<Outcome> finish(Begun& begun, Offsets stored, Output& output) {
        using namespace asio::experimental::awaitable_operators;
        while (!begun.killed && clock_.steady() < begun.until) {
            auto woken = co_await (clock_.sleep_until(begun.until) || changed_.wait(Context::background()));
            const auto& first = woken.index() == 0 ? std::get<0>(woken) : std::get<1>(woken);
            if (!first.ok()) co_return first.error(); // the server stops; the attempt continues
        }
        if (!begun.cleaned && !done_.contains(begun.attempt.id)) {
            done_[begun.attempt.id] = true;
            --running_;
            if (when_done && !begun.killed) when_done(begun);
        }
        if (begun.killed) co_return Outcome::failure(ErrorClass::cancelled, "killed");
        if (stored.out < begun.script.out.size())
            output.write(Stream::out, stored.out, std::string_view(begun.script.out).substr(stored.out));
        if (stored.err < begun.script.err.size())
            output.write(Stream::err, stored.err, std::string_view(begun.script.err).substr(stored.err));
        for (const auto& step : begun.script.steps) output.step(step);
        co_return begun.script.outcome;
    }

    Clock& clock_;
    Notifier changed_;
    std::string name_;
    TargetType target_type_;
    std::map<std::string, Begun> attempts_;
    std::map<std::string, bool> done_;
    std::vector<std::string> order_, forgotten_;
    std::size_t running_ = 0, max_running_ = 0;
};

} // namespace orrery::jobs
