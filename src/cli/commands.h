#pragma once

#include "cli/command.h"
#include "cli/documents.h"

#include <functional>

/// The functions of the commands, and functions that several of them use. The tables are in commands.cpp and *_command_table.cpp.
namespace orrery::cli {

Result<int> run_apply(Invocation& invocation);
Result<int> run_diff(Invocation& invocation);
Result<int> run_delete(Invocation& invocation);
Result<int> run_edit(Invocation& invocation);
Result<int> run_get(Invocation& invocation);
Result<int> run_describe(Invocation& invocation);
Result<int> run_secret_create(Invocation& invocation);
Result<int> run_kinds(Invocation& invocation);
Result<int> run_explain(Invocation& invocation);
Result<int> run_watch(Invocation& invocation);
Result<int> run_events(Invocation& invocation);
Result<int> run_logs(Invocation& invocation);
Result<int> run_why(Invocation& invocation);

Result<int> run_job_submit(Invocation& invocation);
Result<int> run_job_run(Invocation& invocation);
Result<int> run_job_history(Invocation& invocation);
/// Follows a job until it is done or converged, shows it unless --quiet is given, and returns the exit code.
Result<int> follow_to_end(Invocation& invocation, std::string job);
/// The values of -p NAME=VALUE, converted to the types that the JobTemplate declares.
Result<json::object> template_parameters(Invocation& invocation, const std::string& job_template);
/// The document of kind Job in the files of -f. `invalid` if there is not exactly one.
Result<FileDocument> job_document(Invocation& invocation);
Result<int> run_job_plan(Invocation& invocation);
Result<int> run_job_list(Invocation& invocation);
Result<int> run_job_show(Invocation& invocation);
Result<int> run_job_graph(Invocation& invocation);
Result<int> run_job_watch(Invocation& invocation);
Result<int> run_job_wait(Invocation& invocation);
Result<int> run_job_logs(Invocation& invocation);
Result<int> run_job_artefacts(Invocation& invocation);
Result<int> run_job_why(Invocation& invocation);
Result<int> run_job_approve(Invocation& invocation);
Result<int> run_job_pause(Invocation& invocation);
Result<int> run_job_resume(Invocation& invocation);
Result<int> run_job_cancel(Invocation& invocation);
Result<int> run_job_retry(Invocation& invocation);
Result<int> run_job_undo(Invocation& invocation);

Result<int> run_gslb_why(Invocation& invocation);
Result<int> run_gslb_whatif(Invocation& invocation);
Result<int> run_gslb_failback(Invocation& invocation);
Result<int> run_gslb_import(Invocation& invocation);
Result<int> run_gslb_vantages(Invocation& invocation);
Result<int> run_gslb_watch(Invocation& invocation);

Result<int> run_fleet_import(Invocation& invocation);
Result<int> run_fleet_flavors(Invocation& invocation);
Result<int> run_fleet_outliers(Invocation& invocation);
Result<int> run_plan_preview(Invocation& invocation);

Result<int> run_context_list(Invocation& invocation);
Result<int> run_context_use(Invocation& invocation);
Result<int> run_context_delete(Invocation& invocation);
Result<int> run_login(Invocation& invocation);
Result<int> run_logout(Invocation& invocation);
Result<int> run_whoami(Invocation& invocation);
Result<int> run_user_list(Invocation& invocation);
Result<int> run_user_create(Invocation& invocation);
Result<int> run_user_password(Invocation& invocation);
Result<int> run_user_disable(Invocation& invocation);
Result<int> run_user_enable(Invocation& invocation);
Result<int> run_user_delete(Invocation& invocation);
Result<int> run_token_create(Invocation& invocation);
Result<int> run_token_list(Invocation& invocation);
Result<int> run_token_revoke(Invocation& invocation);

Result<int> run_store_status(Invocation& invocation);
Result<int> run_store_backup(Invocation& invocation);
Result<int> run_store_migrate(Invocation& invocation);
Result<int> run_store_verify(Invocation& invocation);
Result<int> run_store_restore(Invocation& invocation);
Result<int> run_store_reset_admin(Invocation& invocation);

Result<int> run_config_check(Invocation& invocation);
Result<int> run_config_show(Invocation& invocation);
Result<int> run_config_default(Invocation& invocation);
Result<int> run_version(Invocation& invocation);
Result<int> run_completion(Invocation& invocation);
Result<int> run_man(Invocation& invocation);
Result<int> run_complete(Invocation& invocation);

/// Calls `on_change` for every change of a kind from now on, over broken connections, until it returns false.
Result<int> follow_changes(Invocation& invocation, std::string_view kind_name,
                           const std::function<bool(std::string_view change, const json::value& object)>& on_change);
/// A kind and names of resources of this kind.
struct Selection {
    const KindView* kind = nullptr;
    std::vector<std::string> names;
};
/// Parses "node/n1", or a kind and the names that follow it.
Result<Selection> parse_selection(Invocation& invocation, const std::string& kind_or_path, std::vector<std::string> names);
/// The changes that replacing a resource by `document` would make, as fields of an error about conflicting revisions.
Result<std::vector<FieldError>> changes_against_current(Api& api, const KindView& kind, const std::string& name,
                                                        const json::value& document);
/// "?dry_run=true&reason=..." from the options of the command, or "".
std::string write_query(const Invocation& invocation);
/// Lists objects page by page, at most `limit` (0: all). Sets `more` if there are more, and `revision` to that of the first page.
Result<std::vector<json::value>> list_all(Api& api, const KindView& kind, std::string query, std::size_t limit,
                                          bool* more = nullptr, std::int64_t* revision = nullptr);
/// Prints objects in a format of -o (table, wide, yaml, json, name).
void print_objects(Invocation& invocation, const KindView& kind, const std::vector<json::value>& objects, std::string_view form,
                   bool single);
/// Prints one line about a write: "node/n1 updated (spec.ssh.port: 22 → 2222)". Also prints values that are shown only once.
void print_outcome(Invocation& invocation, const KindView& kind, std::string_view name, const json::value& answer);

/// Prints the answer if -o is yaml or json; false otherwise.
bool print_structured(Invocation& invocation, const json::value& answer);

} // namespace orrery::cli
