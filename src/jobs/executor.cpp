#include "jobs/executor.h"

namespace orrery::jobs {

std::string_view name_of(ErrorClass error) {
    switch (error) {
    case ErrorClass::none: return "none";
    case ErrorClass::connect: return "connect";
    case ErrorClass::lost: return "lost";
    case ErrorClass::timeout: return "timeout";
    case ErrorClass::failed: return "failed";
    case ErrorClass::refused: return "refused";
    case ErrorClass::no_space: return "no_space";
    case ErrorClass::cancelled: return "cancelled";
    }
    return "none";
}

std::string_view name_of(Outcome::Ended ended) {
    switch (ended) {
    case Outcome::Ended::succeeded: return "succeeded";
    case Outcome::Ended::failed: return "failed";
    case Outcome::Ended::lost: return "lost";
    }
    return "failed";
}

std::string_view name_of(Outcome::Change change) {
    switch (change) {
    case Outcome::Change::unknown: return "unknown";
    case Outcome::Change::unchanged: return "unchanged";
    case Outcome::Change::changed: return "changed";
    }
    return "unknown";
}

std::string_view name_of(Step::Result result) {
    switch (result) {
    case Step::Result::running: return "running";
    case Step::Result::ok: return "ok";
    case Step::Result::changed: return "changed";
    case Step::Result::skipped: return "skipped";
    case Step::Result::failed: return "failed";
    case Step::Result::unreachable: return "unreachable";
    }
    return "ok";
}

} // namespace orrery::jobs
