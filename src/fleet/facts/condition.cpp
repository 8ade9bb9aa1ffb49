#include "fleet/facts/condition.h"

#include "core/nearest.h"
#include "core/truncate.h"
#include "fleet/facts/fact.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <re2/re2.h>
#include <utility>

namespace orrery::fleet {

namespace {

using Op = Condition::Op;

constexpr std::array<std::pair<std::string_view, Op>, 10> functions = {{{"gt", Op::gt},
                                                                        {"ge", Op::ge},
                                                                        {"lt", Op::lt},
                                                                        {"le", Op::le},
                                                                        {"in", Op::in},
                                                                        {"regexp", Op::regexp},
                                                                        {"network", Op::network},
                                                                        {"and", Op::all_of},
                                                                        {"or", Op::any_of},
                                                                        {"not", Op::none_of}}};

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

/// Without one pair of quotes around it.
std::string_view unquoted(std::string_view text) {
    text = trimmed(text);
    if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front())
        return text.substr(1, text.size() - 2);
    return text;
}

/// Splits at commas outside parentheses and quotes.
std::vector<std::string_view> split_arguments(std::string_view text) {
    std::vector<std::string_view> out;
    std::size_t begin = 0;
    int depth = 0;
    char quote = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (quote != 0) {
            if (c == quote) quote = 0;
        } else if (c == '\'' || c == '"') {
            quote = c;
        } else if (c == '(') {
            ++depth;
        } else if (c == ')') {
            --depth;
        } else if (c == ',' && depth == 0) {
            out.push_back(trimmed(text.substr(begin, i - begin)));
            begin = i + 1;
        }
    }
    out.push_back(trimmed(text.substr(begin)));
    return out;
}

/// A number with an optional unit: decimal (k, M, G, T, P) or binary (Ki, Mi, Gi, Ti, Pi), each with an optional B.
std::optional<double> number_with_unit(std::string_view text) {
    text = unquoted(text);
    if (const auto plain = parse_number(text)) return plain;
    if (text.ends_with('B') || text.ends_with('b')) text.remove_suffix(1);
    const bool binary = text.ends_with('i');
    if (binary) text.remove_suffix(1);
    if (text.empty()) return {};
    constexpr std::string_view units = "KMGTP";
    const char unit = text.back() == 'k' ? 'K' : text.back();
    const auto power = units.find(unit);
    if (power == std::string_view::npos) return binary ? std::nullopt : parse_number(text);
    auto number = parse_number(trimmed(text.substr(0, text.size() - 1)));
    if (!number) return {};
    for (std::size_t i = 0; i <= power; ++i) *number *= binary ? 1024 : 1000;
    return number;
}

bool network_contains(std::string_view network, std::string_view text) {
    namespace ip = boost::asio::ip;
    boost::system::error_code failed;
    const auto address = ip::make_address(std::string(text), failed);
    if (failed) return false;
    if (address.is_v4()) {
        const auto v4 = ip::make_network_v4(std::string(network), failed);
        if (failed) return false;
        const auto mask = v4.netmask().to_uint();
        return (address.to_v4().to_uint() & mask) == (v4.address().to_uint() & mask);
    }
    const auto v6 = ip::make_network_v6(std::string(network), failed);
    if (failed) return false;
    const ip::network_v6 host(address.to_v6(), v6.prefix_length());
    return host.canonical() == v6.canonical();
}

bool is_network(const std::string& text) {
    boost::system::error_code failed;
    boost::asio::ip::make_network_v4(text, failed);
    if (!failed) return true;
    boost::asio::ip::make_network_v6(text, failed);
    return !failed;
}

} // namespace

Condition Condition::literal(std::string text) {
    Condition out;
    out.texts_.push_back(std::move(text));
    return out;
}

bool Condition::is_call(std::string_view text) {
    const auto open = text.find('(');
    if (open == std::string_view::npos || open == 0 || text.back() != ')') return false;
    return std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(open), [](char c) { return c >= 'a' && c <= 'z'; });
}

Result<Condition> Condition::parse_call(std::string_view text) { return parse(trimmed(text), 0); }

