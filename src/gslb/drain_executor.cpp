#include "gslb/drain_executor.h"

#include "gslb/read.h"
#include "resource/kind.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery::gslb {

namespace {

using jobs::Attempt;
using jobs::ErrorClass;

resource::Field names_fields() {
    using namespace resource;
    return object("names", "Takes a machine's members out of names, or puts them back.")
        .with(text("drain", "Take them out: why, for colleagues.").format(Format::one_line).between(1, 200))
        .with(boolean("return", "Put back what this job took out."))
        .with(boolean("even_if_unsafe", "drain: also where those that are left cannot carry it."))
        .with(duration("wait", "drain: so long in place of the longest that resolvers may keep an answer.").between(0, 86400));
}

class DrainExecutor final : public jobs::Executor {
public:
    DrainExecutor(asio::any_io_executor executor, resource::Resources& resources, const Controller& controller, Clock& clock)
        : executor_(std::move(executor)), resources_(resources), controller_(controller), clock_(clock) {}

    std::string_view name() const override { return "names"; }
    Place place() const override { return Place::node; }

    Result<Unit> check(const json::value& body) const override {
        static const resource::Field declared = names_fields();
        std::vector<FieldError> errors;
        if (!body.is_object()) {
            errors.push_back({"", "must be {drain: WHY} or {return: true}"});
        } else {
            auto copy = body.get_object();
            resource::check_fields(declared, copy, "", errors);
            const bool drains = copy.contains("drain"), returns = flag_at(copy, "return");
            if (errors.empty() && drains == returns) errors.push_back({"", "must be either {drain: WHY} or {return: true}"});
            for (const auto* field : {"even_if_unsafe", "wait"})
                if (!drains && copy.contains(field)) errors.push_back({field, "means nothing without drain"});
        }
        if (errors.empty()) return Unit{};
        Error error{Code::invalid, fmt::format("the names task is wrong: {} {}", errors.front().path, errors.front().message),
                    "docs/load-balancing.md shows what may stand there"};
        error.fields = std::move(errors);
        return error;
    }

    Task<jobs::Outcome> start(Context ctx, Attempt attempt, jobs::Output& output) override {
        CO_TRY(std::ignore, check(attempt.body));
        const auto body = attempt.body.get_object();
        if (flag_at(body, "return")) co_return co_await put_back(ctx, attempt);
        const auto members = members_of(attempt);
        if (members.empty()) co_return jobs::Outcome::success(jobs::Outcome::Change::unchanged);
        if (!flag_at(body, "even_if_unsafe"))
            if (auto words = why_not(members); !words.empty())
                co_return jobs::Outcome::failure(ErrorClass::refused, std::move(words));
        const auto because = reason_of(attempt, text_at(body, "drain"));
        bool changed = false;
        std::vector<std::string> said;
        for (const auto& member : members) {
            CO_TRY(const auto object, resources_.get(kind(), member));
            const auto& before = object_at(object.spec, "override");
            if (!before.empty() && !is_ours(before, attempt)) continue; // somebody's word stands already
            if (text_at(before, "reason") != because) {
                CO_TRY(std::ignore, co_await say(ctx, member, json::object{{"state", "drain"}, {"reason", because}}, because));
                changed = true;
            }
            said.push_back(member);
        }
        const auto wait = still_to_wait(said, body.contains("wait") ? duration_at(body, "wait", {}) : kept_by_resolvers(members));
        if (wait > Duration{}) {
            auto stopped = co_await sleep_or_cancel(attempt.id, wait);
            if (!stopped.ok()) co_return std::move(stopped).error();
            if (*stopped) co_return jobs::Outcome::failure(ErrorClass::cancelled, "it was ended while clients were leaving");
        }
        auto outcome = jobs::Outcome::success(changed ? jobs::Outcome::Change::changed : jobs::Outcome::Change::unchanged);
        outcome.words = fmt::format("drained: {}", list_of(said));
        outcome.values["members"] = to_array(said);
        co_return outcome;
    }

    /// Again is as good as once: what is drained stays so, and the wait is from then.
    Task<jobs::Reattached> reattach(Context, Attempt, jobs::Offsets, jobs::Output&) override {
        co_return jobs::Reattached{jobs::Reattached::What::never_began, {}, {}};
    }
    Task<Unit> cancel(Context, Attempt attempt) override {
        if (const auto found = waiting_.find(attempt.id); found != waiting_.end()) found->second->notify_all();
        co_return Unit{};
    }
    Task<Unit> clean_up(Context, Attempt) override { co_return Unit{}; }

    Task<jobs::Preview> plan(Context, Attempt attempt) override {
        CO_TRY(std::ignore, check(attempt.body));
        const auto& body = attempt.body.get_object();
        jobs::Preview preview;
        const auto members = members_of(attempt);
        if (flag_at(body, "return")) {
            preview.words = "would put back what this job drained";
            co_return preview;
        }
        preview.change = members.empty() ? jobs::Outcome::Change::unchanged : jobs::Outcome::Change::changed;
        preview.words =
            members.empty() ? "no member stands on it" : fmt::format("would drain {}", list_of({members.begin(), members.end()}));
        if (const auto words = why_not(members); !words.empty() && !flag_at(body, "even_if_unsafe"))
            preview.words += "; refused as things stand: " + words;
        co_return preview;
    }

private:
    const resource::Kind& kind() const { return *resources_.registry().find("Member"); }
    static std::string list_of(const std::vector<std::string>& names) {
        std::string out;
        for (const auto& one : names) out += (out.empty() ? "" : ", ") + one;
        return out.empty() ? "nothing" : out;
    }
    static std::string reason_of(const Attempt& attempt, const std::string& why) {
        return fmt::format("job {}: {}", attempt.job, why);
    }
    static bool is_ours(const json::object& override_, const Attempt& attempt) {
        return text_at(override_, "reason").starts_with(fmt::format("job {}: ", attempt.job));
    }

