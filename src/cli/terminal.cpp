#include "cli/terminal.h"

#include "cli/cli.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace orrery::cli {

namespace {

/// Decodes one UTF-8 character: code point and number of bytes; 0xFFFD and one byte if it is not valid.
struct Character {
    char32_t code;
    std::size_t bytes;
};

Character first_character(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text.front());
    if (lead < 0x80) return {lead, 1};
    const std::size_t length = lead >= 0xF0 && lead < 0xF5 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
    if (length == 0 || lead >= 0xF5 || text.size() < length) return {0xFFFD, 1};
    char32_t code = lead & (0xFFU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
        const auto next = static_cast<unsigned char>(text[i]);
        if ((next & 0xC0U) != 0x80) return {0xFFFD, 1};
        code = (code << 6U) | (next & 0x3FU);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF) || (length == 3 && code < 0x800) || (length == 4 && code < 0x10000))
        return {0xFFFD, 1};
    return {code, length};
}

bool within(char32_t code, char32_t first, char32_t last) { return code >= first && code <= last; }

int character_width(char32_t code) {
    if (within(code, 0x300, 0x36F) || within(code, 0x200B, 0x200F) || within(code, 0x20D0, 0x20FF) ||
        within(code, 0xFE00, 0xFE0F) || within(code, 0x1AB0, 0x1AFF))
        return 0;
    if (within(code, 0x1100, 0x115F) || within(code, 0x2E80, 0xA4CF) || within(code, 0xAC00, 0xD7A3) ||
        within(code, 0xF900, 0xFAFF) || within(code, 0xFE30, 0xFE6F) || within(code, 0xFF00, 0xFF60) ||
        within(code, 0xFFE0, 0xFFE6) || within(code, 0x1F300, 0x1F64F) || within(code, 0x1F900, 0x1F9FF) ||
        within(code, 0x20000, 0x3FFFD))
        return 2;
    return 1;
}

/// Switches the echo of the terminal off; the destructor restores it.
class NoEcho {
public:
    explicit NoEcho(int fd) : fd_(fd) {
        if (::tcgetattr(fd, &before_) != 0) return;
        auto quiet = before_;
        // Signals and line editing are off too: an interrupt arrives as a character, so it cannot leave the terminal without echo.
        quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ISIG | ICANON);
        quiet.c_cc[VMIN] = 1;
        quiet.c_cc[VTIME] = 0;
        changed_ = ::tcsetattr(fd, TCSAFLUSH, &quiet) == 0;
    }
    ~NoEcho() {
        if (changed_) ::tcsetattr(fd_, TCSAFLUSH, &before_);
    }
    NoEcho(const NoEcho&) = delete;
    NoEcho& operator=(const NoEcho&) = delete;

private:
    int fd_;
    termios before_{};
    bool changed_ = false;
};

Result<std::string> ask_at_terminal(std::string_view prompt) {
    const int terminal = ::open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (terminal < 0)
        return Error{Code::invalid, "there is no terminal to ask for a password at", "give it in a file with --password-file"};
    const auto print = [&](std::string_view text) {
        while (!text.empty()) {
            const auto written = ::write(terminal, text.data(), text.size());
            if (written <= 0) break;
            text.remove_prefix(static_cast<std::size_t>(written));
        }
    };
    std::string out;
    bool interrupted = false, ended = false;
    {
        const NoEcho quiet(terminal);
        print(prompt);
        while (out.size() < 4096 && !ended) {
            char c = 0;
            const auto got = ::read(terminal, &c, 1);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0 || c == '\n' || c == '\r' || c == 4) { // 4: Ctrl-D
                ended = true;
            } else if (c == 3 || c == 28) { // Ctrl-C, Ctrl-backslash
                interrupted = ended = true;
            } else if (c == 21) { // Ctrl-U
                out.clear();
            } else if (c == 8 || c == 127) { // backspace: one character, not one byte
                while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0U) == 0x80U) out.pop_back();
                if (!out.empty()) out.pop_back();
            } else {
                out += c;
            }
        }
        print("\n");
    }
    ::close(terminal);
    if (interrupted) return Error{Code::cancelled, "interrupted"};
    return out;
}

/// Ignores interrupts while the editor runs; they are for the editor.
class InterruptsIgnored {
public:
    InterruptsIgnored() {
        struct sigaction ignore{};
        ignore.sa_handler = SIG_IGN;
        ::sigaction(SIGINT, &ignore, &interrupt_);
        ::sigaction(SIGQUIT, &ignore, &quit_);
    }
    ~InterruptsIgnored() {
        ::sigaction(SIGINT, &interrupt_, nullptr);
        ::sigaction(SIGQUIT, &quit_, nullptr);
    }
    InterruptsIgnored(const InterruptsIgnored&) = delete;
    InterruptsIgnored& operator=(const InterruptsIgnored&) = delete;

private:
    struct sigaction interrupt_{}, quit_{};
};

