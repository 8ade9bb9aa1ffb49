#include "cli/command_options.h"
#include "cli/commands.h"

/// The table of the commands for sessions, users and tokens.
namespace orrery::cli {

namespace {

Option password_file(std::string help) { return {"--password-file", "FILE", std::move(help), {}, Means::file}; }
const char* const read_password_help = "read the password from this file; - for standard input";

std::vector<std::string> roles() { return {"viewer", "operator", "admin"}; }

std::vector<Command> session_commands() {
    return {
        {.path = "login",
         .summary = "Log in and save the session",
         .about =
             "Asks for the password on the terminal. The session (server and token) is saved in ~/.config/orrery/session.yaml,\n"
             "readable only by you, or in the file that ORRERY_CONFIG names. A one-time password must be replaced during the\n"
             "login. A login to another server adds a context, which becomes the current one; see \"orrery context\".",
         .arguments = {{"USER", "the user (default: ask)", Count::optional}},
         .options = {password_file(read_password_help),
                     {"--new-password-file", "FILE", "read the new password, if one is required, from this file", {}, Means::file},
                     {"--name", "NAME", "the name of the context (default: host and port of the server)"}},
         .examples = {{"orrery login admin", "to the server of the last session, or http://127.0.0.1:8421"},
                      {"orrery login alice -s https://orrery.example.org:8421 --ca ca.pem", "to another server, with its CA"},
                      {"orrery login robot --password-file /run/secrets/robot", "in a script"}},
         .run = run_login},
        {.path = "logout",
         .summary = "End the session",
         .about = {},
         .arguments = {},
         .options = {{"--force", "", "delete the local token even if the server cannot be reached"}},
         .examples = {{"orrery logout", "revoke the token"}},
         .run = run_logout},
        {.path = "whoami",
         .summary = "Show your user, role and server",
         .about = {},
         .arguments = {},
         .options = {output({"table", "yaml", "json"})},
         .examples = {{"orrery whoami", "user, role and server"}},
         .run = run_whoami},
        {.path = "context list",
         .summary = "List contexts: the servers that you logged in to",
         .about =
             "Each login to another server adds a context. Commands use the current context, or the context of the server that\n"
             "-s or ORRERY_SERVER names.",
         .arguments = {},
         .options = {output({"table", "json"})},
         .examples = {{"orrery context list", "* marks the current context"}},
         .run = run_context_list},
        {.path = "context use",
         .summary = "Select the current context",
         .about = {},
         .arguments = {{"CONTEXT", "its name, as \"orrery context list\" shows it", Count::one, Means::context}},
         .options = {},
         .examples = {{"orrery context use staging", "for the next commands"}},
         .run = run_context_use},
        {.path = "context delete",
         .summary = "Delete a context",
         .about = {},
         .arguments = {{"CONTEXT", "its name", Count::one, Means::context}},
         .options = {{"--force", "", "also while logged in; the token stays valid until it expires"}},
         .examples = {{"orrery context delete staging", "after \"orrery logout\""}},
         .run = run_context_delete},
    };
}

std::vector<Command> user_commands() {
    const Argument users{"USER", "names", Count::some, Means::name};
    return {
        {.path = "user list",
         .summary = "List users",
         .about = {},
         .arguments = {},
         .options = {output({"table", "wide", "yaml", "json", "name"})},
         .examples = {{"orrery user list", "all users"}},
         .run = run_user_list},
        {.path = "user create",
         .summary = "Create a user",
         .about = "Asks for the password on the terminal.",
         .arguments = {{"USER", "the login name"}},
         .options = {{"--role", "ROLE", "the role of the user (default: viewer)", roles()},
                     {"--full-name", "TEXT", "the name of the person"},
                     {"--email", "ADDRESS", "the mail address of the person"},
                     password_file(read_password_help),
                     {"--one-time", "", "the user must replace the password at the first login"},
                     {"--no-password", "", "a user for tokens only"},
                     reason()},
         .examples = {{"orrery user create alice --role operator --one-time", "Alice chooses a password at the first login"},
                      {"orrery user create robot --no-password", "for tokens only"}},
         .run = run_user_create},
        {.path = "user password",
         .summary = "Change your password, or as admin that of another user",
         .about = {},
         .arguments = {{"USER", "the user (default: you)", Count::optional, Means::name}},
         .options = {password_file("read the new password from this file; - for standard input"),
                     {"--current-password-file", "FILE", "read the current password from this file", {}, Means::file}},
         .examples = {{"orrery user password", "your own"}},
         .run = run_user_password},
        {.path = "user disable",
         .summary = "Disable users: their passwords and tokens stop working",
         .about = {},
         .arguments = {users},
         .options = {reason()},
         .examples = {{"orrery user disable alice --reason 'left'", "at once"}},
         .run = run_user_disable},
        {.path = "user enable",
         .summary = "Enable disabled users",
         .about = {},
         .arguments = {users},
         .options = {reason()},
         .examples = {{"orrery user enable alice", "again"}},
         .run = run_user_enable},
        {.path = "user delete",
         .summary = "Delete users",
         .about = {},
         .arguments = {users},
         .options = {reason(), dry_run()},
         .examples = {{"orrery user delete alice", "permanently"}},
         .run = run_user_delete},
    };
}

std::vector<Command> token_commands() {
    return {
        {.path = "token create",
         .summary = "Create a token for a program and print it once",
         .about = "Prints only the token to standard output.",
         .arguments = {{"TOKEN", "the name of the token"}},
         .options = {{"--user", "USER", "the user that the token acts as (default: you)"},
                     {"--role", "ROLE", "the role of the token; at most yours", roles()},
                     {"--ttl", "DURATION", "the lifetime of the token, as in 30d"},
                     {"--kind", "KIND", "restrict the token to this kind; repeatable", {}, Means::kind, true},
                     {"--description", "TEXT", "what the token is for"},
                     reason(),
                     dry_run()},
         .examples = {{"orrery token create inventory --role viewer --kind node --ttl 30d > /run/inventory.token", "into a file"},
                      {"ORRERY_TOKEN_FILE=/run/inventory.token orrery get nodes", "use it"}},
         .run = run_token_create},
        {.path = "token list",
         .summary = "List tokens, without their secret values",
         .about = {},
         .arguments = {},
         .options = {output({"table", "wide", "yaml", "json", "name"})},
         .examples = {{"orrery token list", "yours; as admin, all"}},
         .run = run_token_list},
        {.path = "token revoke",
         .summary = "Revoke tokens: they stop working at once",
         .about = {},
         .arguments = {{"TOKEN", "names", Count::some, Means::name}},
         .options = {reason(), dry_run()},
         .examples = {{"orrery token revoke inventory", "by name"}},
         .run = run_token_revoke},
    };
}

} // namespace

std::vector<Command> identity_commands() { return concatenated({session_commands(), user_commands(), token_commands()}); }

} // namespace orrery::cli
