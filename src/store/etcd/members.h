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

/// One gRPC connection to one member.
struct MemberConnection {
    explicit MemberConnection(const std::shared_ptr<grpc::Channel>& channel);
    std::unique_ptr<pb::KV::Stub> kv;
    std::unique_ptr<pb::Watch::Stub> watch;
    std::unique_ptr<pb::Lease::Stub> lease;
    std::unique_ptr<pb::Auth::Stub> auth;
};

/// The members of the cluster, one of which is the current one. Loop thread only.
class Members {
public:
    /// `invalid`: a certificate, key or password file is unusable; the message names it.
    static Result<std::unique_ptr<Members>> make(const EtcdOptions& options);

    std::size_t size() const { return members_.size(); }
    const std::string& address() const { return members_[current_].address; }
    /// Incremented by each change of the current member.
    std::uint64_t generation() const { return generation_; }
    /// Abandons the connections to the current member and switches to the next, unless that happened since `generation`. With a
    /// single member this opens new connections to it.
    void switch_member(std::uint64_t generation);

    /// A connection for requests. Round-robin over several, because each is served by one thread at a time on both sides.
    std::shared_ptr<MemberConnection> request_connection();
    /// The connection for the watch, separate so that large responses do not delay it.
    std::shared_ptr<MemberConnection> watch_connection();

    /// Adds the metadata of every call: the auth token, and "hasleader", which makes a member without a leader refuse instead of
    /// wait.
    void prepare(grpc::ClientContext& context) const;
    /// Logs in if a user is configured. `unauthenticated`: etcd refuses the user.
    Task<Unit> log_in(Context ctx);

private:
    struct Member {
        std::string address;
        std::vector<std::shared_ptr<MemberConnection>> requests;
        std::shared_ptr<MemberConnection> watch;
    };
    Members() = default;
    std::shared_ptr<MemberConnection> connect(const std::string& address) const;

    std::vector<Member> members_;
    std::size_t current_ = 0, next_request_connection_ = 0;
    std::uint64_t generation_ = 1;
    std::shared_ptr<grpc::ChannelCredentials> credentials_;
    std::string user_, password_, token_;
};

} // namespace orrery::store::etcd
