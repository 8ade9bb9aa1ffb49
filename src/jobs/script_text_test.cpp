#include "jobs/script_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace orrery::jobs::script_text_test {

namespace {

using ::testing::HasSubstr;

/// What a shell prints for the script, with every reference bound to `value`.
std::string output_of(const char* shell, const std::string& script, const std::string& value) {
    auto bound = bind_script_text(script);
    EXPECT_TRUE(bound.ok()) << script << ": " << bound.error().text();
    if (!bound.ok()) return "(refused)";
    for (const auto& variable : bound->variables) ::setenv(variable.name.c_str(), value.c_str(), 1);
    ::setenv("SCRIPT_TEXT_TEST", bound->text.c_str(), 1);
    const std::string command = std::string(shell) + " -c 'eval \"$SCRIPT_TEXT_TEST\"' 2>&1";
    std::string out;
    std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
    for (int c; pipe && (c = std::fgetc(pipe.get())) != EOF;) out += static_cast<char>(c);
    return out;
}

const std::string hostile_values[] = {
    "plain", "two words", "a;id",       "$(id)",   "`id`",        "${HOME}",         "'",
    "\"",    "'; id; '",  "\"; id; \"", "* ? [a]", "\\",          "line\nid\n\nend", "EOF\nid",
    "-n",    "a[$(id)]",  "&& id",      ") id (",  "#no comment", "${secret.a.b}",   "",
};

} // namespace

TEST(ScriptText, AValueIsOneShellWordInEveryPosition) {
    const std::string scripts[] = {
        "printf %s ${with.v}",
        "printf %s \"${with.v}\"",
        "x=${with.v}; printf %s \"$x\"",
        "x=\"${with.v}\"\nprintf '%s' \"$${x}\"",
        "f() { printf %s \"$1\"; }\nf ${with.v}",
        "printf %s \"$(printf %s ${with.v}; echo .)\" | sed '$s/.$//'",
        "cat <<EOF | sed '$s/.$//'\n${with.v}.\nEOF\n",
        "if [ -n x ]; then printf %s ${with.v}; fi # ${with.v} in a comment\n",
        "case x in x) printf %s ${with.v} ;; esac",
        "for one in ${with.v}; do printf %s \"$one\"; done",
        "unset none; printf %s \"$${none:-${with.v}}\"",
        "printf %s \"$${none:-\"${with.v}\"}\"",
        "echo 'it''s' >/dev/null; printf %s ${with.v}",
    };
    for (const char* shell : {"dash", "bash"}) {
        for (const auto& script : scripts) {
            for (const auto& value : hostile_values) {
                auto expected = value;
                // The two scripts that print lines through a pipe end with a newline; an empty argument of a loop prints nothing.
                auto seen = output_of(shell, script, value);
                if (script.find("sed") != std::string::npos && seen.ends_with('\n')) seen.pop_back();
                EXPECT_EQ(seen, expected) << shell << ": " << script;
            }
        }
    }
}

TEST(ScriptText, PartsOfAShellWordStayTogether) {
    for (const char* shell : {"dash", "bash"}) {
        EXPECT_EQ(output_of(shell, "printf '<%s>' --to=${with.v}/x", "a b"), "<--to=a b/x>");
        EXPECT_EQ(output_of(shell, "printf '<%s>' \"to ${with.v}:${with.w}\"", "a b"), "<to a b:a b>");
    }
}

TEST(ScriptText, EachReferenceIsOneVariable) {
    auto bound = bind_script_text("a ${with.v}\nb ${service.db.first} ${with.v}");
    ASSERT_TRUE(bound.ok());
    EXPECT_EQ(bound->text, "a \"${ORRERY_VALUE_1}\"\nb \"${ORRERY_VALUE_2}\" \"${ORRERY_VALUE_1}\"");
    ASSERT_EQ(bound->variables.size(), 2u);
    EXPECT_EQ(bound->variables[1].reference, "service.db.first");
    EXPECT_EQ(bound->variables[1].line, 2u);
}

