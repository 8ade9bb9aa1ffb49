#include "health/vantages/remote_checker.h"

#include "core/json_fields.h"
#include "core/log.h"
#include "core/truncate.h"
#include "health/check_spec.h"
#include "health/prober.h"
#include "health/vantages/report.h"
#include "health/wire_fields.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace orrery::health {

namespace {

constexpr std::size_t reports_at_once = 1000, max_assigned = 1'000'000;
constexpr std::string_view canary_mark = "\ncanary ";

} // namespace

struct RemoteChecker::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor_, Clock& clock_, Options options_)
        : executor(executor_),
          clock(clock_),
          options(std::move(options_)),
          client(executor_, net::HttpClient::Options{.tls = options.tls}),
          reports_due(executor_),
          refused(executor_),
          self(options.rule),
          prober(executor_, clock_, {},
                 [this](const std::string& key, const HealthStateMachine& verdict, const Observation& seen, bool) {
                     on_result(key, verdict, seen);
                 }) {}

    struct Target : ReportBuilder {
        CheckSpec spec;
        std::int64_t revision = 0;
        bool seen = false; ///< there is something to report
        bool runs = true;  ///< false: this vantage cannot run the check
    };

    // --- Results

    void on_result(const std::string& key, const HealthStateMachine& verdict, const Observation& observed) {
        if (key.starts_with(canary_mark)) {
            if (!is_evidence(observed.outcome)) return;
            if (is_good(observed.outcome))
                failing_canaries.erase(key);
            else
                failing_canaries.insert(key);
            diagnose();
            return;
        }
        const auto at = targets.find(key);
        if (at == targets.end()) return;
        auto& target = at->second;
        const auto before = target.report;
        target.update(verdict, observed, false, clock.steady());
        if (!is_evidence(observed.outcome)) {
            if (target.report.error.empty()) return;
            target.seen = true;
            target.at = clock.steady();
            if (target.report.error != before.error) mark_changed(key);
            return;
        }
        const bool first = !std::exchange(target.seen, true);
        if (!is_good(observed.outcome) && before.state != HealthState::down && before.failures == 0) {
            self.target_failed(unstepped(clock));
            diagnose();
        }
        if (first || differs(before, target.report) || before.failures != target.report.failures) mark_changed(key);
    }

    std::size_t runnable() const { return targets.size() - not_runnable; }

    void mark_changed(const std::string& key) {
        waiting.insert(key);
        reports_due.notify_all();
    }

    void diagnose() {
        auto now = self.diagnose(runnable(), options.canaries.size(), failing_canaries.size(), unstepped(clock));
        if (now.trusted != diagnosis.trusted) {
            log::info(ctx, "this vantage {}",
                      now.trusted ? "counts towards quorum again" : fmt::format("is quarantined message=\"{}\"", now.message));
            report_due = true;
            reports_due.notify_all();
        }
        diagnosis = std::move(now);
    }

    // --- Assignments

    void apply(const json::object& answer) {
        if (flag_at(answer, "reset")) {
            resetting = true;
            named.clear();
        }
        if (const auto* set = answer.if_contains("set"); set != nullptr && set->is_array())
            for (const auto& one : set->get_array())
                if (one.is_object()) begin(one.get_object());
        if (const auto* removed = answer.if_contains("removed"); removed != nullptr && removed->is_array())
            for (const auto& key : removed->get_array())
                if (key.is_string()) forget(std::string(std::string_view(key.get_string())));
        if (!resetting || flag_at(answer, "more")) return;
        resetting = false; // checks that the server did not name again are removed
        std::vector<std::string> unwanted;
        for (const auto& [key, target] : targets)
            if (!named.contains(key)) unwanted.push_back(key);
        for (const auto& key : unwanted) forget(key);
        named.clear();
        for (const auto& [key, target] : targets)
            if (target.seen) mark_changed(key);
    }

    void begin(const json::object& one) {
        const auto key = text_at(one, "key");
        if (key.empty() || key.starts_with('\n') || targets.size() >= max_assigned) return;
        auto spec = CheckSpec::from_json(one);
        if (!spec.ok()) {
            log::warn(ctx, "cannot run an assigned check key={} message=\"{}\"", key, spec.error().message);
            return;
        }
        if (resetting) named.insert(key);
        auto probe = probe_from(spec->probe, spec->address, spec->port, options.deps);
        auto& target = targets[key];
        target.revision = wire_number(one, "revision", 0, INT64_MAX);
        if (!(target.spec == *spec)) {
            target.seen = false;
            static_cast<ReportBuilder&>(target) = {};
        }
        target.spec = std::move(*spec);
        if (std::exchange(target.runs, probe.ok()) != probe.ok()) not_runnable += probe.ok() ? -1 : 1;
        if (!probe.ok()) { // reported, so that the server can show the error if no other vantage can run the check
            prober.remove(key);
            target.seen = true;
            target.at = clock.steady();
            target.report = {};
            target.report.error = evidence_text(message_with_remedy(probe.error()));
            mark_changed(key);
            return;
        }
        target.report.error.clear();
        prober.set(key, {.probe = std::move(*probe),
                         .interval = target.spec.interval,
                         .timeout = target.spec.timeout,
                         .thresholds = target.spec.thresholds,
                         .fast_interval = target.spec.fast_interval,
                         .down_interval = target.spec.down_interval});
    }

    void forget(const std::string& key) {
        if (const auto at = targets.find(key); at != targets.end()) {
            if (!at->second.runs) --not_runnable;
            targets.erase(at);
        }
        waiting.erase(key);
        prober.remove(key);
    }

    // --- The server

    net::ClientRequest request(std::string method, std::string target) const {
        net::ClientRequest out;
        out.method = std::move(method);
        out.url = options.server;
        out.url.target = std::move(target);
        if (!options.token.empty()) out.headers.set("Authorization", "Bearer " + options.token);
        return out;
    }

    /// The error of a response after which trying again is useless; nullopt: try again later.
    std::optional<Error> permanent_error(const net::ClientResponse& answer) const {
        const auto error = [&](Code code, std::string_view remedy) {
            return Error{code, fmt::format("{} answers {}: {}", options.server.origin(), answer.status, truncate(answer.body, 300)),
                         std::string(remedy)};
        };
        if (answer.status == 401) return error(Code::unauthenticated, "give a valid token");
        if (answer.status == 403) return error(Code::denied, "the token must be one of an operator");
        if (answer.status == 404) return error(Code::unsupported, "the server accepts no checkers");
        if (answer.status == 400 || answer.status == 422) return error(Code::invalid, "");
        return std::nullopt;
    }

    bool is_stopping() const { return stopping || refusal; }

    Duration pause(int attempts) const {
        return std::min<Duration>(options.max_backoff, std::chrono::milliseconds(500) * (1 << std::min(attempts, 10)));
    }

    /// Sends one request; nullopt if it failed. A permanent error stops the checker.
    asio::awaitable<std::optional<json::value>> exchange(net::ClientRequest message, Duration time) {
        auto answer = co_await client.send(ctx.with_deadline(real_clock().steady() + time), std::move(message));
        std::string error_message;
        if (!answer.ok()) {
            error_message = answer.error().message;
        } else if (answer->status == 200) {
            auto parsed = parse_json(answer->body.empty() ? "{}" : answer->body);
            if (parsed.ok()) co_return std::move(*parsed);
            error_message = "the response is not valid JSON: " + parsed.error().message;
        } else if (auto last = permanent_error(*answer)) {
            refusal = std::move(last);
            refused.notify_all();
            co_return std::nullopt;
        } else {
            error_message = fmt::format("the server answers {}", answer->status);
        }
        if (is_stopping()) co_return std::nullopt;
        ++failures;
        log::warn(ctx, "request to the server failed server={} message=\"{}\"", options.server.origin(), error_message);
        co_return std::nullopt;
    }

    static asio::awaitable<void> poll_assignments(std::shared_ptr<State> self) {
        co_await asio::this_coro::throw_if_cancelled(false);
        std::string epoch;
        std::uint64_t revision = 0;
        for (int attempts = 0; !self->is_stopping();) {
            const auto wait = std::chrono::duration_cast<std::chrono::seconds>(self->options.poll_timeout).count();
            auto answer = co_await self->exchange(
                self->request("GET", fmt::format("/v1/health/assignments?epoch={}&after={}&wait={}s", epoch, revision, wait)),
                self->options.poll_timeout + std::chrono::seconds(10));
            if (answer && answer->is_object()) {
                attempts = 0;
                const auto& body = answer->get_object();
                self->apply(body);
                epoch = text_at(body, "epoch");
                revision = static_cast<std::uint64_t>(wire_number(body, "revision", 0, INT64_MAX));
                if (wait > 0 || flag_at(body, "more")) continue;
            }
            if (self->is_stopping() || !(co_await self->clock.sleep(self->pause(attempts++))).ok()) co_return;
        }
    }

    std::string reports_text(const std::vector<std::string>& keys) const {
        json::array list;
        for (const auto& key : keys) {
            const auto at = targets.find(key);
            if (at == targets.end() || !at->second.seen) continue;
            const auto& target = at->second;
            auto one = target.report.to_json();
            one["key"] = key;
            one["revision"] = target.revision;
            one["age_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady() - target.at).count();
            list.emplace_back(std::move(one));
        }
        return to_json_text(json::object{{"vantage", options.name},
                                         {"trusted", diagnosis.trusted},
                                         {"message", diagnosis.message},
                                         {"cause", name_of(diagnosis.cause)},
                                         {"targets", runnable()},
                                         {"heartbeat_ms", options.heartbeat / std::chrono::milliseconds(1)},
                                         {"reports", std::move(list)}});
    }

    static asio::awaitable<void> send_reports(std::shared_ptr<State> self) {
        co_await asio::this_coro::throw_if_cancelled(false);
        int attempts = 0;
        while (!self->is_stopping()) {
            while (self->waiting.empty() && !self->report_due)
                if (!(co_await self->reports_due.wait(self->ctx)).ok()) co_return;
            if (!(co_await self->clock.sleep(self->options.gather)).ok()) co_return;
            std::vector<std::string> keys;
            while (!self->waiting.empty() && keys.size() < reports_at_once)
                keys.push_back(std::move(self->waiting.extract(self->waiting.begin()).value()));
            self->report_due = false;
            auto message = self->request("POST", "/v1/health/reports");
            message.headers.set("Content-Type", "application/json");
            message.body = self->reports_text(keys);
            const auto answer = co_await self->exchange(std::move(message), std::chrono::seconds(10));
            if (answer) {
                attempts = 0;
                self->sent += keys.size();
                continue;
            }
            self->report_due = true;
            for (auto& key : keys)
                if (self->targets.contains(key)) self->waiting.insert(std::move(key));
            if (self->is_stopping() || !(co_await self->clock.sleep(self->pause(attempts++))).ok()) co_return;
        }
    }

    /// Heartbeats let the server ignore a dead checker soon.
    static asio::awaitable<void> beat(std::shared_ptr<State> self) {
        co_await asio::this_coro::throw_if_cancelled(false);
        while ((co_await self->clock.sleep(self->options.heartbeat)).ok()) {
            self->report_due = true;
            self->reports_due.notify_all();
        }
    }

    /// Withdraws the reports of this checker, which would otherwise count until its heartbeats are missed.
    asio::awaitable<void> sign_off() {
        auto message = request("POST", "/v1/health/reports");
        message.headers.set("Content-Type", "application/json");
        message.body = to_json_text(json::object{{"vantage", options.name}, {"trusted", diagnosis.trusted}, {"leaving", true}});
        const auto answer =
            co_await client.send(ctx.with_deadline(real_clock().steady() + std::chrono::seconds(2)), std::move(message));
        if (!answer.ok() || answer->status != 200)
            log::info(ctx, "could not sign off from the server server={}", options.server.origin());
    }

    static asio::awaitable<void> refresh(std::shared_ptr<State> self) {
        co_await asio::this_coro::throw_if_cancelled(false);
        while ((co_await self->clock.sleep(self->options.refresh)).ok()) {
            self->diagnose();
            for (const auto& [key, target] : self->targets)
                if (target.seen) self->waiting.insert(key);
            self->report_due = true;
            self->reports_due.notify_all();
        }
    }

    asio::any_io_executor executor;
    Clock& clock;
    Options options;
    Context ctx = Context::make("checker");
    net::HttpClient client;
    Notifier reports_due, refused;
    SelfDiagnosis self;
    Diagnosis diagnosis;
    std::set<std::string> failing_canaries;
    std::unordered_map<std::string, Target> targets;
    std::set<std::string> waiting, named;
    std::size_t not_runnable = 0;              ///< targets that this vantage cannot check
    bool resetting = false, report_due = true; ///< report_due: submit even without changed results
    std::optional<Error> refusal;
    bool stopping = false;
    std::uint64_t sent = 0, failures = 0;
    Prober prober;
};

