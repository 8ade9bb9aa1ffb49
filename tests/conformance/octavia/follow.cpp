// Reads the health of load balancers from an Octavia periodically, and prints the outcomes, one JSON line for each reading.
//   octavia_follow SETTINGS.json     {"keystone", "user", "password", "project", "endpoint", "ids": [...], "min_members": 1}
#include "core/text.h"
#include "drivers/octavia/octavia.h"
#include "drivers/rest/rest.h"
#include "net/http_client.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <fstream>
#include <iostream>
#include <sstream>

namespace orrery::conformance {

using namespace drivers;
using namespace std::chrono_literals;

asio::awaitable<void> follow(asio::io_context& loop, json::value settings) {
    net::HttpClient client(loop.get_executor(), {});
    OpenstackLogin login;
    login.url = text_at(as_object(settings), "keystone");
    login.user = text_at(as_object(settings), "user");
    login.password = text_at(as_object(settings), "password");
    login.project = text_at(as_object(settings), "project");
    auto session = OpenstackSession::make(client, real_clock(), "octavia.keystone", std::move(login));
    if (!session.ok()) {
        std::cerr << session.error().text() << "\n";
        co_return;
    }
    auto source =
        octavia_source(std::move(*session), {.endpoint = text_at(as_object(settings), "endpoint"),
                                             .min_members = static_cast<int>(integer_at(as_object(settings), "min_members", 1))});
    std::vector<std::string> ids;
    for (const auto& id : array_at(as_object(settings), "ids")) ids.emplace_back(id.as_string());
    for (;;) {
        auto readings = co_await source->read(Context::background().with_timeout(15s), ids);
        json::object line;
        if (!readings.ok()) {
            line["error"] = readings.error().text();
        } else {
            for (const auto& [id, reading] : *readings) {
                json::object one{{"outcome", health::name_of(reading.outcome)}, {"text", reading.text}, {"drains", reading.drains}};
                if (reading.share) one["share"] = *reading.share;
                line[id] = std::move(one);
            }
        }
        std::cout << to_json_text(line) << std::endl;
        std::ignore = co_await real_clock().sleep(500ms);
    }
}

} // namespace orrery::conformance

int main(int argc, char** argv) {
    using namespace orrery;
    if (argc != 2) {
        std::cerr << "usage: octavia_follow SETTINGS.json\n";
        return 2;
    }
    std::stringstream text;
    text << std::ifstream(argv[1]).rdbuf();
    auto settings = parse_json(text.str());
    if (!settings.ok()) {
        std::cerr << settings.error().text() << "\n";
        return 2;
    }
    asio::io_context loop(1);
    asio::co_spawn(loop, conformance::follow(loop, std::move(*settings)), asio::detached);
    loop.run();
}
