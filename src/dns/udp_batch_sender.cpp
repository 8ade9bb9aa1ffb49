#include "dns/udp_batch_sender.h"

#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/udp.h>

namespace orrery::dns {

namespace {

constexpr std::uint8_t none = 0xFF;
// GSO does not fragment datagrams: a reply that may exceed the path MTU is sent alone.
constexpr std::size_t max_gso_reply = 1232;
constexpr std::size_t max_gso_message = 60'000;
// A message that the kernel rejects costs a quarter more than separate replies. One client behind a path with a small MTU is
// acceptable; if every message fails (a device without checksum offload), GSO is retried only occasionally.
constexpr unsigned max_gso_failures = 8, gso_pause_batches = 1000;

std::size_t hash_of(const msghdr& request, std::size_t size) {
    std::uint64_t hash = size;
    const auto mix = [&](std::uint64_t more) { hash = (hash ^ more) * 0x9E3779B97F4A7C15U; };
    const auto& from = *static_cast<const sockaddr_storage*>(request.msg_name);
    if (from.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
        std::array<std::uint64_t, 2> halves{};
        std::memcpy(halves.data(), &v6.sin6_addr, sizeof halves);
        mix(halves[0]);
        mix(halves[1]);
        mix(v6.sin6_port);
    } else {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
        mix(std::uint64_t{v4.sin_addr.s_addr} << 16 | v4.sin_port);
    }
    return hash >> 32U;
}

bool same(const void* one, std::size_t size, const void* other, std::size_t other_size) {
    return size == other_size && (size == 0 || std::memcmp(one, other, size) == 0);
}

/// Sets the source address of the reply to the destination of the request, from IP_PKTINFO.
void set_source_address(msghdr& reply) {
    for (auto* piece = CMSG_FIRSTHDR(&reply); piece != nullptr; piece = CMSG_NXTHDR(&reply, piece)) {
        if (piece->cmsg_level != IPPROTO_IP || piece->cmsg_type != IP_PKTINFO) continue;
        in_pktinfo info{};
        std::memcpy(&info, CMSG_DATA(piece), sizeof info);
        info.ipi_ifindex = 0; // route by the routing table
        info.ipi_spec_dst = info.ipi_addr;
        std::memcpy(CMSG_DATA(piece), &info, sizeof info);
    }
}

/// Appends the segment size to the control data.
void append_segment_size(msghdr& reply, std::size_t size) {
    auto* piece = reinterpret_cast<cmsghdr*>(static_cast<std::uint8_t*>(reply.msg_control) + reply.msg_controllen);
    piece->cmsg_level = IPPROTO_UDP;
    piece->cmsg_type = UDP_SEGMENT;
    piece->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    const auto segment = static_cast<std::uint16_t>(size);
    std::memcpy(CMSG_DATA(piece), &segment, sizeof segment);
    reply.msg_controllen += CMSG_SPACE(sizeof segment);
}

/// A kernel without UDP GSO would ignore the control message and send one large datagram.
bool supports_gso(int socket) {
    const int off = 0;
    return ::setsockopt(socket, IPPROTO_UDP, UDP_SEGMENT, &off, sizeof off) == 0;
}

/// Can the replies be sent individually after this error? The path MTU is too small, or the device has no checksum offload.
bool is_gso_error(int error) { return error == EINVAL || error == EIO || error == EMSGSIZE || error == EOPNOTSUPP; }

constexpr std::size_t segment_control_size = CMSG_SPACE(sizeof(std::uint16_t));

} // namespace

UdpBatchSender::UdpBatchSender(int socket) : socket_(socket), gso_supported_(supports_gso(socket)) {
    replies_.reserve(max_batch);
    messages_.reserve(max_batch);
    message_index_.fill(none);
}

bool UdpBatchSender::can_append(const Message& message, const msghdr& request, std::size_t size) {
    const auto& other = *message.request;
    return message.size == size && (message.replies + 1U) * size <= max_gso_message &&
           same(request.msg_name, request.msg_namelen, other.msg_name, other.msg_namelen) &&
           same(request.msg_control, request.msg_controllen, other.msg_control, other.msg_controllen);
}

void UdpBatchSender::add(const msghdr& request, std::span<std::uint8_t> reply) {
    const auto index = static_cast<std::uint8_t>(replies_.size());
    replies_.push_back({{reply.data(), reply.size()}, none});
    if (gso_supported_ && gso_paused_ == 0 && reply.size() <= max_gso_reply) {
        auto at = hash_of(request, reply.size()) % message_index_.size();
        for (; message_index_[at] != none; at = (at + 1) % message_index_.size()) {
            auto& message = messages_[message_index_[at]];
            if (!can_append(message, request, reply.size())) continue;
            replies_[message.last].next = index;
            message.last = index;
            ++message.replies;
            return;
        }
        message_index_[at] = static_cast<std::uint8_t>(messages_.size());
    }
    messages_.push_back({&request, reply.size(), index, index, 1});
}

void UdpBatchSender::prepare(std::size_t index, iovec* pieces) {
    const auto& message = messages_[index];
    const auto& request = *message.request;
    auto& head = heads_[index].msg_hdr;
    head = {.msg_name = request.msg_name, .msg_namelen = request.msg_namelen, .msg_iov = pieces, .msg_iovlen = message.replies};
    for (auto i = message.first; i != none; i = replies_[i].next) *pieces++ = replies_[i].bytes;
    auto& control = control_[index];
    head.msg_control = control.data();
    if (request.msg_controllen > 0 && (request.msg_flags & MSG_CTRUNC) == 0 &&
        request.msg_controllen <= control.size() - segment_control_size) {
        std::memcpy(control.data(), request.msg_control, request.msg_controllen);
        head.msg_controllen = request.msg_controllen;
        set_source_address(head);
    }
    if (message.replies > 1) append_segment_size(head, message.size);
}

std::size_t UdpBatchSender::send_individually(std::size_t index) {
    auto head = heads_[index].msg_hdr;
    head.msg_controllen -= segment_control_size;
    auto* pieces = head.msg_iov;
    head.msg_iovlen = 1;
    std::size_t sent_replies = 0;
    for (auto* piece = pieces; piece != pieces + messages_[index].replies; ++piece) {
        head.msg_iov = piece;
        ssize_t sent = 0;
        do sent = ::sendmsg(socket_, &head, 0);
        while (sent < 0 && errno == EINTR);
        if (sent >= 0) ++sent_replies;
    }
    return sent_replies;
}

std::size_t UdpBatchSender::send() {
    auto* pieces = pieces_.data();
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        prepare(i, pieces);
        pieces += messages_[i].replies;
    }
    if (gso_paused_ > 0) --gso_paused_;
    std::size_t sent_replies = 0;
    for (std::size_t done = 0; done < messages_.size();) {
        const int now = ::sendmmsg(socket_, &heads_[done], static_cast<unsigned>(messages_.size() - done), 0);
        if (now > 0) {
            for (const auto end = done + static_cast<std::size_t>(now); done < end; ++done) {
                sent_replies += messages_[done].replies;
                if (messages_[done].replies > 1) gso_failures_ = 0;
            }
        } else if (errno != EINTR) { // only the first message failed; the others may succeed
            if (messages_[done].replies > 1 && is_gso_error(errno)) {
                sent_replies += send_individually(done);
                if (++gso_failures_ >= max_gso_failures) gso_paused_ = gso_pause_batches;
            }
            ++done;
        }
    }
    replies_.clear();
    messages_.clear();
    message_index_.fill(none);
    return sent_replies;
}

} // namespace orrery::dns
