#include "dns/replies.h"

#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/udp.h>

namespace orrery::dns {

namespace {

constexpr std::uint8_t none = 0xFF;
// The kernel cuts a message into datagrams that fit the way to the asker, not into fragments: what may have to be one goes alone.
constexpr std::size_t largest_joined = 1232;
constexpr std::size_t largest_message = 60'000;
// One that falls apart costs a quarter more than those that were never joined. One asker behind a narrow way is worth it; where
// none goes (a device without checksums) it is tried now and then.
constexpr unsigned failures_to_rest = 8, batches_of_rest = 1000;

std::size_t hash_of(const msghdr& question, std::size_t size) {
    std::uint64_t hash = size;
    const auto mix = [&](std::uint64_t more) { hash = (hash ^ more) * 0x9E3779B97F4A7C15U; };
    const auto& from = *static_cast<const sockaddr_storage*>(question.msg_name);
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

/// IP_PKTINFO as it came says which of our addresses was asked: the reply leaves from there.
void answer_from_there(msghdr& reply) {
    for (auto* piece = CMSG_FIRSTHDR(&reply); piece != nullptr; piece = CMSG_NXTHDR(&reply, piece)) {
        if (piece->cmsg_level != IPPROTO_IP || piece->cmsg_type != IP_PKTINFO) continue;
        in_pktinfo info{};
        std::memcpy(&info, CMSG_DATA(piece), sizeof info);
        info.ipi_ifindex = 0; // the routing table knows
        info.ipi_spec_dst = info.ipi_addr;
        std::memcpy(CMSG_DATA(piece), &info, sizeof info);
    }
}

/// Where the control data of `reply` ends, the size into which it is to be cut.
void cut_into(msghdr& reply, std::size_t size) {
    auto* piece = reinterpret_cast<cmsghdr*>(static_cast<std::uint8_t*>(reply.msg_control) + reply.msg_controllen);
    piece->cmsg_level = IPPROTO_UDP;
    piece->cmsg_type = UDP_SEGMENT;
    piece->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    const auto segment = static_cast<std::uint16_t>(size);
    std::memcpy(CMSG_DATA(piece), &segment, sizeof segment);
    reply.msg_controllen += CMSG_SPACE(sizeof segment);
}

/// A kernel that does not know it would send a message whole, and say nothing.
bool knows_to_cut(int socket) {
    const int whole = 0;
    return ::setsockopt(socket, IPPROTO_UDP, UDP_SEGMENT, &whole, sizeof whole) == 0;
}

/// Whether one by one they may go: the way is too narrow for one of them, or the device leaves checksums to the kernel.
bool would_go_apart(int error) { return error == EINVAL || error == EIO || error == EMSGSIZE || error == EOPNOTSUPP; }

constexpr std::size_t room_to_cut = CMSG_SPACE(sizeof(std::uint16_t));

} // namespace

Replies::Replies(int socket) : socket_(socket), can_join_(knows_to_cut(socket)) {
    answers_.reserve(most);
    messages_.reserve(most);
    places_.fill(none);
}

bool Replies::joins(const Message& message, const msghdr& question, std::size_t size) {
    const auto& other = *message.question;
    return message.size == size && (message.answers + 1U) * size <= largest_message &&
           same(question.msg_name, question.msg_namelen, other.msg_name, other.msg_namelen) &&
           same(question.msg_control, question.msg_controllen, other.msg_control, other.msg_controllen);
}

void Replies::add(const msghdr& question, std::span<std::uint8_t> answer) {
    const auto index = static_cast<std::uint8_t>(answers_.size());
    answers_.push_back({{answer.data(), answer.size()}, none});
    if (can_join_ && resting_ == 0 && answer.size() <= largest_joined) {
        auto at = hash_of(question, answer.size()) % places_.size();
        for (; places_[at] != none; at = (at + 1) % places_.size()) {
            auto& message = messages_[places_[at]];
            if (!joins(message, question, answer.size())) continue;
            answers_[message.last].next = index;
            message.last = index;
            ++message.answers;
            return;
        }
        places_[at] = static_cast<std::uint8_t>(messages_.size());
    }
    messages_.push_back({&question, answer.size(), index, index, 1});
}

void Replies::prepare(std::size_t index, iovec* pieces) {
    const auto& message = messages_[index];
    const auto& question = *message.question;
    auto& head = heads_[index].msg_hdr;
    head = {.msg_name = question.msg_name, .msg_namelen = question.msg_namelen, .msg_iov = pieces, .msg_iovlen = message.answers};
    for (auto i = message.first; i != none; i = answers_[i].next) *pieces++ = answers_[i].bytes;
    auto& control = control_[index];
    head.msg_control = control.data();
    if (question.msg_controllen > 0 && (question.msg_flags & MSG_CTRUNC) == 0 &&
        question.msg_controllen <= control.size() - room_to_cut) {
        std::memcpy(control.data(), question.msg_control, question.msg_controllen);
        head.msg_controllen = question.msg_controllen;
        answer_from_there(head);
    }
    if (message.answers > 1) cut_into(head, message.size);
}

std::size_t Replies::send_apart(std::size_t index) {
    auto head = heads_[index].msg_hdr;
    head.msg_controllen -= room_to_cut;
    auto* pieces = head.msg_iov;
    head.msg_iovlen = 1;
    std::size_t went = 0;
    for (auto* piece = pieces; piece != pieces + messages_[index].answers; ++piece) {
        head.msg_iov = piece;
        ssize_t sent = 0;
        do sent = ::sendmsg(socket_, &head, 0);
        while (sent < 0 && errno == EINTR);
        if (sent >= 0) ++went;
    }
    return went;
}

std::size_t Replies::send() {
    auto* pieces = pieces_.data();
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        prepare(i, pieces);
        pieces += messages_[i].answers;
    }
    if (resting_ > 0) --resting_;
    std::size_t went = 0;
    for (std::size_t done = 0; done < messages_.size();) {
        const int now = ::sendmmsg(socket_, &heads_[done], static_cast<unsigned>(messages_.size() - done), 0);
        if (now > 0) {
            for (const auto end = done + static_cast<std::size_t>(now); done < end; ++done) {
                went += messages_[done].answers;
                if (messages_[done].answers > 1) failed_ = 0;
            }
        } else if (errno != EINTR) { // the first of them cannot be sent; the others may
            if (messages_[done].answers > 1 && would_go_apart(errno)) {
                went += send_apart(done);
                if (++failed_ >= failures_to_rest) resting_ = batches_of_rest;
            }
            ++done;
        }
    }
    answers_.clear();
    messages_.clear();
    places_.fill(none);
    return went;
}

} // namespace orrery::dns
