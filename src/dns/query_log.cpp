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

constexpr auto log_every = std::chrono::milliseconds(20);
constexpr std::size_t log_at_once = 256 * 1024; ///< bytes gathered for one write

std::string class_text(std::uint16_t of) {
    switch (of) {
    case dns_class::in: return "IN";
    case dns_class::chaos: return "CH";
    case dns_class::any: return "ANY";
    default: return fmt::format("CLASS{}", of);
    }
}

std::string code_text(Rcode code) {
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
    bool complained = false;
    std::string gathered;
    std::uint64_t gathered_lines = 0;
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
        struct stat seen{};
        if (fd < 0 || ::fstat(fd, &seen) != 0)
            return Error{Code::unavailable, fmt::format("the log of DNS questions, {}: {}", options.file, std::strerror(errno)),
                         "name a file in a folder that this server may write to"};
        size = static_cast<std::uint64_t>(seen.st_size);
        inode = seen.st_ino;
        return Unit{};
    }
    bool is_ours() const {
        struct stat seen{};
        return fd >= 0 && ::stat(options.file.c_str(), &seen) == 0 && seen.st_ino == inode;
    }

    void write() {
        if (gathered.empty()) return;
        if (size > 0 && size + gathered.size() > options.most_bytes && is_ours()) {
            std::ignore = std::rename(options.file.c_str(), (options.file + ".1").c_str());
            close();
        }
        const auto opened = is_ours() ? Result<Unit>(Unit{}) : open();
        std::size_t done = 0;
        int error = 0;
        while (opened.ok() && done < gathered.size() && error == 0) {
            const auto now = ::write(fd, gathered.data() + done, gathered.size() - done);
            if (now > 0)
                done += static_cast<std::size_t>(now);
            else if (errno != EINTR)
                error = now == 0 ? EIO : errno;
        }
        size += done;
        if (opened.ok() && error == 0) {
            written += gathered_lines;
            complained = false;
        } else {
            lost += gathered_lines; // some of them may be there: more are not claimed
            if (!std::exchange(complained, true))
                log::warn(Context::background(), "DNS questions are not logged: {}",
                          opened.ok() ? fmt::format("{}: {}", options.file, std::strerror(error)) : opened.error().message);
        }
        gathered.clear();
        gathered_lines = 0;
    }

    std::size_t drain() {
        const auto count = authority->take_queries([this](const Authority::Asked& one) {
            const auto text = line(one) + '\n';
            if (gathered.size() + text.size() > std::min<std::uint64_t>(log_at_once, options.most_bytes)) write();
            gathered += text;
            ++gathered_lines;
        });
        write();
        return count;
    }

    void run() {
        for (bool last = false; !last;) {
            {
                std::unique_lock lock(mutex);
                wake.wait_for(lock, log_every, [this] { return stopping; });
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

std::string QueryLog::line(const Authority::Asked& asked) {
    std::array<char, INET6_ADDRSTRLEN> client{};
    ::inet_ntop(asked.asker.v6 ? AF_INET6 : AF_INET, asked.asker.address.data(), client.data(), client.size());
    return fmt::format("{} {} {} {} {} {} {} {}", to_rfc3339(asked.time),
                       asked.asker.transport == Asker::Transport::udp ? "udp" : "tcp", client.data(),
                       asked.name.is_root() ? "." : asked.name.to_text(), type_name(asked.type), class_text(asked.dns_class),
                       code_text(asked.rcode), asked.size);
}

} // namespace orrery::dns
