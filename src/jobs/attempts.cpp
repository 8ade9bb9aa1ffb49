#include "core/log.h"
#include "core/text.h"
#include "jobs/engine_state.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include <charconv>

/// One attempt: its values, its life, its end.
namespace orrery::jobs {

const RunSpec& run_of(const TaskSpec& spec, Phase phase) {
    switch (phase) {
    case Phase::check: return spec.check;
    case Phase::run: return spec.run;
    case Phase::verify: return spec.verify;
    case Phase::undo: return spec.undo;
    }
    return spec.run;
}

Result<std::shared_ptr<const Target>> Engine::State::target(const std::string& node) {
    if (const auto found = targets.find(node); found != targets.end()) return found->second;
    TRY(auto object, resources.get(kind("Node"), node));
    auto made = std::make_shared<Target>();
    made->node = resource::Node::from(object);
    made->labels = std::move(object.labels);
    targets[node] = made;
    return std::shared_ptr<const Target>(std::move(made));
}

Scope Engine::State::scope_for(const Plan& plan, const std::vector<Row>* rows, std::uint32_t task,
                               std::shared_ptr<const Target> at) const {
    Scope scope;
    scope.job = plan.name;
    scope.plan = &plan;
    scope.membership = &membership;
    scope.node = std::move(at);
    scope.address_of = [this](const std::string& node) {
        auto object = resources.get(kind("Node"), node);
        return object.ok() ? resource::Node::from(*object).address : node;
    };
    if (rows != nullptr)
        scope.published = [&plan, rows, task](const std::string& name) -> const json::object* {
            const auto group = plan.find_group(name);
            if (!group) return nullptr;
            const auto host = plan.host_of(task);
            auto other = host == Plan::none ? Plan::none : plan.task_on(*group, host);
            if (other == Plan::none && plan.groups[*group].count == 1) other = plan.groups[*group].first;
            if (other == Plan::none || !(*rows)[other].detail) return nullptr;
            return &(*rows)[other].detail->values;
        };
    return scope;
}

namespace {

std::uint64_t number_of(const std::string& digest) {
    std::uint64_t number = 0;
    std::from_chars(digest.data(), digest.data() + std::min<std::size_t>(16, digest.size()), number, 16);
    return number;
}

/// Is anything in it bound only when the task starts?
bool is_late(const json::value& value) {
    for (const auto& text : references_in(value)) {
        auto reference = parse_reference(text);
        if (!reference.ok() || (reference->what != Reference::What::secret && reference->what != Reference::What::job &&
                                reference->what != Reference::What::with))
            return true;
    }
    return false;
}

} // namespace

Result<std::uint64_t> Engine::State::prepare(JobRun& run, std::uint32_t task, Phase phase) {
    const auto group = run.plan.group_of(task);
    const auto& spec = run.plan.spec.tasks[group];
    std::shared_ptr<const Target> at;
    if (const auto host = run.plan.host_in(group, task); host != Plan::none) {
        TRY(at, target(run.plan.hosts[host]));
        if (at->node.maintenance)
            return Error{Code::unavailable,
                         fmt::format("{} is in maintenance{}{}", at->node.name, at->node.maintenance_reason.empty() ? "" : ": ",
                                     at->node.maintenance_reason)};
    }
    auto& live = *run.at_work;
    if (live.constant.empty()) live.constant.resize(run.plan.groups.size());
    auto& constant = live.constant[group];
    if (constant) return *constant;
    auto scope = scope_for(run.plan, &run.scheduler->rows(), task, at);
    TRY(auto with, bind(json::value(spec.with), scope));
    scope.with = &with.get_object();
    TRY(auto body, bind(spec.run.body, scope));
    const auto digest = number_of(digest_of(json::value(json::array{with, body})));
    if (!is_late(spec.run.body) && !is_late(json::value(spec.with)) && spec.with.empty()) constant = digest;
    if (!spec.with.empty()) live.prepared[task] = std::move(with.get_object());
    return digest;
}

Result<Attempt> Engine::State::make_attempt(const Plan& plan, const std::vector<Row>* rows, std::string_view uid,
                                            std::uint32_t task, Phase phase, const json::object* with,
                                            std::vector<std::string>* missing) {
    const auto group = plan.group_of(task);
    const auto& spec = plan.spec.tasks[group];
    const auto host = plan.host_in(group, task);
    Attempt attempt;
    attempt.job = plan.name;
    attempt.task = plan.task_name(task);
    attempt.number = rows == nullptr ? 1 : static_cast<int>((*rows)[task].attempt);
    attempt.id = fmt::format("{}-{}-{}{}", uid, task, attempt.number, name_of(phase)[0]);
    std::shared_ptr<const Target> at;
    if (host != Plan::none) {
        TRY(at, target(plan.hosts[host]));
        attempt.targets.push_back(*at);
    } else {
        for (const auto one : plan.groups[group].hosts) {
            TRY(const auto found, target(plan.hosts[one]));
            attempt.targets.push_back(*found);
        }
    }
    const auto& run = run_of(spec, phase);
    auto scope = scope_for(plan, rows, task, at);
    if (with != nullptr) {
        attempt.values = *with;
    } else {
        TRY(auto bound, bind(json::value(spec.with), scope));
        attempt.values = std::move(bound.get_object());
    }
    scope.with = &attempt.values;
    TRY(attempt.body, bind(run.body, scope));
    for (const auto& [name, text] : spec.environment) {
        TRY(auto value, bind(json::value(text), scope));
        attempt.environment[name] = value.is_string() ? std::string(std::string_view(value.get_string())) : to_json_text(value);
    }
    if (phase == Phase::run)
        for (const auto& text : spec.artefacts) {
            TRY(auto value, bind(json::value(text), scope));
            attempt.artefacts.push_back(value.is_string() ? std::string(std::string_view(value.get_string()))
                                                          : to_json_text(value));
        }
    attempt.timeout = spec.timeout;
    attempt.idempotent = spec.idempotent;
    auto named = references_in(attempt.body);
    for (auto& text : references_in(json::value(attempt.values))) named.push_back(std::move(text));
    for (const auto& [name, text] : attempt.environment)
        for (auto& one : references_in(json::value(text))) named.push_back(std::move(one));
    for (const auto& text : named) {
        auto reference = parse_reference(text);
        if (!reference.ok() || reference->what != Reference::What::secret) continue;
        auto value = resources.reveal(kind("Secret"), reference->name, "spec.values." + reference->field);
        if (value.ok())
            attempt.secrets[text.substr(7)] = std::move(*value);
        else if (missing != nullptr)
            missing->push_back(reference->name);
        else
            return std::move(value).error();
    }
    return attempt;
}

/// The first secret of an attempt that is not what it was at `since`, when the attempt was begun; empty: none.
std::string Engine::State::changed_secret(const Attempt& attempt, const std::vector<std::string>& missing,
                                          std::int64_t since) const {
    if (!missing.empty()) return missing.front();
    for (const auto& [name, value] : attempt.secrets) {
        auto of = name.substr(0, name.rfind('.'));
        const auto object = resources.get(kind("Secret"), of);
        if (!object.ok() || object->updated_at.time_since_epoch().count() > since) return of;
    }
    return {};
}

void Engine::State::begin(const Context& parent, std::shared_ptr<JobRun> run, Scheduler::Start start, SteadyTime due) {
    auto running = std::make_shared<RunningAttempt>();
    running->phase = start.phase;
    running->due = due;
    run->at_work->running[start.task] = running;
    const auto ctx = Context::make("job/" + run->name, parent.id());
    ++attempts;
    auto self = shared_from_this();
    auto over = [self, run, start, running](std::exception_ptr failure) {
        --self->attempts;
        if (running->sink) running->sink->on_pending = nullptr; // it holds the run, which holds the attempt
        bool let_go = false;
        if (failure) {
            try {
                std::rethrow_exception(failure);
            } catch (const boost::system::system_error&) {
                let_go = true; // cancelled: this server stops, or gave the attempt up
            } catch (const std::exception& error) {
                log::error(Context::background(), "an attempt of {} ended with an exception: {}", run->plan.task_name(start.task),
                           error.what());
                running->outcome = Outcome::failure(ErrorClass::refused, fmt::format("a bug: {}", error.what()));
            }
        }
        if (let_go && running->killed) running->outcome = Outcome::failure(ErrorClass::lost, "it was told to end and did not");
        if (!let_go || running->killed) {
            if (running->over == SteadyTime{}) running->over = self->clock.steady();
            self->ended.push_back({run, start.task, running});
            self->wake_up();
        }
        if (self->attempts == 0) self->emptied.notify_all();
    };
    asio::co_spawn(executor, work(ctx, run, start, running), asio::bind_cancellation_slot(running->let_go.slot(), std::move(over)));
}

asio::awaitable<void> Engine::State::work(Context ctx, std::shared_ptr<JobRun> run, Scheduler::Start start,
                                          std::shared_ptr<RunningAttempt> running) {
    const auto& row = run->scheduler->row(start.task);
    const auto& spec = run->plan.spec.tasks[run->plan.group_of(start.task)];
    const auto& body = run_of(spec, start.phase);
    if (!body.given()) {
        running->outcome = Outcome::success(Outcome::Change::unchanged);
        co_return;
    }
    running->executor = executors.find(body.executor);
    if (running->executor == nullptr) {
        running->outcome =
            Outcome::failure(ErrorClass::refused, fmt::format("there is no executor {} on this server", body.executor));
        co_return;
    }
    const json::object* with = row.detail && row.detail->inputs.is_object() ? &row.detail->inputs.get_object() : nullptr;
    std::vector<std::string> missing;
    auto made = make_attempt(run->plan, &run->scheduler->rows(), run->uid, start.task, start.phase, with,
                             start.reattach ? &missing : nullptr);
    if (!made.ok()) {
        running->outcome = Outcome::failure(ErrorClass::refused, made.error().message);
        co_return;
    }
    running->attempt = std::move(*made);
    auto& attempt = running->attempt;
    attempt.environment["ORRERY_CONTEXT"] = ctx.id();
    attempt.environment["ORRERY_JOB"] = attempt.job;
    attempt.environment["ORRERY_TASK"] = attempt.task;
    attempt.environment["ORRERY_ATTEMPT"] = attempt.id;
    OutputLog::Name name{run->uid, start.task, attempt.number, start.phase};
    running->sink = output().open(name, attempt.secrets);
    running->sink->on_pending = [this, run, sink = std::weak_ptr(running->sink)] {
        if (auto alive = sink.lock()) unflushed.emplace_back(run, std::move(alive));
        output_wake.notify_all();
    };
    Result<Outcome> outcome;
    const auto begun_at = row.detail ? row.detail->server : std::string();
    if (start.reattach && options.shared && running->executor->begins_here() && !begun_at.empty() && begun_at != options.server) {
        outcome =
            Outcome::failure(ErrorClass::lost, fmt::format("it was begun at the server {}, and this one ({}) cannot ask for it",
                                                           begun_at, options.server));
    } else if (start.reattach) {
        auto from = co_await kept_output(ctx, name);
        running->sink->resume(from.offsets, from.size);
        // What runs knows the secret that was; what it says of it could not be taken out.
        if (const auto secret = changed_secret(attempt, missing, row.started); !secret.empty())
            running->sink->withhold(fmt::format("the secret {} was changed while this ran and the server was away: what it said "
                                                "after that is not kept, for a secret in it would not be known",
                                                secret));
        auto found = co_await running->executor->reattach(ctx, attempt, std::move(from.offsets), *running->sink);
        if (!found.ok())
            outcome = std::move(found).error();
        else if (found->what == Reattached::What::ended)
            outcome = std::move(found->outcome);
        else if (found->what == Reattached::What::unknown)
            outcome = Outcome::failure(ErrorClass::lost, found->words);
        else
            running->never_began = true;
    } else {
        if (on_dispatch) on_dispatch(clock.steady() - running->due);
        outcome = co_await running->executor->start(ctx, attempt, *running->sink);
    }
    if (outcome.ok() && !running->never_began && !attempt.artefacts.empty()) {
        running->has_ended = true;
        co_await collect(ctx, run, start.task, *running, *outcome);
    }
    // What was cancelled is not recorded: whoever leads next takes it up.
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) throw boost::system::system_error(asio::error::operation_aborted);
    running->sink->on_pending = nullptr;
    running->sink->finish();
    co_await keep_output(ctx, *running);
    running->over = clock.steady();
    if (running->never_began) co_return;
    if (outcome.ok()) {
        running->outcome = std::move(*outcome);
    } else {
        const auto code = outcome.error().code;
        running->outcome = Outcome::failure(code == Code::unavailable ? ErrorClass::connect
                                            : code == Code::timeout   ? ErrorClass::timeout
                                                                      : ErrorClass::refused,
                                            outcome.error().message);
    }
    running->outcome.words = valid_utf8(running->sink->masker().mask_cut(running->outcome.words).substr(0, 4096));
    if (running->sink->withholds()) {
        running->outcome.words = running->outcome.words.empty() ? "" : "what it said is not kept: see its output";
        running->outcome.values.clear();
    }
    if (!running->outcome.values.empty()) {
        auto text = to_json_text(running->outcome.values);
        if (text.size() > (64u << 10)) {
            running->outcome.values.clear();
            running->outcome.words += " (its values were over 64 KiB and are not kept)";
        } else if (running->sink->masker().mask(text) != text) {
            running->outcome.values.clear();
            running->outcome.words += " (its values held a secret and are not kept)";
        }
    }
}