TEST(ScriptText, ExpansionsOfTheShellStayUnchanged) {
    auto bound = bind_script_text("echo $HOME $1 \"$@\" $${HOME} $(id -u) $((1 + 2)) '$x'");
    ASSERT_TRUE(bound.ok());
    EXPECT_EQ(bound->text, "echo $HOME $1 \"$@\" ${HOME} $(id -u) $((1 + 2)) '$x'");
    EXPECT_TRUE(bound->variables.empty());
}

TEST(ScriptText, AValueInProgramTextIsRefused) {
    const std::pair<const char*, const char*> places[] = {
        {"true\necho '${with.v}'", "line 2 of the script: ${with.v} is in single quotes"},
        {"cat <<'EOF'\n${with.v}\nEOF\n", "quoted delimiter"},
        {"cat <<-\\EOF\n\t${with.v}\n\tEOF\n", "quoted delimiter"},
        {"echo `echo ${with.v}`", "backticks"},
        {"echo $((1 + ${with.v}))", "arithmetic"},
        {"(( ${with.v} > 1 )) && echo yes", "arithmetic"},
        {"[[ ${with.v} -eq 1 ]] && echo yes", "[[ ]]"},
        {"eval echo ${with.v}", "eval"},
        {"sh -c \"echo ${with.v}\"", "program text (-c)"},
        {"bash -lc \"echo ${with.v}\"", "program text (-lc)"},
        {"x=$(case a in a) echo ${with.v};; esac)", "has a case"},
        {"echo ${with.v", "without its closing brace"},
        {"if true; then eval echo ${with.v}; fi", "eval"},
        {"for x in a b; do eval \"$x=${with.v}\"; done", "eval"},
        {"case $1 in a) eval ${with.v} ;; esac", "eval"},
        {"! command eval ${with.v}", "eval"},
        {"eval \"$(echo a)\" ${with.v}", "eval"},
        {"eval \"$(echo ${with.v})\"", "eval"},
        {"eval echo 2>&1 ${with.v}", "eval"},
        {"eval \"$(cat <<EOF\n${with.v}\nEOF\n)\"", "eval"},
        {"trap \"rm -f ${with.v}\" EXIT", "trap"},
        {"let x=${with.v}", "let"},
        {"sh -c \\\n  \"echo ${with.v}\"", "program text (-c)"},
        {"sh -c \"echo $(date) ${with.v}\"", "program text (-c)"},
        {"su - web -c \"ls $(printf %s ${with.v})\"", "program text (-c)"},
        {"if (( ${with.v} > 1 )); then true; fi", "arithmetic"},
        {"for (( i = 0; i < ${with.v}; i++ )); do true; done", "arithmetic"},
        {"echo $[ ${with.v} + 1 ]", "arithmetic"},
        {"[[\n ${with.v} -eq 1 ]]", "[[ ]]"},
        {"a[${with.v}]=1", "subscript"},
        {"a[\"${with.v}\"]=1", "subscript"},
        {"a=([${with.v}]=1)", "subscript"},
        {"echo $${a[${with.v}]}", "subscript"},
        {"echo \"$${a[\"${with.v}\"]}\"", "subscript"},
        {"echo $${x:${with.v}}", "offset"},
        {"echo \"$${x:1:${with.v}}\"", "offset"},
        {"declare -i x=${with.v}", "declare"},
        {"declare -rin x=${with.v}", "declare"},
        {"local -n x=${with.v}", "local"},
        {"declare ${with.v}=1", "declare"},
        {"compgen -W ${with.v} x", "compgen"},
        {"read ${with.v} <file", "read"},
        {"unset ${with.v}", "unset"},
        {"[ -v ${with.v} ]", "[ -v"},
        {"printf -v ${with.v} x", "printf -v"},
        {"cat <<EOF\n$(( ${with.v} ))\nEOF\n", "within a here-document"},
        {"cat <<EOF\n$(\n echo ${with.v} )\nEOF\n", "within a here-document"},
        {"cat <<EOF\n`echo ${with.v}`\nEOF\n", "within a here-document"},
        {"cat <<EOF\n$${a[${with.v}]}\nEOF\n", "subscript"},
        {"sudo -u web bash -s 2>/dev/null <<EOF\necho ${with.v}\nEOF\n", "a shell reads as program text"},
        {"bash <<<\"echo ${with.v}\"", "program text (bash)"},
        {"sed -i \"s/^host=.*/host=${with.v}/\" /etc/x", "program text (sed)"},
        {"sed -n -e \"/${with.v}/p\" /etc/x", "program text (sed)"},
        {"sed --expression=\"s/a/${with.v}/\" /etc/x", "program text (sed)"},
        {"sudo sed \"s/a/${with.v}/\" /etc/x", "program text (sed)"},
        {"ls | awk -F : \"{ print \\\"${with.v}\\\" }\"", "program text (awk)"},
        {"perl -ne \"print '${with.v}'\" /etc/x", "program text (perl)"},
    };
    for (const auto& [script, part] : places) {
        auto bound = bind_script_text(script);
        ASSERT_FALSE(bound.ok()) << script;
        EXPECT_THAT(bound.error().message, HasSubstr(part)) << script;
        EXPECT_FALSE(bound.error().remedy.empty()) << script;
    }
}

