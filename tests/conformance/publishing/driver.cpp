// One zone publisher without the engine: reads its configuration from a file and decisions as JSON lines from standard input, and
// prints the publication status of each name, one JSON line for each change. For suites with a real DNS service.
//   {"desire": "www.gslb.test.", "a": ["192.0.2.1"], "aaaa": [], "cname": "", "ttl": 30, "nodata": false, "reason": "..."}
//   {"withdraw": "www.gslb.test."}   {"repair": "www.gslb.test."}   {"counts": true}
#include "core/log.h"
#include "core/text.h"
#include "drivers/dns/name_servers.h"
#include "drivers/powerdns/powerdns.h"
#include "drivers/rest/rest.h"
#include "drivers/rfc2136/rfc2136.h"
#include "gslb/publish/zone_publisher.h"
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

std::vector<std::string> texts(const json::value* of, std::string_view key) { return texts_at(as_object(*of), key); }

void print_line(const json::object& line) { std::cout << to_json_text(line) << std::endl; }

void show(const gslb::PublishStatus& status) {
    json::array servers;
    for (const auto& server : status.servers)
        servers.push_back(json::object{{"server", server.server}, {"agrees", server.agrees}, {"text", server.text}});
    json::object line{{"name", status.name},
                      {"state", name_of(status.state)},
                      {"message", status.message},
                      {"desired", gslb::text_of(status.desired)},
                      {"observed", gslb::text_of(status.observed)},
                      {"last_error", status.last_error},
                      {"withheld", status.withheld},
                      {"gone", status.removed},
                      {"servers", std::move(servers)}};
    if (status.time_to_publish) line["seconds"] = std::chrono::duration<double>(*status.time_to_publish).count();
    print_line(line);
}

Duration seconds(const json::value* of, std::string_view key, Duration default_value) {
    return duration_at(as_object(*of), key, default_value);
}

void follow(gslb::ZonePublisher& path, const json::value& line) {
    if (const auto name = text_at(as_object(line), "desire"); !name.empty()) {
        gslb::Desired desired;
        const auto ttl = static_cast<std::uint32_t>(integer_at(as_object(line), "ttl", 30));
        const auto add = [&](RecordType type, std::vector<std::string> values) {
            if (values.empty()) return;
            if (auto set = gslb::record_set(type, ttl, std::move(values)); set.ok())
                desired.sets.push_back(std::move(*set));
            else
                std::cerr << set.error().text() << "\n";
        };
        add(RecordType::a, texts(&line, "a"));
        add(RecordType::aaaa, texts(&line, "aaaa"));
        if (const auto alias = text_at(as_object(line), "cname"); !alias.empty()) add(RecordType::cname, {alias});
        desired.empty_is_meant = flag_at(as_object(line), "nodata", false);
        desired.reason = text_at(as_object(line), "reason");
        path.desire(name, std::move(desired));
    }
    if (const auto name = text_at(as_object(line), "withdraw"); !name.empty()) path.withdraw(name);
    if (const auto name = text_at(as_object(line), "repair"); !name.empty()) path.repair(name);
    if (as_object(line).contains("counts")) {
        const auto counts = path.counts();
        json::object out{{"reads", counts.reads},       {"publishes", counts.publishes}, {"changes", counts.changes},
                         {"failures", counts.failures}, {"questions", counts.questions}, {"names", counts.names},
                         {"waiting", counts.waiting}};
        print_line(json::object{{"counts", std::move(out)}});
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
    gslb::ZonePublisher::Options options;
    options.zone = text_at(as_object(settings), "zone");
    options.ownership_policy = {text_at(as_object(settings), "owner"), flag_at(as_object(settings), "repair", false),
                                flag_at(as_object(settings), "adopt", false)};
    options.servers = texts(&settings, "servers");
    options.poll_interval = seconds(&settings, "poll_interval", options.poll_interval);
    options.call_timeout = seconds(&settings, "call_timeout", options.call_timeout);
    options.propagation_timeout = seconds(&settings, "settle_within", options.propagation_timeout);
    options.max_backoff = seconds(&settings, "max_backoff", options.max_backoff);
    TaskGroup group(executor);
    {
        gslb::ZonePublisher path(real_clock(), **publisher, servers.get(), options, show);
        group.spawn(path.run(Context::make("conformance")));
        asio::posix::stream_descriptor input(executor, ::dup(0));
        asio::streambuf buffer;
        print_line(json::object{{"ready", (*publisher)->description()}});
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