/// Fetches the files that an attempt names, after its end and before that is known: a server that is killed meanwhile takes the
/// attempt up again, and fetches them again.
asio::awaitable<void> Engine::State::collect(Context ctx, std::shared_ptr<JobRun> run, std::uint32_t task, RunningAttempt& running,
                                             Outcome outcome) {
    constexpr std::size_t most_files = 64, most_at_once = 4;
    if (options.collector == nullptr || outcome.error == ErrorClass::connect || outcome.error == ErrorClass::refused ||
        outcome.error == ErrorClass::lost)
        co_return; // nothing was done there
    const auto& attempt = running.attempt;
    const ArtefactFiles::Name name{run->uid, task, attempt.number};
    std::vector<Artefact> all;
    while (collecting >= most_at_once) { // each holds a file in memory
        auto waited = co_await collected.wait(Context::background());
        if (!waited.ok()) co_return;
    }
    struct Place {
        explicit Place(State& of) : state(of) { ++state.collecting; }
        ~Place() {
            --state.collecting;
            state.collected.notify_all();
        }
        State& state;
    } place(*this);
    auto& used = run->at_work->artefacts;
    if (!used) {
        auto sum = co_await artefacts.used(run->uid);
        if (!used) used = sum.ok() ? *sum : 0;
    }
    const auto within = ctx.with_timeout(options.collect);
    const Masker masker(attempt.secrets);
    for (const auto& target : attempt.targets)
        for (const auto& path : attempt.artefacts) {
            if (all.size() >= most_files) break;
            Artefact one{target.node.name, path, 0, {}, {}};
            const auto left = artefacts.options().of_job - std::min(*used, artefacts.options().of_job);
            if (running.sink->withholds()) {
                one.words = "is not kept: a secret of the task was changed, and it would not be known in it";
            } else if (left == 0) {
                one.words = fmt::format("is not kept: the job has {} bytes of artefacts, which is the limit", *used);
            } else {
                auto found = co_await options.collector->fetch(within, attempt, target, path,
                                                               std::min<std::uint64_t>(artefacts.options().largest, left));
                if (!found.ok()) {
                    one.words = fmt::format("could not be fetched: {}", found.error().message);
                } else if (!found->words.empty()) {
                    one.words = found->words;
                } else {
                    auto kept = co_await artefacts.keep(name, all.size(), one, std::move(found->bytes), masker);
                    if (kept.ok())
                        one = std::move(*kept);
                    else
                        one.words = fmt::format("could not be kept: {}", kept.error().message);
                    *used += one.size;
                }
            }
            one.words = masker.mask_cut(one.words);
            all.push_back(std::move(one));
        }
    auto finished = co_await artefacts.finish(name, std::move(all));
    if (!finished.ok()) log::warn(ctx, "artefacts of {} are not kept: {}", attempt.task, finished.error().text());
}

