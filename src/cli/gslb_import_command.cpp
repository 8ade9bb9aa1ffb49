#include "cli/commands.h"
#include "cli/render.h"
#include "cli/session.h"
#include "core/text.h"
#include "importers/import.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <ostream>
#include <utility>

namespace orrery::cli {

namespace {

constexpr std::size_t max_import_bytes = 64U << 20U;

Result<json::value> json_file(const Streams& streams, const std::string& path) {
    TRY(const auto text, read_file(streams, path, max_import_bytes));
    boost::system::error_code failed;
    auto out = json::parse(text, failed);
    if (failed) return Error{Code::invalid, fmt::format("{} is not valid JSON: {}", path, failed.message())};
    return out;
}

Result<importers::ImportResult> import_files(Invocation& invocation) {
    const auto format = invocation.text("FORMAT");
    const auto files = invocation.all("FILE");
    if (format == "route53") {
        TRY(const auto sets, json_file(invocation.streams, files.front()));
        json::value checks;
        if (files.size() > 1) {
            TRY(checks, json_file(invocation.streams, files[1]));
        }
        if (files.size() > 2)
            return Error{Code::invalid, "route53 takes at most two files", "give the record sets first, then the health checks"};
        return importers::import_route53(sets, checks);
    }
    TRY(const auto first, read_file(invocation.streams, files.front(), max_import_bytes));
    if (format == "powerdns") {
        if (files.size() > 1) return Error{Code::invalid, "powerdns takes one zone file", "run the command once for each zone"};
        auto origin = invocation.text("origin");
        if (origin.empty() && files.front() == "-")
            return Error{Code::invalid, "the zone of standard input is unknown", "give --origin ZONE"};
        if (origin.empty()) origin = std::filesystem::path(files.front()).filename().string();
        return importers::import_powerdns(first, origin);
    }
    std::map<std::string, std::string> zones;
    for (std::size_t at = 1; at < files.size(); ++at) {
        TRY(auto text, read_file(invocation.streams, files[at], max_import_bytes));
        zones.emplace(std::filesystem::path(files[at]).filename().string(), std::move(text));
    }
    return importers::import_gdnsd(first, zones);
}

} // namespace

Result<int> run_gslb_import(Invocation& invocation) {
    TRY(const auto imported, import_files(invocation));
    bool first = true;
    for (const auto& document : imported.documents) {
        if (!std::exchange(first, false)) invocation.streams.out << "---\n";
        invocation.streams.out << to_yaml(document);
    }
    for (const auto& warning : imported.warnings) invocation.streams.err << fmt::format("warning: {}\n", printable(warning));
    if (!invocation.quiet())
        invocation.streams.err << fmt::format("{} resource{}, {} warning{}\n", imported.documents.size(),
                                              imported.documents.size() == 1 ? "" : "s", imported.warnings.size(),
                                              imported.warnings.size() == 1 ? "" : "s");
    return exit_code::ok;
}

} // namespace orrery::cli
