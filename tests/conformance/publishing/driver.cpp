// One path of publication by hand: reads its configuration from a file, then decisions as JSON lines from standard input, and
// writes how each name stands, one JSON line a change. For suites that have a real DNS service at the other end.
//   {"desire": "www.gslb.test.", "a": ["192.0.2.1"], "aaaa": [], "cname": "", "ttl": 30, "nodata": false, "reason": "..."}
//   {"withdraw": "www.gslb.test."}   {"repair": "www.gslb.test."}   {"counts": true}
#include "core/log.h"
#include "core/text.h"
#include "drivers/dns/name_servers.h"
#include "drivers/powerdns/powerdns.h"
#include "drivers/rest/rest.h"
#include "drivers/rfc2136/rfc2136.h"
#include "gslb/publication.h"
#include "net/http_client.h"
#include "publishers.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <unistd.h>

namespace orrery::conformance {

using namespace drivers;
using gslb::RecordType;

std::vector<std::string> texts(const json::value* of, std::string_view key) {
    std::vector<std::string> out;
    for (const auto& item : list_at(of, key))
        if (item.is_string()) out.emplace_back(item.get_string());
    return out;
}

void say(const json::object& line) { std::cout << to_json_text(line) << std::endl; }

void show(const gslb::PublishStatus& status) {
    json::array servers;
    for (const auto& server : status.servers)
        servers.push_back(json::object{{"server", server.server}, {"agrees", server.agrees}, {"text", server.text}});
    json::object line{{"name", status.name},
                      {"state", name_of(status.state)},
                      {"why", status.why},
                      {"desired", gslb::text_of(status.desired)},
                      {"observed", gslb::text_of(status.observed)},
                      {"last_error", status.last_error},
                      {"withheld", status.withheld},
                      {"gone", status.gone},
                      {"servers", std::move(servers)}};
    if (status.time_to_publish) line["seconds"] = std::chrono::duration<double>(*status.time_to_publish).count();
    say(line);
}

Duration seconds(const json::value* of, std::string_view key, Duration otherwise) {
    const auto text = text_at(of, key);
    return text.empty() ? otherwise : std::move(parse_duration(text)).value_or(otherwise);
}

void follow(gslb::Publication& path, const json::value& line) {
    if (const auto name = text_at(&line, "desire"); !name.empty()) {
        gslb::Desired desired;
        const auto ttl = static_cast<std::uint32_t>(number_at(&line, "ttl", 30));
        const auto add = [&](RecordType type, std::vector<std::string> values) {
            if (values.empty()) return;
            if (auto set = gslb::record_set(type, ttl, std::move(values)); set.ok())
                desired.sets.push_back(std::move(*set));
            else
                std::cerr << set.error().text() << "\n";
        };
        add(RecordType::a, texts(&line, "a"));
        add(RecordType::aaaa, texts(&line, "aaaa"));
        if (const auto alias = text_at(&line, "cname"); !alias.empty()) add(RecordType::cname, {alias});
        desired.empty_is_meant = flag_at(&line, "nodata", false);
        desired.reason = text_at(&line, "reason");
        path.desire(name, std::move(desired));
    }
    if (const auto name = text_at(&line, "withdraw"); !name.empty()) path.withdraw(name);
    if (const auto name = text_at(&line, "repair"); !name.empty()) path.repair(name);
    if (at(&line, "counts") != nullptr) {
        const auto counts = path.counts();
        json::object out{{"reads", counts.reads},       {"publishes", counts.publishes}, {"changes", counts.changes},
                         {"failures", counts.failures}, {"questions", counts.questions}, {"names", counts.names},
                         {"waiting", counts.waiting}};
        say(json::object{{"counts", std::move(out)}});
    }
}

asio::awaitable<void> run(asio::io_context& loop, json::value settings, int& status) {
    const auto executor = loop.get_executor();
    net::HttpClient client(executor, {});
    auto publisher = make_publisher(client, settings);
    if (!publisher.ok()) {
        std::cerr << publisher.error().text() << "\n";
        status = 2;
        co_return;
    }
    auto servers = name_servers();
    gslb::Publication::Options options;
    options.zone = text_at(&settings, "zone");
    options.ownerships = {text_at(&settings, "owner"), flag_at(&settings, "repair", false), flag_at(&settings, "adopt", false)};
    options.servers = texts(&settings, "servers");
    options.look_every = seconds(&settings, "look_every", options.look_every);
    options.call_timeout = seconds(&settings, "call_timeout", options.call_timeout);
    options.settle_within = seconds(&settings, "settle_within", options.settle_within);
    options.longest_backoff = seconds(&settings, "longest_backoff", options.longest_backoff);
    TaskGroup group(executor);
    {
        gslb::Publication path(real_clock(), **publisher, servers.get(), options, show);
        group.spawn(path.run(Context::make("conformance")));
        asio::posix::stream_descriptor input(executor, ::dup(0));
        asio::streambuf buffer;
        say(json::object{{"ready", (*publisher)->description()}});
        for (;;) {
            const auto [error, size] = co_await asio::async_read_until(input, buffer, '\n', asio::as_tuple(asio::use_awaitable));
            if (error) break;
            std::istream stream(&buffer);
            std::string line;
            std::getline(stream, line);
            if (const auto value = parse_json(line); value.ok())
                follow(path, *value);
            else
                std::cerr << value.error().text() << "\n";
        }
        co_await group.stop();
    }
    co_await client.stop();
}

} // namespace orrery::conformance

int main(int argc, char** argv) {
    using namespace orrery;
    if (argc != 2) {
        std::cerr << "usage: publish_driver SETTINGS.json\n";
        return 2;
    }
    std::stringstream text;
    text << std::ifstream(argv[1]).rdbuf();
    const auto settings = parse_json(text.str());
    if (!settings.ok()) {
        std::cerr << settings.error().text() << "\n";
        return 2;
    }
    asio::io_context loop(1);
    int status = 0;
    asio::co_spawn(loop, conformance::run(loop, *settings, status), asio::detached);
    loop.run();
    return status;
}