asio::awaitable<void> Engine::State::kill(Context ctx, std::shared_ptr<JobRun> run, Scheduler::Kill which) {
    const auto found = run->at_work->running.find(which.task);
    if (found == run->at_work->running.end()) co_return;
    const auto victim = found->second;
    if (victim->has_ended) co_return;
    victim->killed = true;
    victim->timed_out = victim->timed_out || which.timeout;
    if (victim->executor != nullptr) {
        auto told = co_await victim->executor->cancel(ctx, victim->attempt);
        if (!told.ok()) log::warn(ctx, "{} of job {} cannot be ended: {}", victim->attempt.task, run->name, told.error().text());
    }
    auto waited = co_await clock.sleep(options.give_up);
    if (!waited.ok()) co_return;
    const auto still = run->at_work->running.find(which.task);
    if (still != run->at_work->running.end() && still->second == victim) victim->let_go.emit(asio::cancellation_type::terminal);
}

/// How far an earlier server kept what an attempt said: read on from there. In a shared store there is no going on without knowing:
/// what is kept would be kept twice.
asio::awaitable<OutputLog::Kept> Engine::State::kept_output(Context ctx, OutputLog::Name name) {
    for (;;) {
        auto kept = co_await output().kept(ctx, name);
        if (kept.ok()) co_return std::move(*kept);
        if (!records) co_return OutputLog::Kept{};
        log::warn(ctx, "what an attempt said cannot be read, again in a second: {}", kept.error().text());
        if (!(co_await clock.sleep(std::chrono::seconds(1))).ok())
            throw boost::system::system_error(asio::error::operation_aborted);
    }
}

