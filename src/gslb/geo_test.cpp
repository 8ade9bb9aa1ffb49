#include "gslb/decide.h"
#include "gslb/geo.h"
#include "gslb/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace orrery::gslb {

namespace {

using ::testing::ElementsAre;

/// Writes MaxMind DB files, as small as tests need them.
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

    /// Where the value lies in the data section.
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

std::string an_entry(std::string_view continent, std::string_view country, double latitude, double longitude) {
    using W = GeoWriter;
    return W::map(
        {{"city", W::map({{"names", W::map({{"en", W::text("somewhere")}})}})},
         {"continent", W::map({{"code", W::text(continent)}, {"geoname_id", W::whole(6, 6255148)}})},
         {"country", W::map({{"is_in_european_union", W::head(14, 1)}, {"iso_code", W::text(country)}})},
         {"location",
          W::map({{"accuracy_radius", W::whole(5, 20)}, {"latitude", W::real(latitude)}, {"longitude", W::real(longitude)}})},
         {"subdivisions", W::array({W::map({{"iso_code", W::text("NH")}}), W::map({{"iso_code", W::text("X")}})})}});
}

std::string a_database(unsigned record_size) {
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

boost::asio::ip::address at(const char* text) { return boost::asio::ip::make_address(text); }

} // namespace

TEST(Geo, PlacesAreFoundInTreesOfAnyWidth) {
    for (const auto size : {24U, 28U, 32U}) {
        const auto database = GeoDatabase::read(a_database(size));
        ASSERT_TRUE(database.ok()) << size;
        EXPECT_EQ(database->type(), "Test-City");
        EXPECT_EQ(to_rfc3339(database->built()), "2023-11-14T22:13:20.000Z");
        const auto place = database->find(at("192.0.2.7"));
        ASSERT_TRUE(place) << size;
        EXPECT_EQ(place->continent, "EU");
        EXPECT_EQ(place->country, "NL");
        EXPECT_EQ(place->subdivision, "NH");
        EXPECT_EQ(place->location->latitude, 52.4);
        EXPECT_EQ(database->find(at("192.0.2.200"))->country, "DE");
        EXPECT_EQ(database->find(at("192.0.2.200"))->continent, "EU");
        EXPECT_EQ(database->find(at("192.0.2.200"))->asn, 64500U);
        EXPECT_EQ(database->find(at("2001:db8:1::1"))->country, "NL");
        EXPECT_EQ(database->find(at("192.0.3.7")), std::nullopt);
        EXPECT_EQ(database->find(at("2001:db9::1")), std::nullopt);
    }
}

TEST(Geo, EveryNetworkIsVisitedOnce) {
    const auto database = GeoDatabase::read(a_database(28));
    ASSERT_TRUE(database.ok());
    std::vector<std::string> seen;
    database->each([&](const dns::Prefix& network, std::uint32_t entry) {
        seen.push_back(prefix_text(network) + " " + database->place(entry).country);
    });
    EXPECT_THAT(seen, ElementsAre("192.0.2.0/25 NL", "192.0.2.128/25 DE", "198.51.100.0/24 US", "2001:db8::/32 NL"));
}

TEST(Geo, ClientsGoWhereTheRulesSayElseToTheNearest) {
    const auto database = GeoDatabase::read(a_database(24));
    ASSERT_TRUE(database.ok());
    auto rule = testing::a_rule({"ams", "nyc"}, Steering::geo);
    rule.geo = {{.country = "DE", .label = "germany", .pools = {"ams"}, .strict = true}};
    rule.nearest = true;
    const std::map<std::string, PoolSpec::Location> pools{{"ams", {52.4, 4.9}}, {"nyc", {40.7, -74.0}}};
    const auto made = geo_classes(rule, pools, *database);
    std::vector<std::string> labels;
    for (const auto& one : made.classes) labels.push_back(one.label);
    EXPECT_THAT(labels, ElementsAre("near ams, nyc", "germany", "near nyc, ams"));
    EXPECT_EQ(made.clients.find(at("192.0.2.7")), 1U);
    EXPECT_EQ(made.clients.find(at("192.0.2.200")), 2U);
    EXPECT_EQ(made.clients.find(at("198.51.100.9")), 3U);
    EXPECT_EQ(made.clients.find(at("203.0.113.9")), 0U);
    rule.classes = made.classes;
    Snapshot snapshot{.rule = rule, .time = testing::noon};
    for (const auto* pool : {"ams", "nyc"}) snapshot.pools.push_back(testing::view(testing::a_pool(pool, 1, 1, 1)));
    const auto decision = decide(snapshot);
    EXPECT_THAT(decision.answers.at(0).pools, ElementsAre("ams"));
    EXPECT_THAT(decision.answers.at(3).pools, ElementsAre("nyc"));
}

TEST(Geo, DistancesAreThoseOfTheGlobe) {
    EXPECT_NEAR(distance({52.37, 4.90}, {40.71, -74.01}), 5860, 15);
    EXPECT_NEAR(distance({0, 179}, {0, -179}), 222, 1);
    EXPECT_EQ(distance({10, 10}, {10, 10}), 0);
}

TEST(Geo, DamagedFilesAreRefusedOrReadInPartAndNeverMore) {
    const auto whole = a_database(28);
    const auto use = [](const std::string& bytes) {
        const auto database = GeoDatabase::read(bytes);
        if (!database.ok()) return;
        std::size_t networks = 0;
        database->each([&](const dns::Prefix&, std::uint32_t entry) {
            ++networks;
            std::ignore = database->place(entry);
        });
        for (const auto* client : {"192.0.2.7", "192.0.2.200", "2001:db8::1"}) std::ignore = database->find(at(client));
        EXPECT_LT(networks, 10'000U);
    };
    for (std::size_t size = 0; size < whole.size(); ++size) use(whole.substr(0, size));
    std::mt19937 random(5);
    for (int round = 0; round < 3000; ++round) {
        auto bytes = whole;
        for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
        use(bytes);
    }
}

} // namespace orrery::gslb
