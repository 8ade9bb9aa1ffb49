#include "dns/entry.h"

#include <cstring>
#include <new>

namespace orrery::dns {

namespace {

std::size_t size_of(std::size_t rrsets, std::size_t name, std::size_t bytes) {
    return sizeof(Entry) + rrsets * sizeof(Entry::Rrset) + name + bytes;
}

} // namespace

void EntryDeleter::operator()(const Entry* entry) const {
    const auto size = size_of(entry->rrset_count, entry->name_size, entry->bytes_size);
    entry->~Entry();
    memory->deallocate(const_cast<Entry*>(entry), size, Entry::alignment);
}

EntryPtr make_entry(std::pmr::memory_resource* memory, Entry fields, Bytes name, std::span<const Entry::Rrset> rrsets,
                    Bytes bytes) {
    void* block = memory->allocate(size_of(rrsets.size(), name.size(), bytes.size()), Entry::alignment);
    fields.rrset_count = static_cast<std::uint16_t>(rrsets.size());
    fields.name_size = static_cast<std::uint8_t>(name.size());
    fields.bytes_size = static_cast<std::uint32_t>(bytes.size());
    auto* entry = new (block) Entry(std::move(fields));
    auto* rest = reinterpret_cast<std::uint8_t*>(entry + 1);
    if (!rrsets.empty()) std::memcpy(rest, rrsets.data(), rrsets.size_bytes());
    rest += rrsets.size_bytes();
    std::memcpy(rest, name.data(), name.size());
    if (!bytes.empty()) std::memcpy(rest + name.size(), bytes.data(), bytes.size());
    return {entry, {memory}};
}

} // namespace orrery::dns
