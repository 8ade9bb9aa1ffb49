#include "health/worker.h"

#include <fmt/format.h>
#include <openssl/err.h>

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

namespace orrery::health {

namespace {

constexpr std::size_t tcp_looked_at = 4 << 10, body_looked_at = 64 << 10, body_shown = 2048, enough_body = 1024;

std::chrono::microseconds between(SteadyTime begin, SteadyTime end) {
    return std::chrono::duration_cast<std::chrono::microseconds>(end - begin);
}

/// Of foreign bytes, what can be shown.
std::string shown(std::string_view bytes) {
    std::string out(bytes.substr(0, body_shown));
    for (char& c : out)
        if ((static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == 0x7f) c = '?';
    return out;
}

} // namespace

/// On a connection that stands: the handshake where there must be one and was none, then the request.
void Worker::start_exchange(Look& look) {
    auto& connection = *look.connection;
    const auto& plan = *look.plan;
    if (plan.secure && !connection.ssl) {
        look.phase = Look::Phase::queueing;
        if (handshakes_ >= options.handshakes_at_once || !handshake_queue_.empty()) {
            handshake_queue_.push_back(&connection);
            return;
        }
        shake(look);
        return;
    }
    look.written = 0;
    look.received.clear();
    if (plan.kind == Plan::Kind::http)
        look.answer.begin(
            {.to_head = plan.to_head, .keep = plan.expect.wants_nothing() ? body_shown : body_looked_at, .read = body_looked_at});
    write(look);
}

/// One step of the handshake; the first makes it.
void Worker::shake(Look& look) {
    auto& connection = *look.connection;
    auto& spot = *look.spot;
    const auto& plan = *look.plan;
    if (!connection.ssl) {
        SSL_CTX* context = tls_context_for(plan);
        if (context == nullptr) {
            finish(look, Outcome::local_error, "this machine's certificate authorities cannot be read");
            return;
        }
        // A session that is resumed shows no certificate: where the certificate is the question, and every so often, none is. One
        // of where the target is says nothing of where it redirects to.
        const bool keeps = plan.kind != Plan::Kind::tls && !look.elsewhere;
        const bool resume = spot.session && keeps && spot.session_uses < options.fresh_every;
        if (spot.session && !resume && !look.elsewhere) {
            spot.session.reset();
            --counts.sessions;
        }
        if (!resume && !look.elsewhere) spot.session_uses = 0;
        connection.ssl = make_tls(context, plan, connection.fd, resume ? spot.session.get() : nullptr, keeps ? &spot : nullptr);
        if (!connection.ssl) {
            finish(look, Outcome::local_error, "no memory for a handshake");
            return;
        }
        connection.handshaking = true;
        ++handshakes_;
        ++counts.handshakes;
        look.phase = Look::Phase::handshaking;
        if (!connection.registered) watch(connection, EPOLLIN | EPOLLRDHUP | EPOLLET);
    }
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
        auto trouble = tls_trouble(connection.ssl.get(), error, system_error);
        if (spot.session && !look.elsewhere) { // it may be the session that is refused
            spot.session.reset();
            --counts.sessions;
        }
        finish(look, trouble.expired ? Outcome::tls_expired : Outcome::tls_error, trouble.words);
        return;
    }
    end_handshake(connection);
    if (SSL_session_reused(connection.ssl.get())) {
        ++counts.resumed;
        ++spot.session_uses;
    }
    now_ = real_clock().steady();
    if (!look.elsewhere) look.seen.tls = between(look.begin, now_) - look.seen.connect;
    if (plan.kind == Plan::Kind::tls) {
        judge_certificate(look);
        return;
    }
    start_exchange(look);
}

void Worker::end_handshake(Connection& connection) {
    if (std::exchange(connection.handshaking, false)) --handshakes_;
    if (connection.look != nullptr && connection.look->phase == Look::Phase::queueing && !handshake_queue_.empty())
        std::erase(handshake_queue_, &connection);
}

void Worker::start_waiting_handshakes() {
    while (!handshake_queue_.empty() && handshakes_ < options.handshakes_at_once) {
        auto* connection = handshake_queue_.front();
        handshake_queue_.pop_front();
        shake(*connection->look);
    }
}

void Worker::write(Look& look) {
    auto& connection = *look.connection;
    const auto& plan = *look.plan;
    const bool resumed = look.phase == Look::Phase::writing; // the event that woke us may have told of an answer, too
    look.phase = Look::Phase::writing;
    while (look.written < plan.request.size()) {
        const auto rest = std::string_view(plan.request).substr(look.written);
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
            ended(look, error);
            return;
        }
        look.written += static_cast<std::size_t>(count);
    }
    look.phase = Look::Phase::reading;
    if (plan.kind == Plan::Kind::tcp && plan.expect.wants_nothing()) { // sent, and nothing is waited for
        finish(look, Outcome::ok, "Success");
        return;
    }
    if (!connection.registered)
        watch(connection, EPOLLIN | EPOLLRDHUP | EPOLLET); // tells of what is there already, too
    else if (resumed || connection.ssl || plan.kind == Plan::Kind::tcp)
        read(look, true); // what came before is told by no further event
}

