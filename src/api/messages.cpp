#include "api/state.h"
#include "core/ids.h"
#include "core/text.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <charconv>

namespace orrery::api {

std::string etag_of(store::Revision revision, const std::string& identity) { return fmt::format("\"{}-{}\"", revision, identity); }

Result<store::Revision> parse_position(std::string_view text, const std::string& identity, std::string_view field) {
    auto left = text;
    if (left.starts_with("W/")) left.remove_prefix(2);
    if (left.size() >= 2 && left.front() == '"' && left.back() == '"') left = left.substr(1, left.size() - 2);
    store::Revision revision = 0;
    auto [end, failed] = std::from_chars(left.data(), left.data() + left.size(), revision);
    const std::string_view rest(end, static_cast<std::size_t>(left.data() + left.size() - end));
    if (failed != std::errc{} || revision < 0 || (!rest.empty() && !rest.starts_with('-'))) {
        Error error{Code::invalid, "that is not a revision"};
        error.fields.push_back(
            {std::string(field),
             fmt::format("must be a revision such as 12 or an ETag such as \"12-{}\", got \"{}\"", identity, text.substr(0, 64))});
        return error;
    }
    if (!rest.empty() && rest.substr(1) != identity)
        return Error{Code::compacted, fmt::format("revision {} is of another store than this one", revision),
                     "list again and go on from the revision that the list states"};
    return revision;
}

Task<json::value> read_document(Call& call, std::size_t limit) {
    CO_TRY(auto text, co_await net::read_all(call.ctx, call.body, limit));
    const auto type = call.request.headers.get("Content-Type");
    if (type.find("yaml") == std::string_view::npos) {
        if (text.empty()) co_return Error{Code::invalid, "the request has no body", "send a JSON object"};
        co_return parse_json(text);
    }
    // YAML is for people, and costs a hundred times what JSON does.
    constexpr std::size_t most_yaml = 256 << 10;
    if (text.size() > most_yaml)
        co_return Error{Code::too_large, fmt::format("the body has {} bytes, and YAML is taken up to {}", text.size(), most_yaml),
                        "send it as JSON; orrery apply does"};
    CO_TRY(auto documents, parse_yaml(text));
    if (documents.size() != 1)
        co_return Error{Code::invalid, fmt::format("the body has {} YAML documents, and this path takes one", documents.size()),
                        "send them one by one; orrery apply does"};
    co_return std::move(documents.front().value);
}

Result<std::map<std::string, std::string>> read_texts(const json::value& document, std::vector<std::string_view> required,
                                                      std::vector<std::string_view> optional) {
    Error error{Code::invalid, "the body is not right"};
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
            error.fields.push_back({std::string(key), "must be a text"});
        }
    }
    for (const auto name : required)
        if (!out.contains(std::string(name)) && !object->contains(name))
            error.fields.push_back({std::string(name), "is required"});
        else if (!out.contains(std::string(name)) && object->at(name).is_null())
            error.fields.push_back({std::string(name), "must be a text"});
    if (!error.fields.empty()) return error;
    return out;
}

Task<Unit> send_json(Call& call, int status, const json::value& value, net::Headers headers) {
    headers.set("Content-Type", "application/json");
    co_return co_await call.out.send(call.ctx, {status, std::move(headers), json::serialize(value)});
}

} // namespace orrery::api
