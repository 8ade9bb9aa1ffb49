#include "gslb/clients/maxmind_database.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

namespace orrery::gslb {

namespace {

/// Reads the data section: values that are maps, arrays, texts and numbers, with pointers to earlier values.
class GeoReader {
public:
    explicit GeoReader(std::string_view data, std::size_t at = 0) : data_(data), at_(at) {}

    enum class Type { none, text, number, whole, map, array, other };
    struct Item {
        Type type = Type::none; ///< none: it is damaged
        std::string_view text;
        double number = 0;
        std::uint64_t whole = 0;
        std::uint32_t size = 0; ///< of a map or an array: entries follow
    };

    /// The head of the next value; a pointer is followed, and reading continues after it. False if the bytes are invalid.
    bool next(Item& out) {
        if (++items_ > max_items) return false;
        return head(out, false);
    }

    /// Passes over the next value, whole.
    bool skip(int depth = 0) {
        Item item;
        if (depth > max_depth || !next(item)) return false;
        return skip_rest(item, depth);
    }

    /// Calls `take(key)` for each entry of a map whose head was read; it must read or skip the value.
    template <class Take> bool entries(const Item& map, Take take) {
        for (std::uint32_t at = 0; at < map.size; ++at) {
            Item key;
            if (!next(key) || key.type != Type::text) return false;
            if (!take(key.text)) return false;
        }
        return leave();
    }
    template <class Take> bool elements(const Item& array, Take take) {
        for (std::uint32_t at = 0; at < array.size; ++at)
            if (!take(at)) return false;
        return leave();
    }

private:
    static constexpr int max_depth = 16;
    static constexpr std::uint32_t max_items = 4096; ///< of one entry: real ones have some hundred

    bool byte(std::uint32_t& out) {
        if (at_ >= data_.size()) return false;
        out = static_cast<unsigned char>(data_[at_++]);
        return true;
    }
    bool number(std::size_t bytes, std::uint64_t& out) {
        out = 0;
        if (bytes > 8 || data_.size() - std::min(at_, data_.size()) < bytes) return false;
        for (std::size_t i = 0; i < bytes; ++i) out = out << 8U | static_cast<unsigned char>(data_[at_++]);
        return true;
    }

    bool skip_rest(const Item& item, int depth) {
        const auto values = item.type == Type::map ? std::uint64_t{item.size} * 2 : item.type == Type::array ? item.size : 0;
        for (std::uint64_t i = 0; i < values; ++i)
            if (!skip(depth + 1)) return false;
        return item.type == Type::map || item.type == Type::array ? leave() : true;
    }

    /// After the last entry of a container that a pointer led to, reading continues after the pointer.
    bool leave() {
        if (returns_.empty()) return false;
        if (returns_.back() != here) at_ = returns_.back();
        returns_.pop_back();
        return true;
    }

    bool head(Item& out, bool pointed) {
        std::uint32_t control = 0;
        if (!byte(control)) return false;
        auto type = control >> 5U;
        if (type == 1) return !pointed && follow(control, out);
        if (type == 0) {
            std::uint32_t more = 0;
            if (!byte(more)) return false;
            type = more + 7;
        }
        std::uint64_t size = control & 0x1fU, extra = 0;
        if (size >= 29) {
            const auto bytes = size - 28;
            if (!number(bytes, extra)) return false;
            size = extra + (bytes == 1 ? 29 : bytes == 2 ? 285 : 65821);
        }
        return value(type, size, out, pointed);
    }

    bool follow(std::uint32_t control, Item& out) {
        const auto kind = control >> 3U & 3U;
        std::uint64_t rest = 0;
        if (!number(kind + 1, rest)) return false;
        constexpr std::array<std::uint64_t, 4> base{0, 2048, 526336, 0};
        const auto high = kind == 3 ? 0 : std::uint64_t{control & 7U} << (8U * (kind + 1));
        const auto behind = at_;
        at_ = static_cast<std::size_t>(high + rest + base.at(kind));
        if (!head(out, true)) return false;
        if (out.type == Type::map || out.type == Type::array)
            returns_.back() = behind;
        else
            at_ = behind;
        return true;
    }

