#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/socket.h>
#include <sys/uio.h>
#include <vector>

namespace orrery::dns {

/// Sends the replies to a batch of datagrams. The network stack is most of the cost of a reply, so replies of equal size to the
/// same endpoint (a forwarder, a load balancer) are passed to the kernel as one message, which it splits into datagrams (UDP GSO,
/// UDP_SEGMENT). If the kernel or the device cannot do that, each reply is sent alone. One thread only.
class UdpBatchSender {
public:
    static constexpr std::size_t max_batch = 64; ///< the kernel splits a message into at most 64 datagrams
    explicit UdpBatchSender(int socket);

    /// Queues `reply` to the source of `request`; if `request` carries IP_PKTINFO, from the address it was sent to. Both must stay
    /// unchanged until `send`.
    void add(const msghdr& request, std::span<std::uint8_t> reply);

    /// Sends all queued replies, empties the queue, and returns how many were sent.
    std::size_t send();

private:
    struct Reply {
        iovec bytes;
        std::uint8_t next; ///< the next reply in the same message
    };
    struct Message {
        const msghdr* request; ///< of the first reply; the others have the same addresses
        std::size_t size;      ///< of each reply
        std::uint8_t first, last, replies;
    };
    static bool can_append(const Message& message, const msghdr& request, std::size_t size);
    void prepare(std::size_t index, iovec* pieces);
    std::size_t send_individually(std::size_t index);

    int socket_;
    bool gso_supported_;
    unsigned gso_failures_ = 0; ///< consecutive messages that the kernel did not split
    unsigned gso_paused_ = 0;   ///< number of batches without GSO after too many failures
    std::vector<Reply> replies_;
    std::vector<Message> messages_;
    std::array<std::uint8_t, 2 * max_batch> message_index_; ///< hash table of messages, by endpoint and size
    std::array<iovec, max_batch> pieces_{};
    alignas(cmsghdr) std::array<std::array<std::uint8_t, 128>, max_batch> control_{};
    std::array<mmsghdr, max_batch> heads_{};
};

} // namespace orrery::dns
