#include "jobs/templates/schedule.h"

#include "core/json_fields.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>

namespace orrery::jobs {

namespace {

/// Due times before this are not counted one by one.
constexpr auto max_catch_up = std::chrono::days(31);
constexpr auto default_start_deadline = std::chrono::minutes(1);

std::optional<Schedule> read_schedule(const json::object& object, const std::string& path, std::vector<FieldError>& errors) {
    const auto before = errors.size();
    Schedule out;
    out.name = text_at(object, "name");
    const bool right_name = !out.name.empty() && out.name.size() <= 40 && out.name.front() != '-' && out.name.back() != '-' &&
                            std::all_of(out.name.begin(), out.name.end(),
                                        [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
    if (!right_name)
        errors.push_back({path + ".name", "must be a-z, 0-9 and - only, at most 40; it becomes a part of the runs' names"});
    out.cron_text = text_at(object, "cron");
    if (auto cron = CronExpression::parse(out.cron_text); cron.ok())
        out.cron = *cron;
    else
        errors.push_back({path + ".cron", fmt::format("{}; {}", cron.error().message, cron.error().remedy)});
    out.time_zone_name = text_at(object, "time_zone", "UTC");
    if (auto zone = TimeZone::load(out.time_zone_name); zone.ok())
        out.time_zone = *zone;
    else
        errors.push_back({path + ".time_zone", fmt::format("{}; {}", zone.error().message, zone.error().remedy)});
    if (const auto* parameters = object.if_contains("parameters"); parameters != nullptr && parameters->is_object())
        out.parameters = parameters->get_object();
    const auto missed = text_at(object, "missed", "skip"), overlap = text_at(object, "overlap", "forbid");
    out.missed = missed == "run-once"  ? Schedule::Missed::run_once
                 : missed == "run-all" ? Schedule::Missed::run_all
                                       : Schedule::Missed::skip;
    out.overlap = overlap == "allow"   ? Schedule::Overlap::allow
                  : overlap == "queue" ? Schedule::Overlap::queue
                                       : Schedule::Overlap::forbid;
    if (out.missed == Schedule::Missed::run_all && out.overlap == Schedule::Overlap::forbid)
        errors.push_back(
            {path + ".missed", "run-all needs overlap: queue or allow, or all but one of the missed runs would overlap"});
    const auto* suspended = object.if_contains("suspended");
    out.suspended = suspended != nullptr && suspended->is_bool() && suspended->get_bool();
    if (const auto text = text_at(object, "start_deadline"); !text.empty())
        if (auto deadline = parse_duration(text); deadline.ok()) out.start_deadline = *deadline;
    return errors.size() == before ? std::optional(std::move(out)) : std::nullopt;
}

/// Due times that are new since the last evaluation, oldest first.
std::vector<WallTime> new_due_times(const Schedule& schedule, const ScheduleState& state, WallTime now) {
    std::vector<WallTime> out;
    const auto from = std::max<WallTime>(state.evaluated_until, now - max_catch_up);
    for (auto due = schedule.cron.next_after(from, schedule.time_zone); due && *due <= now;
         due = schedule.cron.next_after(*due, schedule.time_zone))
        out.push_back(*due);
    return out;
}

} // namespace

std::optional<Duration> Schedule::max_delay() const {
    if (start_deadline) return start_deadline;
    if (missed == Missed::skip) return default_start_deadline;
    return {};
}

resource::Field schedule_field() {
    using namespace resource;
    return object("schedule", "Starts runs at times of a calendar.")
        .with(text("name", "Its name, unique in the template.").required())
        .with(text("cron",
                   "When: minute, hour, day of month, month, day of week as in crontab(5), or @hourly, @daily, @weekly, @monthly, "
                   "@yearly.")
                  .required()
                  .between(1, 256)
                  .example("30 2 * * mon-fri"))
        .with(text("time_zone", "The IANA time zone of those times.").between(1, 64).default_value("UTC").example("Europe/Berlin"))
        .with(any("parameters", "Values of the template's parameters, by name."))
        .with(text("missed",
                   "Runs that were due while no server could start them: skip them, run the newest of them once, or run all "
                   "(the newest 10).")
                  .one_of({"skip", "run-once", "run-all"})
                  .default_value("skip"))
        .with(text("overlap",
                   "While a run of the template has not ended: forbid starts no other, allow does, queue starts the next one "
                   "when it ends.")
                  .one_of({"forbid", "allow", "queue"})
                  .default_value("forbid"))
        .with(boolean("suspended", "Start nothing. Runs that become due are not started later.").default_value(false))
        .with(duration("start_deadline",
                       "A run that cannot start within this time after it was due does not start; left out: 1m where "
                       "missed runs are skipped, else no limit.")
                  .between(1, 366 * 24 * 3600));
}

std::vector<Schedule> read_schedules(const json::object& spec, std::vector<FieldError>& errors) {
    std::vector<Schedule> out;
    const auto* given = spec.if_contains("schedules");
    if (given == nullptr || !given->is_array()) return out;
    std::set<std::string> names;
    for (std::size_t i = 0; i < given->get_array().size(); ++i) {
        const auto path = fmt::format("spec.schedules[{}]", i);
        if (!given->get_array()[i].is_object()) continue;
        auto schedule = read_schedule(given->get_array()[i].get_object(), path, errors);
        if (!schedule) continue;
        if (!names.insert(schedule->name).second)
            errors.push_back({path + ".name", fmt::format("the name {} is used twice", schedule->name)});
        out.push_back(std::move(*schedule));
    }
    return out;
}

ScheduleDecision evaluate_schedule(const Schedule& schedule, ScheduleState state, WallTime now, bool busy,
                                   const std::function<bool(WallTime due)>& has_started) {
    ScheduleDecision out;
    if (schedule.suspended) {
        out.state.evaluated_until = state.evaluated_until;
        return out;
    }
    const auto max_delay = schedule.max_delay();
    const auto miss = [&](WallTime due) {
        ++out.missed;
        out.last_missed = std::max(out.last_missed, due);
    };
    // What waits in the queue was on time when it was put there: only a deadline that the user set ends its wait.
    std::deque<WallTime> waiting;
    for (const auto due : state.queued) {
        if (has_started(due)) continue;
        if (schedule.start_deadline && now - due > *schedule.start_deadline)
            miss(due);
        else
            waiting.push_back(due);
    }
    std::vector<WallTime> eligible;
    for (const auto due : new_due_times(schedule, state, now)) {
        state.evaluated_until = due;
        if (has_started(due)) continue;
        if (max_delay && now - due > *max_delay)
            miss(due);
        else
            eligible.push_back(due);
    }
    const std::size_t max_starts = schedule.missed == Schedule::Missed::run_all ? max_missed_runs : 1;
    while (eligible.size() > max_starts) {
        miss(eligible.front());
        eligible.erase(eligible.begin());
    }
    switch (schedule.overlap) {
    case Schedule::Overlap::allow: out.start = std::move(eligible); break;
    case Schedule::Overlap::forbid: (busy ? out.overlapped : out.start) = std::move(eligible); break;
    case Schedule::Overlap::queue:
        waiting.insert(waiting.end(), eligible.begin(), eligible.end());
        while (waiting.size() > max_starts) {
            out.overlapped.push_back(waiting.front());
            waiting.pop_front();
        }
        if (!busy && !waiting.empty()) {
            out.start.push_back(waiting.front());
            waiting.pop_front();
        }
        break;
    }
    out.state.evaluated_until = state.evaluated_until;
    out.state.queued.assign(waiting.begin(), waiting.end());
    out.next_due = schedule.cron.next_after(now, schedule.time_zone);
    return out;
}

} // namespace orrery::jobs
