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

/// For tests: hosts that do what a script says, on a clock. It is the world, not the server: it outlives the engine that is killed,
/// attempts that were begun go on, and another engine re-attaches to them.
class FakeExecutor final : public Executor {
public:
    /// What an attempt does. `values`, `out` and `steps` appear when it ends.
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
        int starts = 0; ///< how often `start` was called with this id: more than once is a doubled effect
    };

    FakeExecutor(asio::any_io_executor executor, Clock& clock, std::string name = "fake", Place place = Place::node)
        : clock_(clock), changed_(std::move(executor)), name_(std::move(name)), place_(place) {}

    /// Called once for an attempt, when it begins. Without it everything succeeds at once.
    std::function<Script(const Attempt&)> script;
    /// Called when an attempt's work is done, before anybody is told: registers services, say.
    std::function<void(const Begun&)> when_done;
    /// Attempts can be asked for only where they were begun, as a program at a server.
    bool here = false;
    /// So many calls of `clean_up` find the machine out of reach.
    int out_of_reach = 0;
    /// The next call of `start` for this task ends without having begun anything, as if the host could not be reached.
    std::map<std::string, int> unreachable;

    const std::vector<std::string>& order() const { return order_; } ///< task names, as they began
    const std::map<std::string, Begun>& attempts() const { return attempts_; }
    std::size_t running() const { return running_; }
    std::size_t most_running() const { return most_running_; }
    /// The host forgets an attempt half way (a reboot).
    void forget(const std::string& id) { forgotten_.push_back(id); }

    std::string_view name() const override { return name_; }
    Place place() const override { return place_; }
    bool begins_here() const override { return here; }
    Result<Unit> check(const json::value& body) const override {
        if (const auto* object = body.if_object(); object != nullptr && object->contains("bad")) {
            Error error{Code::invalid, "the body is not right"};
            error.fields.push_back({"bad", "must not be there"});
            return error;
        }
        return Unit{};
    }
    Task<Outcome> start(Context ctx, Attempt attempt, Output& output) override {
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
        most_running_ = std::max(most_running_, ++running_);
        auto outcome = co_await finish(begun, {}, output);
        co_return outcome;
    }
    Task<Reattached> reattach(Context ctx, Attempt attempt, Offsets kept, Output& output) override {
        const auto found = attempts_.find(attempt.id);
        if (found == attempts_.end()) co_return Reattached{Reattached::What::never_began, {}, {}};
        if (std::find(forgotten_.begin(), forgotten_.end(), attempt.id) != forgotten_.end())
            co_return Reattached{Reattached::What::unknown, {}, "the host was rebooted meanwhile"};
        CO_TRY(auto outcome, co_await finish(found->second, kept, output));
        co_return Reattached{Reattached::What::ended, std::move(outcome), {}};
    }
    Task<Unit> cancel(Context ctx, Attempt attempt) override {
        if (const auto found = attempts_.find(attempt.id); found != attempts_.end() && clock_.steady() < found->second.until) {
            found->second.killed = true;
            changed_.notify_all();
        }
        co_return Unit{};
    }
    Task<Unit> clean_up(Context ctx, Attempt attempt) override {
        if (out_of_reach > 0) {
            --out_of_reach;
            co_return Error{Code::unavailable, "no route to host"};
        }
        if (const auto found = attempts_.find(attempt.id); found != attempts_.end()) found->second.cleaned = true;
        co_return Unit{};
    }
    Task<Preview> plan(Context ctx, Attempt attempt) override {
        Preview preview;
        preview.change = Outcome::Change::changed;
        preview.words = "would run " + attempt.task;
        preview.differences.push_back({"/etc/" + attempt.task, "", "new\n"});
        co_return preview;
    }

private:
    Task<Outcome> finish(Begun& begun, Offsets kept, Output& output) {
        using namespace asio::experimental::awaitable_operators;
        while (!begun.killed && clock_.steady() < begun.until) {
            auto woken = co_await (clock_.sleep_until(begun.until) || changed_.wait(Context::background()));
            const auto& first = woken.index() == 0 ? std::get<0>(woken) : std::get<1>(woken);
            if (!first.ok()) co_return first.error(); // the server stops; the work goes on
        }
        if (!begun.cleaned && !done_.contains(begun.attempt.id)) {
            done_[begun.attempt.id] = true;
            --running_;
            if (when_done && !begun.killed) when_done(begun);
        }
        if (begun.killed) co_return Outcome::failure(ErrorClass::cancelled, "killed");
        if (kept.out < begun.script.out.size())
            output.write(Stream::out, kept.out, std::string_view(begun.script.out).substr(kept.out));
        if (kept.err < begun.script.err.size())
            output.write(Stream::err, kept.err, std::string_view(begun.script.err).substr(kept.err));
        for (const auto& step : begun.script.steps) output.step(step);
        co_return begun.script.outcome;
    }

    Clock& clock_;
    Notifier changed_;
    std::string name_;
    Place place_;
    std::map<std::string, Begun> attempts_;
    std::map<std::string, bool> done_;
    std::vector<std::string> order_, forgotten_;
    std::size_t running_ = 0, most_running_ = 0;
};

} // namespace orrery::jobs
