#pragma once

#include <memory_resource>

namespace orrery::dns {

/// Arena for the name table. Packs entries together and uses huge pages when available, to avoid TLB misses on lookups. One writer
/// at a time; freed memory is reused, and the destructor releases all of it.
class NameArena {
public:
    NameArena();
    NameArena(const NameArena&) = delete;
    NameArena& operator=(const NameArena&) = delete;
    std::pmr::memory_resource* get() { return resource_; }

private:
    class HugePages : public std::pmr::memory_resource {
        void* do_allocate(std::size_t bytes, std::size_t alignment) override;
        void do_deallocate(void* at, std::size_t bytes, std::size_t alignment) override;
        bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
    };
    HugePages pages_;
    std::pmr::unsynchronized_pool_resource pool_;
    std::pmr::memory_resource* resource_;
};

} // namespace orrery::dns
