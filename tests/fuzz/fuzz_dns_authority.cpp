// Any packet, over any transport: the response of the authoritative server is well-formed, belongs to the query and respects the
// size limits. Any packet from a secondary is the response to one pending notification, once, or is ignored.
#include "dns/authority.h"
#include "dns/notify.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace orrery;
using namespace orrery::dns;

void demand(bool holds) {
    if (!holds) std::abort();
}

Name named(std::string_view text) { return Name::from_text(text).value_or(Name()); }

AnswerSet answer_set(SelectionPolicy policy, int members, std::size_t most = 0) {
    AnswerSet out{.policy = policy, .max_answers = most};
    for (int i = 0; i < members; ++i) {
        Candidate one{.weight = static_cast<std::uint32_t>(i % 4),
                      .identity = static_cast<std::uint64_t>(i),
                      .domain = static_cast<std::uint32_t>(i % 3)};
        if (i % 3 != 1) one.v4 = std::array<std::uint8_t, 4>{10, 0, 0, static_cast<std::uint8_t>(i)};
        if (i % 3 != 0) one.v6 = std::array<std::uint8_t, 16>{0x20, 1, static_cast<std::uint8_t>(i)};
        out.candidates.push_back(one);
    }
    return out;
}

/// Zones with every kind of record and dynamic name, built once.
struct World {
    Authority authority{{.nsid = "fuzz",
                         .version = "1",
                         .identity = "fuzz",
                         .cookie_secrets = {CookieSecret{1, 2, 3}},
                         .transfer_to = {Prefix{.address = {10, 0, 0, 0}, .length = 8}},
                         .rate_limit = {.per_second = 100'000}}};
    World() {
        std::string text = "$TTL 300\n@ SOA ns h 1 2 3 4 5\n NS ns\n MX 1 m\nns A 192.0.2.1\nw A 192.0.2.2\nc CNAME w\nd CNAME "
                           "dyn\nl CNAME l2\nl2 CNAME l\n*.x TXT a\n"
                           "*.y CNAME c\na.b.c.d A 192.0.2.3\ns NS ns.s\nns.s A 192.0.2.4\ns DS 1 13 2 00\n";
        for (int i = 0; i < 200; ++i) text += "big AAAA 2001:db8::" + std::to_string(i) + "\n";
        Authority::Update update{.revision = 1};
        std::string many; // enough names for prefetching
        for (int i = 0; i < 2000; ++i) many += "n" + std::to_string(i) + " A 192.0.2.5\n";
        for (const auto* origin : {"z", "k.z", "many"}) {
            auto zone = parse_zone(text + (origin == std::string_view("many") ? many : ""), named(origin));
            demand(zone.ok());
            update.zones.push_back(std::move(*zone));
        }
        update.dynamic_names.emplace_back(named("dyn.z"), DynamicName{.answer_sets = {answer_set(SelectionPolicy::weighted, 9)}});
        update.dynamic_names.emplace_back(named("all.z"), DynamicName{.answer_sets = {answer_set(SelectionPolicy::all, 9)}});
        update.dynamic_names.emplace_back(named("many.z"),
                                          DynamicName{.answer_sets = {answer_set(SelectionPolicy::weighted_many, 30)}});
        update.dynamic_names.emplace_back(named("sub.z"), DynamicName{.answer_sets = {answer_set(SelectionPolicy::subset, 30, 4)}});
        update.dynamic_names.emplace_back(named("turn.z"),
                                          DynamicName{.answer_sets = {answer_set(SelectionPolicy::round_robin, 300)}});
        update.dynamic_names.emplace_back(named("*.name.z"),
                                          DynamicName{.answer_sets = {answer_set(SelectionPolicy::sticky_by_name, 30, 2)}});
        AnswerSet alias{.alias = named("w.z")};
        update.dynamic_names.emplace_back(
            named("*.geo.z"),
            DynamicName{
                .answer_sets = {answer_set(SelectionPolicy::sticky, 9, 2), alias, answer_set(SelectionPolicy::all, 0)},
                .client_rules = {{Prefix{.address = {10}, .length = 8}, 1}, {Prefix{.address = {10, 1}, .length = 16}, 2}}});
        auto panic = answer_set(SelectionPolicy::weighted, 9);
        panic.extended_error = std::string(64, 'p');
        update.dynamic_names.emplace_back(named("panic.z"), DynamicName{.answer_sets = {panic}});
        update.dynamic_names.emplace_back(named("panic.k.z"), DynamicName{.answer_sets = {panic}});
        update.dynamic_names.emplace_back(named("sub.k.z"),
                                          DynamicName{.answer_sets = {answer_set(SelectionPolicy::subset, 30, 4)}});
        const auto pem = SigningKey::generate_pem();
        demand(pem.ok());
        const auto key = SigningKey::from_pem(*pem);
        demand(key.ok());
        update.signing_keys.emplace_back(named("k.z"), *key);
        demand(authority.apply(std::move(update)).ok());
    }
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const World world;
    static std::vector<std::uint8_t> out(65535);
    if (size < 2) return 0;
    const bool tcp = (data[0] & 1) != 0;
    Client client{.transport = tcp ? Client::Transport::tcp : Client::Transport::udp, .v6 = (data[0] & 2) != 0};
    client.address[0] = 10;
    client.address[1] = data[1];
    const Bytes query(data + 2, size - 2);
    const auto room = tcp ? out.size() : std::size_t{4096};
    world.authority.prefetch(std::array{query, Bytes(query).first(query.size() / 2)});
    const auto answered = world.authority.respond(query, client, std::span(out).first(room));
    demand(answered <= room && (tcp || answered <= 1232));
    const auto parsed = read_query(query);
    if (answered > 0) {
        const auto message = read_message(Bytes(out).first(answered));
        demand(message.ok() && message->response && !message->recursion_available);
        demand(message->id == (query[0] << 8 | query[1]));
        if (parsed.action == ParsedQuery::Action::answer) {
            demand(message->has_question && message->name == parsed.query.name && message->type == parsed.query.type);
            demand(message->edns_size.has_value() == parsed.query.edns.has_value());
            demand(!parsed.query.edns || answered <= std::max<std::size_t>(parsed.query.edns->size, 512) || tcp);
        }
        demand(!message->truncated || (message->answer.empty() && !tcp));
    }
    NotifySchedule schedule;
    schedule.update_zones({{named("z"), 1}, {named("k.z"), 1}}, {});
    const auto id = static_cast<std::uint16_t>(query.size() < 2 ? 0 : query[0] << 8 | query[1]);
    demand(schedule.due({}, 64, [&] { return id; }).notify.size() == 2);
    if (const auto response = schedule.handle_response(query)) {
        demand(response->zone == named("z") || response->zone == named("k.z"));
        demand(schedule.pending() == 1);
    }
    if (const auto transfer = world.authority.transfer(query, client))
        for (std::size_t part = 0, messages = 0; (part = transfer->next(out)) > 0; ++messages)
            demand(messages < 100 && read_message(Bytes(out).first(part)).ok());
    return 0;
}
