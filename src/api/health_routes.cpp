#include "api/problem.h"
#include "api/state.h"
#include "health/lookout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

/// Vantages: who looks at what is monitored, and the door through which checkers elsewhere come in.
namespace orrery::api {

namespace {

constexpr auto longest_wait = std::chrono::seconds(60);

Task<Unit> show_vantages(health::Lookout& lookout, Call call) {
    co_return co_await send_json(call, 200, json::object{{"items", lookout.vantages()}});
}

Task<Unit> show_assignments(health::Lookout& lookout, Call call) {
    if (!lookout.resting().empty()) co_return Error{Code::unavailable, lookout.resting(), "join a server that runs controllers"};
    const auto epoch = call.query("epoch").value_or("");
    const auto text = call.query("after").value_or("0");
    std::uint64_t after = 0;
    if (const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), after);
        error != std::errc{} || end != text.data() + text.size())
        co_return Error{Code::invalid, fmt::format("after must be a whole number, got \"{}\"", text)};
    Duration wait{};
    if (const auto given = call.query("wait")) {
        CO_TRY(wait, parse_duration(*given));
    }
    auto answer = lookout.assignments(epoch, after);
    const bool nothing =
        !answer.at("reset").get_bool() && answer.at("set").get_array().empty() && answer.at("removed").get_array().empty();
    if (nothing && wait > Duration{}) {
        const auto until = real_clock().steady() + std::min<Duration>(wait, longest_wait);
        const auto woken = co_await lookout.assignments_changed(call.ctx.without_deadline().with_deadline(until), after);
        if (!woken.ok() && woken.error().code != Code::timeout) co_return woken.error();
        answer = lookout.assignments(epoch, after);
    }
    co_return co_await send_json(call, 200, answer);
}

Task<Unit> take_reports(Api::State& state, health::Lookout& lookout, Call call) {
    CO_TRY(const auto told, co_await read_document(call, state.options.max_body));
    CO_TRY(std::ignore, lookout.take(told));
    co_return co_await send_json(call, 200, json::object{});
}

} // namespace

void add_health_routes(Api::State& state, health::Lookout& lookout) {
    const json::object any{{"type", "object"}};
    state.router.add({.method = "GET",
                      .pattern = "/v1/health/vantages",
                      .summary = "Who looks at what is monitored, and whether its word counts",
                      .group = "health",
                      .role = Role::viewer,
                      .response = any,
                      .handler = [&lookout](Call call) { return show_vantages(lookout, std::move(call)); }});
    state.router.add({.method = "GET",
                      .pattern = "/v1/health/assignments",
                      .summary = "What a checker is to look at that changed since it last asked",
                      .group = "health",
                      .role = Role::operator_,
                      .query = {{"epoch", "As the last answer said; left out, everything is told."},
                                {"after", "The revision that the last answer said.", "integer"},
                                {"wait", "How long to wait for a change, as in 25s; at most 60s."}},
                      .response = any,
                      .handler = [&lookout](Call call) { return show_assignments(lookout, std::move(call)); }});
    state.router.add({.method = "POST",
                      .pattern = "/v1/health/reports",
                      .summary = "What a checker found",
                      .group = "health",
                      .role = Role::operator_,
                      .request = any,
                      .response = any,
                      .handler = [&state, &lookout](Call call) { return take_reports(state, lookout, std::move(call)); }});
}

} // namespace orrery::api
