#pragma once

#include <string>
#include <string_view>

namespace orrery::jobs {

/// The tokens of the simple command that a reader of a script is in, as far as they decide whether a value at the current position
/// would be evaluated: by the shell itself (`eval`, `let`, a subscript) or by a program that gets its text as an argument (`sh -c`,
/// `sed`, `awk`).
class SimpleCommand {
public:
    /// Appends to the current token; `text` is as written, with its quotes.
    void add(std::string_view text) { token_ += text; }
    void end_token();
    /// The next token belongs to a redirection: the name of a file, or the text of a here-string.
    void begin_redirection(bool is_here_string);
    /// A new command begins.
    void clear() { *this = {}; }
    bool in_token() const { return !token_.empty(); }
    std::string_view token() const { return token_; }
    /// Whether the current token is an index of an array so far, as in `a[`.
    bool in_subscript() const;

    /// How a value at the current position would be evaluated, as in "program text (eval)"; empty: it would not.
    std::string evaluated() const;
    /// The same within the braces of `${...}`, whose text is the current token.
    static std::string evaluated_in_braces(std::string_view text);
    /// Whether a here-document would be read as a program: the command is a shell without a file.
    bool reads_program() const;

private:
    std::string token_, previous_, command_;
    std::string operand_;     ///< the last token that is no option
    std::string interpreter_; ///< sed, awk or the like, where one of the tokens names it
    bool has_program_ = false, is_evaluated_ = false;
    bool is_redirection_ = false, is_here_string_ = false; ///< the current token
};

} // namespace orrery::jobs
