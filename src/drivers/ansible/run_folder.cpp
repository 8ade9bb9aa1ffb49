#include "drivers/ansible/run_folder.h"

#include "core/text.h"
#include "drivers/ansible/callback.h"
#include "net/ssh_quote.h"
#include "resource/account.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace orrery::drivers {

namespace json = boost::json;

namespace {

Result<Unit> write_private(const std::filesystem::path& path, std::string_view text) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return Error{errno == ENOSPC ? Code::no_space : Code::denied,
                     fmt::format("cannot write {}: {}", path.string(), std::strerror(errno))};
    while (!text.empty()) {
        const auto written = ::write(fd, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            const int error = errno;
            ::close(fd);
            return Error{error == ENOSPC ? Code::no_space : Code::unavailable,
                         fmt::format("cannot write {}: {}", path.string(), std::strerror(error))};
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    ::close(fd);
    return Unit{};
}

/// Replaces characters that Ansible does not allow in the name of a group.
std::string group_name(std::string_view text) {
    std::string out;
    for (const char c : text) out += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
    if (!out.empty() && out.front() >= '0' && out.front() <= '9') out.insert(0, "_");
    return out;
}

std::string known_host(const net::SshTarget& target) {
    const auto key = target.host_key.substr(0, target.host_key.find_first_of("\r\n"));
    return target.port == 22 ? fmt::format("{} {}\n", target.host, key)
                             : fmt::format("[{}]:{} {}\n", target.host, target.port, key);
}

/// Marks every text as unsafe, so that Ansible does not evaluate it as a template: "{{ lookup('pipe', ...) }}" in a value would run
/// on the server.
Result<json::value> unsafe(const json::value& value, int depth) {
    if (depth > 100) return Error{Code::invalid, "a variable is nested too deep"};
    if (value.is_string()) return json::value(json::object{{"__ansible_unsafe", value}});
    if (const auto* list = value.if_array()) {
        json::array out;
        for (const auto& item : *list) {
            TRY(auto made, unsafe(item, depth + 1));
            out.push_back(std::move(made));
        }
        return json::value(std::move(out));
    }
    if (const auto* object = value.if_object()) {
        json::object out;
        for (const auto& [key, item] : *object) {
            if (key.starts_with("__ansible_"))
                return Error{Code::invalid,
                             fmt::format("a variable has the key {}, which Ansible evaluates", std::string_view(key)),
                             "use another key"};
            TRY(out[key], unsafe(item, depth + 1));
        }
        return json::value(std::move(out));
    }
    return value;
}

class RunFolder {
public:
    RunFolder(std::filesystem::path folder, const AnsibleRun& run) : folder_(std::move(folder)), run_(run) {}

    Result<Unit> write() {
        std::error_code error;
        std::filesystem::remove_all(folder_, error);
        for (const auto& path : {folder_, folder_ / "callback", folder_ / "cp", folder_ / "home", folder_ / "tmp"}) {
            std::filesystem::create_directories(path.parent_path(), error);
            if (::mkdir(path.c_str(), 0700) != 0)
                return Error{errno == ENOSPC ? Code::no_space : Code::denied,
                             fmt::format("cannot create the folder {}: {}", path.string(), std::strerror(errno))};
        }
        json::object hosts, groups;
        for (const auto& host : run_.hosts) {
            TRY(auto variables, variables_of(host));
            hosts[host.name] = std::move(variables);
            for (const auto& [key, value] : host.labels) {
                join(groups, group_name(key + "_" + value), host.name);
                if (key == "role") join(groups, group_name(value), host.name);
            }
        }
        groups.erase("all");
        groups.erase("ungrouped");
        TRY(std::ignore, write_private(folder_ / "inventory.json",
                                       to_json_text(json::object{{"all", {{"hosts", hosts}, {"children", groups}}}})));
        TRY(const auto variables, unsafe(run_.variables, 0));
        TRY(std::ignore, write_private(folder_ / "variables.json", to_json_text(variables)));
        json::object environment;
        for (const auto& [name, value] : run_.environment) environment[name] = value;
        TRY(std::ignore, write_private(folder_ / "environment.json", to_json_text(environment)));
        TRY(std::ignore, write_private(folder_ / "known_hosts", known_hosts_));
        if (!run_.vault_password.empty()) {
            TRY(std::ignore, write_private(folder_ / "vault", run_.vault_password + "\n"));
        }
        TRY(std::ignore, write_private(folder_ / "callback" / "orrery.py", ansible_callback));
        return write_private(folder_ / "ansible.cfg", settings());
    }

private:
    static void join(json::object& groups, const std::string& group, const std::string& host) {
        auto& of = groups[group];
        if (!of.is_object()) of = json::object{{"hosts", json::object{}}};
        of.get_object()["hosts"].get_object()[host] = json::object{};
    }

    Result<std::string> key_file(const std::string& key) {
        const auto known = keys_.find(key);
        if (known != keys_.end()) return known->second;
        auto path = (folder_ / fmt::format("key{}", keys_.size() + 1)).string();
        TRY(std::ignore, write_private(path, key.ends_with('\n') ? key : key + "\n"));
        keys_[key] = path;
        return path;
    }

    /// Ansible evaluates the values of an inventory as templates, also those of a Node that an earlier version stored.
    static Result<Unit> check_login(const std::string& node, const net::SshTarget& target) {
        if (!resource::check_format(resource::Format::host, target.host).empty())
            return Error{Code::invalid, fmt::format("the address of {} is neither an IP address nor a host name", node),
                         "correct spec.address of the Node"};
        if (!resource::is_account(target.user))
            return Error{Code::invalid, fmt::format("the user of {} is not the name of an account", node),
                         "correct spec.ssh.user of the Node"};
        return Unit{};
    }

    Result<json::object> variables_of(const AnsibleHost& host) {
        TRY(std::ignore, check_login(host.name, host.target));
        TRY(const auto key, key_file(host.target.private_key));
        known_hosts_ += known_host(host.target);
        json::object out{{"ansible_host", host.target.host},
                         {"ansible_port", host.target.port},
                         {"ansible_user", host.target.user},
                         {"ansible_ssh_private_key_file", key},
                         {"ansible_python_interpreter", "/usr/bin/python3"}};
        if (host.sudo) out["ansible_become"] = true;
        if (host.target.jump) {
            TRY(auto command, jump_command(*host.target.jump));
            // Ansible splits the text as a shell would; ssh then passes the command to a shell.
            out["ansible_ssh_common_args"] = net::shell_command({"-o", "ProxyCommand=" + command});
        }
        return out;
    }

    Result<std::string> jump_command(const net::SshTarget& jump) {
        TRY(std::ignore, check_login("a jump host", jump));
        TRY(const auto key, key_file(jump.private_key));
        known_hosts_ += known_host(jump);
        std::vector<std::string> argv{"ssh",
                                      "-F",
                                      "none",
                                      "-i",
                                      key,
                                      "-o",
                                      "UserKnownHostsFile=" + (folder_ / "known_hosts").string(),
                                      "-o",
                                      "StrictHostKeyChecking=yes",
                                      "-o",
                                      "IdentitiesOnly=yes",
                                      "-p",
                                      std::to_string(jump.port),
                                      "-l",
                                      jump.user};
        if (jump.jump) {
            TRY(auto before, jump_command(*jump.jump));
            argv.insert(argv.end(), {"-o", "ProxyCommand=" + before});
        }
        argv.insert(argv.end(), {"-W", "%h:%p", jump.host});
        return net::shell_command(argv);
    }

    std::string settings() const {
        // The path of a socket has at most 108 bytes, and ssh appends 17 characters while it creates the socket.
        const auto control = (folder_ / "cp").string();
        const bool share = control.size() + 1 + 10 + 18 < 107;
        const auto options =
            net::shell_command({"-F", "none", "-o", share ? "ControlMaster=auto" : "ControlMaster=no", "-o", "ControlPersist=10s",
                                "-o", "UserKnownHostsFile=" + (folder_ / "known_hosts").string(), "-o", "StrictHostKeyChecking=yes",
                                "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"});
        std::string out = "[defaults]\n";
        const auto set = [&out](std::string_view key, std::string_view value) { out += fmt::format("{} = {}\n", key, value); };
        set("stdout_callback", "orrery");
        set("callback_plugins", (folder_ / "callback").string());
        set("forks", std::to_string(run_.forks));
        set("host_key_checking", "True");
        set("retry_files_enabled", "False");
        set("nocolor", "1");
        set("nocows", "1");
        set("roles_path", (run_.content / "roles").string());
        set("collections_path", (run_.content / "collections").string());
        set("local_tmp", (folder_ / "tmp").string());
        set("timeout", "10");
        out += "[ssh_connection]\n";
        set("pipelining", "True");
        set("control_path_dir", control);
        set("ssh_args", options);
        return out;
    }

    std::filesystem::path folder_;
    const AnsibleRun& run_;
    std::map<std::string, std::string> keys_; // file of each key
    std::string known_hosts_;
};

} // namespace

Result<Unit> write_run_folder(const std::filesystem::path& folder, const AnsibleRun& run) { return RunFolder(folder, run).write(); }

} // namespace orrery::drivers