/// Reads what is there. `to_the_end`: the peer has closed behind it, which no further event will tell.
void Worker::read(Look& look, bool to_the_end) {
    auto& connection = *look.connection;
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
                    count = 0; // closed, with or without a word
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
            ended(look, error);
            return;
        }
        if (look.seen.first_byte.count() == 0)
            look.seen.first_byte = std::max(between(look.begin, now_), std::chrono::microseconds(1));
        if (took(look, std::string_view(buffer_.data(), static_cast<std::size_t>(count))) || drained) return;
    }
}

/// The peer closed, or the connection broke.
void Worker::ended(Look& look, int error) {
    const bool nothing_came = look.seen.first_byte.count() == 0;
    if (look.on_kept && nothing_came) { // it was closed while it rested: the target has not been asked yet
        drop(*look.connection);
        look.connection = nullptr;
        look.on_kept = false;
        look.addresses = look.spot->literal;
        if (!look.addresses) look.addresses = names_.find(look.plan->host, look.plan->port, now_, [](Names::Answer) {});
        if (look.addresses)
            connect_next(look);
        else
            finish(look, Outcome::local_error, "the kept connection was closed, and the name is being looked up again");
        return;
    }
    const auto& plan = *look.plan;
    if (plan.kind == Plan::Kind::http) {
        if (error == 0 && look.answer.end() == HttpAnswer::State::done) {
            judge_http(look);
            return;
        }
        finish(look, Outcome::protocol,
               error == ECONNRESET || error == EPIPE ? "the connection was reset"
               : look.answer.problem().empty()       ? "the connection was closed without an answer"
                                                     : look.answer.problem());
        return;
    }
    finish(look, Outcome::bad_body,
           fmt::format("the connection was closed before {} came; what came: {}", plan.expect.words(), shown(look.received)));
}

/// True if the look has ended by what came.
bool Worker::took(Look& look, std::string_view bytes) {
    const auto& plan = *look.plan;
    if (plan.kind == Plan::Kind::tcp) {
        look.received.append(bytes.substr(0, tcp_looked_at - look.received.size()));
        if (plan.expect.is_in(look.received)) {
            finish(look, Outcome::ok, worth_words(look, Outcome::ok) ? "Success, and what was expected came" : "");
            return true;
        }
        if (look.received.size() < tcp_looked_at) return false;
        finish(look, Outcome::bad_body,
               fmt::format("{} is not in the first 4 KiB of what came: {}", plan.expect.words(), shown(look.received)));
        return true;
    }
    auto state = look.answer.take(bytes);
    if (state == HttpAnswer::State::broken) {
        finish(look, Outcome::protocol, look.answer.problem());
        return true;
    }
    // Without something to search and without an end in sight, the first piece is enough.
    if (state == HttpAnswer::State::body && plan.expect.wants_nothing() && !look.answer.has_length() &&
        look.answer.body().size() >= enough_body)
        state = HttpAnswer::State::done;
    if (state != HttpAnswer::State::done) return false;
    judge_http(look);
    return true;
}

