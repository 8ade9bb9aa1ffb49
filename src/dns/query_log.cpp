#include "dns/query_log.h"

#include "core/log.h"
#include "dns/rdata.h"

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace orrery::dns {

namespace {

constexpr auto flush_interval = std::chrono::milliseconds(20);
constexpr std::size_t max_write_bytes = 256 * 1024;

std::string class_text(std::uint16_t of) {
    switch (of) {
    case dns_class::in: return "IN";
    case dns_class::chaos: return "CH";
    case dns_class::any: return "ANY";
    default: return fmt::format("CLASS{}", of);
    }
}

std::string rcode_text(Rcode code) {
    switch (code) {
    case Rcode::noerror: return "NOERROR";
    case Rcode::formerr: return "FORMERR";
    case Rcode::servfail: return "SERVFAIL";
    case Rcode::nxdomain: return "NXDOMAIN";
    case Rcode::notimp: return "NOTIMP";
    case Rcode::refused: return "REFUSED";
    case Rcode::badvers: return "BADVERS";
    }
    return fmt::format("RCODE{}", static_cast<int>(code));
}

} // namespace

struct QueryLog::State {
    std::shared_ptr<const Authority> authority;
    Options options;
    int fd = -1;
    std::uint64_t size = 0; ///< of the file
    ino_t inode = 0;
    bool warned = false; ///< since the last successful write
    std::string buffer;
    std::uint64_t buffered_lines = 0;
    std::atomic<std::uint64_t> written{0}, lost{0};
    std::mutex mutex;
    std::condition_variable wake;
    bool stopping = false;
    std::thread thread;

    void close() {
        if (fd >= 0) ::close(fd);
        fd = -1;
    }
    Result<Unit> open() {
        close();
        fd = ::open(options.file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
        struct stat status{};
        if (fd < 0 || ::fstat(fd, &status) != 0)
            return Error{Code::unavailable, fmt::format("cannot open the DNS query log {}: {}", options.file, std::strerror(errno)),
                         "set dns.query_log to a file in a directory that this server can write to"};
        size = static_cast<std::uint64_t>(status.st_size);
        inode = status.st_ino;
        return Unit{};
    }
    /// False if the file was moved away or replaced.
    bool is_current_file() const {
        struct stat status{};
        return fd >= 0 && ::stat(options.file.c_str(), &status) == 0 && status.st_ino == inode;
    }

    void write() {
        if (buffer.empty()) return;
        if (size > 0 && size + buffer.size() > options.max_file_bytes && is_current_file()) {
            std::ignore = std::rename(options.file.c_str(), (options.file + ".1").c_str());
            close();
        }
        const auto opened = is_current_file() ? Result<Unit>(Unit{}) : open();
        std::size_t done = 0;
        int error = 0;
        while (opened.ok() && done < buffer.size() && error == 0) {
            const auto now = ::write(fd, buffer.data() + done, buffer.size() - done);
            if (now > 0)
                done += static_cast<std::size_t>(now);
            else if (errno != EINTR)
                error = now == 0 ? EIO : errno;
        }
        size += done;
        if (opened.ok() && error == 0) {
            written += buffered_lines;
            warned = false;
        } else {
            lost += buffered_lines; // an upper bound: some lines may have been written
            if (!std::exchange(warned, true))
                log::warn(Context::background(), "DNS query log disabled until writing succeeds: {}",
                          opened.ok() ? fmt::format("{}: {}", options.file, std::strerror(error)) : opened.error().message);
        }
        buffer.clear();
        buffered_lines = 0;
    }

    std::size_t drain() {
        const auto count = authority->drain_query_log([this](const Authority::LoggedQuery& one) {
            const auto text = line(one) + '\n';
            if (buffer.size() + text.size() > std::min<std::uint64_t>(max_write_bytes, options.max_file_bytes)) write();
            buffer += text;
            ++buffered_lines;
        });
        write();
        return count;
    }

    void run() {
        for (bool last = false; !last;) {
            {
                std::unique_lock lock(mutex);
                wake.wait_for(lock, flush_interval, [this] { return stopping; });
                last = stopping;
            }
            drain();
        }
    }
};

QueryLog::QueryLog(std::shared_ptr<const Authority> authority, Options options) : state_(std::make_unique<State>()) {
    state_->authority = std::move(authority);
    state_->options = std::move(options);
}

QueryLog::~QueryLog() {
    stop();
    state_->close();
}

Result<Unit> QueryLog::start() {
    TRY(std::ignore, state_->open());
    state_->thread = std::thread([state = state_.get()] { state->run(); });
    return Unit{};
}

void QueryLog::stop() {
    if (!state_->thread.joinable()) return;
    {
        const std::lock_guard lock(state_->mutex);
        state_->stopping = true;
    }
    state_->wake.notify_all();
    state_->thread.join();
}

QueryLog::Counts QueryLog::counts() const { return {state_->written, state_->lost}; }

std::string QueryLog::line(const Authority::LoggedQuery& query) {
    std::array<char, INET6_ADDRSTRLEN> client{};
    ::inet_ntop(query.client.v6 ? AF_INET6 : AF_INET, query.client.address.data(), client.data(), client.size());
    return fmt::format("{} {} {} {} {} {} {} {}", to_rfc3339(query.time),
                       query.client.transport == Client::Transport::udp ? "udp" : "tcp", client.data(),
                       query.name.is_root() ? "." : query.name.to_text(), type_name(query.type), class_text(query.dns_class),
                       rcode_text(query.rcode), query.size);
}

} // namespace orrery::dns
