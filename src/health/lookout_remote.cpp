#include "health/forced.h"
#include "health/lookout_state.h"

namespace orrery::health {

namespace {

constexpr std::size_t most_told = 10'000, told_at_once = 1000;

} // namespace

json::object Lookout::assignments(std::string_view epoch, std::uint64_t after) const {
    const auto& state = *state_;
    const bool reset = epoch != state.epoch || after < state.floor || after > state.revision;
    if (reset) after = 0;
    json::array set, removed;
    std::size_t count = 0;
    auto at = state.changes.upper_bound(after);
    for (; at != state.changes.end() && count < told_at_once; ++at, ++count) {
        after = at->first;
        const auto& [key, wanted] = at->second;
        if (!wanted) {
            removed.emplace_back(key);
            continue;
        }
        auto one = state.watched.at(key).wanted.to_json();
        one["key"] = key;
        one["revision"] = at->first;
        set.emplace_back(std::move(one));
    }
    const bool more = at != state.changes.end();
    return {{"epoch", state.epoch},  {"revision", more ? after : state.revision},
            {"reset", reset},        {"more", more},
            {"set", std::move(set)}, {"removed", std::move(removed)}};
}

Task<Unit> Lookout::assignments_changed(Context ctx, std::uint64_t after) {
    const auto state = state_;
    while (state->revision <= after && !state->closed) {
        CO_TRY(std::ignore, co_await state->assigned.wait(ctx));
    }
    co_return Unit{};
}

Result<Unit> Lookout::take(const json::value& told) {
    auto& state = *state_;
    if (!state.resting.empty()) return Error{Code::unavailable, state.resting, "join a server that runs controllers"};
    if (!told.is_object()) return told_wrong("body", "must be an object");
    const auto& body = told.get_object();
    const auto name = told_text(body, "vantage");
    if (!is_vantage_name(name)) return told_wrong("vantage", "must be a name of up to 128 printable characters");
    const auto known = state.vantages.find(name);
    if (known != state.vantages.end() && known->second.kind != "checker")
        return told_wrong("vantage", fmt::format("\"{}\" is a {} already", name, known->second.kind));
    if (known == state.vantages.end()) {
        const auto checkers = std::count_if(state.vantages.begin(), state.vantages.end(),
                                            [](const auto& one) { return one.second.kind == "checker"; });
        if (static_cast<std::size_t>(checkers) >= state.options.most_checkers)
            return Error{Code::throttled, fmt::format("{} checkers have joined already, and no more may", checkers)};
    }
    const auto* fit = body.if_contains("fit");
    if (fit == nullptr || !fit->is_bool()) return told_wrong("fit", "must be true or false");
    const auto* reports = body.if_contains("reports");
    if (reports == nullptr || !reports->is_array()) return told_wrong("reports", "must be a list");
    const auto& list = reports->get_array();
    if (list.size() > most_told) return told_wrong("reports", fmt::format("may have at most {} entries", most_told));
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (!list[i].is_object()) return told_wrong(fmt::format("reports[{}]", i), "must be an object");
        if (told_text(list[i].get_object(), "key").empty())
            return told_wrong(fmt::format("reports[{}].key", i), "must say which target");
    }
    const auto now = state.clock.steady();
    auto& vantage = state.vantages[name];
    vantage.kind = "checker";
    vantage.heard = now;
    vantage.targets = static_cast<std::size_t>(told_number(body, "targets", 0, 10'000'000));
    const bool was_fit = vantage.diagnosis.fit;
    vantage.diagnosis.fit = fit->get_bool();
    vantage.diagnosis.words = vantage.diagnosis.fit ? std::string() : told_text(body, "because").substr(0, 256);
    vantage.diagnosis.data =
        vantage.diagnosis.fit ? json::object{} : json::object{{"reason", told_text(body, "reason").substr(0, 32)}};
    const bool together = state.all_fell;
    state.fall_together();
    std::vector<std::string> changed;
    for (const auto& entry : list) {
        const auto& one = entry.get_object();
        const auto at = state.watched.find(told_text(one, "key"));
        if (at == state.watched.end()) continue;
        // What it found by an earlier way to look is of no use.
        if (one.contains("revision") &&
            told_number(one, "revision", 0, INT64_MAX) != static_cast<std::int64_t>(at->second.revision))
            continue;
        auto& seen = at->second.seen[name];
        auto& report = seen.report;
        report.vantage = name;
        report.standing = standing_from(told_text(one, "standing"));
        report.last = outcome_from(told_text(one, "class"));
        report.took = std::chrono::milliseconds(told_number(one, "ms", 0, 3'600'000));
        report.failures = static_cast<int>(told_number(one, "n_fail", 0, 1000));
        const auto* stale = one.if_contains("stale");
        report.stale = stale != nullptr && stale->is_bool() && stale->get_bool();
        seen.at = now - std::chrono::milliseconds(told_number(one, "age_ms", 0, 86'400'000));
        const auto& thresholds = at->second.wanted.thresholds;
        seen.until_change = report.standing == Standing::down ? thresholds.rise : std::max(1, thresholds.fall - report.failures);
        if (is_good(report.last)) seen.rtt = static_cast<double>(report.took.count());
        if (state.settle(at->first, at->second)) changed.push_back(at->first);
    }
    if (was_fit != vantage.diagnosis.fit || together != state.all_fell) {
        log::info(Context::background(), "vantage {} {}", name,
                  vantage.diagnosis.fit ? "counts again" : "sets itself aside: " + vantage.diagnosis.words);
        state.settle_all();
    }
    for (const auto& key : changed) state.tell(key);
    return Unit{};
}

