// Probes many loopback addresses for a time and prints the cost:
//   bench_health KIND TARGETS INTERVAL_MS WARM_S SECONDS PORT [CA_FILE] [PATH] [CONTAINS]
// KIND: tcp, http (kept connections), http-fresh, https (a handshake for each probe), https-kept
#include "health/prober.h"
#include "health/probes/http_probe.h"
#include "health/probes/tcp_probe.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sys/resource.h>

namespace {

using namespace orrery;
using namespace std::chrono_literals;

double cpu_seconds() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto in_seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return in_seconds(used.ru_utime) + in_seconds(used.ru_stime);
}

double resident_mb() {
    std::ifstream status("/proc/self/status");
    std::string word;
    while (status >> word)
        if (word == "VmRSS:") {
            double kib = 0;
            status >> kib;
            return kib / 1024;
        }
    return 0;
}

std::string address_of(int i) { return fmt::format("127.{}.{}.{}", 1 + i / 62500, i / 250 % 250, 1 + i % 250); }

struct Seen {
    std::uint64_t probes = 0, good = 0, bad = 0;
    std::string trouble;
};

asio::awaitable<void> measure(asio::io_context& loop, health::Prober& prober, Seen& seen, Duration warm, Duration time) {
    TaskGroup group(loop.get_executor());
    group.spawn(prober.run(Context::make("bench")));
    std::ignore = co_await real_clock().sleep(warm);
    const auto before = seen;
    const auto cpu = cpu_seconds();
    const auto begin = real_clock().steady();
    const auto late = prober.counts().skipped;
    std::ignore = co_await real_clock().sleep(time);
    const auto used = cpu_seconds() - cpu;
    const auto wall = std::chrono::duration<double>(real_clock().steady() - begin).count();
    const auto engine = prober.engine() ? prober.engine()->counts() : health::Engine::Counts{};
    fmt::print("{{\"checks\": {}, \"good\": {}, \"bad\": {}, \"skipped\": {}, \"cpu_s\": {:.4f}, \"wall_s\": {:.3f}, \"rss_mb\": "
               "{:.1f}, \"connections\": {}, "
               "\"handshakes\": {}, \"resumed\": {}, \"reused\": {}, \"trouble\": \"{}\"}}\n",
               seen.probes - before.probes, seen.good - before.good, seen.bad - before.bad, prober.counts().skipped - late, used,
               wall, resident_mb(), engine.connections, engine.handshakes, engine.resumed, engine.reused,
               seen.trouble.substr(0, 80));
    std::fflush(stdout);
    co_await group.stop();
    loop.stop();
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 7) {
        std::cerr << "bench_health KIND TARGETS INTERVAL_MS WARM_S SECONDS PORT [CA_FILE] [PATH] [CONTAINS]\n";
        return 2;
    }
    const std::string kind = argv[1];
    const int targets = std::atoi(argv[2]);
    const auto interval = std::chrono::milliseconds(std::atoi(argv[3]));
    const auto port = static_cast<std::uint16_t>(std::atoi(argv[6]));
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    std::shared_ptr<net::TlsContext> tls;
    if (argc > 7 && *argv[7]) {
        auto made = net::tls_client({.ca = argv[7]});
        if (!made.ok()) {
            std::cerr << made.error().text() << "\n";
            return 1;
        }
        tls = *made;
    }
    const std::string path = argc > 8 ? argv[8] : "/", contains = argc > 9 ? argv[9] : "";
    asio::io_context loop(1);
    Seen seen;
    health::Prober prober(loop.get_executor(), real_clock(), {},
                          [&seen](const std::string&, const health::HealthStateMachine&, const health::Observation& one, bool) {
                              ++seen.probes;
                              if (health::is_good(one.outcome))
                                  ++seen.good;
                              else {
                                  ++seen.bad;
                                  seen.trouble = one.text;
                              }
                          });
    for (int i = 0; i < targets; ++i) {
        const auto address = address_of(i);
        health::ProbePtr probe;
        if (kind == "tcp") {
            probe = health::tcp_probe({.host = address, .port = port});
        } else {
            const bool secure = kind.starts_with("https");
            health::HttpProbeOptions options;
            auto to = path;
            if (const auto at = to.find("TARGET"); at != std::string::npos) to.replace(at, 6, address);
            options.url =
                secure ? fmt::format("https://bench.test:{}{}", port, to) : fmt::format("http://bench.test:{}{}", port, to);
            options.address = argc > 10 ? argv[10] : address;
            options.reuse = kind != "http-fresh" && kind != "https";
            options.contains = contains;
            auto made = health::http_probe(std::move(options), tls);
            if (!made.ok()) {
                std::cerr << made.error().text() << "\n";
                return 1;
            }
            probe = *made;
        }
        prober.set(std::to_string(i),
                   {.probe = std::move(probe), .interval = interval, .timeout = 5s, .remembered = health::HealthState::up});
    }
    asio::co_spawn(loop,
                   measure(loop, prober, seen, std::chrono::seconds(std::atoi(argv[4])), std::chrono::seconds(std::atoi(argv[5]))),
                   [](std::exception_ptr failure) {
                       if (failure) std::rethrow_exception(failure);
                   });
    loop.run();
    return 0;
}
