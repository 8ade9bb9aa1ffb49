// DNS messages: a message that is read keeps its invariants, and every response can be read.
#include "api/facades/consul/dns_answers.h"
#include "dns/message.h"
#include "store/memory_store.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace {

using namespace orrery;

void demand(bool holds) {
    if (!holds) std::abort();
}

/// A catalog with a few names, made once.
struct World {
    boost::asio::io_context loop;
    store::MemoryStore store{loop.get_executor()};
    std::unique_ptr<catalog::Catalog> catalog;
    std::shared_ptr<api::consul::DnsAnswers> answers =
        std::make_shared<api::consul::DnsAnswers>(api::consul::DnsAnswers::Options{.name_server = "n1"});

    World() {
        store::Transaction transaction;
        for (int i = 1; i <= 40; ++i) {
            const auto node = "n" + std::to_string(i);
            transaction.put(
                "nodes/" + node,
                R"({"kind":"Node","name":")" + node + R"(","labels":{},"spec":{"address":")" +
                    (i % 3 == 0   ? "2001:db8::" + std::to_string(i)
                     : i % 7 == 0 ? std::string("host.example.org")
                                  : "10.0.0." + std::to_string(i)) +
                    R"("},"status":{},"created_at":"2026-11-16T00:00:00.000Z","updated_at":"2026-11-16T00:00:00.000Z"})");
            transaction.put(
                "instances/web-" + node,
                R"({"kind":"Instance","name":"web-)" + node + R"(","labels":{},"spec":{"service":"web","node":")" + node +
                    R"(","port":80,"tags":["v1","a.b"]},"status":{},"created_at":"2026-11-16T00:00:00.000Z","updated_at":"2026-11-16T00:00:00.000Z"})");
        }
        boost::asio::co_spawn(loop, store.apply(Context::background(), std::move(transaction)), boost::asio::detached);
        loop.run();
        catalog = std::make_unique<catalog::Catalog>(store);
        answers->follow(loop.get_executor(), *catalog, store);
    }
};

void check_answer(World& world, dns::Bytes query, dns::Client::Transport transport) {
    static std::vector<std::uint8_t> out(65535);
    const auto room = transport == dns::Client::Transport::tcp ? out.size() : std::size_t{4096};
    const auto size = world.answers->respond(query, {.transport = transport}, std::span(out).first(room));
    demand(size <= room);
    if (size == 0) return;
    const auto message = dns::read_message(dns::Bytes(out).first(size));
    demand(message.ok() && message->response);
    demand(message->id == (query[0] << 8 | query[1]));
    if (transport == dns::Client::Transport::udp) demand(size <= 1232);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static World world;
    const dns::Bytes bytes(data, size);
    std::ignore = dns::read_message(bytes);
    const auto parsed = dns::read_query(bytes);
    if (parsed.action == dns::ParsedQuery::Action::answer) {
        demand(parsed.query.question_end <= size && parsed.query.name.size() <= dns::Name::max_size);
        const auto again = dns::Name::from_text(parsed.query.name.to_text());
        demand(again.ok() && *again == parsed.query.name);
    }
    check_answer(world, bytes, dns::Client::Transport::udp);
    check_answer(world, bytes, dns::Client::Transport::tcp);
    return 0;
}
