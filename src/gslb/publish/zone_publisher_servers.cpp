#include "gslb/publish/zone_publisher_state.h"

#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::gslb {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t names_a_question_round = 200;

/// Whether a name server answers as wanted. The TTL counts only in an authoritative response.
bool agrees(const RecordSets& wanted, const Answered& answered) {
    return std::equal(wanted.begin(), wanted.end(), answered.sets.begin(), answered.sets.end(),
                      [&](const RecordSet& want, const RecordSet& seen) {
                          return want.type == seen.type && want.values == seen.values &&
                                 (!answered.authoritative || want.ttl == seen.ttl);
                      });
}

} // namespace

std::vector<std::string> ZonePublisher::State::ask_names(SteadyTime now) const {
    std::vector<std::string> out;
    for (const auto& [name, entry] : names)
        if (entry.ask_due <= now && out.size() < names_a_question_round) out.push_back(name);
    return out;
}

SteadyTime ZonePublisher::State::next_ask() const {
    auto out = never;
    for (const auto& [name, entry] : names) out = std::min(out, entry.ask_due);
    return out;
}

asio::awaitable<void> ZonePublisher::State::ask_one(Context ctx, std::string server, std::vector<std::string> queried,
                                                    std::shared_ptr<Replies> into) {
    const auto limited = ctx.with_timeout(options.ask_timeout, clock);
    auto answers = co_await within_deadline(limited, servers->ask(limited, server, queried), clock);
    if (!answers.ok())
        into->assign(queried.size(), Result<Answered>(answers.error()));
    else
        *into = std::move(*answers);
    into->resize(queried.size());
}

asio::awaitable<void> ZonePublisher::State::ask_round(Context ctx) {
    const auto queried = ask_names(clock.steady());
    if (queried.empty()) co_return;
    std::vector<SteadyTime> written;
    for (const auto& name : queried) {
        auto& entry = names.find(name)->second;
        entry.ask_due = never; // set again below, unless a decision arrives meanwhile
        written.push_back(entry.decided);
    }
    counts.questions += queried.size() * options.servers.size();
    std::vector<std::shared_ptr<Replies>> answers;
    TaskGroup group(co_await asio::this_coro::executor);
    for (const auto& server : options.servers) {
        answers.push_back(std::make_shared<Replies>());
        group.spawn(ask_one(ctx, server, queried, answers.back()));
    }
    bool cancelled = false;
    try {
        co_await group.join();
    } catch (const boost::system::system_error&) {
        cancelled = true;
    }
    if (cancelled) {
        co_await asio::this_coro::reset_cancellation_state();
        co_await group.stop();
        co_return;
    }
    for (std::size_t i = 0; i < queried.size(); ++i) {
        const auto found = names.find(queried[i]);
        // The decision changed during the query.
        if (found == names.end() || found->second.decided != written[i] || !found->second.at_service) continue;
        std::vector<PublishStatus::Server> seen;
        for (std::size_t s = 0; s < options.servers.size(); ++s) {
            const auto& answer = (*answers[s])[i];
            seen.push_back({options.servers[s], answer.ok() && agrees(found->second.wanted, *answer), answer.ok(),
                            answer.ok() ? text_of(answer->sets) : answer.error().message});
        }
        judge_servers(found, std::move(seen));
    }
}

void ZonePublisher::State::judge_servers(EntryIterator at, std::vector<PublishStatus::Server> seen) {
    auto& entry = at->second;
    const auto now = clock.steady();
    entry.status.servers = std::move(seen);
    const auto& all = entry.status.servers;
    const auto wrong = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.answered && !one.agrees; });
    const auto silent = std::find_if(all.begin(), all.end(), [](const auto& one) { return !one.answered; });
    if (wrong == all.end() && (silent == all.end() || entry.seen)) return served(at); // a missing response is no evidence
    entry.ask_wait = std::min<Duration>(entry.ask_wait * 2, max_ask_interval);
    entry.ask_due = now + entry.ask_wait;
    const auto& one = wrong != all.end() ? *wrong : *silent;
    auto what = one.answered ? fmt::format("{} answers {}", one.server, one.text)
                             : fmt::format("{} does not answer: {}", one.server, one.text);
    if (!entry.error.empty()) what += fmt::format("; {} reports: {}", provider.description(), entry.error);
    if (entry.seen) return set_status(entry, PublishState::drift, what + ", although the service has the written records");
    if (now - entry.written <= options.propagation_timeout) return set_status(entry, PublishState::pending, what);
    set_status(entry, PublishState::error,
               fmt::format("written {} ago, but {}", to_text(std::chrono::duration_cast<std::chrono::seconds>(now - entry.written)),
                           what));
}

} // namespace orrery::gslb
