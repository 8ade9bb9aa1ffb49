#include "jobs/simple_command.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

namespace {

bool one_of(std::string_view token, std::initializer_list<std::string_view> texts) {
    return std::find(texts.begin(), texts.end(), token) != texts.end();
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); } // npos + 1 is 0

/// Words before a command that are none: reserved words, and builtins that run another command.
bool precedes_command(std::string_view token) {
    return one_of(token, {"if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "command", "builtin", "exec"});
}

/// Programs whose arguments are another command.
bool runs_others(std::string_view name) {
    return one_of(name,
                  {"sudo", "doas", "env", "nohup", "nice", "ionice", "timeout", "xargs", "find", "chroot", "busybox", "setsid"});
}

bool is_name_character(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }
std::string_view leading_name(std::string_view text) {
    const auto end = std::find_if_not(text.begin(), text.end(), is_name_character);
    return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

/// A cluster of short options that ends with this one: -c, -lc, -ec; -e, -ne, -pe.
bool is_option(std::string_view token, char last) {
    return token.size() >= 2 && token.size() <= 5 && token.front() == '-' && token.back() == last &&
           std::all_of(token.begin() + 1, token.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

bool is_awk(std::string_view name) { return one_of(name, {"awk", "gawk", "mawk", "nawk"}); }
bool is_interpreter(std::string_view name) { return name == "sed" || is_awk(name) || one_of(name, {"perl", "ruby"}); }
bool is_shell(std::string_view name) { return one_of(name, {"sh", "bash", "dash", "ash", "ksh", "zsh"}); }

/// `name[` without its end, or `[` in a list of values.
bool opens_subscript(std::string_view token) {
    const auto open = token.rfind('[');
    if (open == token.npos || token.find(']', open) != token.npos) return false;
    return leading_name(token).size() == token.find('[');
}

} // namespace

void SimpleCommand::begin_redirection(bool is_here_string) {
    if (token_.find_first_not_of("0123456789") == std::string::npos) token_.clear(); // the 2 of 2>
    end_token();
    is_redirection_ = true;
    is_here_string_ = is_here_string;
}

void SimpleCommand::end_token() {
    if (token_.empty()) return;
    if (is_redirection_) {
        is_redirection_ = is_here_string_ = false;
        token_.clear();
        return;
    }
    const bool is_assignment = token_.find('=') != std::string::npos;
    if (command_.empty() && precedes_command(token_)) {
        token_.clear();
        return;
    }
    if (command_.empty() && !is_assignment) command_ = token_;
    if (!interpreter_.empty()) {
        const bool takes_file =
            previous_ == "-f" || previous_ == "--file" || (is_awk(interpreter_) && one_of(previous_, {"-v", "-F"}));
        if (previous_ == "-f" || is_option(previous_, 'e') || (!token_.starts_with('-') && !takes_file)) has_program_ = true;
    } else if (is_interpreter(base_name(token_)) && (token_ == command_ || runs_others(base_name(command_)))) {
        interpreter_ = base_name(token_);
    }
    if (one_of(command_, {"declare", "typeset", "local"}) && token_.starts_with('-') &&
        token_.find_first_of("in") != std::string::npos)
        is_evaluated_ = true; // an integer, or a name of another variable
    if (!token_.starts_with('-')) operand_ = token_;
    previous_ = std::move(token_);
    token_.clear();
}

bool SimpleCommand::in_subscript() const { return opens_subscript(token_); }

std::string SimpleCommand::evaluated() const {
    if (one_of(command_, {"eval", "let", "trap", "alias", "complete", "compgen"}) && !is_redirection_)
        return fmt::format("in program text ({})", command_);
    if (is_option(previous_, 'c') && !is_redirection_) return fmt::format("in program text ({})", previous_);
    if (is_here_string_ && reads_program()) return fmt::format("in program text ({})", operand_);
    if (is_redirection_) return {};
    const bool in_name = token_.find('=') == std::string::npos;
    if (one_of(command_, {"declare", "typeset", "local", "read", "unset"}) && (in_name || is_evaluated_))
        return fmt::format("in a name for {}, which a shell evaluates", command_);
    if (previous_ == "-v" && one_of(command_, {"[", "test", "printf"}))
        return fmt::format("in a name for {} -v, which a shell evaluates", command_);
    if (interpreter_.empty()) return {};
    auto program = fmt::format("in program text ({})", interpreter_);
    if (is_option(previous_, 'e') || one_of(previous_, {"-E", "--expression"})) {
        if (interpreter_ != "sed" || previous_ != "-E") return program;
    }
    if (token_.starts_with("-e") || token_.starts_with("--expression=")) return program;
    if (has_program_ || token_.starts_with('-') || interpreter_ == "perl" || interpreter_ == "ruby") return {};
    if (one_of(previous_, {"-f", "--file"}) || (is_awk(interpreter_) && one_of(previous_, {"-v", "-F"}))) return {};
    return program;
}

std::string SimpleCommand::evaluated_in_braces(std::string_view text) {
    if (opens_subscript(text)) return "in a subscript, which a shell evaluates";
    const auto rest = text.substr(leading_name(text).size());
    if (rest.starts_with(':') && (rest.size() == 1 || !one_of(rest.substr(1, 1), {"-", "=", "+", "?"})))
        return "in an offset or length, which a shell evaluates";
    return {};
}

bool SimpleCommand::reads_program() const { return is_shell(base_name(operand_)); }

} // namespace orrery::jobs
