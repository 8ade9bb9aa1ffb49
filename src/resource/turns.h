#pragma once

#include "core/task.h"

#include <list>
#include <memory>
#include <string>
#include <unordered_map>

namespace orrery::resource {

/// Lets one write of a resource at a time be under way in this server, in the order they came. Writes are safe without it, by
/// comparing revisions; but those that meet on one resource would lose to each other, and with bad luck again and again. Loop
/// thread only.
class Turns {
public:
    /// A turn, for as long as it lives.
    class Turn {
    public:
        Turn(std::shared_ptr<Turns> turns, std::string key) : turns_(std::move(turns)), key_(std::move(key)) {}
        Turn(Turn&&) = default;
        Turn& operator=(Turn&&) = delete;
        ~Turn() {
            if (turns_) turns_->pass_on(key_);
        }

    private:
        std::shared_ptr<Turns> turns_;
        std::string key_;
    };

    /// Waits for it. `cancelled`, `timeout` as in Notifier::wait.
    static Task<Turn> take(Context ctx, std::shared_ptr<Turns> turns, std::string key);

private:
    struct Waiting;
    void pass_on(const std::string& key);
    std::unordered_map<std::string, std::list<Waiting*>> lines_; ///< for each key that has a turn under way, who waits
};

} // namespace orrery::resource
