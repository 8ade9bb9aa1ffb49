#include "store/etcd/members.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace orrery::store::etcd {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t request_lines = 2;
constexpr int largest_answer = 256 << 20;

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
    arguments.SetInt("grpc.use_local_subchannel_pool", 1); // else all lines to one member would share one connection
    arguments.SetInt("grpc.enable_retries", 0);            // what is tried again is decided here
    arguments.SetInt("grpc.keepalive_time_ms", 10'000);    // etcd refuses less than 5 s
    arguments.SetInt("grpc.keepalive_timeout_ms", 5'000);
    arguments.SetInt("grpc.initial_reconnect_backoff_ms", 100);
    arguments.SetInt("grpc.min_reconnect_backoff_ms", 1'000);
    arguments.SetInt("grpc.max_reconnect_backoff_ms", 1'000);
    arguments.SetMaxReceiveMessageSize(largest_answer);
    arguments.SetMaxSendMessageSize(-1);
    return arguments;
}

} // namespace

Line::Line(const std::shared_ptr<grpc::Channel>& channel)
    : kv(pb::KV::NewStub(channel)),
      watch(pb::Watch::NewStub(channel)),
      lease(pb::Lease::NewStub(channel)),
      auth(pb::Auth::NewStub(channel)) {}

Result<std::unique_ptr<Members>> Members::make(const EtcdOptions& options) {
    // Read by gRPC when it starts, which is at the first channel. Child processes are made by posix_spawn and exec at once.
    ::setenv("GRPC_ENABLE_FORK_SUPPORT", "0", 0);
    auto members = std::unique_ptr<Members>(new Members);
    if (options.endpoints.empty()) return Error{Code::invalid, "no etcd endpoint is given"};
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

std::shared_ptr<Line> Members::connect(const std::string& address) const {
    return std::make_shared<Line>(grpc::CreateCustomChannel(address, credentials_, channel_arguments()));
}

void Members::leave(std::uint64_t generation) {
    if (generation != generation_) return;
    ++generation_;
    current_ = (current_ + 1) % members_.size();
}

std::shared_ptr<Line> Members::request_line() {
    auto& member = members_[current_];
    while (member.requests.size() < request_lines) member.requests.push_back(connect(member.address));
    return member.requests[++turn_ % request_lines];
}

std::shared_ptr<Line> Members::watch_line() {
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
    auto line = request_line();
    const auto member = address();
    auto call = std::make_shared<net::GrpcCall<pb::AuthenticateRequest, pb::AuthenticateResponse>>();
    call->request.set_name(user_);
    call->request.set_password(password_);
    if (ctx.deadline()) net::set_deadline(call->context, *ctx.deadline());
    auto status = co_await net::unary(call, [line](auto& c, auto done) {
        line->auth->async()->Authenticate(&c.context, &c.request, &c.response, std::move(done));
    });
    if (!status.ok()) {
        auto outcome = judge(status, member);
        if (outcome.what == Outcome::What::refused)
            co_return Error{Code::unauthenticated,
                            fmt::format("etcd at {} refuses user {}: {}", member, user_, status.error_message()),
                            "check the user and the password file of the store"};
        co_return outcome.error;
    }
    token_ = call->response.token();
    co_return Unit{};
}

Outcome judge(const grpc::Status& status, const std::string& address) {
    using What = Outcome::What;
    if (status.ok()) return {};
    const std::string& text = status.error_message();
    const auto says = [&text](std::string_view part) { return text.find(part) != std::string::npos; };
    const auto sentence = [&] { return fmt::format("etcd at {}: {}", address, text.empty() ? "no reason given" : text); };
    switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
        return {What::refused, Error{says("too large") ? Code::too_large : Code::invalid, sentence()}};
    case grpc::StatusCode::OUT_OF_RANGE:
        return {What::refused, Error{says("compacted") ? Code::compacted : Code::invalid, sentence()}};
    case grpc::StatusCode::NOT_FOUND: return {What::refused, Error{Code::not_found, sentence()}};
    case grpc::StatusCode::PERMISSION_DENIED:
        return {What::refused,
                Error{Code::denied, sentence(), "give the store's etcd user a role that may read and write below the prefix"}};
    case grpc::StatusCode::FAILED_PRECONDITION: return {What::refused, Error{Code::conflict, sentence()}};
    case grpc::StatusCode::UNAUTHENTICATED: return {What::not_done, Error{Code::unauthenticated, sentence()}, false, false, true};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
        if (says("space exceeded"))
            return {What::refused,
                    Error{Code::no_space, sentence(), "compact and defragment etcd, or raise its quota, then disarm its alarm"}};
        if (says("too many requests")) return {What::not_done, Error{Code::unavailable, sentence()}};
        if (says("larger than max")) return {What::unknown, Error{Code::too_large, sentence()}};
        return {What::unknown, Error{Code::unavailable, sentence()}};
    case grpc::StatusCode::UNAVAILABLE:
        if (says("etcdserver: no leader")) return {What::not_done, Error{Code::unavailable, sentence()}, true};
        if (says("failed to connect to all addresses")) {
            // gRPC wraps the reason in several layers, each with the address; the innermost is what a reader needs.
            constexpr std::string_view layer = "Failed to connect to remote host: ";
            const auto at = text.rfind(layer);
            const auto reason = at == std::string::npos ? text : text.substr(at + layer.size());
            return {What::not_done, Error{Code::unavailable, fmt::format("etcd at {} cannot be reached: {}", address, reason)},
                    true, true};
        }
        if (says("etcdserver:") && !says("stopped")) return {What::unknown, Error{Code::unavailable, sentence()}};
        return {What::unknown, Error{Code::unavailable, sentence()}, true};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
        return {What::unknown, Error{Code::timeout, fmt::format("etcd at {} did not answer in time", address)}, true};
    case grpc::StatusCode::CANCELLED: return {What::unknown, Error{Code::cancelled, "the call was cancelled"}};
    default: return {What::unknown, Error{Code::unavailable, sentence()}};
    }
}

} // namespace orrery::store::etcd
