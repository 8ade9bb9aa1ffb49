#include "jobs/command_queue.h"

#include "core/ids.h"
#include "core/json_fields.h"
#include "core/text.h"
#include "jobs/stored_text.h"
#include "store/list_watch.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <iterator>

namespace orrery::jobs {

namespace {

constexpr std::string_view commands_prefix = "jobs.orders/";
constexpr std::string_view action_names[] = {"approve", "pause", "resume", "cancel", "retry", "undo"};

std::optional<JobCommand::Action> action_named(std::string_view name) {
    for (std::size_t i = 0; i < std::size(action_names); ++i)
        if (action_names[i] == name) return static_cast<JobCommand::Action>(i);
    return {};
}

} // namespace

std::string_view name_of(JobCommand::Action action) { return action_names[static_cast<std::size_t>(action)]; }

std::optional<ReceivedCommand> CommandQueue::parse(std::string_view key, std::string_view value) {
    boost::system::error_code failed;
    const auto read = json::parse(value, failed);
    if (failed || !read.is_object() || read.get_object().contains("error")) return {};
    const auto& object = read.get_object();
    const auto action = action_named(StoredText{object, "action"}.renamed_from("what"));
    if (!action) return {};
    ReceivedCommand out;
    out.key = key;
    const auto rest = key.substr(commands_prefix.size());
    out.job = rest.substr(0, rest.rfind('/'));
    out.actor = text_at(object, "actor");
    out.context = text_at(object, "context");
    out.command = {*action, text_at(object, "task"), text_at(object, "digest"),
                   StoredText{object, "reason"}.renamed_from("because"), true};
    if (const auto* undo = object.if_contains("undo"); undo != nullptr && undo->is_bool()) out.command.undo = undo->get_bool();
    return out;
}

void CommandQueue::receive(const store::Record& record) {
    auto command = parse(record.key, record.value);
    if (!command) return;
    received_.push_back(std::move(*command));
    on_received_();
}

asio::awaitable<void> CommandQueue::run(Context ctx) {
    store::ListWatchHandler handler;
    handler.list = [this] {
        received_.clear();
        for (const auto& record : engine_.store().range(commands_prefix, 1000).records) receive(*record);
    };
    handler.on_changes = [this](std::vector<store::Event> changes) { return on_changes(std::move(changes)); };
    co_await store::list_and_watch(ctx, engine_.store(), engine_.clock, std::string(commands_prefix), std::move(handler));
}

asio::awaitable<void> CommandQueue::on_changes(std::vector<store::Event> changes) {
    for (const auto& change : changes)
        if (change.record && change.record->version == 1) receive(*change.record);
    co_return;
}

std::string CommandQueue::refusal(const Error& error) {
    return to_json_text(
        json::object{{"error", json::object{{"code", name_of(error.code)}, {"message", error.message}, {"remedy", error.remedy}}}});
}

Task<Unit> CommandQueue::submit(Context ctx, std::string job, JobCommand command) {
    CO_TRY(std::ignore, engine_.resources.get(engine_.kind("Job"), job));
    auto& store = engine_.store();
    const auto key = fmt::format("{}{}/{}", commands_prefix, job, time_ordered_id(engine_.clock.wall()));
    const auto text = to_json_text(json::object{{"action", name_of(command.action)},
                                                {"task", command.task},
                                                {"digest", command.digest},
                                                {"reason", command.reason},
                                                {"undo", command.undo},
                                                {"actor", ctx.actor()},
                                                {"context", ctx.id()}});
    store::Transaction transaction;
    transaction.expect(key, 0).put(key, text);
    CO_TRY(const auto revision, co_await store.apply(ctx, std::move(transaction)));
    // The name of the event has the outcome: "approve", "approve-refused", or "approve-asked" where no server leads.
    const auto record_event = [&](std::string_view outcome, std::string_view message) {
        json::object evidence;
        if (!command.task.empty()) evidence["task"] = command.task;
        if (!message.empty()) evidence["message"] = message;
        return engine_.resources.record(ctx, {.subject = "Job/" + job,
                                              .action = fmt::format("{}{}", name_of(command.action), outcome),
                                              .reason = command.reason,
                                              .evidence = evidence.empty() ? json::value() : json::value(std::move(evidence))});
    };
    auto watch = store.watch(key, revision);
    const auto bounded = ctx.with_timeout(std::chrono::seconds(10));
    for (;;) {
        auto changes = co_await watch->next(bounded);
        if (!changes.ok()) {
            if (changes.error().code != Code::timeout) co_return std::move(changes).error();
            CO_TRY(std::ignore, co_await record_event("-asked", "")); // it is stored: the next leader executes it
            co_return Unit{};
        }
        for (const auto& change : *changes) {
            if (!change.record) {
                CO_TRY(std::ignore, co_await record_event("", ""));
                co_return Unit{};
            }
            boost::system::error_code failed;
            const auto answer = json::parse(change.record->value, failed);
            const auto* error = failed || !answer.is_object() ? nullptr : answer.get_object().if_contains("error");
            if (error == nullptr || !error->is_object()) continue;
            Error refused{code_named(text_at(error->get_object(), "code")), text_at(error->get_object(), "message"),
                          text_at(error->get_object(), "remedy")};
            store::Transaction removal;
            removal.remove(key);
            std::ignore = co_await store.apply(ctx, std::move(removal));
            std::ignore = co_await record_event("-refused", refused.message);
            co_return refused;
        }
    }
}

} // namespace orrery::jobs
