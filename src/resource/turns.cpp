#include "resource/turns.h"

#include <boost/asio/this_coro.hpp>

namespace orrery::resource {

/// Lives in the frame of the coroutine that waits, and leaves the line with it, whatever ends it.
struct Turns::Waiting {
    Waiting(std::shared_ptr<Turns> turns_, std::string key_, asio::any_io_executor executor)
        : turns(std::move(turns_)), key(std::move(key_)), called(std::move(executor)) {
        auto& line = turns->lines_[key];
        place = line.insert(line.end(), this);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
        if (!has_turn) turns->lines_[key].erase(place);
    }
    std::shared_ptr<Turns> turns;
    std::string key;
    Notifier called;
    std::list<Waiting*>::iterator place;
    bool has_turn = false;
};

Task<Turns::Turn> Turns::take(Context ctx, std::shared_ptr<Turns> turns, std::string key) {
    if (turns->lines_.try_emplace(key).second) co_return Turn(std::move(turns), std::move(key));
    Waiting waiting(turns, key, co_await asio::this_coro::executor);
    while (!waiting.has_turn) {
        auto told = co_await waiting.called.wait(ctx);
        if (told.ok() || waiting.has_turn) continue;
        co_return std::move(told).error();
    }
    co_return Turn(std::move(turns), std::move(key));
}

void Turns::pass_on(const std::string& key) {
    const auto at = lines_.find(key);
    if (at == lines_.end()) return;
    auto& line = at->second;
    if (line.empty()) {
        lines_.erase(at);
        return;
    }
    auto* next = line.front();
    line.pop_front();
    next->has_turn = true;
    next->called.notify_all();
}

} // namespace orrery::resource
