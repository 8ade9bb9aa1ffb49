#include "store/etcd/members.h"

#include "store/etcd/call_outcome.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace orrery::store::etcd {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t request_connections = 2;
constexpr int max_response_size = 256 << 20;

Result<std::string> read_credential(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file.good() && !file.eof()) return Error{Code::invalid, fmt::format("{} cannot be read", path.string())};
    if (text.empty()) return Error{Code::invalid, fmt::format("{} cannot be read or is empty", path.string())};
    return text;
}

grpc::ChannelArguments channel_arguments() {
    grpc::ChannelArguments arguments;
    arguments.SetInt("grpc.enable_http_proxy", 0);
    arguments.SetInt("grpc.use_local_subchannel_pool", 1); // otherwise all channels to one member would share one connection
    arguments.SetInt("grpc.enable_retries", 0);            // the engine decides about retries
    arguments.SetInt("grpc.keepalive_time_ms", 10'000);    // etcd refuses less than 5 s
    arguments.SetInt("grpc.keepalive_timeout_ms", 5'000);
    arguments.SetInt("grpc.http2.max_pings_without_data", 0); // otherwise pings stop on a watch that only receives
    arguments.SetInt("grpc.initial_reconnect_backoff_ms", 100);
    arguments.SetInt("grpc.min_reconnect_backoff_ms", 1'000);
    arguments.SetInt("grpc.max_reconnect_backoff_ms", 1'000);
    arguments.SetMaxReceiveMessageSize(max_response_size);
    arguments.SetMaxSendMessageSize(-1);
    return arguments;
}

} // namespace

MemberConnection::MemberConnection(const std::shared_ptr<grpc::Channel>& channel)
    : kv(pb::KV::NewStub(channel)),
      watch(pb::Watch::NewStub(channel)),
      lease(pb::Lease::NewStub(channel)),
      auth(pb::Auth::NewStub(channel)) {}

Result<std::unique_ptr<Members>> Members::make(const EtcdOptions& options) {
    // gRPC reads this at the first channel. Fork support is not needed: child processes are created with posix_spawn.
    ::setenv("GRPC_ENABLE_FORK_SUPPORT", "0", 0);
    auto members = std::unique_ptr<Members>(new Members);
    if (options.endpoints.empty()) return Error{Code::invalid, "no etcd endpoint is given"};
    TRY(std::ignore, check_etcd_plaintext(options));
    if (options.tls) {
        grpc::SslCredentialsOptions tls;
        if (!options.ca.empty()) {
            TRY(tls.pem_root_certs, read_credential(options.ca));
        }
        if (!options.certificate.empty()) {
            TRY(tls.pem_cert_chain, read_credential(options.certificate));
            TRY(tls.pem_private_key, read_credential(options.key));
        }
        members->credentials_ = grpc::SslCredentials(tls);
    } else {
        members->credentials_ = grpc::InsecureChannelCredentials();
    }
    if (!options.user.empty()) {
        members->user_ = options.user;
        TRY(members->password_, read_credential(options.password_file));
        members->password_.erase(std::min(members->password_.find_first_of("\r\n"), members->password_.size()));
    }
    for (const auto& endpoint : options.endpoints) members->members_.push_back(Member{endpoint, {}, {}});
    return members;
}

std::shared_ptr<MemberConnection> Members::connect(const std::string& address) const {
    return std::make_shared<MemberConnection>(grpc::CreateCustomChannel(address, credentials_, channel_arguments()));
}

void Members::switch_member(std::uint64_t generation) {
    if (generation != generation_) return;
    ++generation_;
    // A later return to this member must not reuse a dead connection. Calls in progress keep theirs until they end.
    auto& previous = members_[current_];
    previous.requests.clear();
    previous.watch.reset();
    current_ = (current_ + 1) % members_.size();
}

std::shared_ptr<MemberConnection> Members::request_connection() {
    auto& member = members_[current_];
    while (member.requests.size() < request_connections) member.requests.push_back(connect(member.address));
    return member.requests[++next_request_connection_ % request_connections];
}

std::shared_ptr<MemberConnection> Members::watch_connection() {
    auto& member = members_[current_];
    if (!member.watch) member.watch = connect(member.address);
    return member.watch;
}

void Members::prepare(grpc::ClientContext& context) const {
    context.AddMetadata("hasleader", "true");
    if (!token_.empty()) context.AddMetadata("token", token_);
}

Task<Unit> Members::log_in(Context ctx) {
    if (user_.empty()) co_return Unit{};
    auto connection = request_connection();
    const auto member = address();
    auto call = std::make_shared<net::GrpcCall<pb::AuthenticateRequest, pb::AuthenticateResponse>>();
    call->request.set_name(user_);
    call->request.set_password(password_);
    if (ctx.deadline()) net::set_deadline(call->context, *ctx.deadline());
    auto status = co_await net::unary(call, [connection](auto& c, auto done) {
        connection->auth->async()->Authenticate(&c.context, &c.request, &c.response, std::move(done));
    });
    if (!status.ok()) {
        auto outcome = classify_status(status, member);
        if (outcome.status == CallOutcome::Status::refused)
            co_return Error{Code::unauthenticated,
                            fmt::format("etcd at {} refuses user {}: {}", member, user_, status.error_message()),
                            "check the user and the password file of the store"};
        co_return outcome.error;
    }
    token_ = call->response.token();
    co_return Unit{};
}

} // namespace orrery::store::etcd
