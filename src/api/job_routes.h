#pragma once

#include "api/state.h"
#include "jobs/engine.h"

#include <cstdint>
#include <string>
#include <string_view>

/// Shared by the files of the job routes. Private to api.
namespace orrery::api {

Error job_query_error(std::string_view parameter, std::string message);
/// An integer query parameter of at most `max`.
Result<std::uint64_t> number_in(const Call& call, std::string_view parameter, std::uint64_t default_value, std::uint64_t max);
/// The task of ?task, for example mysql@db-1.
Result<std::uint32_t> task_in(const Call& call, const jobs::JobRun& run);
Parameter task_parameter();

/// Sends the output of one attempt, or streams it with ?follow.
Task<Unit> show_output(Api::State& state, jobs::Engine& engine, Call call);
Task<Unit> list_artefacts(jobs::Engine& engine, Call call);
Task<Unit> send_artefact(jobs::Engine& engine, Call call);

} // namespace orrery::api
