#include "gslb/observe/health_source.h"

#include "core/json_fields.h"
#include "core/log.h"
#include "gslb/model/kind_fields.h"
#include "gslb/model/validate.h"
#include "jobs/values.h"
#include "resource/object.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery::gslb {

namespace {

constexpr auto sweep_reports_every = std::chrono::minutes(1);
constexpr auto max_ttl = std::chrono::hours(24);
constexpr std::size_t max_message_size = 1024;

Error pushed_status_error(std::string field, std::string message) {
    Error error{Code::invalid, "the body of a pushed status is invalid"};
    error.fields.push_back({std::move(field), std::move(message)});
    return error;
}

health::Outcome outcome_of_state(std::string_view state) {
    return state == "up" ? health::Outcome::ok : state == "degraded" ? health::Outcome::warning : health::Outcome::failed;
}

std::string_view state_of_outcome(health::Outcome outcome) {
    return outcome == health::Outcome::ok ? "up" : outcome == health::Outcome::warning ? "degraded" : "down";
}

Task<Unit> prepare_source(Context, resource::Draft& draft) {
    std::vector<FieldError> errors;
    const auto& spec = draft.after.spec;
    const auto driver = text_at(spec, "driver");
    const auto needs = [&](const char* field, bool when) {
        if (when && !spec.contains(field))
            errors.push_back({fmt::format("spec.{}", field), fmt::format("is required by driver {}", driver)});
        return when;
    };
    const auto nothing = [&](const char* field, bool when) {
        if (when && spec.contains(field))
            errors.push_back({fmt::format("spec.{}", field), fmt::format("does not apply to driver {}", driver)});
    };
    const bool octavia = driver == "octavia";
    for (const auto* field : {"keystone", "credentials"}) needs(field, octavia);
    needs("url", !octavia);
    for (const auto* field : {"keystone", "min_members", "service"}) nothing(field, !octavia);
    co_return resource::verdict(*draft.resources->registry().find("Source"), draft.after.name, std::move(errors));
}

} // namespace