    bool value(std::uint32_t type, std::uint64_t size, Item& out, bool) {
        out = {};
        out.type = Type::other;
        switch (type) {
        case 2: // text
            if (data_.size() - std::min(at_, data_.size()) < size) return false;
            out.type = Type::text;
            out.text = data_.substr(at_, size);
            at_ += size;
            return true;
        case 3: // double
            if (size != 8 || !number(8, out.whole)) return false;
            out.type = Type::number;
            out.number = std::bit_cast<double>(out.whole);
            return true;
        case 5:
        case 6:
        case 9: // unsigned
            if (size > 8 || !number(size, out.whole)) return false;
            out.type = Type::whole;
            return true;
        case 7:  // map
        case 11: // array
            if (size > max_items || returns_.size() > max_depth) return false;
            out.type = type == 7 ? Type::map : Type::array;
            out.size = static_cast<std::uint32_t>(size);
            returns_.push_back(here);
            return true;
        case 14: // boolean: its size is its value
            return true;
        case 4:
        case 8:
        case 10:
        case 15: // bytes, int32, uint128, float: passed over
            if (data_.size() - std::min(at_, data_.size()) < size) return false;
            at_ += size;
            return true;
        default: return false;
        }
    }

    static constexpr std::size_t here = SIZE_MAX;
    std::string_view data_;
    std::size_t at_;
    std::uint32_t items_ = 0;
    std::vector<std::size_t> returns_; ///< of the containers that are open: where to go on behind each
};

using Item = GeoReader::Item;

bool take_text(GeoReader& reader, std::string& into) {
    Item item;
    if (!reader.next(item) || item.type != GeoReader::Type::text || item.text.size() > 64) return false;
    into = item.text;
    return true;
}

/// The text at `wanted` of a map such as {"code": "EU", "names": {...}}.
bool take_code(GeoReader& reader, std::string_view wanted, std::string& into) {
    Item map;
    if (!reader.next(map) || map.type != GeoReader::Type::map) return false;
    return reader.entries(map, [&](std::string_view key) { return key == wanted ? take_text(reader, into) : reader.skip(); });
}

bool take_location(GeoReader& reader, GeoLocation& place) {
    Item map;
    if (!reader.next(map) || map.type != GeoReader::Type::map) return false;
    std::optional<double> latitude, longitude;
    const bool good = reader.entries(map, [&](std::string_view key) {
        if (key != "latitude" && key != "longitude") return reader.skip();
        Item item;
        if (!reader.next(item) || item.type != GeoReader::Type::number) return false;
        (key == "latitude" ? latitude : longitude) = item.number;
        return true;
    });
    if (good && latitude && longitude && std::abs(*latitude) <= 90 && std::abs(*longitude) <= 180)
        place.location = PoolSpec::Location{*latitude, *longitude};
    return good;
}

bool take_subdivisions(GeoReader& reader, GeoLocation& place) {
    Item array;
    if (!reader.next(array) || array.type != GeoReader::Type::array) return false;
    return reader.elements(
        array, [&](std::uint32_t at) { return at == 0 ? take_code(reader, "iso_code", place.subdivision) : reader.skip(); });
}

} // namespace

Result<MaxmindDatabase> MaxmindDatabase::read(std::string bytes) {
    const Error wrong{Code::invalid, "this is no MaxMind DB file, or it is damaged", "give a file such as GeoLite2-City.mmdb"};
    constexpr std::string_view mark = "\xab\xcd\xefMaxMind.com";
    const auto start = bytes.rfind(mark);
    if (start == std::string::npos) return wrong;
    MaxmindDatabase out;
    GeoReader reader(std::string_view(bytes).substr(start + mark.size()));
    Item map;
    if (!reader.next(map) || map.type != GeoReader::Type::map) return wrong;
    std::uint64_t nodes = 0, size = 0, version = 0, epoch = 0, major = 0;
    const bool good = reader.entries(map, [&](std::string_view key) {
        auto* into = key == "node_count"                    ? &nodes
                     : key == "record_size"                 ? &size
                     : key == "ip_version"                  ? &version
                     : key == "build_epoch"                 ? &epoch
                     : key == "binary_format_major_version" ? &major
                                                            : nullptr;
        if (into == nullptr && key != "database_type") return reader.skip();
        if (into == nullptr) return take_text(reader, out.type_);
        Item item;
        if (!reader.next(item) || item.type != GeoReader::Type::whole) return false;
        *into = item.whole;
        return true;
    });
    if (!good || major != 2 || (size != 24 && size != 28 && size != 32) || (version != 4 && version != 6)) return wrong;
    const auto node_bytes = size / 4;
    if (nodes == 0 || nodes > start / node_bytes) return wrong;
    out.node_count_ = static_cast<std::uint32_t>(nodes);
    out.record_size_ = static_cast<std::uint32_t>(size);
    out.ip_version_ = static_cast<std::uint32_t>(version);
    out.tree_size_ = nodes * node_bytes;
    if (out.tree_size_ + 16 > start) return wrong;
    out.data_size_ = start - out.tree_size_ - 16;
    out.built_ = WallTime(std::chrono::seconds(std::min<std::uint64_t>(epoch, 1ULL << 40U)));
    out.bytes_ = std::move(bytes);
    // IPv4 is at ::/96 of a tree of IPv6.
    for (int depth = 0; out.ip_version_ == 6 && depth < 96 && out.v4_start_ < out.node_count_; ++depth)
        out.v4_start_ = out.child(out.v4_start_, 0);
    return out;
}

std::uint32_t MaxmindDatabase::child(std::uint32_t node, unsigned side) const {
    const auto* at = reinterpret_cast<const unsigned char*>(bytes_.data()) + std::size_t{node} * (record_size_ / 4);
    const auto three = [](const unsigned char* p) { return std::uint32_t{p[0]} << 16U | std::uint32_t{p[1]} << 8U | p[2]; };
    if (record_size_ == 24) return three(at + 3 * std::size_t{side});
    if (record_size_ == 28)
        return side == 0 ? (std::uint32_t{at[3]} >> 4U) << 24U | three(at) : (std::uint32_t{at[3]} & 0xfU) << 24U | three(at + 4);
    at += 4 * std::size_t{side};
    return std::uint32_t{at[0]} << 24U | three(at + 1);
}

std::optional<GeoLocation> MaxmindDatabase::find(const boost::asio::ip::address& address) const {
    std::array<std::uint8_t, 16> bytes{};
    unsigned bits = 128;
    if (address.is_v4()) {
        const auto four = address.to_v4().to_bytes();
        std::copy(four.begin(), four.end(), bytes.begin());
        bits = 32;
    } else {
        bytes = address.to_v6().to_bytes();
    }
    auto node = root(address.is_v6());
    for (unsigned depth = 0; depth < bits && has_children(node); ++depth)
        node = child(node, bytes.at(depth / 8) >> (7U - depth % 8) & 1U);
    if (node <= node_count_) return std::nullopt;
    return location_of(node);
}

std::uint32_t MaxmindDatabase::root(bool v6) const {
    if (v6) return ip_version_ == 6 ? 0 : empty();
    return v4_start_;
}

GeoLocation MaxmindDatabase::location_of(std::uint32_t node) const {
    GeoLocation out;
    if (node < node_count_ + std::uint64_t{16}) return out;
    GeoReader reader(data(), node - node_count_ - 16);
    Item map;
    if (!reader.next(map) || map.type != GeoReader::Type::map) return out;
    // Damaged data ends the search; fields that were read before stay.
    std::ignore = reader.entries(map, [&](std::string_view key) {
        if (key == "continent") return take_code(reader, "code", out.continent);
        if (key == "country") return take_code(reader, "iso_code", out.country);
        if (key == "subdivisions") return take_subdivisions(reader, out);
        if (key == "location") return take_location(reader, out);
        if (key != "autonomous_system_number") return reader.skip();
        Item item;
        if (!reader.next(item) || item.type != GeoReader::Type::whole) return false;
        out.asn = static_cast<std::uint32_t>(item.whole);
        return true;
    });
    return out;
}

double distance(const PoolSpec::Location& from, const PoolSpec::Location& to) {
    const auto radians = [](double degrees) { return degrees * std::numbers::pi / 180; };
    const auto a = std::pow(std::sin(radians(to.latitude - from.latitude) / 2), 2) +
                   std::cos(radians(from.latitude)) * std::cos(radians(to.latitude)) *
                       std::pow(std::sin(radians(to.longitude - from.longitude) / 2), 2);
    return 2 * 6371 * std::asin(std::sqrt(std::clamp(a, 0.0, 1.0)));
}

} // namespace orrery::gslb
