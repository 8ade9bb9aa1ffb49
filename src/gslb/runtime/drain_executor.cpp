#include "gslb/runtime/drain_executor.h"

#include "core/json_fields.h"
#include "resource/kind.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery::gslb {

namespace {

using jobs::Attempt;
using jobs::ErrorClass;

resource::Field gslb_fields() {
    using namespace resource;
    return object("gslb", "Drains the members on a node, or undrains them.")
        .with(text("drain", "Drain the members: the reason, for other administrators.").format(Format::one_line).between(1, 200))
        .with(boolean("undrain", "Undrain the members that this job drained."))
        .with(boolean("even_if_unsafe", "drain: even if the remaining members lack the capacity."))
        .with(duration("wait", "drain: how long to wait, instead of the time for which resolvers may cache an answer.")
                  .between(0, 86400));
}

class DrainExecutor final : public jobs::Executor {
public:
    DrainExecutor(asio::any_io_executor executor, resource::Resources& resources, const Controller& controller, Clock& clock)
        : executor_(std::move(executor)), resources_(resources), controller_(controller), clock_(clock) {}

    std::string_view name() const override { return "gslb"; }
    TargetType target_type() const override { return TargetType::node; }

    std::optional<std::vector<std::string>> published(const json::value&) const override {
        return std::vector<std::string>{"members"};
    }
    Result<Unit> check(const json::value& body) const override {
        static const resource::Field declared = gslb_fields();
        std::vector<FieldError> errors;
        if (!body.is_object()) {
            errors.push_back({"", "must be {drain: REASON} or {undrain: true}"});
        } else {
            auto copy = body.get_object();
            resource::check_fields(declared, copy, "", errors);
            const bool drains = copy.contains("drain"), undrains = flag_at(copy, "undrain");
            if (errors.empty() && drains == undrains) errors.push_back({"", "must be either {drain: REASON} or {undrain: true}"});
            for (const auto* field : {"even_if_unsafe", "wait"})
                if (!drains && copy.contains(field)) errors.push_back({field, "applies only to drain"});
        }
        if (errors.empty()) return Unit{};
        Error error{Code::invalid, fmt::format("the gslb task is invalid: {} {}", errors.front().path, errors.front().message),
                    "see docs/load-balancing.md"};
        error.fields = std::move(errors);
        return error;
    }

    Task<jobs::Outcome> start(Context ctx, const Attempt& attempt, jobs::Output& output) override {
        CO_TRY(std::ignore, check(attempt.body));
        const auto body = attempt.body.get_object();
        if (flag_at(body, "undrain")) co_return co_await undrain(ctx, attempt);
        const auto members = members_of(attempt);
        if (members.empty()) co_return jobs::Outcome::success(jobs::Outcome::Change::unchanged);
        if (!flag_at(body, "even_if_unsafe"))
            if (auto message = unsafe_message(members); !message.empty())
                co_return jobs::Outcome::failure(ErrorClass::refused, std::move(message));
        const auto reason = reason_of(attempt, text_at(body, "drain"));
        bool changed = false;
        std::vector<std::string> drained;
        for (const auto& member : members) {
            CO_TRY(const auto object, resources_.get(kind(), member));
            const auto& before = object_at(object.spec, "override");
            if (!before.empty() && !is_ours(before, attempt)) continue; // another override is set already
            if (text_at(before, "reason") != reason) {
                CO_TRY(std::ignore,
                       co_await set_override(ctx, member, json::object{{"state", "drain"}, {"reason", reason}}, reason));
                changed = true;
            }
            drained.push_back(member);
        }
        const auto wait =
            remaining_wait(drained, body.contains("wait") ? duration_at(body, "wait", {}) : cached_by_resolvers(members));
        if (wait > Duration{}) {
            auto stopped = co_await sleep_or_cancel(attempt.id, wait);
            if (!stopped.ok()) co_return std::move(stopped).error();
            if (*stopped) co_return jobs::Outcome::failure(ErrorClass::cancelled, "cancelled while clients were leaving");
        }
        auto outcome = jobs::Outcome::success(changed ? jobs::Outcome::Change::changed : jobs::Outcome::Change::unchanged);
        outcome.message = fmt::format("drained: {}", list_of(drained));
        outcome.values["members"] = to_array(drained);
        co_return outcome;
    }

    /// Idempotent: drained members stay drained, and the wait counts from then.
    Task<jobs::Reattached> reattach(Context, const Attempt&, jobs::Offsets, jobs::Output&) override {
        co_return jobs::Reattached{jobs::Reattached::State::not_started, {}, {}};
    }
    Task<Unit> cancel(Context, const Attempt& attempt) override {
        if (const auto found = waiting_.find(attempt.id); found != waiting_.end()) found->second->notify_all();
        co_return Unit{};
    }
    Task<Unit> clean_up(Context, const Attempt&) override { co_return Unit{}; }

