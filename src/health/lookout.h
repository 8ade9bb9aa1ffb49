#pragma once

#include "core/task.h"
#include "health/look_spec.h"
#include "health/prober.h"
#include "health/quorum.h"
#include "health/vantage.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::health {

/// What is to be looked at, as data: it may be looked at from elsewhere.
struct Wanted {
    json::object look;   ///< see look_spec.h
    std::string address; ///< name or address
    std::uint16_t port = 0;
    Duration interval = std::chrono::seconds(10);
    Duration timeout = std::chrono::seconds(5);
    Thresholds thresholds;

    json::object to_json() const;
    /// `invalid` names the field. For what comes from another process: everything is bounded.
    static Result<Wanted> from_json(const json::object& value);
    bool operator==(const Wanted&) const;
};

/// What is known of a target from all places that look at it.
struct Finding {
    Standing standing = Standing::unknown;
    bool stale = false;                ///< remembered from before a restart; no vantage has told of it since
    Duration until_change{};           ///< the soonest that looks alone could make it another
    QuorumDecision decision;           ///< words and evidence
    std::map<std::string, double> rtt; ///< smoothed milliseconds of good looks, by vantage
};

/// What one server says of one target, for others.
struct Word {
    Report report;
    std::uint64_t how = 0; ///< a digest of how it looks: a word about another way to look is of no use
    bool is_well() const { return report.standing == Standing::up && !report.stale; }
    bool is_known() const { return report.standing != Standing::unknown && !report.stale; }
};

/// Looks from many places and says what it amounts to. This server is a vantage; managed nodes are, over SSH, without anything
/// installed there; checkers elsewhere that joined ask what there is to look at and tell what they found. A target is down when
/// enough vantages say so (quorum.h); a vantage that fails its canaries, or sees most of its targets begin to fail at once, is set
/// aside (vantage.h); one that is silent counts for nothing. Loop thread only.
class Lookout {
public:
    struct Options {
        std::string name = "server"; ///< this server as a vantage
        LookTools tools;
        VantageRule rule;
        Prober::Options prober;
        std::size_t most_checkers = 64;
        Duration checker_forgotten = std::chrono::hours(1); ///< one that is silent for so long is no vantage any more
    };
    using OnFinding = std::function<void(const std::string& key, const Finding& finding)>;
    /// `on_finding` is called whenever what is known of a target is another; round trip times only where they differ by a tenth.
    Lookout(asio::any_io_executor executor, Clock& clock, Options options, OnFinding on_finding);
    ~Lookout();

    /// Begins to look, or goes on in another way; what was found stays while the look is the same. `invalid`, `unsupported`: it
    /// cannot be looked at from here, and is not. `remembered`: what stood before a restart.
    Result<Unit> set(const std::string& key, Wanted wanted, QuorumRule quorum = {}, Standing remembered = Standing::unknown);
    void remove(const std::string& key);
    std::optional<Finding> finding(const std::string& key) const;

    /// Targets that are up whenever this vantage is well: its gateway, its peers. Replaces the earlier ones.
    Result<Unit> set_canaries(std::vector<Wanted> canaries);
    /// The nodes that look, too. `commands` must outlive this.
    void set_nodes(std::vector<std::string> nodes, CommandRunner& commands);

    /// Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);
    Prober::Counts counts() const;

    // --- Checkers that joined

    /// What is to be looked at that changed since `after`, at most 1,000 at a time: {"epoch", "revision", "reset", "more", "set",
    /// "removed"}. `reset`: it begins anew, and what is not in it is to be forgotten.
    json::object assignments(std::string_view epoch, std::uint64_t after) const;
    /// Waits until there is something after that, or the deadline.
    Task<Unit> assignments_changed(Context ctx, std::uint64_t after);
    /// What a checker found: {"vantage", "fit", "because", "reports": [{"key", "standing", "class", "ms", "n_fail", "stale",
    /// "age_ms"}]}. `invalid` names the field, and nothing is taken; reports of what is not wanted any more are passed over.
    Result<Unit> take(const json::value& told);

    // --- Other servers that look at the same

    struct Peer {
        bool fit = true;
        std::string because, reason; ///< why not, in words and as Diagnosis has it
        bool ready = false;          ///< it has looked at everything: what it does not speak of it finds well
        std::size_t targets = 0;
    };
    void set_peer(const std::string& name, const Peer& peer);
    void remove_peer(const std::string& name);
    /// Nothing: it finds it well.
    void set_peer_word(const std::string& name, const std::string& key, std::optional<Word> word);
    /// While they are not heard they count for nothing.
    void hear_peers(bool heard);
    /// For them: `on_word` is called with each word of this server's own on a target that may be another (null: it is wanted no
    /// more), first for all there are; `on_fit` when this server sets itself aside, or counts again. Both may only note.
    using OnWord = std::function<void(const std::string& key, const Word* word)>;
    using OnFit = std::function<void(const Diagnosis& own)>;
    void tell_others(OnWord on_word, OnFit on_fit);

    /// This server looks at nothing, and takes no reports: why, in words. Empty: it does.
    void rest(std::string why);
    const std::string& resting() const;
    /// Nobody waits for assignments any longer: the server stops.
    void close();

    /// For people: who looks, whether its word counts, and if not, why.
    json::array vantages() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

/// A look of kind tcp, http, https or icmp made on a managed node with what every node has: bash, curl, ping. `unsupported` for
/// the other kinds. `local_error` where the node cannot be asked or lacks the program: no evidence.
Result<ProbePtr> node_probe(CommandRunner& commands, const std::string& node, const Wanted& wanted);

} // namespace orrery::health
