#include "api/problem.h"
#include "api/state.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

/// Changes as server-sent events.
namespace orrery::api {

using resource::Kind;

namespace {

constexpr std::size_t frames_kept = 2048;
/// So much is put together before it is written: what a slow reader makes the server hold is this, not all that it has missed.
constexpr std::size_t piece_size = 64 * 1024;

enum class Seen { created, updated, removed };
constexpr std::string_view seen_names[] = {"created", "updated", "removed"};

std::string frame_text(Api::State& state, const Kind& kind, const store::Event& event, Seen seen) {
    std::string out = fmt::format("id: {}-{}\nevent: {}\ndata: {{\"revision\":{},\"object\":", event.revision,
                                  state.store().identity(), seen_names[static_cast<std::size_t>(seen)], event.revision);
    const auto& shown = event.record ? event.record : event.previous;
    if (shown)
        state.resources.append_public_json(kind, *shown, out);
    else
        out += json::serialize(json::object{{"kind", kind.name()}, {"name", event.key.substr(kind.prefix().size())}});
    return out + "}\n\n";
}

/// The frame everyone who watches without a selector gets; made once for all of them.
std::shared_ptr<const std::string> shared_frame(Api::State& state, const Kind& kind, const store::Event& event, Seen seen) {
    const void* key = event.record.get();
    if (key == nullptr) return std::make_shared<const std::string>(frame_text(state, kind, event, seen));
    if (auto found = state.frames.find(key); found != state.frames.end()) return found->second.text;
    if (state.frame_order.size() >= frames_kept) {
        state.frames.erase(state.frame_order.front());
        state.frame_order.pop_front();
    }
    auto text = std::make_shared<const std::string>(frame_text(state, kind, event, seen));
    state.frames.emplace(key, Api::State::Frame{event.record, text});
    state.frame_order.push_back(key);
    return text;
}

/// What a watcher with this selector and owner sees of a change, if anything: an object that leaves the selection is removed for
/// it.
std::optional<Seen> seen_through(const resource::LabelSelector& labels, const Kind& kind, const identity::Principal& principal,
                                 const store::Event& event) {
    const bool by_owner = !kind.owner_field().empty() && principal.role != Role::admin;
    const auto selected = [&](const store::RecordPtr& record) {
        if (!record) return false;
        if (labels.empty() && !by_owner) return true;
        auto object = resource::from_stored(*record);
        return object.ok() && labels.matches(object->labels) && may_touch(kind, principal, *object);
    };
    const bool before = selected(event.previous);
    const bool after = selected(event.record);
    if (after) return before ? Seen::updated : Seen::created;
    if (before) return Seen::removed;
    return {};
}

/// Counts a stream for as long as it lives.
struct OpenStream {
    explicit OpenStream(Api::State& state_) : state(state_) { ++state.streams; }
    ~OpenStream() { --state.streams; }
    OpenStream(const OpenStream&) = delete;
    OpenStream& operator=(const OpenStream&) = delete;
    Api::State& state;
};

} // namespace

Task<Unit> stream_changes(Api::State& state, Call call, const Kind& kind, std::string name, std::string from) {
    const auto& identity = state.store().identity();
    if (const auto last = call.request.headers.get("Last-Event-ID"); !last.empty()) from = std::string(last);
    store::Revision position = state.store().revision();
    if (from != "now" && !from.empty()) {
        CO_TRY(position, parse_position(from, identity, "?watch"));
    }
    resource::LabelSelector labels;
    if (const auto text = call.query("labels")) {
        CO_TRY(labels, resource::LabelSelector::parse(*text));
    }
    if (position < state.store().compacted() || position > state.store().revision())
        co_return Error{Code::compacted,
                        fmt::format("changes after revision {} are not kept; this server has those from {} to {}", position,
                                    state.store().compacted(), state.store().revision()),
                        "list again and watch from the revision that the list states"};
    auto watch = state.store().watch(name.empty() ? kind.prefix() : kind.prefix() + name, position);
    const OpenStream counted(state);
    const auto ctx = call.ctx.without_deadline();
    CO_TRY(std::ignore,
           co_await call.out.begin(
               ctx, 200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}}));
    // The client knows at once that it is connected, and where it stands.
    CO_TRY(std::ignore,
           co_await call.out.write(ctx, fmt::format("retry: 1000\nid: {}-{}\nevent: started\ndata: {{\"revision\":{}}}\n\n",
                                                    position, identity, position)));
    auto checked = state.clock.steady();
    while (!call.out.stopping()) {
        // A login that is over ends its streams too, no later than the next heart-beat.
        if (const auto now = state.clock.steady(); now - checked >= state.options.heartbeat) {
            checked = now;
            auto still = co_await who_asks(state, ctx.with_timeout(state.options.heartbeat), call.request);
            const bool over = still.ok() ? still->role < kind.read_role() : still.error().code == Code::unauthenticated;
            if (over) {
                const Error why{Code::unauthenticated, "the login that this stream began with is over", "log in again"};
                CO_TRY(std::ignore,
                       co_await call.out.write(ctx, fmt::format("event: error\ndata: {}\n\n", problem_text(ctx, why))));
                break;
            }
        }
        auto events = co_await watch->next(ctx.with_timeout(state.options.heartbeat));
        if (!events.ok() && events.error().code == Code::timeout) {
            // The id moves on with the heart-beat, so that one who resumes after a quiet hour is not told that its place is gone.
            CO_TRY(std::ignore,
                   co_await call.out.write(ctx, fmt::format(": heartbeat\nid: {}-{}\n\n", watch->position(), identity)));
            continue;
        }
        if (!events.ok() && events.error().code == Code::unavailable) continue;
        if (!events.ok()) {
            const bool stopping = events.error().code == Code::cancelled;
            const auto why = stopping
                                 ? Error{Code::unavailable, "the server is stopping", "connect again and go on from the last id"}
                                 : events.error();
            CO_TRY(std::ignore, co_await call.out.write(ctx, fmt::format("event: error\ndata: {}\n\n", problem_text(ctx, why))));
            break;
        }
        std::string text;
        for (const auto& event : *events) {
            const auto seen = seen_through(labels, kind, call.principal, event);
            if (!seen) continue;
            if (labels.empty() && kind.owner_field().empty())
                text += *shared_frame(state, kind, event, *seen);
            else
                text += frame_text(state, kind, event, *seen);
            if (text.size() < piece_size) continue;
            CO_TRY(std::ignore, co_await call.out.write(ctx, text));
            text.clear();
        }
        if (!text.empty()) {
            CO_TRY(std::ignore, co_await call.out.write(ctx, text));
        }
    }
    co_return co_await call.out.finish(ctx);
}

} // namespace orrery::api
