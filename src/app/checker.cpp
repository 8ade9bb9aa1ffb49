#include "app/checker.h"

#include "cli/cli.h"
#include "core/log.h"
#include "core/url_text.h"
#include "health/vantages/remote_checker.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>

#include <csignal>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sys/resource.h>
#include <unistd.h>

namespace orrery::app {

namespace {

constexpr const char* checker_help =
    R"(Usage: orrery checker --join URL --token-file FILE [--name NAME] [--ca FILE] [--allow-plaintext] [--canary HOST:PORT]...
                      [--program NAME=PATH]... [--plugins FOLDER]... [--programs-user USER] [--outbound-allow RANGE]...
                      [--outbound-deny RANGE]...

Probes the targets of a server from this host and reports the results, until SIGTERM or SIGINT. It needs the URL of the server and
a token with the role operator. It stores nothing and listens on no port.

  --join URL          URL of the server: https://orrery.example:8421
  --token-file FILE   file with the token (orrery token create); or the variable ORRERY_TOKEN
  --name NAME         name of this vantage (default: the host name)
  --ca FILE           CA of the certificates of the server and of the targets (default: the CAs of the system)
  --allow-plaintext   allow http:// to hosts other than loopback: the token can be read on the network
  --canary HOST:PORT  address that is reachable while the network of this host works, such as its gateway; while most canaries fail,
                      this vantage does not count towards quorum
  --program NAME=PATH program for checks of kind plugin and exec with this name (default: none)
  --plugins FOLDER    folder of programs for such checks
  --programs-user USER
                      account of these programs (default: nobody); with the account of the checker itself, such a program can read
                      the token
  --outbound-allow RANGE
                      address or network that checks may reach although it is loopback, link-local or a metadata service:
                      127.0.0.0/8, 127.0.0.1:8080, [::1]:8080
  --outbound-deny RANGE
                      address or network that checks may not reach

Examples:
  orrery checker --join https://orrery.example:8421 --token-file checker.token --name frankfurt --canary 192.0.2.1:53
  orrery checker --join http://127.0.0.1:8421 --token-file checker.token --program check_disk=/opt/site/check_disk
)";

struct CheckerFlags {
    std::string join, token_file, name, ca, programs_user = "nobody";
    std::vector<std::string> canaries, plugins, programs, outbound_allow, outbound_deny;
    bool allow_plaintext = false;
};

Result<CheckerFlags> read_checker_flags(const std::vector<std::string>& flags) {
    CheckerFlags out;
    const std::map<std::string, std::string*> single{{"--join", &out.join},
                                                     {"--token-file", &out.token_file},
                                                     {"--name", &out.name},
                                                     {"--ca", &out.ca},
                                                     {"--programs-user", &out.programs_user}};
    const std::map<std::string, std::vector<std::string>*> many{{"--canary", &out.canaries},
                                                                {"--plugins", &out.plugins},
                                                                {"--program", &out.programs},
                                                                {"--outbound-allow", &out.outbound_allow},
                                                                {"--outbound-deny", &out.outbound_deny}};
    for (std::size_t i = 0; i < flags.size(); ++i) {
        auto name = flags[i];
        if (name == "--allow-plaintext") {
            out.allow_plaintext = true;
            continue;
        }
        std::optional<std::string> value;
        if (const auto equals = name.find('='); equals != std::string::npos) {
            value = name.substr(equals + 1);
            name.resize(equals);
        }
        const auto one = single.find(name);
        const auto more = many.find(name);
        if (one == single.end() && more == many.end())
            return Error{Code::invalid, fmt::format("unknown option {}", name), "see orrery checker --help"};
        if (!value) {
            if (i + 1 == flags.size())
                return Error{Code::invalid, fmt::format("{} needs a value", name), "see orrery checker --help"};
            value = flags[++i];
        }
        if (one != single.end())
            *one->second = *value;
        else
            more->second->push_back(*value);
    }
    if (out.join.empty()) return Error{Code::invalid, "--join is required", "for example --join https://orrery.example:8421"};
    if (out.name.empty()) {
        char host[256] = {};
        if (::gethostname(host, sizeof host - 1) == 0) out.name = host;
    }
    return out;
}

Result<std::string> read_token(const std::string& file) {
    if (file.empty()) {
        const char* given = std::getenv("ORRERY_TOKEN");
        return std::string(given == nullptr ? "" : given);
    }
    std::ifstream in(file);
    std::string token;
    if (!(in >> token))
        return Error{Code::invalid, fmt::format("{} contains no token", file), "name a file that this user may read"};
    return token;
}

Result<health::RemoteChecker::Options> options_of(const CheckerFlags& flags) {
    health::RemoteChecker::Options out;
    TRY(out.server, net::parse_url(flags.join));
    if (out.server.scheme == "http" && !flags.allow_plaintext && !is_loopback_host(out.server.host))
        return Error{
            Code::invalid,
            fmt::format("--join {} is beyond loopback and has no TLS: the token could be read on the network", out.server.origin()),
            "use https://, with --ca for an own CA, or allow it with --allow-plaintext"};
    TRY(out.token, read_token(flags.token_file));
    TRY(out.tls, net::tls_client({.ca = flags.ca}));
    out.deps.tls = out.tls;
    out.deps.plugin_folders = flags.plugins;
    TRY(out.deps.outbound,
        net::OutboundRules::make({.allow = flags.outbound_allow, .deny = flags.outbound_deny, .setting = "--outbound-allow"}));
    for (const auto& text : flags.programs) {
        const auto equals = text.find('=');
        if (equals == std::string::npos || equals == 0 || text.substr(0, equals).find('/') != std::string::npos ||
            text.size() < equals + 2 || text[equals + 1] != '/')
            return Error{Code::invalid, fmt::format("--program \"{}\" must be NAME=PATH, with an absolute path", text),
                         "for example --program check_disk=/usr/lib/nagios/plugins/check_disk"};
        out.deps.program_paths[text.substr(0, equals)] = text.substr(equals + 1);
    }
    out.name = flags.name;
    for (const auto& text : flags.canaries) {
        TRY(auto canary, read_canary(text));
        out.canaries.push_back(std::move(canary));
    }
    return out;
}

asio::awaitable<void> run_until_stopped(asio::io_context& loop, health::RemoteChecker& checker, Result<Unit>& ended) {
    ended = co_await checker.run(Context::make("checker"));
    loop.stop();
}

} // namespace

