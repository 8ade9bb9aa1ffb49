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

/// Load balancing: why a name answers as it does, what would be if, what is decided as it is decided.
namespace orrery::cli {

namespace {

std::string balancer_route(const Invocation& invocation, std::string_view what) {
    return fmt::format("/v1/loadbalancers/{}/{}", net::percent_encode(invocation.text("NAME")), what);
}

bool gives_json(Invocation& invocation, const json::value& value) {
    const auto form = invocation.text("output", "table");
    if (form == "json") invocation.streams.out << to_pretty_json(value) << '\n';
    if (form == "yaml") invocation.streams.out << to_yaml(value);
    return form == "json" || form == "yaml";
}

const json::array& items_at(const json::value& value, std::string_view path) {
    static const json::array none;
    const auto* found = at_path(value, path);
    return found != nullptr && found->is_array() ? found->get_array() : none;
}

std::string joined(const json::array& values) {
    std::string out;
    for (const auto& value : values) out += fmt::format("{}{}", out.empty() ? "" : ", ", printable(value_text(value)));
    return out.empty() ? "nothing" : out;
}

std::string number_text(const json::value& value, std::string_view path) {
    const auto* found = at_path(value, path);
    return found == nullptr ? std::string() : printable(value_text(*found));
}

/// "ams 50.0 %, nyc 50.0 %"
std::string shares_text(const json::value* shares) {
    std::string out;
    if (shares != nullptr && shares->is_object())
        for (const auto& [name, share] : shares->get_object())
            if (share.is_number())
                out += fmt::format("{}{} {:.1f} %", out.empty() ? "" : ", ", printable(std::string_view(name)),
                                   100 * share.to_number<double>());
    return out.empty() ? "nobody" : out;
}

void print_withheld(std::ostream& out, const json::array& withheld) {
    for (const auto& one : withheld)
        out << fmt::format("  withheld ({}): {}{}\n", printable(text_of(one, "cause")), printable(text_of(one, "words")),
                           text_of(one, "until").empty() ? "" : fmt::format(", until {}", printable(text_of(one, "until"))));
}

std::string query_of(const std::vector<std::pair<std::string, std::string>>& parts) {
    std::string out;
    for (const auto& [key, value] : parts)
        if (!value.empty()) out += fmt::format("{}{}={}", out.empty() ? "?" : "&", key, net::percent_encode(value));
    return out;
}

/// A time, or how long ago.
Result<std::string> moment(const Streams& streams, const std::string& text) {
    if (text.empty()) return text;
    if (const auto ago = parse_duration(text); ago.ok())
        return to_rfc3339(streams.clock->wall() - std::chrono::duration_cast<std::chrono::milliseconds>(*ago));
    if (const auto time = from_rfc3339(text); time.ok()) return to_rfc3339(*time);
    return Error{Code::invalid, fmt::format("--at \"{}\" is neither a time ago nor a time", text),
                 "write it as in 10m, 2h or 2026-11-16T04:42:52Z"};
}

std::string decision_line(const json::value& object) {
    const auto* spec = at_path(object, "spec");
    if (spec == nullptr) return "";
    const auto changed = number_text(*spec, "changed") != "false";
    std::string out = fmt::format("{}  {}  #{} {}: ", printable(text_of(*spec, "at")), printable(text_of(*spec, "fqdn")),
                                  number_text(*spec, "seq"), printable(text_of(*spec, "cause")));
    if (changed) {
        out += fmt::format("{} (from {}, ttl {}s)", joined(items_at(*spec, "after.answers")),
                           printable(text_of(*spec, "after.pool")), number_text(*spec, "after.ttl"));
        if (at_path(*spec, "before") != nullptr) out += fmt::format(", before {}", joined(items_at(*spec, "before.answers")));
    } else {
        out += "stays as it is";
    }
    out += '\n';
    if (const auto words = text_of(*spec, "trigger.words"); !words.empty()) out += fmt::format("  {}\n", printable(words));
    for (const auto& one : items_at(*spec, "withheld")) out += fmt::format("  withheld: {}\n", printable(text_of(one, "words")));
    return out;
}

} // namespace

Result<int> run_gslb_why(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto at, moment(invocation.streams, invocation.text("at")));
    TRY(const auto answer,
        api->get(balancer_route(invocation, "why") + query_of({{"client", invocation.text("client")}, {"at", at}})));
    if (gives_json(invocation, answer.body)) return exit_code::ok;
    auto& out = invocation.streams.out;
    const auto& body = answer.body;
    out << fmt::format("{} answers {} (ttl {}s, {})\n", printable(text_of(body, "fqdn")),
                       text_of(body, "answer.alias").empty() ? "from " + joined(items_at(body, "answer.pools"))
                                                             : printable(text_of(body, "answer.alias")),
                       number_text(body, "answer.ttl"), printable(text_of(body, "decision.condition")));
    for (const auto& one : items_at(body, "answer.answers"))
        out << fmt::format("  {} {}{}\n", printable(text_of(one, "member")), joined(items_at(one, "addresses")),
                           at_path(one, "weight") == nullptr ? "" : " weight " + number_text(one, "weight"));
    if (const auto client = text_of(body, "client.address"); !client.empty())
        out << fmt::format("  for {}{}\n", printable(client),
                           text_of(body, "client.class").empty() ? ", who is of no network of its own"
                                                                 : ", one of " + printable(text_of(body, "client.class")));
    out << "because\n";
    for (const auto& words : items_at(body, "because")) out << fmt::format("  {}\n", printable(value_text(words)));
    print_withheld(out, items_at(body, "withheld"));
    if (const auto* record = at_path(body, "record"))
        out << fmt::format("decided {} (#{}, {})\n", printable(text_of(*record, "at")), number_text(*record, "seq"),
                           printable(text_of(*record, "cause")));
    if (const auto worst = text_of(body, "failover_time.worst"); !worst.empty())
        out << fmt::format("a client leaves a failed address within {} (seen in {}, ttl {})\n", printable(worst),
                           printable(text_of(body, "failover_time.detection")), printable(text_of(body, "failover_time.ttl")));
    for (const auto& warning : items_at(body, "failover_time.warnings"))
        out << fmt::format("warning: {}\n", printable(value_text(warning)));
    if (number_text(body, "replayed_exactly") == "false")
        out << "warning: decided again from its record it is not the same: the record is from another version\n";
    return exit_code::ok;
}