/// What an attempt said is durable before its result is: after that nobody asks its machine again.
asio::awaitable<void> Engine::State::keep_output(Context ctx, RunningAttempt& running) {
    for (Duration wait = std::chrono::milliseconds(100);; wait = std::min<Duration>(wait * 2, std::chrono::seconds(5))) {
        auto kept = co_await output().flush(ctx, running.sink, OutputLog::When::now);
        if (kept.ok()) co_return;
        const auto code = kept.error().code;
        // Whoever leads now takes the attempt up, and reads what it said.
        if (records && (code == Code::conflict || code == Code::cancelled))
            throw boost::system::system_error(asio::error::operation_aborted);
        log::warn(ctx, "output of {} is not kept: {}", running.attempt.task, kept.error().text());
        if (!records || code == Code::invalid || code == Code::too_large) co_return;
        if (!(co_await clock.sleep(wait)).ok()) throw boost::system::system_error(asio::error::operation_aborted);
    }
}

/// Writes what attempts say while they say it, a few times a second.
asio::awaitable<void> Engine::State::flush_output(Context ctx) {
    for (;;) {
        while (unflushed.empty()) {
            auto waited = co_await output_wake.wait(ctx);
            if (!waited.ok()) co_return;
        }
        for (auto& [run, sink] : std::exchange(unflushed, {})) {
            auto kept = co_await output().flush(ctx, sink, OutputLog::When::soon);
            if (!kept.ok() && kept.error().code == Code::cancelled) co_return;
            if (!kept.ok()) log::warn(ctx, "output of job {} is not kept yet: {}", run->name, kept.error().text());
            if (!kept.ok() && records && kept.error().code == Code::conflict) co_return; // another leads
            run->note_change();
            if (sink->has_pending() && sink->on_pending) unflushed.emplace_back(run, sink);
        }
        auto rested = co_await clock.sleep(std::chrono::milliseconds(200));
        if (!rested.ok()) co_return;
    }
}