    Task<jobs::Preview> plan(Context, const Attempt& attempt) override {
        CO_TRY(std::ignore, check(attempt.body));
        const auto& body = attempt.body.get_object();
        jobs::Preview preview;
        const auto members = members_of(attempt);
        if (flag_at(body, "undrain")) {
            preview.message = "would undrain the members that this job drained";
            co_return preview;
        }
        preview.change = members.empty() ? jobs::Outcome::Change::unchanged : jobs::Outcome::Change::changed;
        preview.message =
            members.empty() ? "no member is on the node" : fmt::format("would drain {}", list_of({members.begin(), members.end()}));
        if (const auto message = unsafe_message(members); !message.empty() && !flag_at(body, "even_if_unsafe"))
            preview.message += "; would be refused now: " + message;
        co_return preview;
    }

private:
    const resource::Kind& kind() const { return *resources_.registry().find("Member"); }
    static std::string list_of(const std::vector<std::string>& names) {
        std::string out;
        for (const auto& one : names) out += (out.empty() ? "" : ", ") + one;
        return out.empty() ? "nothing" : out;
    }
    static std::string reason_of(const Attempt& attempt, const std::string& reason) {
        return fmt::format("job {}: {}", attempt.job, reason);
    }
    static bool is_ours(const json::object& override_, const Attempt& attempt) {
        return text_at(override_, "reason").starts_with(fmt::format("job {}: ", attempt.job));
    }

    /// The members on the nodes of the attempt: of the Node itself, or of an Instance on it.
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

    std::set<std::string> lbs_with(const std::set<std::string>& members) const {
        std::set<std::string> out;
        for (const auto& member : members)
            if (const auto* known = controller_.engine().member(member))
                for (const auto& name : controller_.engine().lbs_using(known->spec.pool)) out.insert(name);
        return out;
    }

    /// Why draining the members is unsafe; empty if it is not.
    std::string unsafe_message(const std::set<std::string>& members) const {
        for (const auto& name : lbs_with(members)) {
            ProposedChange change;
            const auto* spec = controller_.engine().spec(name);
            for (const auto& member : members)
                if (const auto* known = controller_.engine().member(member);
                    known != nullptr && std::any_of(spec->pools.begin(), spec->pools.end(),
                                                    [&](const auto& use) { return use.pool == known->spec.pool; }))
                    change.drained_members.insert(member);
            const auto report = controller_.engine().what_if(name, change, clock_.wall());
            if (report.ok() && report->verdict == ImpactReport::Verdict::unsafe)
                return fmt::format("unsafe for LoadBalancer {}: {}", name,
                                   report->messages.empty() ? "no reason given" : report->messages.front());
        }
        return {};
    }

    Duration cached_by_resolvers(const std::set<std::string>& members) const {
        Duration out{};
        for (const auto& member : members)
            if (const auto* known = controller_.engine().member(member))
                out = std::max(out, controller_.cached_by_resolvers(known->spec.pool));
        return out;
    }

    /// The remaining time for which resolvers may have one of these members in their caches. A new leader, or a retried task, waits
    /// only for the rest.
    Duration remaining_wait(const std::vector<std::string>& drained, Duration wait) const {
        Duration out{};
        for (const auto& member : drained) {
            const auto object = resources_.get(kind(), member);
            if (!object.ok()) continue;
            const auto since = text_at(object->status, "state") == "drained" ? time_at(object->status, "since") : std::nullopt;
            const Duration elapsed = since ? std::max<Duration>(Duration{}, clock_.wall() - *since) : Duration{};
            out = std::max(out, wait - elapsed);
        }
        return out;
    }

    Task<Unit> set_override(Context ctx, std::string member, json::value override_, std::string reason) {
        json::value patch = json::object{{"spec", json::object{{"override", std::move(override_)}}}};
        CO_TRY(std::ignore,
               co_await resources_.patch(ctx, kind(), std::move(member), std::move(patch), {.reason = std::move(reason)}));
        co_return Unit{};
    }

    Task<jobs::Outcome> undrain(Context ctx, const Attempt& attempt) {
        std::vector<std::string> back;
        for (const auto& member : members_of(attempt)) {
            CO_TRY(const auto object, resources_.get(kind(), member));
            if (!is_ours(object_at(object.spec, "override"), attempt)) continue;
            CO_TRY(std::ignore, co_await set_override(ctx, member, nullptr, reason_of(attempt, "its work is done")));
            back.push_back(member);
        }
        auto outcome = jobs::Outcome::success(back.empty() ? jobs::Outcome::Change::unchanged : jobs::Outcome::Change::changed);
        outcome.message = fmt::format("undrained: {}", list_of(back));
        co_return outcome;
    }

    /// True if the attempt was cancelled meanwhile.
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
