#include "cli/commands.h"
#include "cli/render.h"
#include "cli/table.h"
#include "core/text.h"
#include "net/http.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>

/// Load balancing: explanations, predictions, decisions, vantage points.
namespace orrery::cli {

namespace {

std::string balancer_route(const Invocation& invocation, std::string_view part) {
    return fmt::format("/v1/loadbalancers/{}/{}", net::percent_encode(invocation.text("NAME")), part);
}

std::string joined(const json::array& values) {
    std::string out;
    for (const auto& value : values) out += fmt::format("{}{}", out.empty() ? "" : ", ", printable(value_text(value)));
    return out.empty() ? "nothing" : out;
}

/// "ams 50.0 %, nyc 50.0 %"
std::string shares_text(const json::value* shares) {
    std::string out;
    if (shares != nullptr && shares->is_object())
        for (const auto& [name, share] : shares->get_object())
            if (share.is_number())
                out += fmt::format("{}{} {:.1f} %", out.empty() ? "" : ", ", printable(std::string_view(name)),
                                   100 * share.to_number<double>());
    return out.empty() ? "no clients" : out;
}

/// The message, with the member, pool or client class that it is about.
std::string withheld_text(const json::value& withheld) {
    const auto about = text_of(withheld, "about"), message = text_of(withheld, "message");
    const bool named = about.empty() || message.find(about) != std::string::npos;
    return printable(named ? message : fmt::format("{}: {}", about, message));
}

void print_withheld(std::ostream& out, const json::array& withheld) {
    for (const auto& one : withheld)
        out << fmt::format("  withheld ({}): {}{}\n", printable(text_of(one, "cause")), withheld_text(one),
                           text_of(one, "until").empty() ? "" : fmt::format(", until {}", printable(text_of(one, "until"))));
}

/// The parts of the worst-case failover time.
std::string failover_parts(const json::value& body) {
    std::string out;
    for (const auto& [key, label] : {std::pair("detection", "detection"), std::pair("vantages", "silent vantages"),
                                     std::pair("publication", "publication"), std::pair("ttl", "ttl")}) {
        const auto time = text_of(body, fmt::format("failover_time.{}", key));
        if (!time.empty() && time != "0s") out += fmt::format("{}{} {}", out.empty() ? "" : ", ", label, printable(time));
    }
    return out;
}

std::string query_of(const std::vector<std::pair<std::string, std::string>>& parts) {
    std::string out;
    for (const auto& [key, value] : parts)
        if (!value.empty()) out += fmt::format("{}{}={}", out.empty() ? "?" : "&", key, net::percent_encode(value));
    return out;
}

std::string decision_line(const json::value& object) {
    const auto* spec = at_path(object, "spec");
    if (spec == nullptr) return "";
    const auto changed = shown_at(*spec, "changed") != "false";
    std::string out = fmt::format("{}  {}  #{} {}: ", printable(text_of(*spec, "at")), printable(text_of(*spec, "fqdn")),
                                  shown_at(*spec, "seq"), printable(text_of(*spec, "cause")));
    if (changed) {
        out += fmt::format("{} (from {}, ttl {}s)", joined(list_at(*spec, "after.answers")),
                           printable(text_of(*spec, "after.pool")), shown_at(*spec, "after.ttl"));
        if (at_path(*spec, "before") != nullptr) out += fmt::format(", before {}", joined(list_at(*spec, "before.answers")));
    } else {
        out += "unchanged";
    }
    out += '\n';
    const auto cause_line = [&](const json::value& trigger) {
        const auto message = text_of(trigger, "message"), member = text_of(trigger, "member");
        if (!message.empty()) out += fmt::format("  {}{}{}\n", printable(member), member.empty() ? "" : ": ", printable(message));
    };
    if (const auto* trigger = at_path(*spec, "trigger")) cause_line(*trigger);
    for (const auto& one : list_at(*spec, "trigger.also")) cause_line(one);
    for (const auto& one : list_at(*spec, "withheld")) out += fmt::format("  withheld: {}\n", withheld_text(one));
    return out;
}

} // namespace

Result<int> run_gslb_why(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    std::string at;
    if (invocation.has("at")) {
        TRY(at, invocation.time("at"));
    }
    TRY(const auto answer,
        api->get(balancer_route(invocation, "why") + query_of({{"client", invocation.text("client")}, {"at", at}})));
    if (print_structured(invocation, answer.body)) return exit_code::ok;
    auto& out = invocation.streams.out;
    const auto& body = answer.body;
    out << fmt::format("{} answers {} (ttl {}s, {})\n", printable(text_of(body, "fqdn")),
                       text_of(body, "answer.alias").empty() ? "from " + joined(list_at(body, "answer.pools"))
                                                             : printable(text_of(body, "answer.alias")),
                       shown_at(body, "answer.ttl"), printable(text_of(body, "decision.condition")));
    for (const auto& one : list_at(body, "answer.answers"))
        out << fmt::format("  {} {}{}\n", printable(text_of(one, "member")), joined(list_at(one, "addresses")),
                           at_path(one, "weight") == nullptr ? "" : " weight " + shown_at(one, "weight"));
    if (const auto client = text_of(body, "client.address"); !client.empty())
        out << fmt::format("  for {}{}\n", printable(client),
                           text_of(body, "client.class").empty() ? " (default client class)"
                                                                 : ", one of " + printable(text_of(body, "client.class")));
    out << "messages\n";
    for (const auto& message : list_at(body, "messages")) out << fmt::format("  {}\n", printable(value_text(message)));
    print_withheld(out, list_at(body, "withheld"));
    if (const auto* record = at_path(body, "record"))
        out << fmt::format("decided {} (#{}, {})\n", printable(text_of(*record, "at")), shown_at(*record, "seq"),
                           printable(text_of(*record, "cause")));
    if (const auto worst = text_of(body, "failover_time.worst"); !worst.empty())
        out << fmt::format("clients leave a failed address within {} ({})\n", printable(worst), failover_parts(body));
    for (const auto& warning : list_at(body, "failover_time.warnings"))
        out << fmt::format("warning: {}\n", printable(value_text(warning)));
    if (shown_at(body, "replayed_exactly") == "false")
        out << "warning: the replay differs from the recorded decision, which was made by another version\n";
    return exit_code::ok;
}

Result<int> run_gslb_whatif(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    const auto all = [&](std::string_view key) { return fmt::format("{}", fmt::join(invocation.all(key), ",")); };
    if (all("drain").empty() && all("down").empty())
        return invocation.usage_error("the change is missing", "give --drain POOL or --down MEMBER; both are repeatable");
    TRY(const auto answer,
        api->get(balancer_route(invocation, "whatif") + query_of({{"drain", all("drain")}, {"down", all("down")}})));
    const auto verdict = text_of(answer.body, "verdict");
    const int code = verdict == "safe" ? exit_code::ok : exit_code::other;
    if (print_structured(invocation, answer.body)) return code;
    auto& out = invocation.streams.out;
    const auto style = verdict == "safe" ? Style::green : verdict == "unsafe" ? Style::red : Style::yellow;
    out << paint(verdict, style, invocation.streams.colour()) << '\n';
    for (const auto& message : list_at(answer.body, "messages")) out << fmt::format("  {}\n", printable(value_text(message)));
    const auto& before = list_at(answer.body, "shares_before");
    const auto& after = list_at(answer.body, "shares_after");
    for (std::size_t at = 0; at < std::min(before.size(), after.size()); ++at) {
        const auto clients = text_of(after[at], "clients");
        out << fmt::format("{}\n  now   {}\n  then  {}\n", clients.empty() ? "clients by site" : "clients of " + printable(clients),
                           shares_text(at_path(before[at], "sites")), shares_text(at_path(after[at], "sites")));
    }
    out << fmt::format("the answer would be {} from {}\n", joined(list_at(answer.body, "after.answers")),
                       printable(text_of(answer.body, "after.pool")));
    print_withheld(out, list_at(answer.body, "after.withheld"));
    return code;
}

Result<int> run_gslb_failback(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->call("POST", balancer_route(invocation, "failback")));
    const auto fqdn = printable(text_of(answer.body, "spec.fqdn"));
    const auto& returning = list_at(answer.body, "returning");
    invocation.streams.out << (returning.empty() ? fmt::format("no clients of {} left a pool; nothing changed\n", fqdn)
                                                 : fmt::format("clients of {} may return to {}\n", fqdn, joined(returning)));
    return exit_code::ok;
}