void Engine::State::clean(const Context& ctx, std::shared_ptr<JobRun> run, std::uint32_t task,
                          std::shared_ptr<RunningAttempt> running) {
    ++run->at_work->cleaning;
    running->attempt.secrets.clear(); // this may take days
    running->attempt.environment.clear();
    term->spawn(clean_up(ctx, std::move(run), task, std::move(running)));
}

/// A machine out of reach is asked again, less and less often. Until then the job is not reported as cleaned, so that whoever leads
/// next goes on with it.
asio::awaitable<void> Engine::State::clean_up(Context ctx, std::shared_ptr<JobRun> run, std::uint32_t task,
                                              std::shared_ptr<RunningAttempt> running) {
    Result<Unit> done = Unit{};
    for (Duration wait = options.clean_again;; wait = std::min<Duration>(wait * 2, std::chrono::hours(1))) {
        done = co_await running->executor->clean_up(ctx, running->attempt);
        if (done.ok()) break;
        const auto code = done.error().code;
        if (code == Code::cancelled) co_return;
        const auto over_since = run->scheduler->head().ended;
        const bool too_late = over_since != 0 && clock.wall() - WallTime(std::chrono::milliseconds(over_since)) > options.clean_for;
        if ((code != Code::unavailable && code != Code::timeout && code != Code::throttled) || too_late) {
            log::info(ctx, "what attempt {} left on its machine stays there: {}", running->attempt.id, done.error().text());
            break;
        }
        log::debug(ctx, "attempt {} is not cleaned up, again in {}: {}", running->attempt.id, to_text(wait), done.error().text());
        if (!(co_await clock.sleep(wait)).ok()) co_return;
        if (const auto known = runs.find(run->name); known == runs.end() || known->second != run) break; // it was deleted
    }
    auto& live = *run->at_work;
    auto& row = run->scheduler->replayed(task);
    if (done.ok() && row.state != TaskState::running && static_cast<int>(row.attempt) == running->attempt.number) {
        row.uncleaned = false;
        live.cleaned.push_back(task);
    }
    if (--live.cleaning > 0 || !is_over(run->scheduler->head().state)) co_return;
    live.status_stale = true; // the last of it: the job can be put away
    report_wake.notify_all();
}