Result<Unit> edit_in_terminal(const std::string& editor, const std::string& file) {
    // The editor is a shell command ("code --wait"); the file name is passed as data, not as shell text.
    std::string command = editor + " \"$1\"", shell = "sh", flag = "-c", name = "orrery-edit", path = file;
    char* const arguments[] = {shell.data(), flag.data(), command.data(), name.data(), path.data(), nullptr};
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t defaults;
    ::sigemptyset(&defaults);
    ::sigaddset(&defaults, SIGINT);
    ::sigaddset(&defaults, SIGQUIT);
    ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    const InterruptsIgnored ignored;
    pid_t child = 0;
    const int failed = ::posix_spawnp(&child, "sh", nullptr, &attributes, arguments, environ);
    ::posix_spawnattr_destroy(&attributes);
    if (failed != 0) return Error{Code::internal, fmt::format("the editor cannot be started: {}", std::strerror(failed))};
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Unit{};
    return Error{Code::invalid, fmt::format("the editor \"{}\" ended with an error, and nothing was changed", editor),
                 "set EDITOR to the command of an editor"};
}

} // namespace

std::string Streams::variable(std::string_view name) const {
    for (const auto& [known, value] : environment)
        if (known == name) return value;
    return {};
}

Streams Streams::standard() {
    Streams streams{.in = std::cin, .out = std::cout, .err = std::cerr};
    streams.in_is_terminal = ::isatty(0) == 1;
    streams.out_is_terminal = ::isatty(1) == 1;
    streams.err_is_terminal = ::isatty(2) == 1;
    winsize size{};
    if (streams.out_is_terminal && ::ioctl(1, TIOCGWINSZ, &size) == 0) {
        streams.width = size.ws_col;
        streams.height = size.ws_row;
    }
    streams.environment = process_environment();
    streams.ask_secret = ask_at_terminal;
    streams.run_editor = edit_in_terminal;
    return streams;
}

int display_width(std::string_view text) {
    int width = 0;
    while (!text.empty()) {
        const auto [code, bytes] = first_character(text);
        width += character_width(code);
        text.remove_prefix(bytes);
    }
    return width;
}

std::string fit(std::string_view text, int width) {
    if (display_width(text) <= width) return std::string(text);
    if (width <= 0) return {};
    std::string out;
    int used = 0;
    while (!text.empty()) {
        const auto [code, bytes] = first_character(text);
        if (used + character_width(code) > width - 1) break;
        used += character_width(code);
        out.append(text.substr(0, bytes));
        text.remove_prefix(bytes);
    }
    return out + "…";
}

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const auto [code, bytes] = first_character(text);
        if (code == '\n')
            out += "\\n";
        else if (code == '\t')
            out += "\\t";
        else if (code < 0x20 || within(code, 0x7F, 0x9F))
            out += fmt::format("\\x{:02x}", static_cast<unsigned>(code));
        else if (within(code, 0x202A, 0x202E) || within(code, 0x2066, 0x2069))
            out += "�"; // would change the text direction
        else if (code == 0xFFFD)
            out += "�";
        else
            out.append(text.substr(0, bytes));
        text.remove_prefix(bytes);
    }
    return out;
}

std::string paint(std::string_view text, Style style, bool colour) {
    if (!colour || style == Style::plain || text.empty()) return std::string(text);
    std::string_view code;
    switch (style) {
    case Style::plain: break;
    case Style::bold: code = "1"; break;
    case Style::dim: code = "2"; break;
    case Style::green: code = "32"; break;
    case Style::yellow: code = "33"; break;
    case Style::red: code = "31"; break;
    case Style::cyan: code = "36"; break;
    }
    return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::string short_age(Duration time) {
    const auto seconds = std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(time).count());
    if (seconds < 120) return fmt::format("{}s", seconds);
    if (seconds < 120 * 60) return fmt::format("{}m", seconds / 60);
    if (seconds < 48 * 3600) return fmt::format("{}h", seconds / 3600);
    if (seconds < 730LL * 86400) return fmt::format("{}d", seconds / 86400);
    return fmt::format("{}y", seconds / (365LL * 86400));
}

std::string relative_time(WallTime time, WallTime now) {
    if (time > now) return "in " + short_age(time - now);
    return now - time < std::chrono::seconds(1) ? "now" : short_age(now - time) + " ago";
}

} // namespace orrery::cli
