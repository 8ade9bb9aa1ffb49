#include "api/metrics.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace orrery::api {

void Metrics::request(std::string_view method, std::string_view route, int status, Duration took) {
    const auto key = std::pair{std::string(method), std::string(route)};
    ++requests_[key][status];
    auto& histogram = times_[key];
    const double seconds = std::chrono::duration<double>(took).count();
    std::size_t bucket = 0;
    while (bucket < bounds.size() && seconds > bounds[bucket]) ++bucket;
    ++histogram.buckets[bucket];
    histogram.sum += seconds;
}

std::string Metrics::text(const std::vector<std::pair<std::string, double>>& gauges, std::string_view version) const {
    std::string out = "# HELP orrery_build_info Version of this server.\n# TYPE orrery_build_info gauge\n";
    out += fmt::format("orrery_build_info{{version=\"{}\"}} 1\n", version);
    out += "# HELP orrery_http_requests_total HTTP requests answered.\n# TYPE orrery_http_requests_total counter\n";
    for (const auto& [key, statuses] : requests_)
        for (const auto& [status, count] : statuses)
            out += fmt::format("orrery_http_requests_total{{method=\"{}\",route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second,
                               status, count);
    out += "# HELP orrery_http_request_seconds Time from the head of a request to the last byte of its response.\n# TYPE "
           "orrery_http_request_seconds histogram\n";
    for (const auto& [key, histogram] : times_) {
        std::uint64_t total = 0;
        for (std::size_t i = 0; i <= bounds.size(); ++i) {
            total += histogram.buckets[i];
            const auto bound = i < bounds.size() ? fmt::format("{}", bounds[i]) : "+Inf";
            out += fmt::format("orrery_http_request_seconds_bucket{{method=\"{}\",route=\"{}\",le=\"{}\"}} {}\n", key.first,
                               key.second, bound, total);
        }
        out +=
            fmt::format("orrery_http_request_seconds_sum{{method=\"{}\",route=\"{}\"}} {}\n", key.first, key.second, histogram.sum);
        out += fmt::format("orrery_http_request_seconds_count{{method=\"{}\",route=\"{}\"}} {}\n", key.first, key.second, total);
    }
    // The text format requires all series of a metric together, below one HELP and TYPE.
    std::map<std::string_view, std::vector<const std::pair<std::string, double>*>> by_metric;
    for (const auto& gauge : gauges) by_metric[std::string_view(gauge.first).substr(0, gauge.first.find('{'))].push_back(&gauge);
    for (const auto& [metric, series] : by_metric) {
        out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", metric, metric_help(metric),
                           metric.ends_with("_total") ? "counter" : "gauge");
        for (const auto* one : series) {
            const auto& [name, value] = *one;
            out += value == static_cast<double>(static_cast<std::int64_t>(value))
                       ? fmt::format("{} {}\n", name, static_cast<std::int64_t>(value))
                       : fmt::format("{} {}\n", name, value);
        }
    }
    return out;
}

std::vector<std::pair<std::string, double>> process_gauges() {
    static const double started = std::chrono::duration<double>(real_clock().wall().time_since_epoch()).count();
    std::vector<std::pair<std::string, double>> out;
    std::ifstream statm("/proc/self/statm");
    double pages = 0, resident = 0;
    if (statm >> pages >> resident)
        out.emplace_back("process_resident_memory_bytes", resident * static_cast<double>(::sysconf(_SC_PAGESIZE)));
    rusage usage{};
    if (::getrusage(RUSAGE_SELF, &usage) == 0) {
        const auto seconds = [](const timeval& time) {
            return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
        };
        out.emplace_back("process_cpu_seconds_total", seconds(usage.ru_utime) + seconds(usage.ru_stime));
    }
    std::error_code error;
    double files = 0;
    for (auto at = std::filesystem::directory_iterator("/proc/self/fd", error);
         !error && at != std::filesystem::directory_iterator(); at.increment(error))
        ++files;
    out.emplace_back("process_open_fds", files);
    out.emplace_back("process_start_time_seconds", started);
    return out;
}

} // namespace orrery::api