namespace {

/// The time since the last report of a checker.
std::string report_age(const json::value& vantage) {
    const auto* ago = at_path(vantage, "last_report_ms_ago");
    if (ago == nullptr || !ago->is_number()) return "-";
    return fmt::format("{} ago", to_text(std::chrono::seconds(ago->to_number<std::int64_t>() / 1000)));
}

} // namespace

Result<int> run_gslb_vantages(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->get("/v1/health/vantages"));
    if (print_structured(invocation, answer.body)) return exit_code::ok;
    const auto& streams = invocation.streams;
    Table table({"VANTAGE", "KIND", "TRUSTED", "TARGETS", "LAST REPORT", "MESSAGE"});
    for (const auto& one : list_at(answer.body, "items")) {
        const bool trusted = is_true(one, "trusted");
        table.add({{printable(text_of(one, "name"))},
                   {printable(text_of(one, "kind"))},
                   {trusted ? "yes" : "no", trusted ? Style::green : Style::red},
                   {shown_at(one, "targets")},
                   {report_age(one)},
                   {printable(text_of(one, "message"))}});
    }
    streams.out << table.render(streams.width, streams.colour());
    return exit_code::ok;
}

Result<int> run_gslb_watch(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    std::string name;
    if (invocation.has("NAME")) {
        TRY(const auto known, api->get(balancer_route(invocation, "decisions") + "?limit=1"));
        name = text_of(known.body, "loadbalancer");
    }
    TRY(const auto limit, invocation.number("count", 0));
    std::int64_t shown = 0;
    return follow_changes(invocation, "decisions", [&](std::string_view change, const json::value& object) {
        if (change == "removed" || (!name.empty() && text_of(object, "spec.loadbalancer") != name)) return true;
        if (!print_structured(invocation, object)) invocation.streams.out << decision_line(object) << std::flush;
        return limit == 0 || ++shown < limit;
    });
}

} // namespace orrery::cli