/// What a server that was killed had no time for: results were kept, and what the attempts left on machines is still there.
void Engine::State::clean_leftovers(const Context& ctx, const std::shared_ptr<JobRun>& run) {
    const auto& plan = run->plan;
    for (std::uint32_t task = 0; task < plan.tasks; ++task) {
        const auto& row = run->scheduler->row(task);
        if (!row.uncleaned || row.state == TaskState::running || row.attempt == 0) continue;
        const auto group = plan.group_of(task);
        const auto host = plan.host_in(group, task);
        std::vector<Target> at;
        const auto add = [&](std::uint32_t one) {
            if (auto found = target(plan.hosts[one]); found.ok()) at.push_back(**found);
        };
        if (host != Plan::none) {
            add(host);
        } else {
            for (const auto one : plan.groups[group].hosts) add(one);
        }
        for (const auto phase : {Phase::check, Phase::run, Phase::verify, Phase::undo}) {
            const auto& body = run_of(plan.spec.tasks[group], phase);
            auto* executor_of = executors.find(body.executor);
            if (executor_of == nullptr) continue;
            for (auto number = row.attempt; number > 0 && number + 2 > row.attempt; --number) { // the last two
                auto left = std::make_shared<RunningAttempt>();
                left->executor = executor_of;
                left->attempt.job = plan.name;
                left->attempt.task = plan.task_name(task);
                left->attempt.number = static_cast<int>(number);
                left->attempt.id = fmt::format("{}-{}-{}{}", run->uid, task, number, name_of(phase)[0]);
                left->attempt.targets = at;
                left->attempt.body = body.body;
                clean(ctx, run, task, std::move(left));
            }
        }
    }
}

} // namespace orrery::jobs