Result<health::CheckSpec> read_canary(const std::string& text) {
    const Error bad{Code::invalid, fmt::format("the canary \"{}\" must be HOST:PORT", text)};
    const auto colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0) return bad;
    auto host = text.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    const auto port = std::strtoul(text.c_str() + colon + 1, nullptr, 10);
    if (host.empty() || port == 0 || port > 65535) return bad;
    return health::CheckSpec{.probe = json::object{{"kind", "tcp"}},
                             .address = host,
                             .port = static_cast<std::uint16_t>(port),
                             .interval = std::chrono::seconds(2),
                             .timeout = std::chrono::seconds(2),
                             .thresholds = {}};
}

int run_checker(std::vector<std::string> arguments) {
    for (const auto& flag : arguments)
        if (flag == "--help" || flag == "-h") {
            std::cout << checker_help;
            return 0;
        }
    const auto refuse = [](const Error& error) {
        cli::print_error(std::cerr, error, ::isatty(2) != 0);
        return cli::exit_code_of(error);
    };
    const auto flags = read_checker_flags(arguments);
    if (!flags.ok()) return refuse(flags.error());
    auto options = options_of(*flags);
    if (!options.ok()) return refuse(options.error());
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) { // each connection needs a file descriptor
        files.rlim_cur = files.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &files);
    }
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN); // there is nothing to reload, and the default action would end the process
    asio::io_context loop(1);
    const bool runs_programs = !flags->plugins.empty() || !flags->programs.empty();
    auto account = runs_programs ? net::account_named(flags->programs_user) : std::optional<net::ProcessUser>{};
    if (!account.ok()) {
        auto error = std::move(account).error();
        error.remedy = fmt::format("start the checker as root, or name its own account with --programs-user");
        return refuse(error);
    }
    health::Programs programs(loop.get_executor(), 16, *account);
    if (runs_programs) options->deps.programs = &programs;
    const auto server = options->server.origin();
    health::RemoteChecker checker(loop.get_executor(), real_clock(), std::move(*options));
    asio::signal_set signals(loop, SIGTERM, SIGINT);
    asio::cancellation_signal stop;
    Result<Unit> ended = Unit{};
    signals.async_wait([&stop](const boost::system::error_code& error, int) {
        if (!error) stop.emit(asio::cancellation_type::all);
    });
    log::info(Context::background(), "checker started: vantage={} server={}", flags->name, server);
    asio::co_spawn(loop, run_until_stopped(loop, checker, ended),
                   asio::bind_cancellation_slot(stop.slot(), [](std::exception_ptr failure) {
                       if (failure) std::rethrow_exception(failure);
                   }));
    loop.run();
    if (!ended.ok() && ended.error().code != Code::cancelled) return refuse(ended.error());
    return 0;
}

} // namespace orrery::app
