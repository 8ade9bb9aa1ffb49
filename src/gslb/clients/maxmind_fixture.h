#pragma once

#include "gslb/clients/client_classes.h"

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::gslb::testing {

/// Writes small MaxMind DB files.
class GeoWriter {
public:
    explicit GeoWriter(unsigned record_size) : record_size_(record_size) { nodes_.emplace_back(); }

    static std::string head(unsigned type, std::size_t size) {
        std::string out;
        const auto first = size < 29 ? size : size < 285 ? 29 : 30;
        out += static_cast<char>((type > 7 ? 0 : type << 5U) | first);
        if (type > 7) out += static_cast<char>(type - 7);
        if (first == 29) out += static_cast<char>(size - 29);
        if (first == 30) {
            out += static_cast<char>((size - 285) >> 8U);
            out += static_cast<char>(size - 285);
        }
        return out;
    }
    static std::string text(std::string_view value) { return head(2, value.size()) + std::string(value); }
    static std::string whole(unsigned type, std::uint64_t value) {
        std::string digits;
        for (; value != 0; value >>= 8U) digits.insert(digits.begin(), static_cast<char>(value));
        return head(type, digits.size()) + digits;
    }
    static std::string real(double value) {
        std::string out = head(3, 8);
        for (int shift = 56; shift >= 0; shift -= 8)
            out += static_cast<char>(std::bit_cast<std::uint64_t>(value) >> static_cast<unsigned>(shift));
        return out;
    }
    static std::string map(std::vector<std::pair<std::string, std::string>> entries) {
        auto out = head(7, entries.size());
        for (const auto& [key, value] : entries) out += text(key) + value;
        return out;
    }
    static std::string array(std::vector<std::string> items) {
        auto out = head(11, items.size());
        for (const auto& item : items) out += item;
        return out;
    }
    static std::string pointer(std::size_t to) { // the shortest form: 11 bits
        std::string out;
        out += static_cast<char>(1U << 5U | (to >> 8U & 7U));
        out += static_cast<char>(to);
        return out;
    }

    /// The offset of the value in the data section.
    std::size_t data(const std::string& value) {
        const auto at = data_.size();
        data_ += value;
        return at;
    }
    void network(std::string_view prefix, std::size_t data) {
        const auto given = *parse_prefix(prefix);
        std::vector<unsigned> path(given.v6 ? 0 : 96, 0);
        for (unsigned at = 0; at < given.length; ++at) path.push_back(given.address.at(at / 8) >> (7U - at % 8) & 1U);
        std::size_t node = 0;
        for (std::size_t at = 0; at + 1 < path.size(); ++at) {
            auto& next = nodes_[node].at(path[at]);
            if (next.kind != Record::Kind::node) {
                next = {Record::Kind::node, nodes_.size()};
                node = nodes_.size();
                nodes_.emplace_back();
            } else {
                node = next.value;
            }
        }
        nodes_[node].at(path.back()) = {Record::Kind::data, data};
    }
    std::string finish() const {
        std::string out;
        for (const auto& node : nodes_) {
            const auto left = number(node[0]), right = number(node[1]);
            const auto put = [&](std::uint64_t value, int bytes) {
                for (int at = bytes - 1; at >= 0; --at) out += static_cast<char>(value >> (8U * static_cast<unsigned>(at)));
            };
            if (record_size_ == 28) {
                put(left & 0xffffffU, 3);
                put((left >> 24U) << 4U | right >> 24U, 1);
                put(right & 0xffffffU, 3);
            } else {
                put(left, static_cast<int>(record_size_ / 8));
                put(right, static_cast<int>(record_size_ / 8));
            }
        }
        out += std::string(16, '\0') + data_ + "\xab\xcd\xefMaxMind.com";
        return out + map({{"node_count", whole(6, nodes_.size())},
                          {"record_size", whole(5, record_size_)},
                          {"ip_version", whole(5, 6)},
                          {"database_type", text("Test-City")},
                          {"languages", array({text("en")})},
                          {"binary_format_major_version", whole(5, 2)},
                          {"binary_format_minor_version", zero()},
                          {"build_epoch", whole(9, 1'700'000'000)},
                          {"description", map({{"en", text("for tests")}})}});
    }

private:
    static std::string zero() { return head(5, 0); }
    struct Record {
        enum class Kind { empty, node, data };
        Kind kind = Kind::empty;
        std::size_t value = 0;
    };
    std::uint64_t number(const Record& record) const {
        if (record.kind == Record::Kind::node) return record.value;
        return nodes_.size() + (record.kind == Record::Kind::data ? 16 + record.value : 0);
    }
    unsigned record_size_;
    std::vector<std::array<Record, 2>> nodes_;
    std::string data_;
};

inline std::string an_entry(std::string_view continent, std::string_view country, double latitude, double longitude) {
    using W = GeoWriter;
    return W::map(
        {{"city", W::map({{"names", W::map({{"en", W::text("somewhere")}})}})},
         {"continent", W::map({{"code", W::text(continent)}, {"geoname_id", W::whole(6, 6255148)}})},
         {"country", W::map({{"is_in_european_union", W::head(14, 1)}, {"iso_code", W::text(country)}})},
         {"location",
          W::map({{"accuracy_radius", W::whole(5, 20)}, {"latitude", W::real(latitude)}, {"longitude", W::real(longitude)}})},
         {"subdivisions", W::array({W::map({{"iso_code", W::text("NH")}}), W::map({{"iso_code", W::text("X")}})})}});
}

/// NL at 192.0.2.0/25 and 2001:db8::/32, DE (AS64500) at 192.0.2.128/25, US at 198.51.100.0/24.
inline std::string a_database(unsigned record_size) {
    GeoWriter writer(record_size);
    const auto nl = writer.data(an_entry("EU", "NL", 52.4, 4.9));
    const auto us = writer.data(an_entry("NA", "US", 40.7, -74.0));
    const auto continent = writer.data(GeoWriter::map({{"code", GeoWriter::text("EU")}}));
    // By way of a pointer, as real files share what is common.
    const auto de = writer.data(GeoWriter::map({{"continent", GeoWriter::pointer(continent)},
                                                {"country", GeoWriter::map({{"iso_code", GeoWriter::text("DE")}})},
                                                {"autonomous_system_number", GeoWriter::whole(6, 64500)}}));
    writer.network("192.0.2.0/25", nl);
    writer.network("192.0.2.128/25", de);
    writer.network("198.51.100.0/24", us);
    writer.network("2001:db8::/32", nl);
    return writer.finish();
}

} // namespace orrery::gslb::testing
