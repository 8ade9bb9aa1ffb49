// The executors without the engine, for labs and benches: reads requests from standard input and prints events on standard output,
// one JSON object a line. `executor_driver CONFIG.json`
//
//   {"seq":1,"op":"start","executor":"ssh","id":"a1","nodes":["h1"],"body":{...},"values":{},"secrets":{},"environment":{},"timeout":60}
//   op: start, reattach (with "kept":[out,err]), cancel, clean, plan
//   answers: {"seq":1,"event":"output"|"step"|"done",...}; after the end of the input, when all is done:
//   {"event":"end","cpu":seconds}
#include "core/log.h"
#include "core/text.h"
#include "drivers/ansible/ansible.h"
#include "drivers/http/http.h"
#include "drivers/local/local.h"
#include "drivers/puppet/puppet.h"
#include "drivers/ssh/ssh.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <fstream>
#include <iostream>
#include <iterator>
#include <sys/resource.h>
#include <unistd.h>

namespace {

using namespace orrery;
using namespace orrery::drivers;
namespace json = boost::json;

std::string text_in(const json::object& from, std::string_view key) {
    const auto* value = from.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}

std::string contents(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

void say(json::object what) {
    auto line = to_json_text(what) + "\n";
    for (std::string_view rest(line); !rest.empty();) {
        const auto written = ::write(1, rest.data(), rest.size());
        if (written <= 0) std::_Exit(1);
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
}

/// Keys and addresses from the driver's configuration.
class ConfiguredLogins final : public Logins {
public:
    std::map<std::string, json::object> nodes;
    std::string key;
    Result<net::SshTarget> login(const resource::Node& node) override {
        const auto found = nodes.find(node.name);
        if (found == nodes.end()) return Error{Code::not_found, "there is no node " + node.name};
        const auto& at = found->second;
        net::SshTarget target;
        target.host = text_in(at, "address");
        target.private_key = key;
        target.host_key = text_in(at, "host_key");
        if (const auto user = text_in(at, "user"); !user.empty()) target.user = user;
        if (const auto jump = text_in(at, "jump"); !jump.empty()) {
            resource::Node through;
            through.name = jump;
            TRY(auto way, login(through));
            target.jump = std::make_shared<const net::SshTarget>(std::move(way));
        }
        return target;
    }
};

class SaidOutput final : public jobs::Output {
public:
    SaidOutput(std::int64_t seq, bool quiet) : seq_(seq), quiet_(quiet) {}
    void write(jobs::Stream stream, std::uint64_t offset, std::string_view bytes) override {
        if (quiet_) return;
        say({{"seq", seq_},
             {"event", "output"},
             {"stream", stream == jobs::Stream::out ? "out" : "err"},
             {"offset", offset},
             {"text", bytes}});
    }
    void step(jobs::Step step) override {
        if (quiet_) return;
        say({{"seq", seq_},
             {"event", "step"},
             {"host", step.host},
             {"name", step.name},
             {"key", step.key},
             {"result", jobs::name_of(step.result)},
             {"message", step.message}});
    }

private:
    std::int64_t seq_;
    bool quiet_;
};

json::object shown(const jobs::Outcome& outcome) {
    return {{"ended", jobs::name_of(outcome.ended)},
            {"error", jobs::name_of(outcome.error)},
            {"exit_code", outcome.exit_code},
            {"change", jobs::name_of(outcome.change)},
            {"message", outcome.message},
            {"values", outcome.values}};
}

struct Driver {
    explicit Driver(asio::io_context& loop)
        : ssh(loop.get_executor()), client(loop.get_executor(), {}), tasks(loop.get_executor()) {}

    void configure(const json::object& config) {
        logins.key = contents(text_in(config, "key"));
        for (const auto& [name, node] : config.at("nodes").as_object()) logins.nodes[std::string(name)] = node.as_object();
        quiet = config.if_contains("quiet") != nullptr;
        const std::filesystem::path content = text_in(config, "content"), runs = text_in(config, "runs");
        local_runner = std::make_unique<LocalRunner>(runs);
        local = std::make_unique<RemoteAttempts>(*local_runner);
        const auto add = [this](std::unique_ptr<jobs::Executor> executor) {
            executors[std::string(executor->name())] = std::move(executor);
        };
        add(ssh_executor(remote, pool, {.content = content}));
        add(puppet_executor(remote, pool, {.content = content}));
        add(ansible_executor(*local, logins, ssh, pool, {.content = content, .runs = runs}));
        std::map<std::string, std::string> programs;
        if (const auto* given = config.if_contains("programs"))
            for (const auto& [name, path] : given->as_object())
                programs[std::string(name)] = std::string(std::string_view(path.as_string()));
        add(local_executor(*local, {.programs = programs}));
        add(http_executor(tasks_executor(), client));
    }
    asio::any_io_executor tasks_executor() { return home; }

    asio::awaitable<void> serve(json::object request) {
        const auto seq = request.at("seq").to_number<std::int64_t>();
        const auto op = text_in(request, "op");
        jobs::Attempt attempt;
        attempt.job = "lab";
        attempt.task = "task";
        attempt.id = text_in(request, "id");
        if (const auto* body = request.if_contains("body")) attempt.body = *body;
        if (const auto* values = request.if_contains("values")) attempt.values = values->as_object();
        attempt.environment = {{"ORRERY_JOB", "lab"}, {"ORRERY_ATTEMPT", attempt.id}};
        if (const auto* environment = request.if_contains("environment"))
            for (const auto& [name, value] : environment->as_object())
                attempt.environment[std::string(name)] = std::string(std::string_view(value.as_string()));
        if (const auto* secrets = request.if_contains("secrets"))
            for (const auto& [name, value] : secrets->as_object())
                attempt.secrets[std::string(name)] = std::string(std::string_view(value.as_string()));
        attempt.timeout =
            std::chrono::seconds(request.if_contains("timeout") != nullptr ? request.at("timeout").to_number<std::int64_t>() : 60);
        if (const auto* nodes = request.if_contains("nodes")) {
            for (const auto& name : nodes->as_array()) {
                jobs::Target target;
                target.node.name = std::string(std::string_view(name.as_string()));
                const auto& at = logins.nodes[target.node.name];
                target.node.address = text_in(at, "address");
                target.node.ssh_user = text_in(at, "user");
                target.node.ssh_sudo = at.contains("sudo");
                target.labels = {{"role", "lab"}};
                attempt.targets.push_back(std::move(target));
            }
        }
        auto& executor = *executors.at(text_in(request, "executor"));
        SaidOutput output(seq, quiet);
        const auto ctx = Context::make("lab");
        json::object done{{"seq", seq}, {"event", "done"}};
        const auto failed = [&done](const Error& error) {
            done["failed"] = json::object{{"code", name_of(error.code)}, {"message", error.message}, {"remedy", error.remedy}};
        };
        if (op == "start") {
            auto outcome = co_await executor.start(ctx, attempt, output);
            if (outcome.ok())
                done["outcome"] = shown(*outcome);
            else
                failed(outcome.error());
        } else if (op == "reattach") {
            jobs::Offsets kept;
            if (const auto* at = request.if_contains("kept"))
                kept = {at->as_array().at(0).to_number<std::uint64_t>(), at->as_array().at(1).to_number<std::uint64_t>()};
            auto found = co_await executor.reattach(ctx, attempt, kept, output);
            if (found.ok()) {
                done["state"] = found->state == jobs::Reattached::State::ended         ? "ended"
                                : found->state == jobs::Reattached::State::not_started ? "not_started"
                                                                                       : "unknown";
                done["message"] = found->message;
                done["outcome"] = shown(found->outcome);
            } else {
                failed(found.error());
            }
        } else if (op == "plan") {
            auto preview = co_await executor.plan(ctx, attempt);
            if (preview.ok()) {
                json::array differences;
                for (const auto& one : preview->differences)
                    differences.push_back(json::object{{"name", one.name}, {"before", one.before}, {"after", one.after}});
                done["change"] = jobs::name_of(preview->change);
                done["message"] = preview->message;
                done["differences"] = std::move(differences);
            } else {
                failed(preview.error());
            }
        } else {
            auto result = op == "cancel" ? co_await executor.cancel(ctx, attempt) : co_await executor.clean_up(ctx, attempt);
            if (!result.ok()) failed(result.error());
        }
        say(std::move(done));
    }

    asio::any_io_executor home;
    net::Ssh ssh;
    net::HttpClient client;
    ConfiguredLogins logins;
    SshRunner runner{ssh, logins};
    RemoteAttempts remote{runner};
    std::unique_ptr<LocalRunner> local_runner;
    std::unique_ptr<RemoteAttempts> local;
    Pool pool{1};
    std::map<std::string, std::unique_ptr<jobs::Executor>> executors;
    TaskGroup tasks;
    bool quiet = false;
};

asio::awaitable<void> drive(asio::io_context& loop, std::string config) {
    Driver driver(loop);
    driver.home = loop.get_executor();
    driver.configure(parse_json(contents(config))->as_object());
    asio::posix::stream_descriptor input(loop, ::dup(0));
    std::string held;
    for (;;) {
        auto [error, size] =
            co_await asio::async_read_until(input, asio::dynamic_buffer(held), '\n', asio::as_tuple(asio::use_awaitable));
        if (error) break;
        auto request = parse_json(std::string_view(held).substr(0, size));
        held.erase(0, size);
        if (request.ok())
            driver.tasks.spawn(driver.serve(request->as_object()));
        else
            say({{"event", "bad"}, {"message", request.error().message}});
    }
    co_await driver.tasks.join();
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const double cpu = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                       static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    say({{"event", "end"}, {"cpu", cpu}, {"resident_kib", used.ru_maxrss}});
    co_await driver.client.stop();
    co_await driver.ssh.stop();
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: executor_driver CONFIG.json\n";
        return 2;
    }
    orrery::asio::io_context loop(1);
    orrery::asio::co_spawn(loop, drive(loop, argv[1]), [](std::exception_ptr failure) {
        if (failure) std::rethrow_exception(failure);
    });
    loop.run();
    return 0;
}
