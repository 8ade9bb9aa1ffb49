#include "drivers/rest/rest.h"

#include <boost/asio/ip/address.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::drivers {

bool is_loopback(std::string_view host) {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(std::string(host), error);
    return error ? host == "localhost" : address.is_loopback();
}

bool is_header_token(std::string_view text) {
    return !text.empty() && text.size() <= 8192 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

Result<net::Url> api_base(std::string_view field, std::string_view url, bool allow_plaintext) {
    const auto wrong = [&](std::string why) {
        Error error{Code::invalid, fmt::format("{} {}", field, why)};
        error.fields.push_back({std::string(field), std::move(why)});
        return error;
    };
    auto parsed = net::parse_url(url);
    if (!parsed.ok()) return wrong(parsed.error().message);
    if (parsed->target.find('?') != std::string::npos) return wrong("must not have a query");
    if (parsed->scheme == "http" && !allow_plaintext && !is_loopback(parsed->host))
        return wrong("must be https://, because our credentials go there");
    while (parsed->target.ends_with('/')) parsed->target.pop_back();
    return std::move(*parsed);
}

std::string one_line(std::string_view text, std::size_t most) {
    std::string out;
    for (const char c : text.substr(0, most)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    while (out.ends_with(' ')) out.pop_back();
    return out;
}

Error refusal(std::string_view who, int status, std::string_view words) {
    const auto code = [&] {
        switch (status) {
        case 400:
        case 422: return Code::invalid;
        case 401: return Code::unauthenticated;
        case 403: return Code::denied;
        case 404: return Code::not_found;
        case 409:
        case 412: return Code::conflict;
        case 413: return Code::too_large;
        case 429: return Code::throttled;
        default: return Code::unavailable;
        }
    }();
    const auto said = one_line(words);
    return {code, fmt::format("{} answers {}{}{}", who, status, said.empty() ? "" : ": ", said)};
}

Result<json::value> read_answer(std::string_view who, std::string_view body) {
    boost::system::error_code error;
    json::parse_options options;
    options.max_depth = 32;
    auto value = json::parse(body, error, {}, options);
    if (error) return Error{Code::unavailable, fmt::format("what {} answers is not JSON: {}", who, error.message())};
    return value;
}

const json::value* at(const json::value* of, std::string_view key) {
    const auto* object = of != nullptr ? of->if_object() : nullptr;
    return object != nullptr ? object->if_contains(key) : nullptr;
}

std::string text_at(const json::value* of, std::string_view key) {
    const auto* value = at(of, key);
    const auto* text = value != nullptr ? value->if_string() : nullptr;
    return text != nullptr ? std::string(*text) : std::string();
}

std::int64_t number_at(const json::value* of, std::string_view key, std::int64_t otherwise) {
    const auto* value = at(of, key);
    if (value == nullptr) return otherwise;
    if (const auto* number = value->if_int64()) return *number;
    if (const auto* large = value->if_uint64(); large != nullptr && *large <= INT64_MAX) return static_cast<std::int64_t>(*large);
    return otherwise;
}

bool flag_at(const json::value* of, std::string_view key, bool otherwise) {
    const auto* value = at(of, key);
    const auto* flag = value != nullptr ? value->if_bool() : nullptr;
    return flag != nullptr ? *flag : otherwise;
}

const json::array& list_at(const json::value* of, std::string_view key) {
    static const json::array none;
    const auto* value = at(of, key);
    const auto* list = value != nullptr ? value->if_array() : nullptr;
    return list != nullptr ? *list : none;
}

} // namespace orrery::drivers
