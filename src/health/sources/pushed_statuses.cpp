#include "health/sources/pushed_statuses.h"

#include "core/text.h"

#include <fmt/format.h>

namespace orrery::health {

namespace {

class PushProbe final : public Probe {
public:
    PushProbe(const PushedStatuses& statuses, std::string key) : statuses_(statuses), key_(std::move(key)) {}
    std::string identity() const override { return "push " + key_; }
    asio::awaitable<Observation> run(Context) const override { co_return statuses_.current(key_); }

private:
    const PushedStatuses& statuses_;
    std::string key_;
};

} // namespace

void PushedStatuses::record(const std::string& key, Outcome outcome, std::string text, Duration ttl) {
    if (text.size() > max_text) text.resize(max_text);
    statuses_[key] = {outcome, std::move(text), clock_.steady(), ttl};
}

Observation PushedStatuses::current(const std::string& key) const {
    const auto at = statuses_.find(key);
    if (at == statuses_.end()) return {.outcome = Outcome::local_error, .text = "no status was pushed yet"};
    const auto& status = at->second;
    if (clock_.steady() - status.at > status.ttl)
        return {.outcome = Outcome::failed, .text = fmt::format("no status was pushed within {}", to_text(status.ttl))};
    return {.outcome = status.outcome, .text = status.text};
}

ProbePtr push_probe(const PushedStatuses& statuses, std::string key) {
    return std::make_shared<PushProbe>(statuses, std::move(key));
}

} // namespace orrery::health
