#include "app/checker.h"

#include "cli/cli.h"
#include "core/log.h"
#include "health/joined.h"

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
    R"(Usage: orrery checker --join URL --token-file FILE [--name NAME] [--ca FILE] [--canary HOST:PORT]... [--plugins FOLDER]...

Looks at what a server monitors, from here, and tells it what it finds, until SIGTERM or SIGINT. It needs the URL of the server and
a token of an operator; it stores nothing and listens on no port.

  --join URL          the server: https://orrery.example:8421
  --token-file FILE   holds the token (orrery token create); or the variable ORRERY_TOKEN
  --name NAME         this vantage's name (default: the machine's)
  --ca FILE           the authority of the server's certificate, and of what is looked at (default: the system's)
  --canary HOST:PORT  what can be reached whenever this machine is well, as its gateway; while most of them cannot, its word does not count
  --plugins FOLDER    run programs of this folder where the server asks for it (default: none are run)
)";

struct Wishes {
    std::string join, token_file, name, ca;
    std::vector<std::string> canaries, plugins;
};

Result<Wishes> read_wishes(const std::vector<std::string>& flags) {
    Wishes out;
    const std::map<std::string, std::string*> single{
        {"--join", &out.join}, {"--token-file", &out.token_file}, {"--name", &out.name}, {"--ca", &out.ca}};
    const std::map<std::string, std::vector<std::string>*> many{{"--canary", &out.canaries}, {"--plugins", &out.plugins}};
    for (std::size_t i = 0; i < flags.size(); ++i) {
        auto name = flags[i];
        std::optional<std::string> value;
        if (const auto equals = name.find('='); equals != std::string::npos) {
            value = name.substr(equals + 1);
            name.resize(equals);
        }
        const auto one = single.find(name);
        const auto more = many.find(name);
        if (one == single.end() && more == many.end())
            return Error{Code::invalid, fmt::format("there is no option {}", name), "see orrery checker --help"};
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
    if (out.join.empty()) return Error{Code::invalid, "--join must say which server", "as in --join https://orrery.example:8421"};
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
        return Error{Code::invalid, fmt::format("there is no token in {}", file), "give a file that this user may read"};
    return token;
}

Result<health::JoinedChecker::Options> options_of(const Wishes& wishes) {
    health::JoinedChecker::Options out;
    TRY(out.server, net::parse_url(wishes.join));
    TRY(out.token, read_token(wishes.token_file));
    TRY(out.tls, net::tls_client({.ca = wishes.ca}));
    out.tools.tls = out.tls;
    out.tools.plugin_folders = wishes.plugins;
    out.name = wishes.name;
    for (const auto& text : wishes.canaries) {
        TRY(auto canary, read_canary(text));
        out.canaries.push_back(std::move(canary));
    }
    return out;
}

asio::awaitable<void> look_until_told(asio::io_context& loop, health::JoinedChecker& checker, Result<Unit>& ended) {
    ended = co_await checker.run(Context::make("checker"));
    loop.stop();
}

} // namespace

Result<health::Wanted> read_canary(const std::string& text) {
    const Error bad{Code::invalid, fmt::format("the canary \"{}\" must be HOST:PORT", text)};
    const auto colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0) return bad;
    auto host = text.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    const auto port = std::strtoul(text.c_str() + colon + 1, nullptr, 10);
    if (host.empty() || port == 0 || port > 65535) return bad;
    return health::Wanted{.look = json::object{{"kind", "tcp"}},
                          .address = host,
                          .port = static_cast<std::uint16_t>(port),
                          .interval = std::chrono::seconds(2),
                          .timeout = std::chrono::seconds(2),
                          .thresholds = {}};
}

int run_checker(std::vector<std::string> flags) {
    for (const auto& flag : flags)
        if (flag == "--help" || flag == "-h") {
            std::cout << checker_help;
            return 0;
        }
    const auto refuse = [](const Error& error) {
        cli::print_error(std::cerr, error, ::isatty(2) != 0);
        return cli::exit_code_of(error);
    };
    const auto wishes = read_wishes(flags);
    if (!wishes.ok()) return refuse(wishes.error());
    auto options = options_of(*wishes);
    if (!options.ok()) return refuse(options.error());
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) { // connections are files
        files.rlim_cur = files.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &files);
    }
    std::signal(SIGPIPE, SIG_IGN);
    asio::io_context loop(1);
    health::Programs programs(loop.get_executor());
    if (!wishes->plugins.empty()) options->tools.programs = &programs;
    const auto server = options->server.origin();
    health::JoinedChecker checker(loop.get_executor(), real_clock(), std::move(*options));
    asio::signal_set signals(loop, SIGTERM, SIGINT);
    asio::cancellation_signal stop;
    Result<Unit> ended = Unit{};
    signals.async_wait([&stop](const boost::system::error_code& error, int) {
        if (!error) stop.emit(asio::cancellation_type::all);
    });
    log::info(Context::background(), "vantage {} looks for {}", wishes->name, server);
    asio::co_spawn(loop, look_until_told(loop, checker, ended),
                   asio::bind_cancellation_slot(stop.slot(), [](std::exception_ptr failure) {
                       if (failure) std::rethrow_exception(failure);
                   }));
    loop.run();
    if (!ended.ok() && ended.error().code != Code::cancelled) return refuse(ended.error());
    return 0;
}

} // namespace orrery::app
