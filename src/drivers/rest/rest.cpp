#include "drivers/rest/rest.h"

#include "core/url_text.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::drivers {

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
    if (parsed->scheme == "http" && !allow_plaintext && !is_loopback_host(parsed->host))
        return wrong("must be https://, because credentials are sent there; allow_plaintext permits http://");
    while (parsed->target.ends_with('/')) parsed->target.pop_back();
    return std::move(*parsed);
}

std::string one_line(std::string_view text, std::size_t max) {
    std::string out;
    for (const char c : text.substr(0, max)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    while (out.ends_with(' ')) out.pop_back();
    return out;
}

Error refusal(std::string_view service, int status, std::string_view message) {
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
    const auto text = one_line(message);
    return {code, fmt::format("{} answers {}{}{}", service, status, text.empty() ? "" : ": ", text)};
}

Result<json::value> read_answer(std::string_view service, std::string_view body) {
    boost::system::error_code error;
    json::parse_options options;
    options.max_depth = 32;
    auto value = json::parse(body, error, {}, options);
    if (error) return Error{Code::unavailable, fmt::format("the answer of {} is not JSON: {}", service, error.message())};
    return value;
}

const json::object& as_object(const json::value& value) {
    static const json::object none;
    const auto* object = value.if_object();
    return object != nullptr ? *object : none;
}

} // namespace orrery::drivers
