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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The port between the job engine and whatever does a task's work: SSH, Ansible, Puppet, an HTTP call, a helper at the server.
/// Drivers implement it, `app` hands them to the engine, tests use `fake_executor.h`.
namespace orrery::jobs {

namespace json = boost::json;

/// A machine that an attempt works on.
struct Target {
    resource::Node node; ///< name, address, how to log in; the private key is the value "private_key" of the Secret `ssh_key`
    std::map<std::string, std::string> labels;
};

/// One try at one task. Immutable; the same attempt (same id) is what is re-attached to after a crash.
struct Attempt {
    std::string job;  ///< the job's name
    std::string task; ///< "mysql@db-1"; "pools" where the task is not about one machine
    /// Unique for all time, a-z 0-9 - only: idempotency key, and the name of the attempt's folder on the host.
    std::string id;
    int number = 1;              ///< 1 for the first try, 2 for the first retry or re-run...
    std::vector<Target> targets; ///< one; none for work at the server; several where the task says `together`
    /// What the job file has under `run: {<executor's name>: ...}`, values bound. `${secret.NAME.KEY}` still stands in its texts
    /// and in `environment`: put the values in with `with_secrets` at the last moment, into what is sent and nothing else.
    json::value body;
    json::object values; ///< what the task's `with` was bound to: variables of a playbook, data of a manifest
    std::map<std::string, std::string> environment; ///< includes ORRERY_CONTEXT, ORRERY_JOB, ORRERY_TASK, ORRERY_ATTEMPT
    std::vector<std::string> artefacts;             ///< files to fetch from its machines when it has ended; the engine does it
    Secrets secrets;                                ///< those that the task names; never logged, never written at the server
    Duration timeout{};                             ///< the engine ends the attempt by itself; for remote watchdogs
    bool idempotent = false;                        ///< may run again when it was lost
};

/// Which kind of failure, for retries: a task retries only the classes it lists.
enum class ErrorClass {
    none,
    connect,   ///< the host could not be reached, or the login did not work: nothing was begun
    lost,      ///< begun, and nobody knows how it ended
    timeout,   ///< ended by its deadline
    failed,    ///< it ran and said no: exit code, failed resource, HTTP status
    refused,   ///< it cannot work like this: host key changed, bad body, missing program. Retrying is of no use
    no_space,  ///< the host's disk is full
    cancelled, ///< ended because the job was cancelled
};
std::string_view name_of(ErrorClass error);

/// How an attempt ended.
struct Outcome {
    enum class Ended { succeeded, failed, lost };
    enum class Change { unknown, unchanged, changed };
    Ended ended = Ended::failed;
    ErrorClass error = ErrorClass::none; ///< none exactly where it succeeded
    int exit_code = 0;                   ///< -1 where there is none
    Change change = Change::unknown;
    std::string words;   ///< one sentence for people: "exit code 2: no such user"; masked by the engine before it is kept
    json::object values; ///< what it publishes for `${task.NAME.values.KEY}`: small (64 KiB at most), no secrets