Result<int> run_gslb_whatif(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    const auto all = [&](std::string_view key) { return fmt::format("{}", fmt::join(invocation.all(key), ",")); };
    if (all("drain").empty() && all("down").empty())
        return Error{Code::invalid, "nothing was changed", "say what: --drain POOL or --down MEMBER, any number of times"};
    TRY(const auto answer,
        api->get(balancer_route(invocation, "whatif") + query_of({{"drain", all("drain")}, {"down", all("down")}})));
    const auto verdict = text_of(answer.body, "verdict");
    const int code = verdict == "safe" ? exit_code::ok : exit_code::other;
    if (gives_json(invocation, answer.body)) return code;
    auto& out = invocation.streams.out;
    const auto style = verdict == "safe" ? Style::green : verdict == "unsafe" ? Style::red : Style::yellow;
    out << paint(verdict, style, invocation.streams.colour()) << '\n';
    for (const auto& words : items_at(answer.body, "why")) out << fmt::format("  {}\n", printable(value_text(words)));
    const auto& before = items_at(answer.body, "shares_before");
    const auto& after = items_at(answer.body, "shares_after");
    for (std::size_t at = 0; at < std::min(before.size(), after.size()); ++at) {
        const auto clients = text_of(after[at], "clients");
        out << fmt::format("{}\n  now   {}\n  then  {}\n", clients.empty() ? "clients by site" : "clients of " + printable(clients),
                           shares_text(at_path(before[at], "sites")), shares_text(at_path(after[at], "sites")));
    }
    out << fmt::format("it would answer {} from {}\n", joined(items_at(answer.body, "after.answers")),
                       printable(text_of(answer.body, "after.pool")));
    print_withheld(out, items_at(answer.body, "after.withheld"));
    return code;
}

Result<int> run_gslb_failback(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->call("POST", balancer_route(invocation, "failback")));
    invocation.streams.out << fmt::format("clients of {} may return to the pools they left\n",
                                          printable(text_of(answer.body, "spec.fqdn")));
    return exit_code::ok;
}

Result<int> run_gslb_vantages(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->get("/v1/health/vantages"));
    if (gives_json(invocation, answer.body)) return exit_code::ok;
    const auto& streams = invocation.streams;
    Table table({"VANTAGE", "KIND", "COUNTS", "TARGETS", "BECAUSE"});
    for (const auto& one : items_at(answer.body, "items")) {
        const bool fit = number_text(one, "fit") == "true";
        table.add({{printable(text_of(one, "name"))},
                   {printable(text_of(one, "kind"))},
                   {fit ? "yes" : "no", fit ? Style::green : Style::red},
                   {number_text(one, "targets")},
                   {printable(text_of(one, "because"))}});
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
    return follow_changes(invocation, "decisions", [&](std::string_view what, const json::value& object) {
        if (what == "removed" || (!name.empty() && text_of(object, "spec.loadbalancer") != name)) return true;
        if (!gives_json(invocation, object)) invocation.streams.out << decision_line(object) << std::flush;
        return limit == 0 || ++shown < limit;
    });
}

} // namespace orrery::cli
