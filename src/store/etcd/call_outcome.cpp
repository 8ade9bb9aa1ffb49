#include "store/etcd/call_outcome.h"

#include <fmt/format.h>

#include <string_view>

namespace orrery::store::etcd {

CallOutcome classify_status(const grpc::Status& status, const std::string& address) {
    using Status = CallOutcome::Status;
    if (status.ok()) return {};
    const std::string& text = status.error_message();
    const auto contains = [&text](std::string_view part) { return text.find(part) != std::string::npos; };
    const auto message = [&] { return fmt::format("etcd at {}: {}", address, text.empty() ? "no reason given" : text); };
    switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
        return {Status::refused, Error{contains("too large") ? Code::too_large : Code::invalid, message()}};
    case grpc::StatusCode::OUT_OF_RANGE:
        return {Status::refused, Error{contains("compacted") ? Code::compacted : Code::invalid, message()}};
    case grpc::StatusCode::NOT_FOUND: return {Status::refused, Error{Code::not_found, message()}};
    case grpc::StatusCode::PERMISSION_DENIED:
        return {Status::refused,
                Error{Code::denied, message(), "give the store's etcd user a role that may read and write below the prefix"}};
    case grpc::StatusCode::FAILED_PRECONDITION: return {Status::refused, Error{Code::conflict, message()}};
    case grpc::StatusCode::UNAUTHENTICATED: return {Status::not_done, Error{Code::unauthenticated, message()}, false, false, true};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
        if (contains("space exceeded"))
            return {Status::refused,
                    Error{Code::no_space, message(), "compact and defragment etcd, or raise its quota, then disarm its alarm"}};
        if (contains("too many requests")) return {Status::not_done, Error{Code::unavailable, message()}};
        if (contains("larger than max")) return {Status::unknown, Error{Code::too_large, message()}};
        return {Status::unknown, Error{Code::unavailable, message()}};
    case grpc::StatusCode::UNAVAILABLE:
        if (contains("etcdserver: no leader")) return {Status::not_done, Error{Code::unavailable, message()}, true};
        if (contains("failed to connect to all addresses")) {
            // gRPC wraps the reason in several layers, each with the address; report the innermost.
            constexpr std::string_view layer = "Failed to connect to remote host: ";
            const auto at = text.rfind(layer);
            const auto reason = at == std::string::npos ? text : text.substr(at + layer.size());
            return {Status::not_done, Error{Code::unavailable, fmt::format("etcd at {} cannot be reached: {}", address, reason)},
                    true, true};
        }
        if (contains("etcdserver:") && !contains("stopped")) return {Status::unknown, Error{Code::unavailable, message()}};
        return {Status::unknown, Error{Code::unavailable, message()}, true};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
        return {Status::unknown, Error{Code::timeout, fmt::format("etcd at {} did not answer in time", address)}, true};
    case grpc::StatusCode::CANCELLED: return {Status::unknown, Error{Code::cancelled, "the call was cancelled"}};
    default: return {Status::unknown, Error{Code::unavailable, message()}};
    }
}

} // namespace orrery::store::etcd
