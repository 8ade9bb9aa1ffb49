#include "dns/name_arena.h"

#include <new>
#include <sys/mman.h>

namespace orrery::dns {

namespace {

constexpr std::size_t huge_page = 2 << 20;
/// Smaller blocks would leave most of a huge page unused.
constexpr bool is_huge(std::size_t bytes) { return bytes >= huge_page / 2; }
constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + huge_page - 1) / huge_page * huge_page; }

// A pool would hide use-after-free errors from the sanitizers.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool sanitizer = true;
#else
constexpr bool sanitizer = false;
#endif

} // namespace

NameArena::NameArena() : pool_(&pages_), resource_(sanitizer ? std::pmr::new_delete_resource() : &pool_) {}

void* NameArena::HugePages::do_allocate(std::size_t bytes, std::size_t alignment) {
    if (!is_huge(bytes)) return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    const auto size = whole_pages(bytes);
    auto* out = ::operator new(size, std::align_val_t(huge_page));
    ::madvise(out, size, MADV_HUGEPAGE); // best effort
    return out;
}

void NameArena::HugePages::do_deallocate(void* at, std::size_t bytes, std::size_t alignment) {
    if (!is_huge(bytes)) return std::pmr::new_delete_resource()->deallocate(at, bytes, alignment);
    ::operator delete(at, whole_pages(bytes), std::align_val_t(huge_page));
}

} // namespace orrery::dns
