#include "api/router.h"

#include "core/nearest.h"
#include "core/truncate.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/address_v6.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <charconv>

namespace orrery::api {

bool is_from_loopback(const net::Request& request) {
    boost::system::error_code error;
    auto peer = boost::asio::ip::make_address(request.peer, error);
    if (error) return false;
    // A dual-stack listener reports IPv4 clients as mapped addresses.
    if (peer.is_v6() && peer.to_v6().is_v4_mapped())
        peer = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, peer.to_v6());
    return peer.is_loopback();
}

namespace {

/// Removes and returns the first segment of a path: "v1" of "/v1/nodes".
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

const Router::Segment* Router::find(std::string_view path, std::map<std::string, std::string>& parameters) const {
    const auto* at = root_.get();
    while (!path.empty()) {
        const auto segment = take_segment(path);
        if (auto literal = at->literal.find(segment); literal != at->literal.end()) {
            at = literal->second.get();
        } else if (at->any && !segment.empty()) {
            parameters.emplace(at->any_name, segment);
            at = at->any.get();
        } else {
            return nullptr;
        }
    }
    return at;
}

Result<Router::Match> Router::match(std::string_view method, std::string_view path) const {
    Match match{};
    const auto* at = find(path, match.path);
    if (at == nullptr || at->methods.empty())
        return Error{Code::not_found, fmt::format("no route for {}", truncate(path, 1024)),
                     "GET /openapi.json lists all paths; /docs describes them"};
    auto found = at->methods.find(method);
    if (found == at->methods.end() && method == "HEAD") found = at->methods.find("GET");
    if (found == at->methods.end())
        return Error{Code::unsupported, fmt::format("{} does not support {}", truncate(path, 1024), truncate(method, 64)),
                     fmt::format("supported methods: {}", fmt::join(methods(path), ", "))};
    match.route = found->second;
    return match;
}

std::vector<std::string_view> Router::methods(std::string_view path) const {
    std::map<std::string, std::string> ignored;
    std::vector<std::string_view> out;
    const auto* at = find(path, ignored);
    if (at == nullptr) return out;
    for (const auto& [name, route] : at->methods) {
        out.push_back(name);
        if (name == "GET") out.emplace_back("HEAD");
    }
    return out;
}

namespace {

std::string unknown_parameter(const Route& route, std::string_view name) {
    std::vector<std::string_view> names;
    for (const auto& parameter : route.query) names.push_back(parameter.name);
    if (names.empty()) return "unknown parameter; this path has none";
    const auto near = nearest(name, names.data(), names.data() + names.size());
    return near.empty() ? fmt::format("unknown parameter; known are {}", fmt::join(names, ", "))
                        : fmt::format("unknown parameter; did you mean \"{}\"?", near);
}

std::string wrong_with(const Parameter& parameter, std::string_view value) {
    const auto got = [&](std::string wanted) { return fmt::format("{}, got \"{}\"", wanted, truncate(value, 64)); };
    if (parameter.type == "integer") {
        std::int64_t number = 0;
        const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), number);
        const bool is_number = failed == std::errc{} && end == value.data() + value.size();
        if (parameter.min && parameter.max && (!is_number || number < *parameter.min || number > *parameter.max))
            return got(fmt::format("must be a number from {} to {}", *parameter.min, *parameter.max));
        if (!is_number) return got("must be an integer");
    }
    if (parameter.type == "boolean" && !value.empty() && value != "true" && value != "false" && value != "1" && value != "0")
        return got("must be true or false");
    if (!parameter.choices.empty() &&
        std::find(parameter.choices.begin(), parameter.choices.end(), value) == parameter.choices.end())
        return got(fmt::format("must be one of {}", fmt::join(parameter.choices, ", ")));
    return parameter.check ? parameter.check(value) : std::string();
}

} // namespace

Result<Unit> check_query(const Route& route, const net::Target& target) {
    Error error{Code::invalid, "invalid query"};
    for (const auto& [name, value] : target.query) {
        const auto known = std::find_if(route.query.begin(), route.query.end(),
                                        [&](const Parameter& parameter) { return parameter.name == name; });
        auto wrong = known == route.query.end() ? unknown_parameter(route, name) : wrong_with(*known, value);
        if (!wrong.empty()) error.fields.push_back({fmt::format("?{}", truncate(name, 64)), std::move(wrong)});
    }
    if (!error.fields.empty()) return error;
    return Unit{};
}

Result<bool> Call::flag(std::string_view name) const {
    const auto value = query(name);
    if (!value || *value == "false" || *value == "0") return false;
    if (value->empty() || *value == "true" || *value == "1") return true;
    Error error{Code::invalid, "invalid query"};
    error.fields.push_back({fmt::format("?{}", name), fmt::format("must be true or false, got \"{}\"", *value)});
    return error;
}

} // namespace orrery::api
