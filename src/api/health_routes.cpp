#include "api/problem.h"
#include "api/state.h"
#include "health/vantages/health_aggregator.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

/// Routes of vantages: their list, and the assignments and reports of remote checkers.
namespace orrery::api {

namespace {

constexpr auto max_assignment_wait = std::chrono::seconds(60);

Task<Unit> show_vantages(health::HealthAggregator& aggregator, Call call) {
    co_return co_await send_json(call, 200, json::object{{"items", aggregator.vantages()}});
}

Task<Unit> show_assignments(health::HealthAggregator& aggregator, Call call) {
    if (!aggregator.disabled_reason().empty())
        co_return Error{Code::unavailable, aggregator.disabled_reason(), "join a server that runs controllers"};
    const auto epoch = call.query("epoch").value_or("");
    const auto text = call.query("after").value_or("0");
    std::uint64_t after = 0;
    if (const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), after);
        error != std::errc{} || end != text.data() + text.size())
        co_return Error{Code::invalid, fmt::format("?after must be an integer, got \"{}\"", text)};
    Duration wait{};
    if (const auto given = call.query("wait")) {
        CO_TRY(wait, parse_duration(*given));
    }
    // Values of secrets cross the network only with TLS.
    const bool with_secrets = call.request.tls || is_from_loopback(call.request);
    auto answer = aggregator.assignments(epoch, after, with_secrets);
    const bool nothing =
        !answer.at("reset").get_bool() && answer.at("set").get_array().empty() && answer.at("removed").get_array().empty();
    if (nothing && wait > Duration{}) {
        const auto until = real_clock().steady() + std::min<Duration>(wait, max_assignment_wait);
        const auto woken = co_await aggregator.assignments_changed(call.ctx.without_deadline().with_deadline(until), after);
        if (!woken.ok() && woken.error().code != Code::timeout) co_return woken.error();
        answer = aggregator.assignments(epoch, after, with_secrets);
    }
    co_return co_await send_json(call, 200, answer);
}

Task<Unit> receive_reports(Api::State& state, health::HealthAggregator& aggregator, Call call) {
    CO_TRY(const auto reports, co_await read_document(call, state.options.max_body));
    CO_TRY(std::ignore, aggregator.receive_reports(reports));
    co_return co_await send_json(call, 200, json::object{});
}

} // namespace

void add_health_routes(Api::State& state, health::HealthAggregator& aggregator) {
    const json::object any{{"type", "object"}};
    state.router.add({.method = "GET",
                      .pattern = "/v1/health/vantages",
                      .summary = "List vantage points and whether each counts towards quorum",
                      .group = "health",
                      .role = Role::viewer,
                      .response = any,
                      .handler = [&aggregator](Call call) { return show_vantages(aggregator, std::move(call)); }});
    state.router.add({.method = "GET",
                      .pattern = "/v1/health/assignments",
                      .summary = "Get the changed assignments of a remote checker",
                      .group = "health",
                      .role = Role::operator_,
                      .query = {{"epoch", "the epoch of the previous answer; absent: all assignments are returned"},
                                {.name = "after",
                                 .doc = "the revision of the previous answer",
                                 .type = "integer",
                                 .min = 0,
                                 .max = std::numeric_limits<std::int64_t>::max()},
                                {"wait", "maximum time to wait for a change, for example 25s; at most 60s"}},
                      .response = any,
                      .handler = [&aggregator](Call call) { return show_assignments(aggregator, std::move(call)); }});
    state.router.add({.method = "POST",
                      .pattern = "/v1/health/reports",
                      .summary = "Report the results of a remote checker",
                      .group = "health",
                      .role = Role::operator_,
                      .request = any,
                      .response = any,
                      .handler = [&state, &aggregator](Call call) { return receive_reports(state, aggregator, std::move(call)); }});
}

} // namespace orrery::api