void Worker::judge_http(Look& look) {
    const auto& plan = *look.plan;
    const auto& answer = look.answer;
    const int status = answer.status();
    bool good = plan.codes.empty() && status >= 200 && status < 300;
    for (const auto& [first, last] : plan.codes) good = good || (status >= first && status <= last);
    const bool redirects = status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
    if (!good && redirects && plan.redirected && !answer.location().empty()) {
        redirect(look);
        return;
    }
    auto outcome = good ? Outcome::ok : plan.codes.empty() && status == 429 ? Outcome::warning : Outcome::bad_status;
    std::string extra;
    if (good && !plan.expect.is_in(answer.body())) {
        outcome = Outcome::bad_body;
        extra = fmt::format(" (the answer does not contain {})", plan.expect.words());
    }
    if (outcome == Outcome::ok && plan.least_left > Duration{} && look.connection->ssl) {
        std::chrono::seconds left{};
        if (certificate_left(look.connection->ssl.get(), left) && left < plan.least_left) {
            outcome = Outcome::warning;
            extra = fmt::format(" (the certificate ends in {} days)", left / std::chrono::hours(24));
        }
    }
    const bool reusable = answer.is_reusable();
    if (outcome == Outcome::ok && !worth_words(look, outcome)) {
        finish(look, outcome, {}, reusable);
        return;
    }
    const auto where = look.elsewhere ? fmt::format("redirected to {}: ", plan.what) : std::string();
    finish(look, outcome, fmt::format("{}{} {}{} Output: {}", where, status, answer.reason(), extra, shown(answer.body())),
           reusable);
}

/// The look goes on elsewhere, within the same deadline.
void Worker::redirect(Look& look) {
    auto next = look.plan->redirected(look.answer.location());
    if (!next.ok()) {
        finish(look, Outcome::bad_status,
               fmt::format("{} {}: {}", look.answer.status(), look.answer.reason(), next.error().message));
        return;
    }
    drop(*look.connection);
    look.connection = nullptr;
    look.on_kept = false;
    look.next_address = 0;
    look.elsewhere = std::move(*next);
    look.plan = look.elsewhere.get();
    look.addresses = literal_address(look.plan->host, look.plan->port);
    find_and_connect(look);
}

void Worker::judge_certificate(Look& look) {
    std::chrono::seconds left{};
    const auto& plan = *look.plan;
    if (!certificate_left(look.connection->ssl.get(), left)) {
        finish(look, Outcome::tls_error, "no certificate was shown");
        return;
    }
    const auto days = left / std::chrono::hours(24);
    if (left < std::chrono::seconds(0))
        finish(look, Outcome::tls_expired, fmt::format("the certificate ended {} days ago", -days));
    else if (left < plan.least_left)
        finish(look, Outcome::warning, fmt::format("the certificate ends in {} days", days));
    else
        finish(look, Outcome::ok, fmt::format("Success, the certificate is good for {} days", days));
}

/// Words are made where they are new: of a look that went well like the one before nobody reads them.
bool Worker::worth_words(const Look& look, Outcome outcome) const {
    return look.spot->last != outcome ||
           (look.spot->plan->kind == Plan::Kind::http && look.spot->last_status != look.answer.status());
}

void Worker::finish(Look& look, Outcome outcome, std::string_view words, bool keep_connection) {
    auto& spot = *look.spot;
    deadlines_.remove(look);
    // One of many connections was there when a call told of all of them: what has been done for others since is not its time.
    if (!look.plan->is_connect_only()) now_ = real_clock().steady();
    look.seen.outcome = outcome;
    look.seen.total = between(look.begin, now_);
    if (outcome != Outcome::ok || worth_words(look, outcome)) {
        look.seen.text = fmt::format("{}: {}", spot.plan->what, words);
        if (look.seen.text.size() > longest_text) look.seen.text.resize(longest_text);
    }
    if (spot.plan->kind == Plan::Kind::http) spot.last_status = look.answer.status();
    spot.last = outcome;
    if (auto* connection = look.connection) {
        // An ended look whose connection is dropped while it waits for a handshake leaves the queue by its phase.
        const bool again = keep_connection && look.plan->reuse && !spot.removed && ++connection->uses < options.fresh_every;
        if (again)
            rest(*connection, look.spot);
        else
            drop(*connection);
        look.connection = nullptr;
    }
    outbox_.emplace_back(spot.inbox, Engine::Done{look.tag, std::move(look.seen)});
    spot.look = nullptr;
    look.spot.reset();
    look.addresses.reset();
    --counts.looking;
    active_[look.place] = active_.back();
    active_[look.place]->place = look.place;
    active_.pop_back();
    std::unique_ptr<Look> owned(&look);
    if (spare_looks_.size() < 256) spare_looks_.push_back(std::move(owned));
}

} // namespace orrery::health
