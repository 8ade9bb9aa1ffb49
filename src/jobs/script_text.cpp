#include "jobs/script_text.h"

#include "jobs/simple_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace orrery::jobs {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool ends_token(char c) {
    return is_blank(c) || c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')' || c == '<' || c == '>';
}

/// Follows the quoting of a POSIX shell script (and the parts of bash that evaluate text), far enough to know how an expansion at
/// the current position is read. Where it errs, an expansion is split into words at worst: results of expansions are never parsed.
class ScriptReader {
public:
    explicit ScriptReader(std::string_view script) : script_(script), commands_(1) { frames_.push_back({Kind::commands, 0}); }

    Result<ScriptText> read() {
        while (at_ < script_.size()) {
            if (frames_.back().kind == Kind::single_quotes) {
                TRY([[maybe_unused]] const auto unit, read_single_quoted());
            } else if (const char c = script_[at_]; c == '$') {
                TRY([[maybe_unused]] const auto unit, read_dollar());
            } else if (c == '\\' && at_ + 1 < script_.size()) {
                if (script_[at_ + 1] != '\n') command().add(script_.substr(at_, 2)); // else the line continues
                copy(2);
            } else if (in_double_quotes()) {
                read_in_double_quotes(c);
            } else {
                TRY([[maybe_unused]] const auto unit, read_in_commands(c));
            }
        }
        return std::move(out_);
    }

private:
    enum class Kind { commands, double_quotes, single_quotes, substitution, arithmetic, brackets, backticks, braces, test };
    struct Frame {
        Kind kind;
        int depth;                ///< of parentheses that were opened inside of it
        bool has_command = false; ///< its text is a command of its own, apart from the text around it
    };
    struct HereDocument {
        std::string delimiter;
        bool quoted, indented;
        bool is_program; ///< a shell reads it
    };

