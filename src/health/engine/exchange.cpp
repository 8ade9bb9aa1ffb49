#include "health/engine/worker.h"

#include <fmt/format.h>
#include <openssl/err.h>

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

namespace orrery::health {

namespace {

constexpr std::size_t tcp_searched = 4 << 10, body_searched = 64 << 10, body_shown = 2048, enough_body = 1024;

std::chrono::microseconds between(SteadyTime begin, SteadyTime end) {
    return std::chrono::duration_cast<std::chrono::microseconds>(end - begin);
}

/// Foreign bytes without control characters.
std::string shown(std::string_view bytes) {
    std::string out(bytes.substr(0, body_shown));
    for (char& c : out)
        if ((static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == 0x7f) c = '?';
    return out;
}

} // namespace

/// On an established connection: the handshake if TLS is required and was not made yet, then the request.
void Worker::start_exchange(ActiveProbe& probe) {
    auto& connection = *probe.connection;
    const auto& program = *probe.program;
    if (program.secure && !connection.ssl) {
        probe.phase = ActiveProbe::Phase::queueing;
        if (handshakes_ >= options.handshakes_at_once || !handshake_queue_.empty()) {
            handshake_queue_.push_back(&connection);
            return;
        }
        handshake(probe);
        return;
    }
    probe.written = 0;
    probe.received.clear();
    if (program.kind == ProbeProgram::Kind::http)
        probe.answer.begin({.to_head = program.to_head,
                            .keep = program.expect.wants_nothing() ? body_shown : body_searched,
                            .read = body_searched});
    write(probe);
}

/// Creates the TLS state of the connection; false if the probe has ended.
bool Worker::begin_handshake(ActiveProbe& probe) {
    auto& connection = *probe.connection;
    auto& target = *probe.target;
    const auto& program = *probe.program;
    SSL_CTX* context = tls_context_for(program);
    if (context == nullptr) {
        finish(probe, Outcome::local_error, "the certificate authorities of this host cannot be read");
        return false;
    }
    // A resumed session shows no certificate: never resume for TLS probes, nor for every sixteenth probe. The session of the target
    // is not that of the location that it redirects to.
    const bool keeps = program.kind != ProbeProgram::Kind::tls && !probe.redirect_target;
    const bool resume = target.session && keeps && target.session_uses < options.fresh_every;
    if (target.session && !resume && !probe.redirect_target) {
        target.session.reset();
        --counts.sessions;
    }
    if (!resume && !probe.redirect_target) target.session_uses = 0;
    connection.ssl = make_tls(context, program, connection.fd, resume ? target.session.get() : nullptr, keeps ? &target : nullptr);
    if (!connection.ssl) {
        finish(probe, Outcome::local_error, "no memory for a handshake");
        return false;
    }
    connection.handshaking = true;
    ++handshakes_;
    ++counts.handshakes;
    probe.phase = ActiveProbe::Phase::handshaking;
    if (!connection.registered) watch(connection, EPOLLIN | EPOLLRDHUP | EPOLLET);
    return true;
}

/// One step of the TLS handshake.
void Worker::handshake(ActiveProbe& probe) {
    auto& connection = *probe.connection;
    auto& target = *probe.target;
    if (!connection.ssl && !begin_handshake(probe)) return;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_do_handshake(connection.ssl.get());
    if (result != 1) {
        const int system_error = errno, error = SSL_get_error(connection.ssl.get(), result);
        if (error == SSL_ERROR_WANT_READ) return;
        if (error == SSL_ERROR_WANT_WRITE) {
            if (!std::exchange(connection.waits_to_write, true)) watch(connection, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
            return;
        }
        auto failure = tls_failure(connection.ssl.get(), error, system_error);
        if (target.session && !probe.redirect_target) { // the peer may have refused the session
            target.session.reset();
            --counts.sessions;
        }
        finish(probe, failure.expired ? Outcome::tls_expired : Outcome::tls_error, failure.message);
        return;
    }
    end_handshake(connection);
    if (SSL_session_reused(connection.ssl.get())) {
        ++counts.resumed;
        ++target.session_uses;
    }
    now_ = real_clock().steady();
    if (!probe.redirect_target) probe.seen.tls = between(probe.begin, now_) - probe.seen.connect;
    if (probe.program->kind == ProbeProgram::Kind::tls) {
        judge_certificate(probe);
        return;
    }
    start_exchange(probe);
}

void Worker::end_handshake(Connection& connection) {
    if (std::exchange(connection.handshaking, false)) --handshakes_;
    if (connection.probe != nullptr && connection.probe->phase == ActiveProbe::Phase::queueing && !handshake_queue_.empty())
        std::erase(handshake_queue_, &connection);
}

void Worker::start_waiting_handshakes() {
    while (!handshake_queue_.empty() && handshakes_ < options.handshakes_at_once) {
        auto* connection = handshake_queue_.front();
        handshake_queue_.pop_front();
        handshake(*connection->probe);
    }
}

void Worker::write(ActiveProbe& probe) {
    auto& connection = *probe.connection;
    const auto& program = *probe.program;
    const bool resumed = probe.phase == ActiveProbe::Phase::writing; // the event may also have announced a response
    probe.phase = ActiveProbe::Phase::writing;
    while (probe.written < program.request.size()) {
        const auto rest = std::string_view(program.request).substr(probe.written);
        ssize_t count = 0;
        int error = 0;
        if (connection.ssl) {
            ERR_clear_error();
            errno = 0;
            const int done =
                SSL_write(connection.ssl.get(), rest.data(), static_cast<int>(std::min<std::size_t>(rest.size(), 16 << 10)));
            count = done;
            if (done <= 0) {
                const int system_error = errno, why = SSL_get_error(connection.ssl.get(), done);
                error = why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ ? EAGAIN
                        : system_error != 0                                       ? system_error
                                                                                  : EPIPE;
            }
        } else {
            count = ::send(connection.fd, rest.data(), rest.size(), MSG_NOSIGNAL);
            if (count < 0) error = errno;
        }
        if (error == EAGAIN) {
            if (!std::exchange(connection.waits_to_write, true) || !connection.registered)
                watch(connection, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
            return;
        }
        if (error != 0) {
            ended(probe, error);
            return;
        }
        probe.written += static_cast<std::size_t>(count);
    }
    probe.phase = ActiveProbe::Phase::reading;
    if (program.kind == ProbeProgram::Kind::tcp && program.expect.wants_nothing()) { // sent, and no response is expected
        finish(probe, Outcome::ok, "Success");
        return;
    }
    if (!connection.registered)
        watch(connection, EPOLLIN | EPOLLRDHUP | EPOLLET); // also reports data that is already there
    else if (resumed || connection.ssl || program.kind == ProbeProgram::Kind::tcp)
        read(probe, true); // data that arrived before causes no further event
}

/// Reads the available data. `to_the_end`: the peer has closed the connection, and no further event will report that.
void Worker::read(ActiveProbe& probe, bool to_the_end) {
    auto& connection = *probe.connection;
    for (;;) {
        ssize_t count = 0;
        int error = 0;
        bool drained = false;
        if (connection.ssl) {
            ERR_clear_error();
            errno = 0;
            const int done = SSL_read(connection.ssl.get(), buffer_.data(), static_cast<int>(buffer_.size()));
            count = done;
            if (done <= 0) {
                const int system_error = errno, why = SSL_get_error(connection.ssl.get(), done);
                if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
                    error = EAGAIN;
                else if (why == SSL_ERROR_ZERO_RETURN || system_error == 0)
                    count = 0; // closed, with or without close_notify
                else
                    error = system_error;
            }
        } else {
            count = ::recv(connection.fd, buffer_.data(), buffer_.size(), 0);
            if (count < 0) error = errno;
            drained = !to_the_end && count > 0 && static_cast<std::size_t>(count) < buffer_.size();
        }
        if (error == EAGAIN) return;
        if (error != 0 || count == 0) {
            ended(probe, error);
            return;
        }
        if (probe.seen.first_byte.count() == 0)
            probe.seen.first_byte = std::max(between(probe.begin, now_), std::chrono::microseconds(1));
        if (consume(probe, std::string_view(buffer_.data(), static_cast<std::size_t>(count))) || drained) return;
    }
}

/// The peer closed, or the connection broke.
void Worker::ended(ActiveProbe& probe, int error) {
    const bool nothing_came = probe.seen.first_byte.count() == 0;
    if (probe.on_reused && nothing_came) { // closed while idle: the target has not received the request
        drop(*probe.connection);
        probe.connection = nullptr;
        probe.on_reused = false;
        probe.addresses = probe.target->literal;
        if (!probe.addresses)
            probe.addresses = resolver_.find(probe.program->host, probe.program->port, now_, [](Resolver::Answer) {});
        if (probe.addresses)
            connect_next(probe);
        else
            finish(probe, Outcome::local_error, "the idle connection was closed, and the name is being resolved again");
        return;
    }
    const auto& program = *probe.program;
    if (program.kind == ProbeProgram::Kind::http) {
        if (error == 0 && probe.answer.end() == HttpAnswer::State::done) {
            judge_http(probe);
            return;
        }
        finish(probe, Outcome::protocol,
               error == ECONNRESET || error == EPIPE ? "the connection was reset"
               : probe.answer.problem().empty()      ? "the connection was closed without an answer"
                                                     : probe.answer.problem());
        return;
    }
    finish(probe, Outcome::bad_body,
           fmt::format("the connection was closed before {} came; what came: {}", program.expect.description(),
                       shown(probe.received)));
}

/// Consumes received bytes; true if the probe has ended.
bool Worker::consume(ActiveProbe& probe, std::string_view bytes) {
    const auto& program = *probe.program;
    if (program.kind == ProbeProgram::Kind::tcp) {
        probe.received.append(bytes.substr(0, tcp_searched - probe.received.size()));
        if (program.expect.is_in(probe.received)) {
            finish(probe, Outcome::ok, needs_text(probe, Outcome::ok) ? "Success, and what was expected came" : "");
            return true;
        }
        if (probe.received.size() < tcp_searched) return false;
        finish(probe, Outcome::bad_body,
               fmt::format("{} is not in the first 4 KiB of what came: {}", program.expect.description(), shown(probe.received)));
        return true;
    }
    auto state = probe.answer.feed(bytes);
    if (state == HttpAnswer::State::broken) {
        finish(probe, Outcome::protocol, probe.answer.problem());
        return true;
    }
    // Without a pattern and without a length, the first piece of the body is enough.
    if (state == HttpAnswer::State::body && program.expect.wants_nothing() && !probe.answer.has_length() &&
        probe.answer.body().size() >= enough_body)
        state = HttpAnswer::State::done;
    if (state != HttpAnswer::State::done) return false;
    judge_http(probe);
    return true;
}

void Worker::judge_http(ActiveProbe& probe) {
    const auto& program = *probe.program;
    const auto& answer = probe.answer;
    const int status = answer.status();
    bool good = program.codes.empty() && status >= 200 && status < 300;
    for (const auto& [first, last] : program.codes) good = good || (status >= first && status <= last);
    const bool redirects = status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
    if (!good && redirects && program.redirect && !answer.location().empty()) {
        redirect(probe);
        return;
    }
    auto outcome = good ? Outcome::ok : program.codes.empty() && status == 429 ? Outcome::warning : Outcome::bad_status;
    std::string extra;
    if (good && !program.expect.is_in(answer.body())) {
        outcome = Outcome::bad_body;
        extra = fmt::format(" (the answer does not contain {})", program.expect.description());
    }
    if (outcome == Outcome::ok && program.min_certificate_lifetime > Duration{} && probe.connection->ssl) {
        std::chrono::seconds left{};
        if (certificate_left(probe.connection->ssl.get(), left) && left < program.min_certificate_lifetime) {
            outcome = Outcome::warning;
            extra = fmt::format(" (the certificate ends in {} days)", left / std::chrono::hours(24));
        }
    }
    const bool reusable = answer.is_reusable();
    if (outcome == Outcome::ok && !needs_text(probe, outcome)) {
        finish(probe, outcome, {}, reusable);
        return;
    }
    const auto where = probe.redirect_target ? fmt::format("redirected to {}: ", program.what) : std::string();
    finish(probe, outcome, fmt::format("{}{} {}{} Output: {}", where, status, answer.reason(), extra, shown(answer.body())),
           reusable);
}

/// Continues the probe at the location of the redirect, within the same deadline.
void Worker::redirect(ActiveProbe& probe) {
    auto next = probe.program->redirect(probe.answer.location());
    if (!next.ok()) {
        finish(probe, Outcome::bad_status,
               fmt::format("{} {}: {}", probe.answer.status(), probe.answer.reason(), next.error().message));
        return;
    }
    drop(*probe.connection);
    probe.connection = nullptr;
    probe.on_reused = false;
    probe.next_address = 0;
    probe.redirect_target = std::move(*next);
    probe.program = probe.redirect_target.get();
    probe.addresses = literal_address(probe.program->host, probe.program->port);
    find_and_connect(probe);
}

void Worker::judge_certificate(ActiveProbe& probe) {
    std::chrono::seconds left{};
    const auto& program = *probe.program;
    if (!certificate_left(probe.connection->ssl.get(), left)) {
        finish(probe, Outcome::tls_error, "the peer sent no certificate");
        return;
    }
    const auto days = left / std::chrono::hours(24);
    if (left < std::chrono::seconds(0))
        finish(probe, Outcome::tls_expired, fmt::format("the certificate ended {} days ago", -days));
    else if (left < program.min_certificate_lifetime)
        finish(probe, Outcome::warning, fmt::format("the certificate ends in {} days", days));
    else
        finish(probe, Outcome::ok, fmt::format("Success, the certificate is good for {} days", days));
}

/// The text is made only if it is new: the text of a good result after the same good result would not be used.
bool Worker::needs_text(const ActiveProbe& probe, Outcome outcome) const {
    return probe.target->last != outcome ||
           (probe.target->program->kind == ProbeProgram::Kind::http && probe.target->last_status != probe.answer.status());
}

void Worker::finish(ActiveProbe& probe, Outcome outcome, std::string_view text, bool keep_connection) {
    auto& target = *probe.target;
    deadlines_.remove(probe);
    // A connect-only probe ended when one call of poll reported all of them; the time spent on others since is not part of it.
    if (!probe.program->is_connect_only()) now_ = real_clock().steady();
    probe.seen.outcome = outcome;
    probe.seen.total = between(probe.begin, now_);
    if (outcome != Outcome::ok || needs_text(probe, outcome)) {
        probe.seen.text = fmt::format("{}: {}", target.program->what, text);
        if (probe.seen.text.size() > max_text) probe.seen.text.resize(max_text);
    }
    if (target.program->kind == ProbeProgram::Kind::http) target.last_status = probe.answer.status();
    target.last = outcome;
    if (auto* connection = probe.connection) {
        // If the connection waits for a handshake, `drop` removes it from the queue by the phase of the probe.
        const bool again = keep_connection && probe.program->reuse && !target.removed && ++connection->uses < options.fresh_every;
        if (again)
            park(*connection, probe.target);
        else
            drop(*connection);
        probe.connection = nullptr;
    }
    finished_.emplace_back(target.results, Engine::ProbeResult{probe.tag, std::move(probe.seen)});
    target.probe = nullptr;
    probe.target.reset();
    probe.addresses.reset();
    --counts.running;
    active_[probe.index] = active_.back();
    active_[probe.index]->index = probe.index;
    active_.pop_back();
    std::unique_ptr<ActiveProbe> owned(&probe);
    if (spare_probes_.size() < 256) spare_probes_.push_back(std::move(owned));
}

} // namespace orrery::health
