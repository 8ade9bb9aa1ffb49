#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/socket.h>
#include <sys/uio.h>
#include <vector>

namespace orrery::dns {

/// The answers to a batch of datagrams, on their way out. Nearly all that an answer costs is its way through the network stack, so
/// those of one size to one asker (a forwarder, a balancer: whoever asks much from few ports) go down as one message, and the
/// kernel cuts them apart at the end (UDP_SEGMENT). Where it cannot, each goes by itself.
class Replies {
public:
    static constexpr std::size_t most = 64; ///< answers in a batch: the kernel cuts no message into more
    explicit Replies(int socket);

    /// `answer` goes to where `question`, as it was received, came from; with IP_PKTINFO in it, from the address it came to. Both
    /// stay as they are until `send`.
    void add(const msghdr& question, std::span<std::uint8_t> answer);

    /// How many answers went. There are none left after it.
    std::size_t send();

private:
    struct Answer {
        iovec bytes;
        std::uint8_t next; ///< in the same message
    };
    struct Message {
        const msghdr* question; ///< the first's; the others are like it
        std::size_t size;       ///< of each answer
        std::uint8_t first, last, answers;
    };
    static bool joins(const Message& message, const msghdr& question, std::size_t size);
    void prepare(std::size_t index, iovec* pieces);
    std::size_t send_apart(std::size_t index);

    int socket_;
    bool can_join_;
    unsigned failed_ = 0;  ///< messages of several that the kernel would not cut, since the last that it did
    unsigned resting_ = 0; ///< for so many batches no more are made
    std::vector<Answer> answers_;
    std::vector<Message> messages_;
    std::array<std::uint8_t, 2 * most> places_; ///< messages by a hash of asker and size
    std::array<iovec, most> pieces_{};
    alignas(cmsghdr) std::array<std::array<std::uint8_t, 128>, most> control_{};
    std::array<mmsghdr, most> heads_{};
};

} // namespace orrery::dns
