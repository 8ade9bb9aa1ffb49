#pragma once

#include "core/result.h"

#include <grpcpp/support/status.h>

#include <string>

namespace orrery::store::etcd {

/// The result of a call, classified by what the caller may do next.
struct CallOutcome {
    enum class Status {
        done,
        refused,  ///< not done, and a retry is useless
        not_done, ///< not done; may be retried, here or on another member
        unknown,  ///< sent; may or may not have been done
    };
    Status status = Status::done;
    Error error;
    bool is_member_fault = false; ///< another member may succeed
    bool unreachable = false;     ///< no connection could be opened
    bool log_in_again = false;
};
CallOutcome classify_status(const grpc::Status& status, const std::string& address);

} // namespace orrery::store::etcd
