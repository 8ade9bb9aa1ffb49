#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "jobs/secrets.h"
#include "resource/kinds.h"

#include <boost/json/object.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Port: what runs tasks (SSH, Ansible, Puppet, an HTTP call, a program on the server). Drivers implement it, `app` passes them to
/// the engine, tests use `fake_executor.h`.
namespace orrery::jobs {

namespace json = boost::json;

/// A node that an attempt works on.
struct Target {
    resource::Node node; ///< name, address and login; the private key is the value "private_key" of the Secret `ssh_key`
    std::map<std::string, std::string> labels;
};

/// One attempt at a task. Immutable. After a crash the engine re-attaches to the attempt with the same id.
struct Attempt {
    std::string job;  ///< the job's name
    std::string task; ///< "mysql@db-1"; "pools" where the task has no node of its own
    /// Unique for all time, of a-z, 0-9 and -: idempotency key, and name of the attempt's folder on the host.
    std::string id;
    int number = 1;              ///< 1 for the first attempt, 2 for the first retry or re-run
    std::vector<Target> targets; ///< one; none for work on the server; several where the task has `together`
    /// The value of `run: {<executor's name>: ...}` in the job file, with all references replaced, also those to secrets; so are
    /// `values` and `environment`. They are sent to the host and nowhere else; output passes a Masker. Texts are data: they are not
    /// scanned for references again.
    json::value body;
    json::object values; ///< bound values of the task's `with`: variables of a playbook, data of a manifest
    std::map<std::string, std::string> environment; ///< with ORRERY_CONTEXT, _JOB, _TASK, _ATTEMPT, _ATTEMPT_NUMBER
    std::vector<std::string> artefacts;             ///< files that the engine fetches from the nodes after the end
    Secrets secrets;                                ///< that the task names; never logged, never written on the server
    Duration timeout{};                             ///< the engine enforces it; for remote watchdogs
    bool idempotent = false;                        ///< may run again where its outcome is unknown
};

/// The class of a failure. A task is retried only for the classes that it lists.
enum class ErrorClass {
    none,
    connect,   ///< the host could not be reached, or the login failed: nothing was started
    lost,      ///< started, and its outcome is unknown
    timeout,   ///< killed after its timeout
    failed,    ///< it ran and reported failure: exit code, failed resource, HTTP status
    refused,   ///< it cannot work: changed host key, invalid body, missing program. A retry does not help
    no_space,  ///< the host's disk is full
    cancelled, ///< killed because the job was cancelled
};
std::string_view name_of(ErrorClass error);

/// The outcome of an attempt.
struct Outcome {
    enum class Ended { succeeded, failed, lost };
    enum class Change { unknown, unchanged, changed };
    Ended ended = Ended::failed;
    ErrorClass error = ErrorClass::none; ///< `none` if and only if it succeeded
    int exit_code = 0;                   ///< -1: it has none
    Change change = Change::unknown;
    std::string message; ///< for users: "exit code 2: no such user"; the engine masks it
    json::object values; ///< published for `${task.NAME.values.KEY}`: at most 64 KiB, no secrets

    static Outcome success(Change change = Change::unknown) { return {Ended::succeeded, ErrorClass::none, 0, change, {}, {}}; }
    static Outcome failure(ErrorClass error, std::string message, int exit_code = -1) {
        return {error == ErrorClass::lost ? Ended::lost : Ended::failed, error, exit_code, Change::unknown, std::move(message), {}};
    }
};
std::string_view name_of(Outcome::Ended ended);
std::string_view name_of(Outcome::Change change);

enum class Stream : std::uint8_t { out, err };

/// A step within an attempt: a task of a play on one host, a resource of a manifest.
struct Step {
    enum class Result { running, ok, changed, skipped, failed, unreachable };
    std::string host; ///< the node's name
    std::string name; ///< "install packages"; a step with the same host, name and key replaces the earlier one
    std::string key;  ///< distinguishes steps of one name; may be empty
    Result result = Result::ok;
    std::string message; ///< the engine masks it
    Duration took{};
};
std::string_view name_of(Step::Result result);

/// Receives the output of an attempt. Calls return at once and never fail: bytes over the limit are counted and reported to
/// readers. Loop thread only.
class Output {
public:
    virtual ~Output() = default;
    /// `offset`: where `bytes` begins in the attempt's own stream (the remote file). Bytes before what is stored already are
    /// dropped, so that nothing is stored twice after a re-attach.
    virtual void write(Stream stream, std::uint64_t offset, std::string_view bytes) = 0;
    virtual void step(Step step) = 0;
    /// A problem while the attempt runs: its node is unreachable. `why` shows it until `resolved` is set.
    virtual void report_problem(std::string message, std::shared_ptr<const std::atomic<bool>> resolved) {}
};

/// How far each stream is stored: reading continues from here.
struct Offsets {
    std::uint64_t out = 0, err = 0;
    std::string line{}; ///< the part of the output after its last line end: the next bytes continue it
};

/// The result of re-attaching to an attempt that an earlier server may have started.
struct Reattached {
    enum class State {
        ended,       ///< with `outcome`; the call waited for the end where it still ran
        not_started, ///< certain: no trace of it; the engine starts it
        unknown,     ///< started and not to be found, or the host cannot report it: lost
    };
    State state = State::unknown;
    Outcome outcome;
    std::string message; ///< for `unknown`: what was found
};

/// What an attempt would change.
struct Preview {
    Outcome::Change change = Outcome::Change::unknown;
    std::string message;
    struct Difference {
        std::string name; ///< "/etc/ntp.conf", "package ntp"
        std::string before, after;
    };
    std::vector<Difference> differences;
};

/// A body whose program texts hold no references: their values are passed as data beside the program.
struct SeparatedBody {
    json::value body;
    std::map<std::string, std::string> environment; ///< variables to add: a text with a reference, bound by `bind_text`
    std::map<std::string, std::string> values;      ///< values to add, likewise
};

/// Runs tasks of one type. One object serves any number of attempts at once. Loop thread only; it must not block.
///
/// There are two ways to end early:
/// - the *coroutine* of `start` or `reattach` is cancelled when this server stops or loses leadership. Detach from the attempt,
/// leave
///   it running, and return anything: it is not recorded. The next leader calls `reattach`.
/// - `cancel` is called when the *attempt* must end (job cancelled, timeout). Kill all its processes; the pending `start` or
///   `reattach` then returns the outcome.
///
/// An attempt that is passed to a coroutine outlives it.
class Executor {
public:
    virtual ~Executor() = default;