Result<Condition> Condition::parse(std::string_view text, std::size_t depth) {
    if (depth >= max_depth) return Error{Code::invalid, fmt::format("calls are nested deeper than {}", max_depth)};
    if (!is_call(text)) return literal(std::string(unquoted(text)));
    const auto open = text.find('(');
    const auto name = text.substr(0, open);
    Condition out;
    const auto* known = std::find_if(functions.begin(), functions.end(), [&](const auto& one) { return one.first == name; });
    if (known == functions.end()) {
        std::array<std::string_view, functions.size()> names;
        std::transform(functions.begin(), functions.end(), names.begin(), [](const auto& one) { return one.first; });
        const auto near = nearest(name, names.data(), names.data() + names.size());
        return Error{Code::invalid, fmt::format("there is no function \"{}\"", truncate(name, 64)),
                     near.empty() ? fmt::format("use one of {}", fmt::join(names, ", ")) : fmt::format("did you mean {}?", near)};
    }
    out.op_ = known->second;
    TRY(std::ignore, out.set_arguments(name, trimmed(text.substr(open + 1, text.size() - open - 2)), depth));
    return out;
}

Result<Unit> Condition::set_arguments(std::string_view name, std::string_view arguments, std::size_t depth) {
    const auto wrong = [&](std::string_view expected) {
        return Error{Code::invalid, fmt::format("{} needs {}, got \"{}\"", name, expected, truncate(arguments, 64))};
    };
    switch (op_) {
    case Op::equals: return Unit{};
    case Op::gt:
    case Op::ge:
    case Op::lt:
    case Op::le: {
        const auto number = number_with_unit(arguments);
        if (!number) return wrong("a number");
        number_ = *number;
        return Unit{};
    }
    case Op::in:
        for (const auto one : split_arguments(arguments)) texts_.emplace_back(unquoted(one));
        if (arguments.empty()) return wrong("at least one text");
        return Unit{};
    case Op::network:
        texts_.emplace_back(unquoted(arguments));
        if (!is_network(texts_.front())) return wrong("a network such as 192.0.2.0/24");
        return Unit{};
    case Op::regexp: {
        re2::RE2::Options options;
        options.set_log_errors(false);
        options.set_max_mem(1 << 20);
        options.set_encoding(re2::RE2::Options::EncodingLatin1);
        const auto pattern = unquoted(arguments);
        auto compiled = std::make_shared<const re2::RE2>(re2::StringPiece(pattern.data(), pattern.size()), options);
        if (pattern.empty() || !compiled->ok()) return wrong("a regular expression of RE2");
        expression_ = std::move(compiled);
        return Unit{};
    }
    case Op::all_of:
    case Op::any_of:
    case Op::none_of:
        for (const auto one : split_arguments(arguments)) {
            if (one.empty()) return wrong("conditions");
            TRY(auto child, parse(one, depth + 1));
            children_.push_back(std::move(child));
        }
        if (op_ == Op::none_of && children_.size() != 1) return wrong("one condition");
        return Unit{};
    }
    return Unit{};
}

bool Condition::holds(std::string_view value) const {
    const auto holds_child = [value](const Condition& child) { return child.holds(value); };
    const auto number = op_ >= Op::gt && op_ <= Op::le ? parse_number(value) : std::nullopt;
    switch (op_) {
    case Op::equals: return value == texts_.front();
    case Op::gt: return number && *number > number_;
    case Op::ge: return number && *number >= number_;
    case Op::lt: return number && *number < number_;
    case Op::le: return number && *number <= number_;
    case Op::in: return std::find(texts_.begin(), texts_.end(), value) != texts_.end();
    case Op::regexp: return re2::RE2::PartialMatch(re2::StringPiece(value.data(), value.size()), *expression_);
    case Op::network: return network_contains(texts_.front(), value);
    case Op::all_of: return std::all_of(children_.begin(), children_.end(), holds_child);
    case Op::any_of: return std::any_of(children_.begin(), children_.end(), holds_child);
    case Op::none_of: return !holds_child(children_.front());
    }
    return false;
}

} // namespace orrery::fleet
