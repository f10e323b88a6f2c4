// Compiles grammars on threads of its own, so that no request waits for the grammar of another, and
// keeps them within a budget of memory. [any thread]
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/llm_core/grammar/grammar.h"
#include "backends/llm_core/grammar/guide.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

struct CompilerLimits {
  int num_threads = 2;
  // Guides that wait for a thread. Requests with the same guide wait together.
  size_t max_waiting = 256;
  size_t max_waiting_bytes = size_t{64} << 20;
  // Limits of the grammars and guides that are kept after their requests, including the automata
  // that requests have built. The least recently used are dropped; requests keep theirs.
  size_t max_cache_bytes = size_t{512} << 20;
  size_t max_cached = 256;
  GrammarOptions grammar;
};

class GrammarCompiler {
 public:
  using Compiled = Result<std::shared_ptr<const Grammar>>;
  // Called once, by the first guide.
  using VocabularySource = std::function<Result<std::shared_ptr<const Vocabulary>>()>;
  using OnCompiled = std::function<void(const Compiled&)>;

  explicit GrammarCompiler(VocabularySource vocabulary, const CompilerLimits& limits = {});
  // Waits for what is being compiled. Guides that wait get UNAVAILABLE.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Calls `on_compiled` once: on this thread if the result is known, or if too many guides wait
  // (UNAVAILABLE); else on a thread of the compiler. Errors as CompileGuide's; those are kept too.
  void Compile(Guide guide, OnCompiled on_compiled);

  struct Counts {
    size_t num_compiled = 0, num_found = 0, num_cached = 0;
  };
  Counts counts() const;

 private:
  struct Kept {
    std::string key;
    Compiled compiled;
    size_t size_bytes() const;
  };
  struct Waiting {
    Guide guide;
    std::vector<OnCompiled> callbacks;
  };

  void Run();
  Compiled CompileNow(const Guide& guide);
  void Keep(const std::string& key, const Compiled& compiled);

  const VocabularySource vocabulary_source_;
  const CompilerLimits limits_;
  std::mutex vocabulary_mutex_;  // guards vocabulary_
  std::optional<Result<std::shared_ptr<const Vocabulary>>> vocabulary_;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::string> queue_;  // keys of waiting_ that no thread has begun
  size_t queued_bytes_ = 0;
  std::map<std::string, Waiting, std::less<>> waiting_;
  std::list<Kept> kept_;  // the most recently used first
  std::map<std::string_view, std::list<Kept>::iterator> kept_by_key_;  // of the keys in kept_
  Counts counts_;
  bool stop_ = false;

  std::vector<std::thread> threads_;  // last member: the threads use the others
};

}  // namespace nereid::llm::grammar