    /// The key under `run`: "ssh", "ansible", "puppet", "http", "local".
    virtual std::string_view name() const = 0;
    /// Whether its tasks need nodes (`on`) or run without one.
    enum class TargetType { node, server };
    virtual TargetType target_type() const = 0;
    /// Whether attempts are processes of the server that started them: no other server can re-attach to one.
    virtual bool runs_on_server() const { return false; }

    /// Validates a body at submission, before `${...}` is bound. `invalid` has all errors at once, with paths relative to the body
    /// ("playbook", "blocks[2].mode"; "" for the body itself). No I/O.
    virtual Result<Unit> check(const json::value& body) const = 0;
    /// Replaces the references in texts that a program reads as code (a script, a template) before values are bound: an external
    /// value must not become code. `invalid` where a reference cannot be made safe; `check` reports the same at submission.
    virtual Result<SeparatedBody> separate_values(const json::value& body) const { return SeparatedBody{body, {}, {}}; }

    /// The names of the values that an attempt with this body publishes; nothing: unknown before it has run. No I/O.
    virtual std::optional<std::vector<std::string>> published(const json::value& body) const { return {}; }
    /// At submission, before `${...}` is bound: the fields of a body that name a file which the server does not have.
    virtual Task<std::vector<FieldError>> missing_files(Context, json::value body) const { co_return std::vector<FieldError>{}; }

    /// Runs the attempt and streams its output. Called at most once for an attempt id, after the intent is durable. An Error (as
    /// opposed to an Outcome that failed) is recorded as `failed` with its message; class `connect` for `unavailable`, `timeout`
    /// for `timeout`, else `refused`.
    virtual Task<Outcome> start(Context ctx, const Attempt& attempt, Output& output) = 0;
    /// Re-attaches to an attempt whose intent an earlier server recorded, and reads its output from `stored` on. A host that cannot
    /// be reached is tried again for the attempt's timeout, then `unknown`.
    virtual Task<Reattached> reattach(Context ctx, const Attempt& attempt, Offsets stored, Output& output) = 0;
    /// Kills a running attempt. Returns when it is dead; an Error where its host cannot be reached. Harmless for one that has
    /// ended.
    virtual Task<Unit> cancel(Context ctx, const Attempt& attempt) = 0;
    /// The outcome is durable: removes the attempt's folder on the host. A failure is harmless.
    virtual Task<Unit> clean_up(Context ctx, const Attempt& attempt) = 0;
    /// A dry run: changes nothing. `unsupported` where the body has none.
    virtual Task<Preview> plan(Context ctx, const Attempt& attempt) = 0;
};

/// The executors of this server, by name. Filled at start-up, then only read. Does not own them.
class Executors {
public:
    void add(Executor& executor) { all_[std::string(executor.name())] = &executor; }
    /// Null where no executor has that name.
    Executor* find(std::string_view name) const {
        const auto found = all_.find(name);
        return found == all_.end() ? nullptr : found->second;
    }
    std::vector<std::string_view> names() const {
        std::vector<std::string_view> out;
        for (const auto& [name, executor] : all_) out.push_back(name);
        return out;
    }

private:
    std::map<std::string, Executor*, std::less<>> all_;
};

} // namespace orrery::jobs
