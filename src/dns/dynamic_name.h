#pragma once

#include "dns/answer_set.h"
#include "dns/client_map.h"
#include "dns/prefix.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace orrery::dns {

/// The definition of a dynamic name: one answer set for all clients, or different ones by client prefix (longest match).
struct DynamicName {
    std::vector<AnswerSet> answer_sets; ///< the first one is for clients without a matching prefix
    struct ClientRule {
        Prefix prefix;
        std::uint32_t answer_set = 0; ///< index in `answer_sets`
    };
    std::vector<ClientRule> client_rules;
    /// Alternative to `client_rules`: a table that many names share, for large rule sets such as a geo database.
    std::shared_ptr<const ClientTable> clients;
};

} // namespace orrery::dns
