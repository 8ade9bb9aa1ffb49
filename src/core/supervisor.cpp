#include "core/supervisor.h"

#include "core/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <stdexcept>

namespace orrery {

struct Supervisor::Entry {
    Status status;
    std::shared_ptr<Component> component;
    Begin begin;
    std::unique_ptr<TaskGroup> group; ///< of the present run; null before `start`
    SteadyTime began{}, failed_at{};
};

std::string_view name_of(Supervisor::State state) {
    switch (state) {
    case Supervisor::State::running: return "running";
    case Supervisor::State::restarting: return "restarting";
    case Supervisor::State::failed: return "failed";
    }
    return "failed";
}

Supervisor::Supervisor(asio::io_context& loop, Options options, OnAlarm on_alarm)
    : loop_(loop), options_(options), on_alarm_(std::move(on_alarm)), recoveries_(loop.get_executor()) {}

Supervisor::~Supervisor() {
    for (auto& [name, entry] : entries_) entry->component->close();
}

Component& Supervisor::add(std::string name, Policy policy) {
    auto entry = std::make_unique<Entry>();
    auto* raw = entry.get();
    entry->status.component = name;
    entry->status.policy = policy;
    entry->component = std::make_shared<Component>(name, loop_, [this, raw](const std::string& message) { failed(*raw, message); });
    auto& component = *entry->component;
    if (!entries_.emplace(std::move(name), std::move(entry)).second) throw std::logic_error("a component is declared twice");
    return component;
}

asio::any_io_executor Supervisor::executor(std::string_view name) const {
    return entries_.find(name)->second->component->executor();
}

void Supervisor::start(std::string_view name, Begin begin_tasks) {
    auto& entry = *entries_.find(name)->second;
    entry.begin = std::move(begin_tasks);
    begin(entry);
}

void Supervisor::begin(Entry& entry) {
    entry.began = options_.clock->steady();
    entry.status.state = State::running;
    entry.group = std::make_unique<TaskGroup>(entry.component->executor());
    try {
        entry.begin(*entry.group);
    } catch (...) {
        entry.component->fail(describe_failure(std::current_exception()));
    }
}

void Supervisor::failed(Entry& entry, const std::string& message) {
    auto& status = entry.status;
    // A failure brings others with it, of tasks that waited for the failed one: they are the same failure.
    if (stopping_ || status.state != State::running) return;
    const auto now = options_.clock->steady();
    const bool in_a_row = status.failures > 0 && now - std::max(entry.began, entry.failed_at) < options_.stable_after;
    status.failures = in_a_row ? status.failures + 1 : 1;
    ++status.total;
    status.message = message;
    status.retry_in = Duration{};
    entry.failed_at = now;
    if (status.policy == Policy::terminal) status.state = State::failed;
    if (status.policy == Policy::restart) {
        status.state = status.failures >= options_.max_failures ? State::failed : State::restarting;
        if (status.state == State::restarting)
            status.retry_in =
                std::min<Duration>(options_.max_backoff, options_.first_backoff * (1LL << std::min(status.failures - 1, 20)));
    }
    const auto outcome = status.state == State::restarting ? fmt::format("it starts again in {}", to_text(status.retry_in))
                         : status.state == State::failed   ? std::string("it stays down until the server is started again")
                                                           : std::string("its other tasks go on");
    log::error(Context::background(), "component {} failed {} times in a row; {}: {}", status.component, status.failures, outcome,
               message);
    if (on_alarm_) on_alarm_(status);
    if (status.policy == Policy::restart) recoveries_.spawn(recover(entry));
}

asio::awaitable<void> Supervisor::recover(Entry& entry) {
    if (entry.group) co_await entry.group->stop();
    if (stopping_ || entry.status.state == State::failed) co_return;
    if (!(co_await options_.clock->sleep(entry.status.retry_in)).ok() || stopping_ || !entry.begin) co_return;
    log::info(Context::background(), "component {} starts again", entry.status.component);
    begin(entry);
}

asio::awaitable<void> Supervisor::stop() {
    stopping_ = true;
    co_await recoveries_.stop();
    TaskGroup stops(loop_.get_executor()); // at the same time: some wait for others to end
    for (auto& [name, entry] : entries_)
        if (entry->group) stops.spawn(entry->group->stop());
    co_await stops.join();
}

std::vector<Supervisor::Status> Supervisor::statuses() const {
    std::vector<Status> out;
    for (const auto& [name, entry] : entries_) {
        out.push_back(entry->status);
        auto& status = out.back();
        const bool recent = options_.clock->steady() - entry->failed_at < options_.stable_after;
        if (status.state == State::running && !recent) status.message.clear();
    }
    return out;
}

std::vector<std::pair<std::string, double>> Supervisor::gauges() const {
    std::vector<std::pair<std::string, double>> out;
    for (const auto& [name, entry] : entries_) {
        out.emplace_back(fmt::format("orrery_component_failed{{component=\"{}\"}}", name),
                         entry->status.state == State::running ? 0.0 : 1.0);
        out.emplace_back(fmt::format("orrery_component_failures_total{{component=\"{}\"}}", name),
                         static_cast<double>(entry->status.total));
    }
    return out;
}

std::string Supervisor::degraded() const {
    std::string out;
    for (const auto& [name, entry] : entries_) {
        const auto& status = entry->status;
        if (status.state == State::running) continue;
        out += fmt::format("{}component {} {} after {} failures in a row: {}", out.empty() ? "" : "; ", name,
                           status.state == State::failed ? "is down" : "is being restarted", status.failures, status.message);
    }
    return out;
}

} // namespace orrery