    static Outcome success(Change change = Change::unknown) { return {Ended::succeeded, ErrorClass::none, 0, change, {}, {}}; }
    static Outcome failure(ErrorClass error, std::string words, int exit_code = -1) {
        return {error == ErrorClass::lost ? Ended::lost : Ended::failed, error, exit_code, Change::unknown, std::move(words), {}};
    }
};
std::string_view name_of(Outcome::Ended ended);
std::string_view name_of(Outcome::Change change);

enum class Stream : std::uint8_t { out, err };

/// Something within an attempt that deserves a row of its own in the job's tree: a play's task on a host, a resource of a manifest.
struct Step {
    enum class Result { running, ok, changed, skipped, failed, unreachable };
    std::string host; ///< the node's name
    std::string name; ///< "install packages"; the same (host, name, key) replaces what was said before
    std::string key;  ///< tells steps of one name apart; may be empty
    Result result = Result::ok;
    std::string words; ///< masked by the engine
    Duration took{};
};
std::string_view name_of(Step::Result result);

/// Where an attempt's output goes. Calls return at once and never fail: what cannot be kept (over the size cap) is counted, and the
/// reader is told. Loop thread only.
class Output {
public:
    virtual ~Output() = default;
    /// `offset`: where `bytes` begins in the attempt's own stream (the remote file), so that after re-attaching nothing is kept
    /// twice: bytes before what is kept already are dropped.
    virtual void write(Stream stream, std::uint64_t offset, std::string_view bytes) = 0;
    virtual void step(Step step) = 0;
    /// Something is not right while it runs: its machine is out of reach. Said to whoever asks why, until `over` is set.
    virtual void troubled(std::string words, std::shared_ptr<const std::atomic<bool>> over) {}
};

/// How far each stream was kept: read on from here.
struct Offsets {
    std::uint64_t out = 0, err = 0;
    std::string line{}; ///< what of the output stands after its last line end: the next byte goes on with it
};

/// What was found when asked for an attempt that may have been begun by a server that is gone.
struct Reattached {
    enum class What {
        ended,       ///< `outcome` says how (waited for, if it still ran)
        never_began, ///< certain: no trace of it; the engine starts it
        unknown,     ///< begun and not to be found, or the host cannot say: lost
    };
    What what = What::unknown;
    Outcome outcome;
    std::string words; ///< for `unknown`: what was seen
};

/// What an attempt would do.
struct Preview {
    Outcome::Change change = Outcome::Change::unknown;
    std::string words;
    struct Difference {
        std::string what; ///< "/etc/ntp.conf", "package ntp"
        std::string before, after;
    };
    std::vector<Difference> differences;
};

/// Does tasks of one sort. One object serves all attempts, any number at once. Loop thread only; what blocks goes elsewhere.
///
/// Two ways to end early, and they differ:
/// - the *coroutine* of `start` or `reattach` is cancelled when this server stops or loses leadership. Let go of the attempt, leave
///   what was begun running, and return anything: it is not recorded. The next server calls `reattach`.
/// - `cancel` is called when the *attempt* must end (job cancelled, timeout). Kill what was begun, whole; the pending `start` or
///   `reattach` then returns how it ended.
class Executor {
public:
    virtual ~Executor() = default;

    /// The key under `run`: "ssh", "ansible", "puppet", "http", "local".
    virtual std::string_view name() const = 0;
    /// Does it work on machines (a task needs `on`) or at the server?
    enum class Place { node, server };
    virtual Place place() const = 0;
    /// Attempts run at the very server that began them, whatever they work on: no other server can ask for one.
    virtual bool begins_here() const { return false; }

    /// Checks a body at submission, `${...}` not bound yet. All that is wrong at once: `invalid`, fields' paths relative to the
    /// body ("playbook", "blocks[2].mode"; "" for the body itself). No I/O.
    virtual Result<Unit> check(const json::value& body) const = 0;

    /// Does the attempt and streams what it says. Called at most once for an attempt id, after the intent is durable. An Error (as
    /// opposed to an Outcome that failed) is recorded as `failed` with its message; class `connect` for `unavailable`, `timeout`
    /// for `timeout`, else `refused`.
    virtual Task<Outcome> start(Context ctx, Attempt attempt, Output& output) = 0;
    /// Takes up an attempt that an earlier server recorded the intent of, reading output on from `kept`. A host that cannot be
    /// reached is tried again for as long as the attempt's timeout, then `unknown`.
    virtual Task<Reattached> reattach(Context ctx, Attempt attempt, Offsets kept, Output& output) = 0;
    /// Ends a running attempt. Returns when it is dead or cannot be reached (then an Error); harmless for one that has ended.
    virtual Task<Unit> cancel(Context ctx, Attempt attempt) = 0;
    /// The outcome is durable: the attempt's folder on the host can go. Failing is harmless.
    virtual Task<Unit> clean_up(Context ctx, Attempt attempt) = 0;
    /// Changes nothing. `unsupported` where the body has no dry run.
    virtual Task<Preview> plan(Context ctx, Attempt attempt) = 0;
};

/// All executors of this server, by name. Filled at start-up, then only read; does not own them.
class Executors {
public:
    void add(Executor& executor) { all_[std::string(executor.name())] = &executor; }
    /// Null where there is none of that name.
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