    static Result<Unit> done() { return Unit{}; }
    SimpleCommand& command() { return commands_.back(); }
    void open(Kind kind, int depth) {
        frames_.push_back({kind, depth, true});
        commands_.emplace_back();
    }
    void open_quotes(Kind kind) { frames_.push_back({kind, 0, false}); }
    void close() {
        if (frames_.back().has_command) {
            commands_.pop_back();
            command().add("$"); // what it expands to
        }
        frames_.pop_back();
    }
    void copy(std::size_t count) {
        const auto piece = script_.substr(at_, count);
        line_ += static_cast<std::size_t>(std::count(piece.begin(), piece.end(), '\n'));
        out_.text += piece;
        at_ += piece.size();
    }
    bool next_is(std::string_view text) const { return script_.substr(at_).starts_with(text); }
    /// Braces of a parameter expansion are read like the text around them.
    bool in_double_quotes() const {
        for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame)
            if (frame->kind != Kind::braces) return frame->kind == Kind::double_quotes;
        return false;
    }
    bool within(Kind kind) const {
        return std::any_of(frames_.begin(), frames_.end(), [kind](const Frame& frame) { return frame.kind == kind; });
    }

    Error refusal(std::string_view reference, std::string_view place, std::string remedy) const {
        return Error{Code::invalid, fmt::format("line {} of the script: ${{{}}} is {}", line_, reference.substr(0, 128), place),
                     std::move(remedy)};
    }

    /// `at_` is at the dollar sign.
    Result<Unit> read_dollar() {
        if (next_is("$${")) { // the shell's own ${...}
            ++at_;
            open(Kind::braces, 0);
            copy(2);
            return done();
        }
        if (next_is("${")) return read_reference();
        if (next_is("$((")) {
            open(Kind::arithmetic, 2);
            copy(3);
        } else if (next_is("$(")) {
            open(Kind::substitution, 0);
            copy(2);
        } else if (next_is("$[") && script_.find(']', at_) < script_.find('\n', at_)) { // bash's old form of arithmetic
            open(Kind::brackets, 1);
            copy(2);
        } else {
            command().add("$");
            copy(1);
        }
        return done();
    }

    Result<Unit> read_reference() {
        const auto end = script_.find('}', at_);
        if (end == script_.npos)
            return refusal(script_.substr(at_ + 2), "without its closing brace",
                           "close it, or write $${ for a variable of the shell");
        const auto reference = script_.substr(at_ + 2, end - at_ - 2);
        TRY([[maybe_unused]] const auto unit, may_stand_here(reference));
        const auto& name = variable_for(reference);
        const bool quoted = in_double_quotes() || reading_here_document_;
        out_.text += fmt::format(fmt::runtime(quoted ? "${{{}}}" : "\"${{{}}}\""), name);
        command().add("$");
        at_ = end + 1;
        return done();
    }

    Result<Unit> may_stand_here(std::string_view reference) const {
        const std::string by_variable =
            fmt::format("assign it to a variable first, as in value=${{{}}}, and use \"$value\"", reference);
        if (frames_.back().kind == Kind::single_quotes)
            return refusal(reference, "in single quotes, where the shell expands nothing", "use double quotes");
        if (within(Kind::backticks)) return refusal(reference, "in backticks", "write $(...) in place of the backticks");
        if (within(Kind::arithmetic) || within(Kind::brackets))
            return refusal(reference, "in arithmetic, which a shell evaluates", "check that it is a number, then " + by_variable);
        if (within(Kind::test)) return refusal(reference, "in [[ ]], which a shell evaluates", "use [ ] with double quotes");
        if (within(Kind::substitution) && case_in_substitution_)
            return refusal(reference, "in a command substitution that has a case", by_variable);
        if (in_braces())
            if (const auto how = SimpleCommand::evaluated_in_braces(commands_.back().token()); !how.empty())
                return refusal(reference, how, "check that it is a number, then " + by_variable);
        if (commands_.back().in_subscript())
            return refusal(reference, "in a subscript, which a shell evaluates", "check that it is a number, then " + by_variable);
        // Also of the commands around a substitution: eval "$(echo ${...})" evaluates the value.
        for (const auto& of_command : commands_)
            if (const auto how = of_command.evaluated(); !how.empty())
                return refusal(reference, how, "pass it as an argument of that program, or by env");
        return done();
    }
    /// Whether the innermost command is the text in the braces of a parameter expansion.
    bool in_braces() const {
        const auto frame = std::find_if(frames_.rbegin(), frames_.rend(), [](const Frame& one) { return one.has_command; });
        return frame != frames_.rend() && frame->kind == Kind::braces;
    }

    const std::string& variable_for(std::string_view reference) {
        for (const auto& known : out_.variables)
            if (known.reference == reference) return known.name;
        out_.variables.push_back({fmt::format("ORRERY_VALUE_{}", out_.variables.size() + 1), std::string(reference), line_});
        return out_.variables.back().name;
    }

    Result<Unit> read_single_quoted() {
        if (next_is("$${")) { // nothing is the shell's in here either; written so for the sake of the reader of the job
            ++at_;
            copy(2);
            return done();
        }
        if (next_is("${") && script_.find('}', at_) != script_.npos) return read_reference();
        if (script_[at_] == '\'') close();
        copy(1);
        return done();
    }

    void read_in_double_quotes(char c) {
        if (c == '"') {
            if (frames_.back().kind == Kind::double_quotes)
                close();
            else
                open_quotes(Kind::commands); // "${x:-"a b"}": quotes within braces within quotes end the quoting
        } else if (c == '}' && frames_.back().kind == Kind::braces) {
            close();
            copy(1);
            return;
        } else if (c == '`') {
            toggle_backticks();
        }
        command().add({&c, 1});
        copy(1);
    }

    void toggle_backticks() {
        if (frames_.back().kind == Kind::backticks)
            close();
        else
            open(Kind::backticks, 0);
    }

    Result<Unit> read_in_commands(char c) {
        const bool at_token = !command().in_token();
        if (c == '#' && at_token && frames_.back().kind != Kind::arithmetic && !in_braces()) {
            while (at_ < script_.size() && script_[at_] != '\n') copy(1); // a reference in a comment is text
            return done();
        }
        if (at_token && next_is("[[") && at_ + 2 < script_.size() && (is_blank(script_[at_ + 2]) || script_[at_ + 2] == '\n')) {
            open(Kind::test, 0);
            copy(2);
            return done();
        }
        if (at_token && next_is("]]") && frames_.back().kind == Kind::test) {
            close();
            copy(2);
            return done();
        }
        if (next_is("<<") && !next_is("<<<") && frames_.back().kind != Kind::arithmetic && !(at_ > 0 && script_[at_ - 1] == '<'))
            return read_here_operator();
        if (ends_token(c) && !in_braces()) end_token(c);
        switch (c) {
        case '\'': open_quotes(Kind::single_quotes); break;
        case '"': read_double_quote(); break;
        case '`': toggle_backticks(); break;
        case '(': open_parenthesis(); break;
        case ')': close_parenthesis(); break;
        case '[':
            if (frames_.back().kind == Kind::brackets) ++frames_.back().depth;
            break;
        case ']':
            if (frames_.back().kind == Kind::brackets && --frames_.back().depth == 0) close();
            break;
        default: break;
        }
        if (c == '}' && frames_.back().kind == Kind::braces)
            close();
        else if (!ends_token(c) || in_braces())
            command().add({&c, 1});
        copy(1);
        if (c == '\n') return read_here_documents();
        return done();
    }

    void read_double_quote() {
        // The end of the unquoted part inside "${x:-"..."}".
        if (frames_.size() > 1 && frames_.back().kind == Kind::commands && frames_[frames_.size() - 2].kind == Kind::braces)
            close();
        else
            open_quotes(Kind::double_quotes);
    }

    void open_parenthesis() {
        if (frames_.back().kind != Kind::arithmetic && next_is("(("))
            open(Kind::arithmetic, 0); // bash's (( ... )); both parentheses are counted as they come
        ++frames_.back().depth;
    }
    void close_parenthesis() {
        auto& frame = frames_.back();
        if (frame.kind == Kind::arithmetic) {
            if (--frame.depth == 0) close();
        } else if (frame.depth > 0) {
            --frame.depth;
        } else if (frame.kind == Kind::substitution && (!case_in_substitution_ || ended_by_esac_)) {
            case_in_substitution_ = false;
            close();
        } else {
            command().clear(); // the pattern of a case
        }
    }

    void end_token(char by) {
        if (command().token() == "case" && within(Kind::substitution)) case_in_substitution_ = true;
        if (command().in_token()) ended_by_esac_ = command().token() == "esac";
        const bool in_redirection = at_ > 0 && (script_[at_ - 1] == '<' || script_[at_ - 1] == '>'); // as in 2>&1
        if (by == '<' || by == '>' || (in_redirection && (by == '&' || by == '|')) || next_is("&>")) {
            command().begin_redirection(next_is("<<<") || is_third_of_here_string());
            return;
        }
        command().end_token();
        if (!is_blank(by) && by != ')') command().clear();
    }

    bool is_third_of_here_string() const {
        return (at_ >= 1 && script_.substr(at_ - 1).starts_with("<<<")) || (at_ >= 2 && script_.substr(at_ - 2).starts_with("<<<"));
    }

    Result<Unit> read_here_operator() {
        command().end_token();
        copy(2);
        HereDocument document{{}, false, false, command().reads_program()};
        if (at_ < script_.size() && script_[at_] == '-') {
            document.indented = true;
            copy(1);
        }
        while (at_ < script_.size() && is_blank(script_[at_])) copy(1);
        while (at_ < script_.size() && !ends_token(script_[at_])) {
            const char c = script_[at_];
            if (c == '\'' || c == '"' || c == '\\')
                document.quoted = true;
            else
                document.delimiter += c;
            copy(1);
        }
        if (!document.delimiter.empty()) here_documents_.push_back(std::move(document));
        return done();
    }

    /// After the newline that ends the line of their operators.
    Result<Unit> read_here_documents() {
        while (!here_documents_.empty()) {
            const auto document = std::move(here_documents_.front());
            here_documents_.pop_front();
            here_depth_ = 0, here_braces_ = 0, in_here_backticks_ = false;
            while (at_ < script_.size()) {
                const auto end = std::min(script_.find('\n', at_), script_.size());
                auto line = script_.substr(at_, end - at_);
                if (document.indented) line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
                if (line == document.delimiter) {
                    copy(end - at_);
                    break;
                }
                TRY([[maybe_unused]] const auto unit, read_here_line(end, document));
                if (at_ < script_.size()) copy(1);
            }
        }
        return done();
    }

    Result<Unit> read_here_line(std::size_t end, const HereDocument& document) {
        reading_here_document_ = true;
        while (at_ < end) {
            if (script_[at_] == '\\' && at_ + 1 < end && !document.quoted) {
                copy(2);
            } else if (next_is("$${")) {
                ++at_;
                if (!document.quoted) here_braces_ = at_ + 2;
                copy(2);
            } else if (next_is("${")) {
                TRY([[maybe_unused]] const auto allowed, may_stand_in(document, end));
                TRY([[maybe_unused]] const auto unit, read_reference());
            } else {
                if (!document.quoted) follow_here_substitution();
                copy(1);
            }
        }
        reading_here_document_ = false;
        return done();
    }

    /// `at_` is at a reference in the line of a here-document that ends at `end`.
    Result<Unit> may_stand_in(const HereDocument& document, std::size_t end) const {
        const auto reference = script_.substr(at_ + 2, std::min(script_.find('}', at_), end) - at_ - 2);
        if (document.quoted)
            return refusal(reference, "in a here-document with a quoted delimiter, where the shell expands nothing",
                           fmt::format("write <<{} without quotes", document.delimiter));
        if (document.is_program)
            return refusal(reference, "in a here-document that a shell reads as program text",
                           "pass it as an argument of that shell, or by env, and quote the delimiter");
        const auto by_variable = fmt::format("assign it to a variable first, as in value=${{{}}}, and use \"$value\"", reference);
        if (here_depth_ > 0 || in_here_backticks_)
            return refusal(reference, "in a command or arithmetic within a here-document", by_variable);
        if (here_braces_ != 0)
            if (const auto how = SimpleCommand::evaluated_in_braces(script_.substr(here_braces_, at_ - here_braces_)); !how.empty())
                return refusal(reference, how, by_variable);
        return done();
    }

    /// Commands and arithmetic in a here-document, which may be several lines long.
    void follow_here_substitution() {
        const char c = script_[at_];
        if (c == '`') in_here_backticks_ = !in_here_backticks_;
        if (c == '}') here_braces_ = 0;
        if (c == '(' && (here_depth_ > 0 || (at_ > 0 && script_[at_ - 1] == '$'))) ++here_depth_;
        if (c == ')' && here_depth_ > 0) --here_depth_;
    }

    std::string_view script_;
    std::size_t at_ = 0, line_ = 1;
    ScriptText out_;
    std::vector<Frame> frames_;
    std::vector<SimpleCommand> commands_; ///< of the command being read, and of the commands around it
    std::deque<HereDocument> here_documents_;
    bool reading_here_document_ = false, case_in_substitution_ = false, ended_by_esac_ = false;
    int here_depth_ = 0;          ///< of parentheses in a here-document
    std::size_t here_braces_ = 0; ///< where the text in the braces of an expansion in it begins; 0: none is open
    bool in_here_backticks_ = false;
};

} // namespace

Result<ScriptText> bind_script_text(std::string_view script) { return ScriptReader(script).read(); }

} // namespace orrery::jobs