resource::Kind source_kind() {
    using namespace resource;
    Kind kind("Source", "sources", "An external health source: one query returns the health of many members.");
    kind.spec(text("driver",
                   "The protocol. octavia: load balancers of an OpenStack cloud (Octavia v2, or Neutron's LBaaS v2). prometheus: "
                   "a server with the Prometheus API.")
                  .required()
                  .one_of({"octavia", "prometheus"}))
        .spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(text("url", "prometheus: the URL of the server. octavia: instead of the endpoint of the Keystone catalog.")
                  .format(Format::url))
        .spec(text("credentials", "The Secret to log in with. octavia: its value \"password\", or \"credential_secret\" of an "
                                  "application credential. prometheus: \"token\", if a proxy requires one.")
                  .refers_to("Secret"))
        .spec(keystone_field("octavia: the Keystone credentials.", "the load balancers"))
        .spec(text("service", "octavia: network for Neutron's LBaaS v2. Default: load-balancer.")
                  .one_of({"load-balancer", "network"}))
        .spec(
            integer("min_members", "octavia: the number of ONLINE members from which on a DEGRADED load balancer is up. Default 1.")
                .between(1, 10'000))
        .spec(plaintext_field())
        .column("NAME", "name")
        .column("DRIVER", "spec.driver")
        .column("URL", "spec.url")
        .column("AGE", "age")
        .wide_column("KEYSTONE", "spec.keystone.url")
        .prepare([](Context ctx, Draft& draft) { return prepare_source(std::move(ctx), draft); })
        .example(
            "kind: Source\nname: eu-openstack\nspec:\n  driver: octavia\n  credentials: openstack-reader\n  keystone:\n    url: "
            "https://keystone.example:5000/v3\n    user: reader\n    project: web\n");
    return kind;
}

resource::Kind report_kind() {
    using namespace resource;
    Kind kind("Report", "reports",
              "A status that a client pushed for a member and a Monitor of kind push. Only the server writes it.");
    kind.spec(text("member", "The Member.").required().indexed())
        .spec(text("monitor", "The Monitor.").required())
        .spec(text("state", "up, degraded or down.").required())
        .spec(text("message", "For people.").renamed_from("text"))
        .spec(time("until", "When it expires.").required())
        .column("NAME", "name")
        .column("MEMBER", "spec.member")
        .column("MONITOR", "spec.monitor")
        .column("STATE", "spec.state")
        .column("MESSAGE", "spec.message")
        .column("UNTIL", "spec.until")
        .verbs({Verb::read})
        .unaudited();
    return kind;
}

Result<PushedStatus> parse_pushed_status(const json::value& body, Duration default_ttl) {
    const auto* object = body.if_object();
    if (object == nullptr) return pushed_status_error("(body)", "must be an object with state");
    PushedStatus out;
    for (const auto& [key, value] : *object) {
        const std::string_view name(key);
        if (name != "state" && name != "message" && name != "ttl")
            return pushed_status_error(std::string(name), "is not a field of a pushed status");
        if (!value.is_string()) return pushed_status_error(std::string(name), "must be a text");
    }
    const auto state = text_at(*object, "state");
    if (state != "up" && state != "degraded" && state != "down")
        return pushed_status_error("state", "must be up, degraded or down");
    out.outcome = outcome_of_state(state);
    out.message = text_at(*object, "message");
    if (out.message.size() > max_message_size || std::any_of(out.message.begin(), out.message.end(), [](char c) {
            return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
        }))
        return pushed_status_error("message", fmt::format("must be one line of at most {} bytes", max_message_size));
    out.ttl = default_ttl;
    if (const auto ttl = text_at(*object, "ttl"); !ttl.empty()) {
        const auto parsed = parse_duration(ttl);
        if (!parsed.ok() || *parsed < std::chrono::seconds(1) || *parsed > max_ttl)
            return pushed_status_error("ttl", "must be a time between 1s and 24h");
        out.ttl = *parsed;
    }
    return out;
}

std::string report_name(std::string_view member, std::string_view monitor) {
    auto readable = fmt::format("{}.{}", member, monitor);
    if (resource::is_valid_name(readable)) return readable;
    return fmt::format("report-{}", jobs::sha256_text(fmt::format("{}\n{}", member, monitor), 32));
}

std::string pushed_status_key(std::string_view member, std::string_view monitor) { return fmt::format("{}|{}", member, monitor); }

json::object report_spec(std::string_view member, std::string_view monitor, const PushedStatus& pushed, WallTime now) {
    return {{"member", member},
            {"monitor", monitor},
            {"state", state_of_outcome(pushed.outcome)},
            {"message", pushed.message},
            {"until", to_rfc3339(now + std::chrono::duration_cast<std::chrono::milliseconds>(pushed.ttl))}};
}

struct Reports::State : std::enable_shared_from_this<State> {
    State(resource::Resources& resources_, store::Leadership& leadership_, Clock& clock_, health::PushedStatuses& board_)
        : resources(resources_), leadership(leadership_), clock(clock_), board(board_) {}

    void apply_event(const store::Event& event) {
        const auto object =
            event.record ? resource::from_stored(*event.record) : Result<resource::Object>(Error{Code::not_found, ""});
        if (!object.ok()) {
            const auto before = event.previous ? resource::from_stored(*event.previous) : object;
            if (before.ok()) board.forget(pushed_status_key(text_at(before->spec, "member"), text_at(before->spec, "monitor")));
            return;
        }
        const auto until = time_at(object->spec, "until");
        if (!until) return;
        const auto left = std::clamp<Duration>(*until - clock.wall(), Duration::zero(), max_ttl);
        board.record(pushed_status_key(text_at(object->spec, "member"), text_at(object->spec, "monitor")),
                     outcome_of_state(text_at(object->spec, "state")), text_at(object->spec, "message"), left);
    }

    /// The names of Reports whose member or monitor was removed.
    std::vector<std::string> stray() const {
        const auto& registry = resources.registry();
        std::vector<std::string> out;
        resource::ListQuery query;
        query.limit = 5000;
        do {
            const auto page = resources.list(*registry.find("Report"), query);
            if (!page.ok()) return out;
            for (const auto& record : page->records)
                if (const auto object = resource::from_stored(*record); object.ok())
                    if (!resources.exists(*registry.find("Member"), text_at(object->spec, "member")) ||
                        !resources.exists(*registry.find("Monitor"), text_at(object->spec, "monitor")))
                        out.push_back(object->name);
            query.after = page->next;
        } while (!query.after.empty());
        return out;
    }

    static asio::awaitable<void> sweep(std::shared_ptr<State> self, Context ctx, store::Fence fence) {
        co_await asio::this_coro::throw_if_cancelled(false);
        while ((co_await self->clock.sleep(sweep_reports_every)).ok())
            for (const auto& name : self->stray()) {
                const auto removed =
                    co_await self->resources.remove(ctx, *self->resources.registry().find("Report"), name, {.fence = &fence});
                if (!removed.ok()) break;
            }
    }

    resource::Resources& resources;
    store::Leadership& leadership;
    Clock& clock;
    health::PushedStatuses& board;
    std::shared_ptr<void> observed;
};

Reports::Reports(resource::Resources& resources, store::Leadership& leadership, Clock& clock, health::PushedStatuses& board)
    : state_(std::make_shared<State>(resources, leadership, clock, board)) {
    auto* state = state_.get();
    state->observed = resources.store().observe("reports/", [state](const store::Event& event) { state->apply_event(event); });
}

Reports::~Reports() { state_->observed.reset(); }

asio::awaitable<void> Reports::run(Context ctx) {
    const auto state = state_;
    co_await state->leadership.for_each_term(
        ctx, [state, ctx](TaskGroup& term, const store::Fence& fence) { term.spawn(State::sweep(state, ctx, fence)); },
        []() -> asio::awaitable<void> { co_return; });
}

} // namespace orrery::gslb
