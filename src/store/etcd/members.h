#pragma once

#include "core/result.h"
#include "core/task.h"
#include "net/grpc_bridge.h"
#include "store/etcd/etcd.grpc.pb.h"
#include "store/etcd/etcd_store.h"

#include <boost/asio/any_io_executor.hpp>
#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>
#include <vector>

namespace orrery::store::etcd {

namespace pb = etcdserverpb;

/// One connection to one member.
struct Line {
    explicit Line(const std::shared_ptr<grpc::Channel>& channel);
    std::unique_ptr<pb::KV::Stub> kv;
    std::unique_ptr<pb::Watch::Stub> watch;
    std::unique_ptr<pb::Lease::Stub> lease;
    std::unique_ptr<pb::Auth::Stub> auth;
};

/// The members of the cluster, one of which is in use. Belongs to the loop thread.
class Members {
public:
    /// `invalid` names the file that cannot be used.
    static Result<std::unique_ptr<Members>> make(const EtcdOptions& options);

    std::size_t size() const { return members_.size(); }
    const std::string& address() const { return members_[current_].address; }
    /// Which choice of member this is; grows with each move.
    std::uint64_t generation() const { return generation_; }
    /// Moves to the next member, unless that was done since `generation`.
    void leave(std::uint64_t generation);

    /// For requests: several connections in turn, since one is served by one thread at a time on both sides.
    std::shared_ptr<Line> request_line();
    /// For the watch: a connection of its own, so that no large answer stands in its way.
    std::shared_ptr<Line> watch_line();

    /// What every call carries: the login, and that a member without a leader shall refuse rather than wait.
    void prepare(grpc::ClientContext& context) const;
    /// Logs in, where a user is set. `unauthenticated` when etcd refuses.
    Task<Unit> log_in(Context ctx);

private:
    struct Member {
        std::string address;
        std::vector<std::shared_ptr<Line>> requests;
        std::shared_ptr<Line> watch;
    };
    Members() = default;
    std::shared_ptr<Line> connect(const std::string& address) const;

    std::vector<Member> members_;
    std::size_t current_ = 0, turn_ = 0;
    std::uint64_t generation_ = 1;
    std::shared_ptr<grpc::ChannelCredentials> credentials_;
    std::string user_, password_, token_;
};

/// How a call ended, seen by what may be done next.
struct Outcome {
    enum class What {
        done,
        refused,  ///< etcd's last word: not done, and asking again is of no use
        not_done, ///< surely not done; another member, or the same one later, may do it
        unknown,  ///< sent, and nobody can say
    };
    What what = What::done;
    Error error;
    bool member_at_fault = false; ///< another member may do better
    bool unreachable = false;     ///< there was no connection to it at all
    bool log_in_again = false;
};
Outcome judge(const grpc::Status& status, const std::string& address);

} // namespace orrery::store::etcd
