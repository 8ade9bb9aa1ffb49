// Serves a zone with the authoritative server alone: dns_serve PORT ORIGIN ZONE_FILE [KEY_FILE]. Clients at 127.0.0.0/9 may
// transfer the zone. It has two dynamic names: dyn, one of two addresses by weight, and geo, with another address for clients
// at 10.1.0.0/16. Reads the commands "ds" (of a signed zone), "queries" (answered so far) and "received" (UDP packets). Exits at
// the end of its input.
#include "dns/authority.h"

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <iterator>

namespace {

using namespace orrery;
using namespace orrery::dns;

[[noreturn]] void fail(const std::string& why) {
    std::cerr << why << '\n';
    std::exit(1);
}

std::string text_of(const char* path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace

int main(int count, char** arguments) {
    if (count < 4) fail("dns_serve PORT ORIGIN ZONE_FILE [KEY_FILE]");
    const auto origin = Name::from_text(arguments[2]);
    if (!origin.ok()) fail(origin.error().text());
    auto zone = parse_zone(text_of(arguments[3]), *origin);
    if (!zone.ok()) fail(zone.error().text());
    const auto authority =
        std::make_shared<Authority>(Authority::Options{.nsid = "lab",
                                                       .cookie_secrets = {CookieSecret{1, 2, 3, 4}},
                                                       .transfer_to = {Prefix{.address = {127, 0, 0, 0}, .length = 9}}});
    Authority::Update update{.revision = 2026};
    update.zones.push_back(std::move(*zone));
    AnswerSet answer_set{.policy = SelectionPolicy::weighted, .ttl = 30};
    for (const std::uint8_t last : {1, 2})
        answer_set.candidates.push_back({.v4 = std::array<std::uint8_t, 4>{198, 51, 100, last}, .weight = last, .identity = last});
    auto name = *origin;
    name.prepend("dyn");
    update.dynamic_names.emplace_back(name, DynamicName{.answer_sets = {answer_set}});
    DynamicName client_rules;
    for (const std::uint8_t last : {1, 2})
        client_rules.answer_sets.push_back(
            {.candidates = {{.v4 = std::array<std::uint8_t, 4>{203, 0, 113, last}, .identity = last}}, .ttl = 30});
    client_rules.client_rules.push_back({Prefix{.address = {10, 1}, .length = 16}, 1});
    name = *origin;
    name.prepend("geo");
    update.dynamic_names.emplace_back(name, std::move(client_rules));
    if (count > 4) {
        auto key = SigningKey::from_pem(text_of(arguments[4]));
        if (!key.ok()) fail(key.error().text());
        update.signing_keys.emplace_back(*origin, *key);
    }
    if (const auto done = authority->apply(std::move(update)); !done.ok()) fail(done.error().text());
    Server server({.port = static_cast<std::uint16_t>(std::atoi(arguments[1]))}, authority);
    if (const auto done = server.start(); !done.ok()) fail(done.error().text());
    std::cout << server.port() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        if (line == "queries") {
            std::cout << authority->statistics().queries << std::endl;
            continue;
        }
        if (line == "received") {
            std::cout << server.counts().udp_queries << std::endl;
            continue;
        }
        const auto ds = authority->ds_of(*origin);
        std::string hex;
        if (ds.ok())
            for (const auto byte : *ds) hex += fmt::format("{:02x}", byte);
        std::cout << hex << std::endl;
    }
    return 0;
}
