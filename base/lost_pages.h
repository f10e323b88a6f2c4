// What of a mapped file or shared memory object is no longer there. Bytes that were cut off while
// it is mapped, that the disk cannot read (EIO) or has no room for (ENOSPC, a full tmpfs) raise
// SIGBUS where they are touched, which ends the process: in mappings that are watched such a page
// becomes one of zeros instead, a private one for good, and whoever touched them can ask.
// [any thread]
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace nereid {

// Of one mapping, which lasts longer than this object.
class LostPages {
 public:
  // `protection`: the mapping's, PROT_READ and so on.
  LostPages(const void* base, size_t size_bytes, int protection)
      : mapping_(Watch(reinterpret_cast<uintptr_t>(base), size_bytes, protection)) {}
  LostPages(const LostPages&) = delete;
  LostPages& operator=(const LostPages&) = delete;
  ~LostPages() {
    const std::lock_guard lock(mutex);
    mapping_->end = 0;
    mapping_->is_taken = false;
  }

  // Whether pages that were lost have been touched.
  bool any() const { return mapping_->has_lost_pages.load(std::memory_order_relaxed); }

 private:
  // Never freed, since a handler may be looking at it: used again.
  struct Mapping {
    std::atomic<uintptr_t> begin{0};
    std::atomic<uintptr_t> end{0};
    std::atomic<int> protection{0};
    std::atomic<bool> has_lost_pages{false};
    bool is_taken = false;
    Mapping* next = nullptr;
  };

  static Mapping* Watch(uintptr_t begin, size_t size_bytes, int protection) {
    const std::lock_guard lock(mutex);
    static const Handler handler;
    Mapping* mapping = first.load(std::memory_order_relaxed);
    while (mapping != nullptr && mapping->is_taken) mapping = mapping->next;
    if (mapping == nullptr) {
      mapping = new Mapping;
      mapping->next = first.load(std::memory_order_relaxed);
      first.store(mapping, std::memory_order_release);
    }
    mapping->is_taken = true;
    mapping->has_lost_pages = false;
    mapping->protection = protection;
    mapping->begin = begin;
    mapping->end = begin + size_bytes;
    return mapping;
  }

  // Ends with the library that this code is in: the process may go on without it.
  struct Handler {
    Handler() {
      struct sigaction action {};
      action.sa_sigaction = &OnBusError;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      sigaction(SIGBUS, nullptr, &others);
      sigaction(SIGBUS, &action, nullptr);
    }
    ~Handler() {
      struct sigaction now {};
      sigaction(SIGBUS, nullptr, &now);
      // Else a later one calls this one, and stands.
      if (now.sa_sigaction == &OnBusError) sigaction(SIGBUS, &others, nullptr);
    }
  };

  // Allocates nothing, takes no lock. When it returns, what failed is tried again.
  static void OnBusError(int signal_number, siginfo_t* info, void* context) {
    const int saved_errno = errno;
    if (info->si_code == BUS_ADRERR && PutZeros(reinterpret_cast<uintptr_t>(info->si_addr))) {
      errno = saved_errno;
    } else if ((others.sa_flags & SA_SIGINFO) != 0) {
      others.sa_sigaction(signal_number, info, context);
    } else if (others.sa_handler != SIG_DFL && others.sa_handler != SIG_IGN) {
      others.sa_handler(signal_number);
    } else {
      signal(signal_number, SIG_DFL);
      raise(signal_number);  // one that was sent would not come again
    }
  }

  static bool PutZeros(uintptr_t address) {
    for (Mapping* each = first.load(std::memory_order_acquire); each != nullptr;
         each = each->next) {
      if (address >= each->end || address < each->begin) continue;
      const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
      void* const page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
      constexpr long kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
      // Of the kernel: sanitizers take the C library's for writing to the page.
      const long protection = each->protection.load();
      if (syscall(SYS_mmap, page, page_bytes, protection, kFlags, -1L, 0L) == -1) return false;
      each->has_lost_pages.store(true, std::memory_order_relaxed);
      return true;
    }
    return false;
  }

  static inline std::mutex mutex;  // guards what is taken and what grows the list
  static inline std::atomic<Mapping*> first{nullptr};
  static inline struct sigaction others {};  // set once, before any mapping is watched

  Mapping* const mapping_;
};

}  // namespace nereid
