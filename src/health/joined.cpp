#include "health/joined.h"

#include "core/log.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace orrery::health {

namespace {

constexpr std::size_t reports_at_once = 1000, most_assigned = 1'000'000;
constexpr std::string_view canary_mark = "\ncanary ";

} // namespace

struct JoinedChecker::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor_, Clock& clock_, Options options_)
        : executor(executor_),
          clock(clock_),
          options(std::move(options_)),
          client(executor_, net::HttpClient::Options{.tls = options.tls}),
          to_tell(executor_),
          refused(executor_),
          self(options.rule),
          prober(executor_, clock_, {}, [this](const std::string& key, const Verdict& verdict, const Observation& seen, bool) {
              looked(key, verdict, seen);
          }) {}

    struct Target {
        Wanted wanted;
        std::int64_t revision = 0;
        Report report;
        SteadyTime at{};
        bool seen = false;
    };

    // --- What is found

    void looked(const std::string& key, const Verdict& verdict, const Observation& observed) {
        if (!is_evidence(observed.outcome)) return;
        if (key.starts_with(canary_mark)) {
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
        auto& report = target.report;
        const auto before = report;
        const bool first = !std::exchange(target.seen, true);
        report.standing = verdict.standing();
        report.stale = verdict.stale();
        report.failures = verdict.failures();
        report.last = observed.outcome;
        report.took = std::chrono::duration_cast<std::chrono::milliseconds>(observed.total);
        target.at = clock.steady();
        if (!is_good(observed.outcome) && before.standing != Standing::down && before.failures == 0) {
            self.fell(unstepped(clock));
            diagnose();
        }
        if (first || before.standing != report.standing || before.failures != report.failures || before.last != report.last)
            note(key);
    }

    void note(const std::string& key) {
        waiting.insert(key);
        to_tell.notify_all();
    }

    void diagnose() {
        auto now = self.diagnose(targets.size(), options.canaries.size(), failing_canaries.size(), unstepped(clock));
        if (now.fit != diagnosis.fit) {
            log::info(ctx, "this vantage {}", now.fit ? "counts again" : "sets itself aside: " + now.words);
            tell_anyway = true;
            to_tell.notify_all();
        }
        diagnosis = std::move(now);
    }

    // --- What there is to look at

    void apply(const json::object& answer) {
        const auto* reset = answer.if_contains("reset");
        if (reset != nullptr && reset->is_bool() && reset->get_bool()) {
            resetting = true;
            kept.clear();
        }
        if (const auto* set = answer.if_contains("set"); set != nullptr && set->is_array())
            for (const auto& one : set->get_array())
                if (one.is_object()) begin(one.get_object());
        if (const auto* removed = answer.if_contains("removed"); removed != nullptr && removed->is_array())
            for (const auto& key : removed->get_array())
                if (key.is_string()) forget(std::string(std::string_view(key.get_string())));
        const auto* more = answer.if_contains("more");
        const bool is_last = more == nullptr || !more->is_bool() || !more->get_bool();
        if (!resetting || !is_last) return;
        resetting = false; // what the server did not name again is no longer wanted
        std::vector<std::string> unwanted;
        for (const auto& [key, target] : targets)
            if (!kept.contains(key)) unwanted.push_back(key);
        for (const auto& key : unwanted) forget(key);
        kept.clear();
        for (const auto& [key, target] : targets)
            if (target.seen) note(key);
    }

    void begin(const json::object& one) {
        const auto* key_value = one.if_contains("key");
        if (key_value == nullptr || !key_value->is_string()) return;
        const std::string key{std::string_view(key_value->get_string())};
        if (key.empty() || key.starts_with('\n') || targets.size() >= most_assigned) return;
        auto wanted = Wanted::from_json(one);
        if (!wanted.ok()) {
            log::warn(ctx, "{} cannot be looked at from here: {}", key, wanted.error().message);
            return;
        }
        if (resetting) kept.insert(key);
        auto probe = probe_from(wanted->look, wanted->address, wanted->port, options.tools);
        if (!probe.ok()) {
            log::info(ctx, "{} is not looked at from here: {}", key, probe.error().message);
            forget(key);
            return;
        }
        auto& target = targets[key];
        const auto* revision = one.if_contains("revision");
        boost::system::error_code error;
        target.revision = revision != nullptr && revision->is_number() ? revision->to_number<std::int64_t>(error) : 0;
        if (!(target.wanted == *wanted)) {
            target.seen = false;
            target.report = {};
        }
        target.wanted = std::move(*wanted);
        prober.set(key, {.probe = std::move(*probe),
                         .interval = target.wanted.interval,
                         .timeout = target.wanted.timeout,
                         .thresholds = target.wanted.thresholds});
    }

    void forget(const std::string& key) {
        targets.erase(key);
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

    /// Nothing where it should be tried again later.
    std::optional<Error> final_word(const net::ClientResponse& answer) const {
        const auto why = [&](Code code, std::string_view remedy) {
            return Error{code, fmt::format("{} answers {}: {}", options.server.origin(), answer.status, answer.body.substr(0, 300)),
                         std::string(remedy)};
        };
        if (answer.status == 401) return why(Code::unauthenticated, "give a token that the server knows");
        if (answer.status == 403) return why(Code::denied, "the token must be one of an operator");
        if (answer.status == 404) return why(Code::unsupported, "that server takes no checkers");
        if (answer.status == 400 || answer.status == 422) return why(Code::invalid, "");
        return std::nullopt;
    }

    bool over() const { return stopping || refusal; }

    Duration pause(int attempts) const {
        return std::min<Duration>(options.longest_pause, std::chrono::milliseconds(500) * (1 << std::min(attempts, 10)));
    }

    /// One exchange; true if it went well. A final word of the server ends everything.
    asio::awaitable<std::optional<json::value>> exchange(net::ClientRequest message, Duration time) {
        auto answer = co_await client.send(ctx.with_deadline(real_clock().steady() + time), std::move(message));
        std::string trouble;
        if (!answer.ok()) {
            trouble = answer.error().message;
        } else if (answer->status == 200) {
            auto parsed = parse_json(answer->body.empty() ? "{}" : answer->body);
            if (parsed.ok()) co_return std::move(*parsed);
            trouble = "its answer is no JSON: " + parsed.error().message;
        } else if (auto last = final_word(*answer)) {
            refusal = std::move(last);
            refused.notify_all();
            co_return std::nullopt;
        } else {
            trouble = fmt::format("it answers {}", answer->status);
        }
        if (over()) co_return std::nullopt;
        ++failures;
        log::warn(ctx, "{} cannot be spoken with: {}", options.server.origin(), trouble);
        co_return std::nullopt;
    }

    static asio::awaitable<void> follow(std::shared_ptr<State> self) {
        co_await asio::this_coro::throw_if_cancelled(false);
        std::string epoch;
        std::uint64_t revision = 0;
        for (int attempts = 0; !self->over();) {
            const auto wait = std::chrono::duration_cast<std::chrono::seconds>(self->options.patience).count();
            auto answer = co_await self->exchange(
                self->request("GET", fmt::format("/v1/health/assignments?epoch={}&after={}&wait={}s", epoch, revision, wait)),
                self->options.patience + std::chrono::seconds(10));
            if (answer && answer->is_object()) {
                attempts = 0;
                const auto& said = answer->get_object();
                self->apply(said);
                if (const auto* value = said.if_contains("epoch"); value != nullptr && value->is_string())
                    epoch = std::string_view(value->get_string());
                boost::system::error_code error;
                if (const auto* value = said.if_contains("revision"); value != nullptr && value->is_number())
                    revision = value->to_number<std::uint64_t>(error);
                if (wait > 0 || (said.contains("more") && said.at("more").is_bool() && said.at("more").get_bool())) continue;
            }
            if (self->over() || !(co_await self->clock.sleep(self->pause(attempts++))).ok()) co_return;
        }
    }

    std::string reports_text(const std::vector<std::string>& keys) const {
        json::array list;
        for (const auto& key : keys) {
            const auto at = targets.find(key);
            if (at == targets.end() || !at->second.seen) continue;
            const auto& report = at->second.report;
            list.emplace_back(json::object{
                {"key", key},
                {"revision", at->second.revision},
                {"standing", name_of(report.standing)},
                {"class", name_of(report.last)},
                {"ms", report.took.count()},
                {"n_fail", report.failures},
                {"stale", report.stale},
                {"age_ms", std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady() - at->second.at).count()}});
        }
        return to_json_text(
            json::object{{"vantage", options.name},
                         {"fit", diagnosis.fit},
                         {"because", diagnosis.words},
                         {"reason", diagnosis.data.contains("reason") ? diagnosis.data.at("reason") : json::value("")},
                         {"targets", targets.size()},
                         {"reports", std::move(list)}});
    }

    static asio::awaitable<void> tell(std::shared_ptr<State> self) {
        co_await asio::this_coro::throw_if_cancelled(false);
        int attempts = 0;
        while (!self->over()) {
            while (self->waiting.empty() && !self->tell_anyway)
                if (!(co_await self->to_tell.wait(self->ctx)).ok()) co_return;
            if (!(co_await self->clock.sleep(self->options.gather)).ok()) co_return;
            std::vector<std::string> keys;
            while (!self->waiting.empty() && keys.size() < reports_at_once)
                keys.push_back(std::move(self->waiting.extract(self->waiting.begin()).value()));
            self->tell_anyway = false;
            auto message = self->request("POST", "/v1/health/reports");
            message.headers.set("Content-Type", "application/json");
            message.body = self->reports_text(keys);
            const auto answer = co_await self->exchange(std::move(message), std::chrono::seconds(10));
            if (answer) {
                attempts = 0;
                self->told += keys.size();
                continue;
            }
            self->tell_anyway = true;
            for (auto& key : keys)
                if (self->targets.contains(key)) self->waiting.insert(std::move(key));
            if (self->over() || !(co_await self->clock.sleep(self->pause(attempts++))).ok()) co_return;
        }
    }

    static asio::awaitable<void> refresh(std::shared_ptr<State> self) {
        co_await asio::this_coro::throw_if_cancelled(false);
        while ((co_await self->clock.sleep(self->options.refresh)).ok()) {
            self->diagnose();
            for (const auto& [key, target] : self->targets)
                if (target.seen) self->waiting.insert(key);
            self->tell_anyway = true;
            self->to_tell.notify_all();
        }
    }

    asio::any_io_executor executor;
    Clock& clock;
    Options options;
    Context ctx = Context::make("checker");
    net::HttpClient client;
    Notifier to_tell, refused;
    SelfDiagnosis self;
    Diagnosis diagnosis;
    std::set<std::string> failing_canaries;
    std::unordered_map<std::string, Target> targets;
    std::set<std::string> waiting, kept;
    bool resetting = false, tell_anyway = true; ///< it says that it is there even where it has found nothing
    std::optional<Error> refusal;
    bool stopping = false;
    std::uint64_t told = 0, failures = 0;
    Prober prober;
};