void Lookout::set_peer(const std::string& name, const Peer& peer) {
    auto& state = *state_;
    if (!is_vantage_name(name)) return;
    const auto [at, is_new] = state.vantages.try_emplace(name);
    auto& vantage = at->second;
    if (!is_new && vantage.kind != "peer") return; // somebody else has its name
    vantage.kind = "peer";
    const bool same =
        !is_new && vantage.ready == peer.ready && vantage.diagnosis.fit == peer.fit && vantage.diagnosis.words == peer.because;
    vantage.ready = peer.ready;
    vantage.targets = peer.targets;
    vantage.diagnosis.fit = peer.fit;
    vantage.diagnosis.words = peer.fit ? std::string() : peer.because.substr(0, 256);
    vantage.diagnosis.data = peer.fit ? json::object{} : json::object{{"reason", peer.reason}};
    if (same) return;
    log::info(Context::background(), "vantage {} {}", name,
              !peer.fit    ? "sets itself aside: " + vantage.diagnosis.words
              : peer.ready ? "has looked at everything, and counts"
                           : "begins to look");
    state.fall_together();
    state.settle_all();
}

void Lookout::remove_peer(const std::string& name) {
    auto& state = *state_;
    const auto at = state.vantages.find(name);
    if (at == state.vantages.end() || at->second.kind != "peer") return;
    state.vantages.erase(at);
    log::info(Context::background(), "vantage {} is gone", name);
    state.fall_together();
    state.settle_all();
}

void Lookout::set_peer_word(const std::string& name, const std::string& key, std::optional<Word> word) {
    auto& state = *state_;
    const auto at = state.vantages.find(name);
    if (at == state.vantages.end() || at->second.kind != "peer") return;
    if (word)
        at->second.words.insert_or_assign(key, std::move(*word));
    else
        at->second.words.erase(key);
    if (const auto of = state.watched.find(key); of != state.watched.end())
        if (state.settle(key, of->second)) state.tell(key);
}

void Lookout::hear_peers(bool heard) {
    auto& state = *state_;
    if (std::exchange(state.peers_heard, heard) == heard) return;
    state.fall_together();
    state.settle_all();
}

void Lookout::tell_others(OnWord on_word, OnFit on_fit) {
    state_->on_word = std::move(on_word);
    state_->on_fit = std::move(on_fit);
    for (const auto& [key, of] : state_->watched) state_->say(key, of);
}

void Lookout::rest(std::string why) { state_->resting = std::move(why); }
const std::string& Lookout::resting() const { return state_->resting; }

void Lookout::close() {
    state_->closed = true;
    state_->assigned.notify_all();
}

json::array Lookout::vantages() const {
    const auto& state = *state_;
    json::array out;
    for (const auto& [name, vantage] : state.vantages) {
        json::object one{{"name", name},
                         {"kind", vantage.kind == "peer" ? std::string_view("server") : vantage.kind},
                         {"fit", state.counts(vantage)},
                         {"targets", vantage.targets}};
        if (vantage.kind == "peer") {
            one["ready"] = vantage.ready;
            one["heard"] = state.peers_heard;
        }
        if (!vantage.diagnosis.fit) one["because"] = vantage.diagnosis.words;
        if (vantage.kind == "checker")
            one["heard_ms_ago"] =
                std::chrono::duration_cast<std::chrono::milliseconds>(state.clock.steady() - vantage.heard).count();
        out.emplace_back(std::move(one));
    }
    return out;
}

} // namespace orrery::health
