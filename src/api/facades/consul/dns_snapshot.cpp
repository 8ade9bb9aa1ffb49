#include "api/facades/consul/dns_snapshot.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

namespace orrery::api::consul {

Location Location::of(const std::string& text) {
    Location out;
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(text, error);
    if (!error && address.is_v4()) {
        out.kind = Kind::v4;
        out.v4 = address.to_v4().to_bytes();
    } else if (!error) {
        out.kind = Kind::v6;
        out.v6 = address.to_v6().to_bytes();
    } else if (auto name = Name::from_text(text); name.ok() && !name->is_root()) {
        out.kind = Kind::host;
        out.host = *name;
    }
    return out;
}

bool Location::answers(std::uint16_t query_type) const {
    return (kind == Kind::v4 && (query_type == type::a || query_type == type::any)) ||
           (kind == Kind::v6 && (query_type == type::aaaa || query_type == type::any));
}

bool Location::write(dns::Writer& writer, Section section, const Name& owner, std::uint32_t ttl) const {
    switch (kind) {
    case Kind::v4: return writer.a(section, owner, ttl, v4);
    case Kind::v6: return writer.aaaa(section, owner, ttl, v6);
    case Kind::host: return writer.name(section, owner, type::cname, ttl, host);
    case Kind::none: return true;
    }
    return true;
}

std::string Location::key() const {
    return kind == Kind::v4   ? std::string(v4.begin(), v4.end())
           : kind == Kind::v6 ? std::string(v6.begin(), v6.end())
                              : "host " + host.lowered();
}

std::vector<std::string> meta_texts(const std::map<std::string, std::string>& meta) {
    std::vector<std::string> out;
    for (const auto& [key, value] : meta) // RFC 1464; keys with the prefix rfc1035- keep the plain value
        out.push_back(key.starts_with("rfc1035-") ? value : fmt::format("{}={}", key, value));
    return out;
}

std::optional<std::vector<std::uint8_t>> from_hex(std::string_view text) {
    if (text.size() % 2 != 0) return std::nullopt;
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i < text.size(); i += 2) {
        int value = 0;
        for (const char c : text.substr(i, 2)) {
            const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
            if (digit < 0) return std::nullopt;
            value = value * 16 + digit;
        }
        out.push_back(static_cast<std::uint8_t>(value));
    }
    return out;
}

std::optional<std::string> reverse_address(const std::vector<std::string>& labels) {
    const auto count = labels.size();
    if (count == 6 && labels[4] == "in-addr" && labels[5] == "arpa") {
        std::string out;
        for (int i = 3; i >= 0; --i) {
            const auto& label = labels[static_cast<std::size_t>(i)];
            if (label.empty() || label.size() > 3 || label.find_first_not_of("0123456789") != std::string::npos ||
                std::stoi(label) > 255)
                return std::nullopt;
            out += static_cast<char>(std::stoi(label));
        }
        return out;
    }
    if (count == 34 && labels[32] == "ip6" && labels[33] == "arpa") {
        std::string digits;
        for (int i = 31; i >= 0; --i) {
            if (labels[static_cast<std::size_t>(i)].size() != 1) return std::nullopt;
            digits += labels[static_cast<std::size_t>(i)];
        }
        if (auto bytes = from_hex(digits)) return std::string(bytes->begin(), bytes->end());
    }
    return std::nullopt;
}

} // namespace orrery::api::consul
