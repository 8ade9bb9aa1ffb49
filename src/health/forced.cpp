#include "health/forced.h"

#include <fmt/format.h>

#include <array>

namespace orrery::health {

namespace {

std::string_view text_of(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

} // namespace

std::string_view name_of(Forced::What what) {
    switch (what) {
    case Forced::What::up: return "FORCE_UP";
    case Forced::What::down: return "FORCE_DOWN";
    case Forced::What::drain: return "DRAIN";
    }
    return "DRAIN";
}

json::object Forced::to_json() const {
    json::object out{{"state", name_of(what)}, {"author", author}, {"reason", reason}};
    if (until) out["until"] = to_rfc3339(*until);
    return out;
}

Result<Forced> Forced::from_json(const json::value& value) {
    if (!value.is_object())
        return Error{Code::invalid, "a forced state is an object", R"(as in {"state": "DRAIN", "reason": "..."})"};
    const auto& object = value.get_object();
    Forced out;
    const auto state = text_of(object, "state");
    if (state == "FORCE_UP")
        out.what = What::up;
    else if (state == "FORCE_DOWN")
        out.what = What::down;
    else if (state == "DRAIN")
        out.what = What::drain;
    else
        return Error{Code::invalid, fmt::format("state \"{}\" cannot be forced", state), "use FORCE_UP, FORCE_DOWN or DRAIN"};
    out.author = text_of(object, "author");
    out.reason = text_of(object, "reason");
    if (out.author.empty()) return Error{Code::invalid, "author is missing", "say who forces the state"};
    if (out.reason.empty()) return Error{Code::invalid, "reason is missing", "say why: it is shown wherever the state is"};
    if (object.contains("until")) {
        auto until = from_rfc3339(text_of(object, "until"));
        if (!until.ok())
            return Error{Code::invalid, fmt::format("until \"{}\" is no time", text_of(object, "until")),
                         "as in 2026-01-05T10:00:00.000Z"};
        out.until = *until;
    }
    return out;
}

Effective effective(const std::optional<Forced>& forced, Standing probed, WallTime now) {
    Effective out{.standing = probed};
    if (!forced || (forced->until && *forced->until <= now)) return out;
    out.forced = true;
    out.words = fmt::format("{} by {}{}: {}", name_of(forced->what), forced->author,
                            forced->until ? " until " + to_rfc3339(*forced->until) : std::string(), forced->reason);
    switch (forced->what) {
    case Forced::What::up: out.standing = Standing::up; break;
    case Forced::What::down: out.standing = Standing::down; break;
    case Forced::What::drain: out.drained = true; break; // what probes find of it stays to be seen
    }
    return out;
}

FailbackDecision may_return(const Failback& failback, WallTime up_since, bool approved, WallTime now) {
    if (failback.how == Failback::How::automatic || approved) return {};
    if (failback.how == Failback::How::manual) return {false, "it is up again and waits for somebody to return it"};
    const auto over = up_since + std::chrono::duration_cast<std::chrono::milliseconds>(failback.delay);
    if (now >= over) return {};
    return {false, fmt::format("it is up again and returns at {}", to_rfc3339(over))};
}

json::object Memory::to_json() const {
    json::object out{{"standing", name_of(standing)}, {"since", to_rfc3339(since)}, {"class", name_of(last)}};
    if (!text.empty()) out["text"] = text.substr(0, 256);
    return out;
}

Memory Memory::from_json(const json::value& value) {
    Memory out;
    if (!value.is_object()) return out;
    const auto& object = value.get_object();
    out.standing = standing_from(text_of(object, "standing"));
    out.last = outcome_from(text_of(object, "class"));
    out.text = text_of(object, "text").substr(0, 256);
    if (const auto since = from_rfc3339(text_of(object, "since")); since.ok()) out.since = *since;
    return out;
}

bool worth_storing(const Memory& stored, const Memory& now) { return stored.standing != now.standing; }

Standing standing_from(std::string_view name) {
    for (const auto one : {Standing::up, Standing::degraded, Standing::down})
        if (name_of(one) == name) return one;
    return Standing::unknown;
}

Outcome outcome_from(std::string_view name) {
    for (int i = 0; i <= static_cast<int>(Outcome::failed); ++i)
        if (name_of(static_cast<Outcome>(i)) == name) return static_cast<Outcome>(i);
    return Outcome::local_error;
}

} // namespace orrery::health
