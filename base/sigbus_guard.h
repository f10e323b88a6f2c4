// Protects the process from SIGBUS in a mapped file or shared memory object. Accessing a mapped
// page raises SIGBUS if the file was truncated, the disk cannot read the page (EIO) or there is no
// free space for it (ENOSPC, a full tmpfs). By default that ends the process. In a guarded mapping
// the signal handler replaces such a page by a private page of zeros, permanently, and the user of
// the mapping can ask for that afterwards. [any thread]
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

// Guards one mapping, which must outlive this object.
class SigbusGuard {
 public:
  // `protection`: the protection of the mapping, such as PROT_READ.
  SigbusGuard(const void* base, size_t size_bytes, int protection)
      : mapping_(Guard(reinterpret_cast<uintptr_t>(base), size_bytes, protection)) {}
  SigbusGuard(const SigbusGuard&) = delete;
  SigbusGuard& operator=(const SigbusGuard&) = delete;
  ~SigbusGuard() {
    const std::lock_guard lock(mutex);
    mapping_->end = 0;
    mapping_->is_taken = false;
  }

  // Whether an accessed page was replaced by zeros.
  bool has_replaced_pages() const {
    return mapping_->has_replaced_pages.load(std::memory_order_relaxed);
  }

 private:
  // Never freed, because a signal handler may be reading it, but reused.
  struct Mapping {
    std::atomic<uintptr_t> begin{0};
    std::atomic<uintptr_t> end{0};
    std::atomic<int> protection{0};
    std::atomic<bool> has_replaced_pages{false};
    bool is_taken = false;
    Mapping* next = nullptr;
  };

  static Mapping* Guard(uintptr_t begin, size_t size_bytes, int protection) {
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
    mapping->has_replaced_pages = false;
    mapping->protection = protection;
    mapping->begin = begin;
    mapping->end = begin + size_bytes;
    return mapping;
  }

  // Removed when the library that contains this code is unloaded: the process may continue then.
  struct Handler {
    Handler() {
      struct sigaction action {};
      action.sa_sigaction = &OnBusError;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      sigaction(SIGBUS, nullptr, &previous);
      sigaction(SIGBUS, &action, nullptr);
    }
    ~Handler() {
      struct sigaction now {};
      sigaction(SIGBUS, nullptr, &now);
      // Otherwise a handler that was installed later may call OnBusError and stays installed.
      if (now.sa_sigaction == &OnBusError) sigaction(SIGBUS, &previous, nullptr);
    }
  };

  // Allocates nothing and takes no lock. When it returns, the faulting instruction is repeated.
  static void OnBusError(int signal_number, siginfo_t* info, void* context) {
    const int saved_errno = errno;
    if (info->si_code == BUS_ADRERR && MapZeroPage(reinterpret_cast<uintptr_t>(info->si_addr))) {
      errno = saved_errno;
    } else if ((previous.sa_flags & SA_SIGINFO) != 0) {
      previous.sa_sigaction(signal_number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
      previous.sa_handler(signal_number);
    } else {
      signal(signal_number, SIG_DFL);
      raise(signal_number);  // a SIGBUS sent by kill() would not be raised again by itself
    }
  }

  static bool MapZeroPage(uintptr_t address) {
    for (Mapping* each = first.load(std::memory_order_acquire); each != nullptr;
         each = each->next) {
      if (address >= each->end || address < each->begin) continue;
      const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
      void* const page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
      constexpr long kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
      // The raw system call: sanitizers treat the C library's mmap as a write to the page.
      const long protection = each->protection.load();
      if (syscall(SYS_mmap, page, page_bytes, protection, kFlags, -1L, 0L) == -1) return false;
      each->has_replaced_pages.store(true, std::memory_order_relaxed);
      return true;
    }
    return false;
  }

  static inline std::mutex mutex;  // guards is_taken and insertions into the list
  static inline std::atomic<Mapping*> first{nullptr};
  static inline struct sigaction previous {};  // the previous handler; set once

  Mapping* const mapping_;
};

}  // namespace nereid
