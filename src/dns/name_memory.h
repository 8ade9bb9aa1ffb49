#pragma once

#include <memory_resource>

namespace orrery::dns {

/// Where what every question reads lies: names close together, in huge pages where there are enough of them and the kernel has
/// such, so that a processor knows where the memory of 100,000 names is without asking the page tables. Of one writer at a time;
/// what was given back is used again, and all of it ends with this.
class NameMemory {
public:
    NameMemory();
    NameMemory(const NameMemory&) = delete;
    NameMemory& operator=(const NameMemory&) = delete;
    std::pmr::memory_resource* get() { return from_; }

private:
    class HugePages : public std::pmr::memory_resource {
        void* do_allocate(std::size_t bytes, std::size_t alignment) override;
        void do_deallocate(void* at, std::size_t bytes, std::size_t alignment) override;
        bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
    };
    HugePages pages_;
    std::pmr::unsynchronized_pool_resource pool_;
    std::pmr::memory_resource* from_;
};

} // namespace orrery::dns
