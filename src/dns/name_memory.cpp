#include "dns/name_memory.h"

#include <new>
#include <sys/mman.h>

namespace orrery::dns {

namespace {

constexpr std::size_t huge_page = 2 << 20;
/// Of what is smaller than this, most of a huge page would be empty.
constexpr bool is_huge(std::size_t bytes) { return bytes >= huge_page / 2; }
constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + huge_page - 1) / huge_page * huge_page; }

// A sanitizer sees the use of what was given back only where it is really given back.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool watched = true;
#else
constexpr bool watched = false;
#endif

} // namespace

NameMemory::NameMemory() : pool_(&pages_), from_(watched ? std::pmr::new_delete_resource() : &pool_) {}

void* NameMemory::HugePages::do_allocate(std::size_t bytes, std::size_t alignment) {
    if (!is_huge(bytes)) return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    const auto size = whole_pages(bytes);
    auto* out = ::operator new(size, std::align_val_t(huge_page));
    ::madvise(out, size, MADV_HUGEPAGE); // a wish: without it all is as right, and slower
    return out;
}

void NameMemory::HugePages::do_deallocate(void* at, std::size_t bytes, std::size_t alignment) {
    if (!is_huge(bytes)) return std::pmr::new_delete_resource()->deallocate(at, bytes, alignment);
    ::operator delete(at, whole_pages(bytes), std::align_val_t(huge_page));
}

} // namespace orrery::dns
