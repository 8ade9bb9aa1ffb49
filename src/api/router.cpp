#include "api/router.h"

#include "core/ids.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cassert>

namespace orrery::api {

namespace {

/// The next segment of a path, taken off its front: "/v1/nodes" gives "v1".
std::string_view take_segment(std::string_view& path) {
    path.remove_prefix(1);
    const auto end = std::min(path.find('/'), path.size());
    const auto segment = path.substr(0, end);
    path.remove_prefix(end);
    return segment;
}

} // namespace

struct Router::Segment {
    std::map<std::string, std::unique_ptr<Segment>, std::less<>> literal;
    std::unique_ptr<Segment> any; ///< "{name}"
    std::string any_name;
    std::map<std::string, const Route*, std::less<>> methods;
};

Router::Router() : root_(std::make_unique<Segment>()) {}
Router::~Router() = default;

void Router::add(Route route) {
    auto* at = root_.get();
    std::string_view left = route.pattern;
    while (!left.empty()) {
        const auto segment = take_segment(left);
        if (segment.starts_with('{')) {
            if (!at->any) at->any = std::make_unique<Segment>();
            at->any_name = segment.substr(1, segment.size() - 2);
            at = at->any.get();
        } else {
            auto& next = at->literal[std::string(segment)];
            if (!next) next = std::make_unique<Segment>();
            at = next.get();
        }
    }
    const auto& kept = routes_.emplace_back(std::make_unique<const Route>(std::move(route)));
    [[maybe_unused]] const bool fresh = at->methods.emplace(kept->method, kept.get()).second;
    assert(fresh);
}

Result<Router::Match> Router::match(std::string_view method, std::string_view path) const {
    const auto* at = root_.get();
    Match match{};
    const Error nothing_there{Code::not_found, fmt::format("there is nothing at {}", path),
                              "GET /openapi.json lists every path, /docs explains them"};
    std::string_view left = path;
    while (!left.empty()) {
        const auto segment = take_segment(left);
        if (auto literal = at->literal.find(segment); literal != at->literal.end()) {
            at = literal->second.get();
        } else if (at->any && !segment.empty()) {
            match.path.emplace(at->any_name, segment);
            at = at->any.get();
        } else {
            return nothing_there;
        }
    }
    if (at->methods.empty()) return nothing_there;
    auto found = at->methods.find(method);
    if (found == at->methods.end() && method == "HEAD") found = at->methods.find("GET");
    if (found == at->methods.end()) {
        std::vector<std::string_view> offered;
        for (const auto& [name, route] : at->methods) offered.push_back(name);
        return Error{Code::unsupported, fmt::format("{} does not take {}", path, method),
                     fmt::format("it takes {}", fmt::join(offered, ", "))};
    }
    match.route = found->second;
    return match;
}

Result<Unit> check_query(const Route& route, const net::Target& target) {
    Error error{Code::invalid, "the query is not right"};
    for (const auto& [name, value] : target.query) {
        const auto known =
            std::any_of(route.query.begin(), route.query.end(), [&](const Parameter& parameter) { return parameter.name == name; });
        if (known) continue;
        std::vector<std::string_view> names;
        for (const auto& parameter : route.query) names.push_back(parameter.name);
        const auto near = nearest(name, names.data(), names.data() + names.size());
        if (names.empty())
            error.fields.push_back({"?" + name, "unknown parameter; this path takes none"});
        else if (!near.empty())
            error.fields.push_back({"?" + name, fmt::format("unknown parameter; did you mean \"{}\"?", near)});
        else
            error.fields.push_back({"?" + name, fmt::format("unknown parameter; there are {}", fmt::join(names, ", "))});
    }
    if (!error.fields.empty()) return error;
    return Unit{};
}

Result<bool> Call::flag(std::string_view name) const {
    const auto value = query(name);
    if (!value || *value == "false" || *value == "0") return false;
    if (value->empty() || *value == "true" || *value == "1") return true;
    Error error{Code::invalid, "the query is not right"};
    error.fields.push_back({fmt::format("?{}", name), fmt::format("must be true or false, got \"{}\"", *value)});
    return error;
}

} // namespace orrery::api
