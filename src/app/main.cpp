#include "app/checker.h"
#include "app/hardening.h"
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

/// The program: `orrery server` runs the server, `orrery checker` a remote vantage, all other commands are those of the client.
namespace orrery::app {
namespace {

constexpr const char* server_help = R"(Usage: orrery server [--config FILE] [--SETTING VALUE]...

Runs the server until SIGTERM or SIGINT. Settings come from flags, then ORRERY_* variables, then the file
(default: /etc/orrery/orrery.yaml), then defaults; `orrery config show` lists all settings with their origin.

Examples:
  orrery server                                        on loopback, store in /var/lib/orrery
  orrery server --data-folder ./data                   the same, in another folder
  orrery server --server-listen 0.0.0.0:8421 --server-tls-certificate c.pem --server-tls-key k.pem
  orrery server --store-url etcds://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/orrery
  orrery server --run api                              the API only; other servers run the controllers
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
            return cli::finish_output(std::cout, std::cerr, cli::exit_code::ok);
        }
        if (flag == "--run" || flag.starts_with("--run=")) flag.replace(0, 5, "--server-run"); // short form of a frequent flag
    }
    auto config = load_config(flags, process_environment());
    if (!config.ok()) {
        cli::print_error(std::cerr, config.error(), ::isatty(2) != 0);
        return cli::exit_code_of(config.error());
    }
    configure_log(*config);
    return serve(*config, version_text, [flags]() -> Result<Config> {
        TRY(auto fresh, load_config(flags, process_environment()));
        configure_log(fresh);
        return fresh;
    });
}

int run(std::vector<std::string> args) {
    forbid_dumps();
    if (!args.empty() && args.front() == "server") return run_server({args.begin() + 1, args.end()});
    if (!args.empty() && args.front() == "checker") return run_checker({args.begin() + 1, args.end()});
    cli::Application application;
    application.version = version_number;
    application.commit = version_commit;
    application.settings = server_settings();
    application.load_config = &load_config;
    application.offline = {&verify_store_file, &restore_store_file, &reset_admin};
    application.own_commands = {{"server", "Run the server"}, {"checker", "Probe the targets of a server from this host"}};
    auto streams = cli::Streams::standard();
    return cli::run(std::move(args), streams, application);
}

} // namespace
} // namespace orrery::app

int main(int argc, char** argv) { return orrery::app::run({argv + 1, argv + argc}); }
