#pragma once

#include "cli/command.h"

#include <functional>

/// What each command does. The table that names them is in commands.cpp.
namespace orrery::cli {

Result<int> run_apply(Invocation& invocation);
Result<int> run_diff(Invocation& invocation);
Result<int> run_delete(Invocation& invocation);
Result<int> run_get(Invocation& invocation);
Result<int> run_describe(Invocation& invocation);
Result<int> run_kinds(Invocation& invocation);
Result<int> run_explain(Invocation& invocation);
Result<int> run_watch(Invocation& invocation);
Result<int> run_events(Invocation& invocation);

Result<int> run_job_submit(Invocation& invocation);
Result<int> run_job_plan(Invocation& invocation);
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

Result<int> run_gslb_why(Invocation& invocation);
Result<int> run_gslb_whatif(Invocation& invocation);
Result<int> run_gslb_failback(Invocation& invocation);
Result<int> run_gslb_import(Invocation& invocation);
Result<int> run_gslb_vantages(Invocation& invocation);
Result<int> run_gslb_watch(Invocation& invocation);

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

Result<int> run_config_check(Invocation& invocation);
Result<int> run_config_show(Invocation& invocation);
Result<int> run_config_default(Invocation& invocation);
Result<int> run_version(Invocation& invocation);
Result<int> run_completion(Invocation& invocation);
Result<int> run_complete(Invocation& invocation);

/// Calls `on_change` for every change of a kind from now on, over broken connections, until it says false.
Result<int> follow_changes(Invocation& invocation, std::string_view kind_name,
                           const std::function<bool(std::string_view what, const json::value& object)>& on_change);
/// "?dry_run=true&because=..." from the command's options, or "".
std::string write_query(const Invocation& invocation);
/// All objects of a list, page by page, at most `limit` (0: all). `more` is set when there were more; `revision` is that of the
/// first page.
Result<std::vector<json::value>> list_all(Api& api, const KindView& kind, std::string query, std::size_t limit,
                                          bool* more = nullptr, std::int64_t* revision = nullptr);
/// Prints objects in the form -o names (table, wide, yaml, json, name).
void print_objects(Invocation& invocation, const KindView& kind, const std::vector<json::value>& objects, std::string_view form,
                   bool single);
/// One line for what a write did: "node/n1 updated (spec.ssh.port: 22 → 2222)". Also what is shown only once.
void print_outcome(Invocation& invocation, const KindView& kind, std::string_view name, const json::value& answer);

} // namespace orrery::cli