TEST(ScriptText, TextAfterARefusedReferenceMayContainValues) {
    EXPECT_TRUE(bind_script_text("echo $((1 + 2)) ${with.v}").ok());
    EXPECT_TRUE(bind_script_text("(( 1 > 0 )) && echo ${with.v}").ok());
    EXPECT_TRUE(bind_script_text("[[ a == b ]] || echo ${with.v}").ok());
    EXPECT_TRUE(bind_script_text("eval true; echo ${with.v}").ok());
    EXPECT_TRUE(bind_script_text("sh -c 'echo \"$1\"' x ${with.v}").ok());
    EXPECT_TRUE(bind_script_text("x=$(case a in a) echo 1;; esac); echo ${with.v}").ok());
    EXPECT_TRUE(bind_script_text("echo `id` ${with.v}").ok());
    EXPECT_TRUE(bind_script_text("echo 'a' \"b 'c'\" ${with.v}").ok());
    for (const char* script : {
             "if eval true; then echo ${with.v}; fi",
             "eval true 2>&1 && echo ${with.v}",
             "case $1 in a) eval true ;; *) echo ${with.v} ;; esac",
             "x=$(sh -c 'echo 1') y=${with.v}",
             "trap 'rm -f x' EXIT\necho ${with.v}",
             "a[1]=${with.v}",
             "echo \"$${a[1]}\" ${with.v}",
             "echo \"[${with.v}]\" [a-z]* ${with.v}",
             "echo $${x:1:2} ${with.v}",
             "echo $[1 + 2] \"$[3]\" ${with.v}; grep 'a$[0-9]' ${with.v}",
             "echo $${x:-${with.v}} \"$${x:=${with.v}}\" $${x+${with.v}} $${x#${with.v}}",
             "export NAME=${with.v}; local other=${with.v}",
             "declare -r name=${with.v}",
             "read -r line <${with.v}",
             "read -r line <<<${with.v}",
             "printf %s ${with.v} 2>&1 | tee -a ${with.v} >/dev/null",
             "cat <<EOF\n$(date) ${with.v} $((1 + 2)) $${x:-${with.v}}\nEOF\n",
             "bash ./setup.sh <<EOF\n${with.v}\nEOF\n",
             "sed 's/a/b/' ${with.v}",
             "sed -n -e 's/a/b/p' -- ${with.v}",
             "sed -E -f rules.sed ${with.v}",
             "awk -v name=${with.v} -F : '{ print name }' ${with.v}",
             "sed s/a/b/ x; echo ${with.v}",
             "echo sed ${with.v}",
             "perl script.pl ${with.v}",
         }) {
        const auto bound = bind_script_text(script);
        EXPECT_TRUE(bound.ok()) << script << ": " << bound.error().text();
    }
}

} // namespace orrery::jobs::script_text_test
