#include "health/probes/grpc_probe.h"

#include "health/probes/find_host.h"
#include "net/grpc_bridge.h"

#include <fmt/format.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>

namespace orrery::health {

namespace {

/// Reads a varint of protocol buffers from the front; nullopt if it is incomplete.
std::optional<std::uint64_t> read_varint(std::string_view& bytes) {
    std::uint64_t out = 0;
    for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes.front());
        bytes.remove_prefix(1);
        out |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) return out;
    }
    return std::nullopt;
}

std::string health_request(const std::string& service) {
    std::string out;
    if (service.empty()) return out;
    out += '\x0a'; // field 1, a string
    for (auto left = service.size();; left >>= 7) {
        if (left < 0x80) {
            out += static_cast<char>(left);
            break;
        }
        out += static_cast<char>((left & 0x7f) | 0x80);
    }
    return out + service;
}

class GrpcProbe final : public Probe {
public:
    explicit GrpcProbe(GrpcProbeOptions options) : options_(std::move(options)) {}
    std::string identity() const override {
        return fmt::format("grpc {} {} {} {} {} {}", options_.host, options_.port, options_.service, options_.secure,
                           options_.server_name, options_.authorities);
    }
    std::string host() const override { return options_.host; }

    asio::awaitable<Observation> run(Context ctx) const override {
        const auto what = fmt::format("gRPC health {}:{}{}", options_.host, options_.port,
                                      options_.service.empty() ? "" : " " + options_.service);
        const auto deadline = ctx.deadline().value_or(real_clock().steady() + std::chrono::seconds(10));
        auto found = co_await within_deadline(ctx.with_deadline(deadline), find(options_, what));
        if (!found.ok())
            co_return Observation{.outcome = Outcome::local_error, .text = what + ": the name was not resolved in time"};
        if (!found->endpoint) co_return std::move(found->error);
        auto call = std::make_shared<net::GrpcCall<grpc::ByteBuffer, grpc::ByteBuffer>>();
        net::set_deadline(call->context, deadline);
        const grpc::Slice slice(health_request(options_.service));
        call->request = grpc::ByteBuffer(&slice, 1);
        auto stub = std::make_shared<grpc::GenericStub>(channel_to(*found->endpoint));
        const auto status = co_await net::unary(call, [stub](auto& one, auto done) {
            stub->UnaryCall(&one.context, "/grpc.health.v1.Health/Check", grpc::StubOptions{}, &one.request, &one.response,
                            std::move(done));
        });
        if (!status.ok()) co_return failure(status, what);
        std::vector<grpc::Slice> slices;
        std::string bytes;
        if (call->response.Valid() && call->response.Dump(&slices).ok())
            for (const auto& piece : slices) bytes.append(reinterpret_cast<const char*>(piece.begin()), piece.size());
        const auto health = read_grpc_health(bytes);
        if (!health)
            co_return Observation{.outcome = Outcome::protocol, .text = what + ": the response is not a HealthCheckResponse"};
        constexpr std::array<std::string_view, 4> names{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
        const auto name =
            *health >= 0 && *health < 4 ? std::string(names[static_cast<std::size_t>(*health)]) : std::to_string(*health);
        co_return Observation{.outcome = *health == 1 ? Outcome::ok : Outcome::failed, .text = fmt::format("{}: {}", what, name)};
    }

private:
    static Task<FoundHost> find(GrpcProbeOptions options, std::string what) {
        co_return co_await find_host(options.host, options.port, what, options.outbound);
    }

    /// A channel to the checked address, not to the name, which gRPC would resolve again. One channel is kept.
    std::shared_ptr<grpc::Channel> channel_to(const asio::ip::udp::endpoint& endpoint) const {
        const bool six = endpoint.address().is_v6();
        auto target = fmt::format("{}:{}{}{}:{}", six ? "ipv6" : "ipv4", six ? "[" : "", endpoint.address().to_string(),
                                  six ? "]" : "", endpoint.port());
        if (channel_ && target == target_) return channel_;
        grpc::ChannelArguments arguments;
        // Every probe must try to connect now, without the backoff after earlier failures.
        arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
        arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
        arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
        arguments.SetMaxReceiveMessageSize(64 << 10);
        const bool bare_six = options_.host.find(':') != std::string::npos;
        arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY,
                            fmt::format("{}{}{}:{}", bare_six ? "[" : "", options_.host, bare_six ? "]" : "", options_.port));
        if (!options_.server_name.empty()) arguments.SetSslTargetNameOverride(options_.server_name);
        grpc::SslCredentialsOptions options;
        options.pem_root_certs = options_.authorities;
        channel_ = grpc::CreateCustomChannel(
            target, options_.secure ? grpc::SslCredentials(options) : grpc::InsecureChannelCredentials(), arguments);
        target_ = std::move(target);
        return channel_;
    }

    static Observation failure(const grpc::Status& status, const std::string& what) {
        const auto& message = status.error_message();
        const auto has = [&](std::string_view name) { return message.find(name) != std::string::npos; };
        Outcome outcome = Outcome::protocol;
        switch (status.error_code()) {
        case grpc::StatusCode::DEADLINE_EXCEEDED: outcome = Outcome::timeout_read; break;
        case grpc::StatusCode::NOT_FOUND: outcome = Outcome::failed; break;
        case grpc::StatusCode::CANCELLED: outcome = Outcome::local_error; break;
        case grpc::StatusCode::UNAVAILABLE:
            outcome = has("refused")                         ? Outcome::refused
                      : has("andshake") || has("ertificate") ? Outcome::tls_error
                      : has("DNS")                           ? Outcome::dns_error
                      : has("Too many open files")           ? Outcome::local_error
                                                             : Outcome::unreachable;
            break;
        default: break;
        }
        Observation seen{.outcome = outcome, .text = fmt::format("{}: {}", what, message)};
        if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) seen.text = what + ": the server has no health service";
        if (seen.text.size() > max_text) seen.text.resize(max_text);
        return seen;
    }
    GrpcProbeOptions options_;
    mutable std::string target_; ///< of the channel
    mutable std::shared_ptr<grpc::Channel> channel_;
};

} // namespace

ProbePtr grpc_probe(GrpcProbeOptions options) { return std::make_shared<GrpcProbe>(std::move(options)); }

std::optional<int> read_grpc_health(std::string_view bytes) {
    int status = 0; // an absent field is its default
    while (!bytes.empty()) {
        const auto key = read_varint(bytes);
        if (!key) return std::nullopt;
        std::optional<std::uint64_t> value;
        switch (*key & 7) {
        case 0:
            value = read_varint(bytes);
            if (!value) return std::nullopt;
            if (*key >> 3 == 1) status = static_cast<int>(*value & 0x7fffffff);
            break;
        case 1: value = 8; break;
        case 2:
            value = read_varint(bytes);
            if (!value) return std::nullopt;
            break;
        case 5: value = 4; break;
        default: return std::nullopt;
        }
        if ((*key & 7) != 0) {
            if (*value > bytes.size()) return std::nullopt;
            bytes.remove_prefix(static_cast<std::size_t>(*value));
        }
    }
    return status;
}

} // namespace orrery::health