RemoteChecker::RemoteChecker(asio::any_io_executor executor, Clock& clock, Options options)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(options))) {}
RemoteChecker::~RemoteChecker() = default;

Task<Unit> RemoteChecker::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    state->ctx = ctx.without_deadline();
    auto canary_deps = state->options.deps;
    canary_deps.outbound = nullptr; // canaries come from the command line, not from a resource
    for (std::size_t i = 0; i < state->options.canaries.size(); ++i) {
        const auto& one = state->options.canaries[i];
        CO_TRY(auto probe, probe_from(one.probe, one.address, one.port, canary_deps));
        state->prober.set(
            fmt::format("{}{}", canary_mark, i),
            {.probe = std::move(probe), .interval = one.interval, .timeout = one.timeout, .thresholds = one.thresholds});
    }
    TaskGroup group(state->executor);
    group.spawn(state->prober.run(state->ctx));
    group.spawn(State::poll_assignments(state));
    group.spawn(State::send_reports(state));
    group.spawn(State::refresh(state));
    group.spawn(State::beat(state));
    Result<Unit> ended = Unit{};
    while (!state->refusal && ended.ok()) ended = co_await state->refused.wait(state->ctx);
    state->stopping = true; // before the cancellation: requests must not be tried again
    co_await group.stop();
    if (!state->refusal) co_await state->sign_off();
    co_await state->client.stop();
    if (state->refusal) co_return *state->refusal;
    co_return ended;
}

RemoteChecker::Counts RemoteChecker::counts() const {
    return {state_->runnable(), state_->waiting.size(), state_->sent, state_->failures, state_->diagnosis.trusted};
}

} // namespace orrery::health
