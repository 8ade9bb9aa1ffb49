#include "jobs/artefact_collection.h"

#include "core/log.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

asio::awaitable<void> ArtefactCollection::fetch(Context ctx, std::shared_ptr<JobRun> run, std::uint32_t task,
                                                RunningAttempt& running, Outcome outcome) {
    constexpr std::size_t max_files = 64, max_concurrent = 4;
    if (engine_.options.artefact_fetcher == nullptr || outcome.error == ErrorClass::connect ||
        outcome.error == ErrorClass::refused || outcome.error == ErrorClass::lost)
        co_return; // the attempt did nothing there
    const auto& attempt = running.attempt;
    const ArtefactFiles::Name name{run->uid, task, attempt.number};
    std::vector<Artefact> all;
    while (fetching_ >= max_concurrent) { // each holds a file in memory
        auto waited = co_await slot_freed_.wait(Context::background());
        if (!waited.ok()) co_return;
    }
    struct Slot {
        explicit Slot(ArtefactCollection& of) : collection(of) { ++collection.fetching_; }
        ~Slot() {
            --collection.fetching_;
            collection.slot_freed_.notify_all();
        }
        Slot(const Slot&) = delete;
        Slot& operator=(const Slot&) = delete;
        ArtefactCollection& collection;
    } slot(*this);
    auto& used = run->at_work->artefacts;
    if (!used) {
        auto sum = co_await files_.used(run->uid);
        if (!used) used = sum.ok() ? *sum : 0;
    }
    const auto within = ctx.with_timeout(engine_.options.artefact_timeout);
    for (const auto& target : attempt.targets)
        for (const auto& path : attempt.artefacts)
            if (all.size() < max_files) all.push_back(co_await fetch_one(within, name, all.size(), running, target, path, *used));
    auto finished = co_await files_.finish(name, std::move(all));
    if (!finished.ok()) log::warn(ctx, "artefacts not stored task={} error=\"{}\"", attempt.task, finished.error().text());
}

asio::awaitable<Artefact> ArtefactCollection::fetch_one(Context ctx, ArtefactFiles::Name name, std::size_t number,
                                                        const RunningAttempt& running, const Target& target, std::string path,
                                                        std::uint64_t& used) {
    const Masker masker(running.attempt.secrets);
    Artefact out{target.node.name, path, 0, {}, {}};
    const auto left = files_.options().of_job - std::min(used, files_.options().of_job);
    if (running.sink->withholds()) {
        out.message = "is not stored: a secret of the task was changed, and could not be recognised in it";
    } else if (left == 0) {
        out.message = fmt::format("is not stored: the job has {} bytes of artefacts, which is the limit", used);
    } else {
        auto found = co_await engine_.options.artefact_fetcher->fetch(ctx, running.attempt, target, path,
                                                                      std::min<std::uint64_t>(files_.options().max_size, left));
        if (!found.ok()) {
            out.message = fmt::format("could not be fetched: {}", found.error().message);
        } else if (!found->message.empty()) {
            out.message = found->message;
        } else {
            auto stored = co_await files_.keep(name, number, out, std::move(found->bytes), masker);
            if (stored.ok())
                out = std::move(*stored);
            else
                out.message = fmt::format("could not be stored: {}", stored.error().message);
            used += out.size;
        }
    }
    out.message = masker.mask_cut(out.message);
    co_return out;
}

} // namespace orrery::jobs