JoinedChecker::JoinedChecker(asio::any_io_executor executor, Clock& clock, Options options)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(options))) {}
JoinedChecker::~JoinedChecker() = default;

Task<Unit> JoinedChecker::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    state->ctx = ctx.without_deadline();
    for (std::size_t i = 0; i < state->options.canaries.size(); ++i) {
        const auto& one = state->options.canaries[i];
        CO_TRY(auto probe, probe_from(one.look, one.address, one.port, state->options.tools));
        state->prober.set(
            fmt::format("{}{}", canary_mark, i),
            {.probe = std::move(probe), .interval = one.interval, .timeout = one.timeout, .thresholds = one.thresholds});
    }
    TaskGroup group(state->executor);
    group.spawn(state->prober.run(state->ctx));
    group.spawn(State::follow(state));
    group.spawn(State::tell(state));
    group.spawn(State::refresh(state));
    Result<Unit> ended = Unit{};
    while (!state->refusal && ended.ok()) ended = co_await state->refused.wait(state->ctx);
    state->stopping = true; // before what waits is cancelled: it must not try again
    co_await group.stop();
    co_await state->client.stop();
    if (state->refusal) co_return *state->refusal;
    co_return ended;
}

JoinedChecker::Counts JoinedChecker::counts() const {
    return {state_->targets.size(), state_->waiting.size(), state_->told, state_->failures, state_->diagnosis.fit};
}

} // namespace orrery::health
