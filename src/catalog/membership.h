#pragma once

#include "core/result.h"
#include "store/store.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::catalog {

/// How far an instance has come; each includes those before it. *Registered*: it is known, and will run. *Usable*: no check of it
/// or of its node is critical. *Passing*: all of them pass.
enum class State { registered, usable, passing };
std::string_view name_of(State state);
Result<State> parse_state(std::string_view text);

/// One instance of a service, as those see it who wait for it or configure themselves by it.
struct Member {
    std::string node;
    std::string id;      ///< tells it from others of the same node
    std::string address; ///< never empty for one that can be reached: its own, else its node's
    std::uint16_t port = 0;
    std::vector<std::string> tags; ///< sorted
    State state = State::registered;
    std::string why; ///< the state in words: "http check \"api\" is critical: connection refused"
    bool operator==(const Member&) const = default;
};

/// The instances of one service at one moment, sorted by node and id: the same instances are the same list, whoever asks.
struct Members {
    std::vector<Member> all;
    store::Revision revision = 0; ///< when something about this service last changed

    std::size_t count(State at_least) const;
    std::vector<Member> having(State at_least) const;
    /// Of who is there, where, with which tags, among those that have come so far; states and words do not count. 32 hexadecimal
    /// digits.
    std::string digest(State at_least) const;
};

/// Who is there. Implemented by the built-in Catalog and by drivers/consul; barriers, late-bound values and load balancers read
/// it. Loop thread only.
class Membership {
public:
    virtual ~Membership() = default;
    /// All instances of the service that have the tag (any, where it is empty). A service nobody registered has none, which is an
    /// answer; `unavailable` means that there is no answer: the catalog cannot be asked now, or may not tell us all. Never take one
    /// for the other.
    virtual Result<Members> members(std::string_view service, std::string_view tag) const = 0;
    /// Calls `changed` with a service's name after its members, or whether there is an answer at all, may have changed; with an
    /// empty name when that holds for all. It is called while the change is being taken in, so it must neither write nor wait, only
    /// note. Lasts until the handle is destroyed. Whoever begins to follow reads once after subscribing.
    virtual std::shared_ptr<void> subscribe(std::function<void(const std::string& service)> changed) = 0;
    /// Asks for a service to be followed, where following costs something (a foreign catalog); it is while the handle lives. Before
    /// the first answer `members` is `unavailable`.
    virtual std::shared_ptr<void> follow(std::string_view service) = 0;
};

} // namespace orrery::catalog
