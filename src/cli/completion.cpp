#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "net/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <set>

/// Completion: the scripts for shells call the hidden command __complete, which gets kinds and names from the server.
namespace orrery::cli {

namespace {

constexpr std::string_view bash_script = R"(# orrery's completion for bash; put into ~/.bashrc:  source <(orrery completion bash)
_orrery() {
    local IFS=$'\n'
    COMPREPLY=($(orrery __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o bashdefault -o default -F _orrery orrery
)";

constexpr std::string_view zsh_script = R"(#compdef orrery
# orrery's completion for zsh; put into ~/.zshrc:  source <(orrery completion zsh)
_orrery() {
    local -a found
    found=("${(@f)$(orrery __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
# Autoloaded from a folder of completions, the file is the function's body; sourced, it registers the function.
if [[ "${funcstack[1]}" == _orrery ]]; then _orrery "$@"; else compdef _orrery orrery; fi
)";

constexpr std::string_view fish_script =
    R"(# orrery's completion for fish; put into ~/.config/fish/config.fish:  orrery completion fish | source
function __orrery_complete
    set -l words (commandline -opc) (commandline -ct)
    orrery __complete $words[2..-1] 2>/dev/null
end
complete -c orrery -f -a '(__orrery_complete)'
complete -c orrery -s f -l file -r -F
)";

/// A command line whose last word is incomplete.
struct HalfLine {
    const Command* command = nullptr;
    std::string group;
    std::vector<std::string> positional; ///< arguments after the command, without options and their values
    const Option* wants_value = nullptr; ///< the option before the last word, if it takes a value
};

const Option* option_named(const Command* command, const std::string& word) {
    const auto find = [&](const std::vector<Option>& options) -> const Option* {
        for (const auto& option : options)
            if (("," + option.names + ",").find("," + word + ",") != std::string::npos) return &option;
        return nullptr;
    };
    const Option* found = command == nullptr ? nullptr : find(command->options);
    return found != nullptr ? found : find(common_options());
}

HalfLine read_half_line(const std::vector<std::string>& words) {
    HalfLine line;
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        const auto& word = words[i];
        line.wants_value = nullptr;
        if (word.size() > 1 && word.front() == '-') {
            const auto* option = option_named(line.command, word);
            if (option == nullptr || option->value.empty() || word.find('=') != std::string::npos) continue;
            if (i + 2 == words.size())
                line.wants_value = option;
            else
                ++i; // its value
        } else if (line.command == nullptr) {
            line.group = line.group.empty() ? word : line.group + " " + word;
            for (const auto& command : all_commands())
                if (command.path == line.group) line.command = &command;
        } else {
            line.positional.push_back(word);
        }
    }
    return line;
}

class Completer {
public:
    explicit Completer(Invocation& invocation) : invocation_(invocation) { invocation.values["timeout"] = {"2s"}; }

    std::vector<std::string> candidates(const std::vector<std::string>& words) {
        const auto line = read_half_line(words);
        const auto& current = words.back();
        if (line.wants_value != nullptr) return of(line.wants_value->means, line.wants_value->choices, line);
        if (line.command == nullptr) return commands_after(line.group);
        if (current.starts_with('-')) {
            std::vector<std::string> out = {"--help"};
            for (const auto* options : {&line.command->options, &common_options()})
                for (const auto& option : *options) out.push_back("--" + option.key());
            return out;
        }
        const auto& arguments = line.command->arguments;
        if (arguments.empty()) return {};
        const auto& argument = arguments[std::min(line.positional.size(), arguments.size() - 1)];
        const bool repeats = argument.count == Argument::Count::some || argument.count == Argument::Count::any;
        if (line.positional.size() >= arguments.size() && !repeats) return {};
        if (argument.means == Means::kind && current.find('/') != std::string::npos) return names_after_kind(current);
        if (line.command->path == "delete") return of(line.positional.empty() ? Means::kind : Means::name, {}, line);
        return of(argument.means, argument.choices, line);
    }

private:
    std::vector<std::string> commands_after(const std::string& group) {
        if (group.empty()) {
            auto out = top_level_names(invocation_.application);
            out.emplace_back("help");
            return out;
        }
        std::vector<std::string> out;
        for (const auto& command : all_commands())
            if (command.path.starts_with(group + " ") && !command.hidden) out.push_back(command.path.substr(group.size() + 1));
        return out;
    }

    std::vector<std::string> of(Means means, const std::vector<std::string>& choices, const HalfLine& line) {
        if (!choices.empty()) return choices;
        if (means == Means::context) return context_names();
        if (means == Means::kind) return kind_names();
        if (means == Means::job) return names_of("Job");
        if (means == Means::task && !line.positional.empty()) return tasks_of(line.positional[0]);
        if (means == Means::label && !line.positional.empty()) return labels_of(line.positional[0]);
        if (means != Means::name) return {};
        // Commands such as "user password" imply the kind.
        for (const auto& [group, kind] : {std::pair{"user ", "User"}, {"token ", "Token"}})
            if (line.command->path.starts_with(group)) return names_of(kind);
        return names_of(line.positional.empty() ? "" : line.positional[0]);
    }

    std::vector<std::string> context_names() {
        const auto sessions = load_sessions(invocation_.streams);
        return sessions.ok() ? sessions->names() : std::vector<std::string>{};
    }

    /// "node/" and the names of nodes, for commands that take KIND/NAME.
    std::vector<std::string> names_after_kind(const std::string& current) {
        const auto kind = current.substr(0, current.find('/'));
        auto names = names_of(kind);
        for (auto& name : names) name.insert(0, kind + "/");
        return names;
    }

    std::vector<std::string> kind_names() {
        std::vector<std::string> out;
        const auto kinds = invocation_.kinds();
        if (!kinds.ok()) return out;
        for (const auto& kind : (*kinds)->all()) out.push_back(kind.plural);
        return out;
    }

    /// The tasks of a job, given as JOB or job/JOB.
    std::vector<std::string> tasks_of(const std::string& job) {
        std::vector<std::string> out;
        const auto slash = job.find('/');
        const auto api = invocation_.api();
        if (!api.ok()) return out;
        const auto answer = (*api)->get(fmt::format("/v1/jobs/{}/tasks?limit=500",
                                                    net::percent_encode(slash == std::string::npos ? job : job.substr(slash + 1))));
        const auto* tasks = answer.ok() ? at_path(answer->body, "tasks") : nullptr;
        if (tasks == nullptr || !tasks->is_array()) return out;
        for (const auto& task : tasks->get_array()) out.push_back(text_of(task, "task"));
        return out;
    }

    std::vector<std::string> names_of(const std::string& kind) {
        std::vector<std::string> out;
        for (const auto& object : objects_of(kind)) out.push_back(text_of(object, "name"));
        return out;
    }

    /// "role=web": each label that a resource of the kind has.
    std::vector<std::string> labels_of(const std::string& kind) {
        std::set<std::string> out;
        for (const auto& object : objects_of(kind)) {
            const auto* labels = at_path(object, "labels");
            if (labels == nullptr || !labels->is_object()) continue;
            for (const auto& [key, value] : labels->get_object())
                if (value.is_string())
                    out.insert(fmt::format("{}={}", std::string_view(key), std::string_view(value.get_string())));
        }
        return {out.begin(), out.end()};
    }

    std::vector<json::value> objects_of(const std::string& word) {
        const auto kinds = invocation_.kinds();
        if (!kinds.ok()) return {};
        const auto kind = (*kinds)->find(word);
        const auto api = invocation_.api();
        if (!kind.ok() || !api.ok()) return {};
        auto objects = list_all(**api, **kind, {}, 500);
        return objects.ok() ? std::move(*objects) : std::vector<json::value>{};
    }

    Invocation& invocation_;
};

} // namespace

Result<int> run_completion(Invocation& invocation) {
    const auto shell = invocation.text("SHELL");
    invocation.streams.out << (shell == "bash" ? bash_script : shell == "zsh" ? zsh_script : fish_script);
    return exit_code::ok;
}

Result<int> run_complete(Invocation& invocation) {
    auto words = invocation.raw_arguments;
    if (words.empty()) words.emplace_back();
    const auto prefix = words.back();
    for (const auto& candidate : Completer(invocation).candidates(words))
        if (candidate.starts_with(prefix)) invocation.streams.out << candidate << '\n';
    return exit_code::ok;
}

} // namespace orrery::cli
