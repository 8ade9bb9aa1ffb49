#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace orrery::health {

/// The tick of all timing wheels of this module.
constexpr auto tick = std::chrono::milliseconds(10);

/// A hierarchical timing wheel. Adding, removing and expiring an entry take constant time and allocate nothing: entries are
/// intrusive list nodes. Time is counted in ticks from an origin that the owner chooses. Not thread-safe.
class Wheel {
public:
    using Tick = std::uint64_t;
    static constexpr Tick never = std::numeric_limits<Tick>::max();

    /// The base class of entries. An entry must not be moved or destroyed while it waits.
    class Waiting {
    public:
        Waiting() = default;
        Waiting(const Waiting&) = delete;
        Waiting& operator=(const Waiting&) = delete;
        bool is_waiting() const { return next_ != nullptr; }
        Tick due() const { return due_; }

    private:
        friend class Wheel;
        Waiting *next_ = nullptr, *previous_ = nullptr;
        Tick due_ = 0;
    };

    explicit Wheel(Tick now = 0) : now_(now) {
        for (auto& level : slots_)
            for (auto& slot : level) slot.next_ = slot.previous_ = &slot;
    }
    Wheel(const Wheel&) = delete;
    Wheel& operator=(const Wheel&) = delete;

    /// Schedules an entry for `when`, or for the next tick if that is past. An entry that waits already is rescheduled.
    void add(Waiting& one, Tick when) {
        if (one.is_waiting()) remove(one);
        one.due_ = when > now_ ? when : now_ + 1;
        insert(one);
        ++size_;
    }
    void remove(Waiting& one) {
        if (!one.is_waiting()) return;
        one.previous_->next_ = one.next_;
        one.next_->previous_ = one.previous_;
        one.next_ = one.previous_ = nullptr;
        --size_;
    }
    /// Advances the time to `now` and calls `came_due(Waiting&)` for every due entry, tick by tick, after removing it. The callback
    /// may add and remove entries.
    template <class F> void advance(Tick now, F came_due) {
        while (now_ < now) {
            if (size_ == 0) {
                now_ = now;
                return;
            }
            // Nothing is due before the next filled slot or the next turn of an upper level.
            const Tick next = next_event();
            if (next > now) {
                now_ = now;
                return;
            }
            now_ = next;
            turn_upper_levels();
            auto& slot = slots_[0][now_ & mask];
            while (slot.next_ != &slot) {
                auto& one = *slot.next_;
                remove(one);
                came_due(one);
            }
        }
    }
    /// A tick that is not later than the first due entry. It may be earlier, when entries only move to a lower level. `never`: the
    /// wheel is empty.
    Tick next_event() const {
        if (size_ == 0) return never;
        const Tick turn = (now_ | mask) + 1;
        for (Tick at = now_ + 1; at < turn; ++at)
            if (!empty(slots_[0][at & mask])) return at;
        return turn;
    }
    Tick now() const { return now_; }
    std::size_t size() const { return size_; }

private:
    static constexpr unsigned bits = 8, levels = 4;
    static constexpr Tick slot_count = Tick{1} << bits, mask = slot_count - 1;

    static bool empty(const Waiting& slot) { return slot.next_ == &slot; }

    void insert(Waiting& one) {
        const Tick ahead = one.due_ ^ now_;
        unsigned level = ahead == 0 ? 0 : static_cast<unsigned>(std::bit_width(ahead) - 1) / bits;
        Tick slot_tick = one.due_;
        if (level >= levels) { // beyond the range of the wheel: placed again when its last level has turned
            level = levels - 1;
            slot_tick = now_ - (Tick{1} << (bits * level));
        }
        auto& slot = slots_[level][(slot_tick >> (bits * level)) & mask];
        one.previous_ = slot.previous_;
        one.next_ = &slot;
        slot.previous_->next_ = &one;
        slot.previous_ = &one;
    }
    void turn_upper_levels() {
        for (unsigned level = 1; level < levels && (now_ & ((Tick{1} << (bits * level)) - 1)) == 0; ++level) {
            auto& slot = slots_[level][(now_ >> (bits * level)) & mask];
            if (empty(slot)) continue;
            // Detached first: entries beyond the last level may return to the same slot.
            Waiting list;
            list.next_ = slot.next_;
            list.previous_ = slot.previous_;
            list.next_->previous_ = list.previous_->next_ = &list;
            slot.next_ = slot.previous_ = &slot;
            while (list.next_ != &list) {
                auto& one = *list.next_;
                list.next_ = one.next_;
                one.next_->previous_ = &list;
                insert(one);
            }
        }
    }

    Tick now_;
    std::size_t size_ = 0;
    std::array<std::array<Waiting, slot_count>, levels> slots_;
};

} // namespace orrery::health
