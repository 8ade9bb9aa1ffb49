#include "api/continue_token.h"
#include "api/state.h"
#include "core/nearest.h"
#include "core/text.h"
#include "core/truncate.h"
#include "store/copy_age.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <charconv>

namespace orrery::api {

std::string etag_of(store::Revision revision, const std::string& identity) { return fmt::format("\"{}-{}\"", revision, identity); }

void add_copy_age(const Api::State& state, net::Headers& headers) {
    const auto age = store::copy_age(state.resources.store());
    if (age <= store::stale_copy_age) return;
    headers.add(std::string(copy_age_header), fmt::format("{}", std::chrono::duration_cast<std::chrono::seconds>(age).count()));
}

Result<store::Revision> parse_position(std::string_view text, const std::string& identity, std::string_view field) {
    auto left = text;
    if (left.starts_with("W/")) left.remove_prefix(2);
    if (left.size() >= 2 && left.front() == '"' && left.back() == '"') left = left.substr(1, left.size() - 2);
    store::Revision revision = 0;
    auto [end, failed] = std::from_chars(left.data(), left.data() + left.size(), revision);
    const std::string_view rest(end, static_cast<std::size_t>(left.data() + left.size() - end));
    if (failed != std::errc{} || revision < 0 || (!rest.empty() && !rest.starts_with('-'))) {
        Error error{Code::invalid, "invalid revision"};
        error.fields.push_back(
            {std::string(field),
             fmt::format("must be a revision such as 12 or an ETag such as \"12-{}\", got \"{}\"", identity, truncate(text, 64))});
        return error;
    }
    if (!rest.empty() && rest.substr(1) != identity)
        return Error{Code::compacted, fmt::format("revision {} belongs to a different store", revision),
                     "list again and continue from the revision of the list"};
    return revision;
}

Parameter limit_parameter(std::int64_t default_value, std::int64_t max) {
    return {.name = "limit",
            .doc = fmt::format("maximum number of items (1 to {}, default {})", max, default_value),
            .type = "integer",
            .min = 1,
            .max = max};
}

Parameter continue_parameter(std::string list) {
    return {.name = "continue",
            .doc = "the \"continue\" value of the previous page",
            .check = [list = std::move(list)](std::string_view token) {
                const auto read = read_continue_token(list, token);
                return read.ok() || token.empty() ? std::string() : read.error().message;
            }};
}

Task<json::value> read_document(Call& call, std::size_t limit, EmptyBody empty) {
    CO_TRY(auto text, co_await net::read_all(call.ctx, call.body, limit));
    const auto type = call.request.headers.get("Content-Type");
    if (text.empty() && empty == EmptyBody::object) co_return json::value(json::object{});
    if (text.empty()) co_return Error{Code::invalid, "the request has no body", "send a JSON object"};
    if (type.find("yaml") == std::string_view::npos) co_return parse_json(text);
    // Parsing YAML costs about a hundred times as much as JSON.
    constexpr std::size_t max_yaml = 256 << 10;
    if (text.size() > max_yaml)
        co_return Error{Code::too_large, fmt::format("the body has {} bytes; the limit for YAML is {}", text.size(), max_yaml),
                        "send the body as JSON, as orrery apply does"};
    CO_TRY(auto documents, parse_yaml(text));
    if (documents.size() != 1)
        co_return Error{Code::invalid, fmt::format("the body has {} YAML documents; this path accepts one", documents.size()),
                        "send the documents one at a time, as orrery apply does"};
    co_return std::move(documents.front().value);
}

Result<std::map<std::string, std::string>> read_texts(const json::value& document, std::vector<std::string_view> required,
                                                      std::vector<std::string_view> optional) {
    Error error{Code::invalid, "invalid body"};
    const auto* object = document.if_object();
    if (object == nullptr) {
        error.fields.push_back({"(body)", fmt::format("must be a JSON object with {}", fmt::join(required, ", "))});
        return error;
    }
    std::map<std::string, std::string> out;
    auto known = required;
    known.insert(known.end(), optional.begin(), optional.end());
    for (const auto& [key, value] : *object) {
        if (std::find(known.begin(), known.end(), std::string_view(key)) == known.end()) {
            const auto near = nearest(key, known.data(), known.data() + known.size());
            error.fields.push_back(
                {std::string(key), near.empty() ? "unknown field" : fmt::format("unknown field; did you mean \"{}\"?", near)});
        } else if (const auto* text = value.if_string()) {
            out.emplace(key, *text);
        } else if (!value.is_null()) {
            error.fields.push_back({std::string(key), "must be a string"});
        }
    }
    for (const auto name : required)
        if (!out.contains(std::string(name)) && !object->contains(name))
            error.fields.push_back({std::string(name), "is required"});
        else if (!out.contains(std::string(name)) && object->at(name).is_null())
            error.fields.push_back({std::string(name), "must be a string"});
    if (!error.fields.empty()) return error;
    return out;
}

Task<Unit> send_json(Call& call, int status, const json::value& value, net::Headers headers) {
    headers.set("Content-Type", "application/json");
    co_return co_await call.out.send(call.ctx, {status, std::move(headers), json::serialize(value)});
}

} // namespace orrery::api
