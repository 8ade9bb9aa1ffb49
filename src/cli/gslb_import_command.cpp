#include "cli/commands.h"
#include "cli/gslb_import.h"
#include "cli/render.h"
#include "cli/session.h"
#include "core/text.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <ostream>
#include <utility>

namespace orrery::cli {

namespace {

constexpr std::size_t largest_import = 64U << 20U;

Result<json::value> json_file(const Streams& streams, const std::string& path) {
    TRY(const auto text, read_file(streams, path, largest_import));
    boost::system::error_code failed;
    auto out = json::parse(text, failed);
    if (failed) return Error{Code::invalid, fmt::format("{} is no JSON: {}", path, failed.message())};
    return out;
}

Result<Imported> import_files(Invocation& invocation) {
    const auto format = invocation.text("FORMAT");
    const auto files = invocation.all("FILE");
    if (format == "route53") {
        TRY(const auto sets, json_file(invocation.streams, files.front()));
        json::value checks;
        if (files.size() > 1) {
            TRY(checks, json_file(invocation.streams, files[1]));
        }
        if (files.size() > 2) return Error{Code::invalid, "Route 53 takes two files", "record sets first, health checks second"};
        return import_route53(sets, checks);
    }
    TRY(const auto first, read_file(invocation.streams, files.front(), largest_import));
    if (format == "powerdns") {
        if (files.size() > 1) return Error{Code::invalid, "one zone file at a time", "call it once for each"};
        auto origin = invocation.text("origin");
        if (origin.empty()) origin = std::filesystem::path(files.front()).filename().string();
        return import_powerdns(first, origin);
    }
    std::map<std::string, std::string> zones;
    for (std::size_t at = 1; at < files.size(); ++at) {
        TRY(auto text, read_file(invocation.streams, files[at], largest_import));
        zones.emplace(std::filesystem::path(files[at]).filename().string(), std::move(text));
    }
    return import_gdnsd(first, zones);
}

} // namespace

Result<int> run_gslb_import(Invocation& invocation) {
    TRY(const auto imported, import_files(invocation));
    bool first = true;
    for (const auto& document : imported.documents) {
        if (!std::exchange(first, false)) invocation.streams.out << "---\n";
        invocation.streams.out << to_yaml(document);
    }
    for (const auto& words : imported.left_out) invocation.streams.err << fmt::format("not carried over: {}\n", printable(words));
    invocation.streams.err << fmt::format("{} resources, {} remarks\n", imported.documents.size(), imported.left_out.size());
    return exit_code::ok;
}

} // namespace orrery::cli
