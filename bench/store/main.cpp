// bench_store sqlite|etcd writes|reads|growth WHERE [name=number]...: one measurement, as a line of JSON.

#include "load.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string_view>
#include <sys/resource.h>

namespace orrery::bench {

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

double now_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string key_of(unsigned number) { return fmt::format("nodes/{:07}", number); }

} // namespace orrery::bench

int main(int argc, char** argv) {
    using namespace orrery::bench;
    if (argc < 4) {
        fmt::print(stderr, "bench_store sqlite|etcd writes|reads|growth WHERE [clients=N] [seconds=N] [value=N] [keys=N] "
                           "[watchers=N] [rewrites=N]\n");
        return 2;
    }
    Load load;
    load.what = argv[2];
    load.where = argv[3];
    std::map<std::string_view, int*> numbers{{"clients", &load.clients},
                                             {"value", &load.value},
                                             {"keys", &load.keys},
                                             {"watchers", &load.watchers},
                                             {"rewrites", &load.rewrites}};
    for (int i = 4; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const auto name = argument.substr(0, argument.find('='));
        const auto* number = name.size() < argument.size() ? argv[i] + name.size() + 1 : "";
        if (name == "seconds")
            load.seconds = std::atof(number);
        else if (numbers.contains(name))
            *numbers[name] = std::atoi(number);
        else {
            fmt::print(stderr, "unknown: {}\n", argument);
            return 2;
        }
    }
    const auto found = std::string_view(argv[1]) == "etcd" ? load_etcd(load) : load_sqlite(load);
    if (!found.problem.empty()) {
        fmt::print(stderr, "{}\n", found.problem);
        return 1;
    }
    const auto calls = static_cast<double>(found.calls);
    fmt::print("{{\"rate\": {:.1f}, \"cpu_us\": {:.4f}, \"calls\": {}, \"seconds\": {:.3f}, \"open_seconds\": {:.3f}, "
               "\"deliveries\": {}, \"deleted_rows\": {}}}\n",
               calls / found.seconds, found.cpu_seconds / calls * 1e6, found.calls, found.seconds, found.open_seconds,
               found.deliveries, found.deleted_rows);
}