    /// On the attempt's machines: of the Node, or of an Instance there.
    std::set<std::string> members_of(const Attempt& attempt) const {
        std::set<std::string> nodes, out;
        for (const auto& target : attempt.targets) nodes.insert(target.node.name);
        const auto* instances = resources_.registry().find("Instance");
        resource::ListQuery query;
        query.limit = 5000;
        do {
            const auto page = resources_.list(kind(), query);
            if (!page.ok()) return out;
            for (const auto& record : page->records) {
                const auto object = resource::from_stored(*record);
                if (!object.ok()) continue;
                auto node = text_at(object->spec, "node");
                if (const auto instance = text_at(object->spec, "instance"); !instance.empty() && instances != nullptr)
                    if (const auto found = resources_.get(*instances, instance); found.ok()) node = text_at(found->spec, "node");
                if (nodes.contains(node)) out.insert(object->name);
            }
            query.after = page->next;
        } while (!query.after.empty());
        return out;
    }

    std::set<std::string> names_with(const std::set<std::string>& members) const {
        std::set<std::string> out;
        for (const auto& member : members)
            if (const auto* known = controller_.engine().member(member))
                for (const auto& name : controller_.engine().names_using(known->spec.pool)) out.insert(name);
        return out;
    }

    /// What speaks against it, in words; empty where nothing does.
    std::string why_not(const std::set<std::string>& members) const {
        for (const auto& name : names_with(members)) {
            Hypothesis change;
            const auto* rule = controller_.engine().rule(name);
            for (const auto& member : members)
                if (const auto* known = controller_.engine().member(member);
                    known != nullptr && std::any_of(rule->pools.begin(), rule->pools.end(),
                                                    [&](const auto& use) { return use.pool == known->spec.pool; }))
                    change.drained_members.insert(member);
            const auto seen = controller_.engine().what_if(name, change, clock_.wall());
            if (seen.ok() && seen->verdict == Foresight::Verdict::unsafe)
                return fmt::format("{} would not stand it: {}", name, seen->why.empty() ? "it is unsafe" : seen->why.front());
        }
        return {};
    }

    Duration kept_by_resolvers(const std::set<std::string>& members) const {
        Duration out{};
        for (const auto& member : members)
            if (const auto* known = controller_.engine().member(member))
                out = std::max(out, controller_.kept_by_resolvers(known->spec.pool));
        return out;
    }

    /// Of the time that resolvers may keep an answer with one of these, what is left. A server that took over in the middle, or a
    /// task that is tried again, waits for the rest of it.
    Duration still_to_wait(const std::vector<std::string>& drained, Duration wait) const {
        Duration out{};
        for (const auto& member : drained) {
            const auto object = resources_.get(kind(), member);
            if (!object.ok()) continue;
            const auto since = text_at(object->status, "state") == "drained" ? time_at(object->status, "since") : std::nullopt;
            const Duration gone = since ? std::max<Duration>(Duration{}, clock_.wall() - *since) : Duration{};
            out = std::max(out, wait - gone);
        }
        return out;
    }

    Task<Unit> say(Context ctx, std::string member, json::value override_, std::string because) {
        json::value patch = json::object{{"spec", json::object{{"override", std::move(override_)}}}};
        CO_TRY(std::ignore,
               co_await resources_.patch(ctx, kind(), std::move(member), std::move(patch), {.because = std::move(because)}));
        co_return Unit{};
    }

    Task<jobs::Outcome> put_back(Context ctx, Attempt attempt) {
        std::vector<std::string> back;
        for (const auto& member : members_of(attempt)) {
            CO_TRY(const auto object, resources_.get(kind(), member));
            if (!is_ours(object_at(object.spec, "override"), attempt)) continue;
            CO_TRY(std::ignore, co_await say(ctx, member, nullptr, reason_of(attempt, "its work is done")));
            back.push_back(member);
        }
        auto outcome = jobs::Outcome::success(back.empty() ? jobs::Outcome::Change::unchanged : jobs::Outcome::Change::changed);
        outcome.words = fmt::format("put back: {}", list_of(back));
        co_return outcome;
    }

    /// True if the attempt was ended meanwhile.
    Task<bool> sleep_or_cancel(std::string id, Duration time) {
        auto ended = std::make_shared<Notifier>(executor_);
        waiting_[id] = ended;
        auto once = [](std::shared_ptr<Notifier> on) -> Task<Unit> { co_return co_await on->wait(Context::background()); };
        const auto woken =
            co_await within_deadline(Context::background().with_deadline(clock_.steady() + time), once(ended), clock_);
        waiting_.erase(id);
        if (woken.ok()) co_return true;
        if (woken.error().code == Code::timeout) co_return false;
        co_return woken.error();
    }

    asio::any_io_executor executor_;
    resource::Resources& resources_;
    const Controller& controller_;
    Clock& clock_;
    std::map<std::string, std::shared_ptr<Notifier>> waiting_; ///< by attempt
};

} // namespace

std::unique_ptr<jobs::Executor> drain_executor(asio::any_io_executor executor, resource::Resources& resources,
                                               const Controller& controller, Clock& clock) {
    return std::make_unique<DrainExecutor>(std::move(executor), resources, controller, clock);
}

} // namespace orrery::gslb
