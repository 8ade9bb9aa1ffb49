#include "health/more_probes.h"
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

/// A number as protocol buffers write it, taken off the front; nothing where it does not end.
std::optional<std::uint64_t> take_number(std::string_view& bytes) {
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
    explicit GrpcProbe(GrpcLook look) : look_(std::move(look)) {
        grpc::ChannelArguments arguments;
        // A look asks now: what a channel remembers of an earlier failure is not what is wanted.
        arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
        arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
        arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
        arguments.SetMaxReceiveMessageSize(64 << 10);
        if (!look_.server_name.empty()) arguments.SetSslTargetNameOverride(look_.server_name);
        grpc::SslCredentialsOptions options;
        options.pem_root_certs = look_.authorities;
        const bool six = look_.host.find(':') != std::string::npos;
        channel_ =
            grpc::CreateCustomChannel(fmt::format("{}{}{}:{}", six ? "[" : "", look_.host, six ? "]" : "", look_.port),
                                      look_.secure ? grpc::SslCredentials(options) : grpc::InsecureChannelCredentials(), arguments);
    }
    std::string identity() const override {
        return fmt::format("grpc {} {} {} {} {} {}", look_.host, look_.port, look_.service, look_.secure, look_.server_name,
                           look_.authorities);
    }
    std::string host() const override { return look_.host; }

    asio::awaitable<Observation> look(Context ctx) const override {
        const auto what =
            fmt::format("gRPC health {}:{}{}", look_.host, look_.port, look_.service.empty() ? "" : " " + look_.service);
        auto call = std::make_shared<net::GrpcCall<grpc::ByteBuffer, grpc::ByteBuffer>>();
        net::set_deadline(call->context, ctx.deadline().value_or(real_clock().steady() + std::chrono::seconds(10)));
        const grpc::Slice slice(health_request(look_.service));
        call->request = grpc::ByteBuffer(&slice, 1);
        auto stub = std::make_shared<grpc::GenericStub>(channel_);
        const auto status = co_await net::unary(call, [stub](auto& one, auto done) {
            stub->UnaryCall(&one.context, "/grpc.health.v1.Health/Check", grpc::StubOptions{}, &one.request, &one.response,
                            std::move(done));
        });
        if (!status.ok()) co_return trouble(status, what);
        std::vector<grpc::Slice> slices;
        std::string bytes;
        if (call->response.Valid() && call->response.Dump(&slices).ok())
            for (const auto& piece : slices) bytes.append(reinterpret_cast<const char*>(piece.begin()), piece.size());
        const auto health = read_grpc_health(bytes);
        if (!health) co_return Observation{.outcome = Outcome::protocol, .text = what + ": the answer is no health"};
        constexpr std::array<std::string_view, 4> words{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
        const auto word =
            *health >= 0 && *health < 4 ? std::string(words[static_cast<std::size_t>(*health)]) : std::to_string(*health);
        co_return Observation{.outcome = *health == 1 ? Outcome::ok : Outcome::failed, .text = fmt::format("{}: {}", what, word)};
    }

private:
    static Observation trouble(const grpc::Status& status, const std::string& what) {
        const auto& message = status.error_message();
        const auto has = [&](std::string_view word) { return message.find(word) != std::string::npos; };
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
        if (seen.text.size() > longest_text) seen.text.resize(longest_text);
        return seen;
    }
    GrpcLook look_;
    std::shared_ptr<grpc::Channel> channel_;
};

} // namespace

ProbePtr grpc_probe(GrpcLook look) { return std::make_shared<GrpcProbe>(std::move(look)); }

std::optional<int> read_grpc_health(std::string_view bytes) {
    int status = 0; // an absent field is its default
    while (!bytes.empty()) {
        const auto key = take_number(bytes);
        if (!key) return std::nullopt;
        std::optional<std::uint64_t> value;
        switch (*key & 7) {
        case 0:
            value = take_number(bytes);
            if (!value) return std::nullopt;
            if (*key >> 3 == 1) status = static_cast<int>(*value & 0x7fffffff);
            break;
        case 1: value = 8; break;
        case 2:
            value = take_number(bytes);
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
