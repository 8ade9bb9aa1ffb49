#include "app/checker.h"
#include "app/offline.h"
#include "app/server.h"
#include "app/settings.h"
#include "app/version.h"
#include "cli/cli.h"
#include "core/log.h"

#include <iostream>
#include <string>
#include <unistd.h>
#include <vector>

/// The one binary: `orrery server` runs the server, `orrery checker` a vantage elsewhere, every other word is a command of the
/// client.
namespace orrery::app {
namespace {

constexpr const char* server_help = R"(Usage: orrery server [--config FILE] [--SETTING VALUE]...

Runs the server until SIGTERM or SIGINT. Settings come from flags, then ORRERY_* variables, then the file
(/etc/orrery/orrery.yaml unless named), then defaults; `orrery config show` lists them all with where each came from.

Examples:
  orrery server                                        on this machine only, store in /var/lib/orrery
  orrery server --data-folder ./data                   the same, in a folder of your own
  orrery server --server-listen 0.0.0.0:8421 --server-tls-certificate c.pem --server-tls-key k.pem
  orrery server --store-url etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/orrery
  orrery server --run api                              answers the API and leaves the controllers to other servers
)";

void configure_log(const Config& config) {
    const bool terminal = ::isatty(2) != 0;
    log::Settings settings;
    settings.level = log::parse_level(config.text("log.level")).value_or(log::Level::info);
    const auto& format = config.text("log.format");
    if (format == "auto")
        settings.format = terminal ? log::Format::human : log::Format::logfmt;
    else
        settings.format = log::parse_format(format).value_or(log::Format::logfmt);
    settings.colour = terminal;
    log::configure(settings);
}

int run_server(std::vector<std::string> flags) {
    for (auto& flag : flags) {
        if (flag == "--help" || flag == "-h") {
            std::cout << server_help;
            return 0;
        }
        if (flag == "--run" || flag.starts_with("--run="))
            flag.replace(0, 5, "--server-run"); // the short form of the one people type
    }
    auto config = load_config(flags, process_environment());
    if (!config.ok()) {
        cli::print_error(std::cerr, config.error(), ::isatty(2) != 0);
        return cli::exit_code_of(config.error());
    }
    configure_log(*config);
    return serve(*config, version_text);
}

int run(std::vector<std::string> args) {
    if (!args.empty() && args.front() == "server") return run_server({args.begin() + 1, args.end()});
    if (!args.empty() && args.front() == "checker") return run_checker({args.begin() + 1, args.end()});
    cli::Application application;
    application.version = version_number;
    application.commit = version_commit;
    application.settings = server_settings();
    application.load_config = &load_config;
    application.offline = {&verify_store_file, &restore_store_file};
    application.own_commands = {{"server", "Run the server"}, {"checker", "Look from here at what a server monitors"}};
    auto streams = cli::Streams::standard();
    return cli::run(std::move(args), streams, application);
}

} // namespace
} // namespace orrery::app

int main(int argc, char** argv) { return orrery::app::run({argv + 1, argv + argc}); }
