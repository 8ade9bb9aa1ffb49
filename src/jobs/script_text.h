#pragma once

#include "core/result.h"

#include <string>
#include <string_view>
#include <vector>

namespace orrery::jobs {

/// A shell script whose `${...}` references are replaced by expansions of environment variables, so that every value is data: it
/// cannot end a word, and the shell never parses it as program text.
struct ScriptText {
    struct Variable {
        std::string name;      ///< of the environment variable, ORRERY_VALUE_1 and so on
        std::string reference; ///< the text between the braces of `${...}`
        std::size_t line = 1;  ///< of its first use in the script
    };
    std::string text;
    std::vector<Variable> variables; ///< each reference once, in the order of its first use
};

/// `$${NAME}` becomes `${NAME}`, an expansion of the shell. `invalid` where the shell would not expand a reference as one word (in
/// single quotes, a quoted here-document, backticks) or would evaluate it (arithmetic, `[[ ]]`, `eval`, `sh -c`); the message names
/// the line of the script, the remedy has the form to write instead.
Result<ScriptText> bind_script_text(std::string_view script);

} // namespace orrery::jobs
