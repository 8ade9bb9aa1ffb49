#include "api/problem.h"
#include "api/state.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

/// Watch streams: changes as server-sent events.
namespace orrery::api {

using resource::Kind;

namespace {

constexpr std::size_t max_shared_frames = 2048;
/// Frames are combined up to this size before a write. It bounds the memory that one slow client can occupy.
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

/// The frame of a change for all watchers without a selector; rendered once.
std::shared_ptr<const std::string> shared_frame(Api::State& state, const Kind& kind, const store::Event& event, Seen seen) {
    const void* key = event.record.get();
    if (key == nullptr) return std::make_shared<const std::string>(frame_text(state, kind, event, seen));
    if (auto found = state.frames.find(key); found != state.frames.end()) return found->second.text;
    if (state.frame_order.size() >= max_shared_frames) {
        state.frames.erase(state.frame_order.front());
        state.frame_order.pop_front();
    }
    auto text = std::make_shared<const std::string>(frame_text(state, kind, event, seen));
    state.frames.emplace(key, Api::State::Frame{event.record, text});
    state.frame_order.push_back(key);
    return text;
}

/// How a watcher with this selector and principal sees a change; nullopt: not at all. An object that leaves the selection is
/// reported as removed.
std::optional<Seen> seen_through(const resource::LabelSelector& labels, const Kind& kind, const identity::Principal& principal,
                                 const store::Event& event) {
    const bool by_owner = !kind.owner_field().empty() && principal.role != Role::admin;
    const auto selected = [&](const store::RecordPtr& record) {
        if (!record) return false;
        if (labels.empty() && !by_owner) return true;
        auto object = resource::from_stored(*record);
        return object.ok() && labels.matches(object->labels) && can_access(kind, principal, *object);
    };
    const bool before = selected(event.previous);
    const bool after = selected(event.record);
    if (after) return before ? Seen::updated : Seen::created;
    if (before) return Seen::removed;
    return {};
}

/// Counts an open stream.
struct OpenStream {
    explicit OpenStream(Api::State& state_) : state(state_) { ++state.streams; }
    ~OpenStream() { --state.streams; }
    OpenStream(const OpenStream&) = delete;
    OpenStream& operator=(const OpenStream&) = delete;
    Api::State& state;
};

std::string error_frame(const Context& ctx, const Error& error) {
    return fmt::format("event: error\ndata: {}\n\n", problem_text(ctx, error));
}

/// One watch stream of one client.
struct ChangeStream {
    Api::State& state;
    Call& call;
    const Kind& kind;
    Context ctx; ///< without the deadline of the request
    resource::LabelSelector labels;
};

/// Has the login of the stream ended?
Task<bool> login_has_ended(ChangeStream& stream) {
    auto principal =
        co_await authenticate(stream.state, stream.ctx.with_timeout(stream.state.options.heartbeat), stream.call.request);
    co_return principal.ok() ? principal->role < stream.kind.read_role() : principal.error().code == Code::unauthenticated;
}

Task<Unit> send_events(ChangeStream& stream, const std::vector<store::Event>& events) {
    auto& [state, call, kind, ctx, labels] = stream;
    std::string text;
    for (const auto& event : events) {
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
    co_return Unit{};
}

Task<Unit> forward_changes(ChangeStream& stream, store::Watch& watch) {
    auto& state = stream.state;
    auto& out = stream.call.out;
    const auto& ctx = stream.ctx;
    auto checked = state.clock.steady();
    while (!out.stopping()) {
        // A stream ends with its login, no later than the next heartbeat.
        if (const auto now = state.clock.steady(); now - checked >= state.options.heartbeat) {
            checked = now;
            CO_TRY(const bool ended, co_await login_has_ended(stream));
            if (ended)
                co_return co_await out.write(
                    ctx, error_frame(ctx, {Code::unauthenticated, "the login of this stream has ended", "log in again"}));
        }
        auto events = co_await watch.next(ctx.with_timeout(state.options.heartbeat));
        if (events.ok()) {
            CO_TRY(std::ignore, co_await send_events(stream, *events));
        } else if (events.error().code == Code::timeout) {
            // The heartbeat advances the id, so that a client can resume after a quiet hour without a compacted position.
            CO_TRY(std::ignore,
                   co_await out.write(ctx, fmt::format(": heartbeat\nid: {}-{}\n\n", watch.position(), state.store().identity())));
        } else if (events.error().code == Code::cancelled) {
            co_return co_await out.write(
                ctx, error_frame(ctx, {Code::unavailable, "the server is stopping", "reconnect with the last event id"}));
        } else if (events.error().code != Code::unavailable) {
            co_return co_await out.write(ctx, error_frame(ctx, events.error()));
        }
    }
    co_return Unit{};
}

} // namespace

Task<Unit> stream_changes(Api::State& state, Call call, const Kind& kind, std::string name, std::string from) {
    const auto& identity = state.store().identity();
    if (const auto last = call.request.headers.get("Last-Event-ID"); !last.empty()) from = std::string(last);
    store::Revision position = state.store().revision();
    if (from != "now" && !from.empty()) {
        CO_TRY(position, parse_position(from, identity, "?watch"));
    }
    ChangeStream stream{state, call, kind, call.ctx.without_deadline(), {}};
    if (const auto text = call.query("labels")) {
        CO_TRY(stream.labels, resource::LabelSelector::parse(*text));
    }
    if (position < state.store().compacted() || position > state.store().revision())
        co_return Error{Code::compacted,
                        fmt::format("changes after revision {} are compacted; this server has revisions {} to {}", position,
                                    state.store().compacted(), state.store().revision()),
                        "list again and watch from the revision of the list"};
    auto watch = state.store().watch(name.empty() ? kind.prefix() : kind.prefix() + name, position);
    const OpenStream counted(state);
    const auto& ctx = stream.ctx;
    CO_TRY(std::ignore,
           co_await call.out.begin(
               ctx, 200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}}));
    // The first event confirms the connection and the start position.
    CO_TRY(std::ignore,
           co_await call.out.write(ctx, fmt::format("retry: 1000\nid: {}-{}\nevent: started\ndata: {{\"revision\":{}}}\n\n",
                                                    position, identity, position)));
    CO_TRY(std::ignore, co_await forward_changes(stream, *watch));
    co_return co_await call.out.finish(ctx);
}

} // namespace orrery::api
