// See compiler.h.
#include "backends/llm_core/grammar/compiler.h"

#include <utility>

#include "base/thread.h"

namespace nereid::llm::grammar {
namespace {

std::string KeyOf(const Guide& guide) {
  return StrCat(NameOf(guide.type), "\n", guide.text);
}

}  // namespace

size_t GrammarCompiler::Kept::size_bytes() const {
  return 2 * key.size() + (compiled.ok() ? (*compiled)->size_bytes() : 0);
}

GrammarCompiler::GrammarCompiler(VocabularySource vocabulary, const CompilerLimits& limits)
    : vocabulary_source_(std::move(vocabulary)), limits_(limits) {}

GrammarCompiler::~GrammarCompiler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const auto& [key, waiting] : waiting_) {
    for (const OnCompiled& callback : waiting.callbacks)
      callback(UnavailableError("the model is shutting down"));
  }
}

void GrammarCompiler::Compile(Guide guide, OnCompiled on_compiled) {
  std::string key = KeyOf(guide);
  std::optional<Compiled> known;
  {
    const std::lock_guard lock(mutex_);
    if (const auto kept = kept_by_key_.find(key); kept != kept_by_key_.end()) {
      kept_.splice(kept_.begin(), kept_, kept->second);
      known = kept->second->compiled;
      ++counts_.num_found;
    } else if (const auto waiting = waiting_.find(key); waiting != waiting_.end()) {
      waiting->second.callbacks.push_back(std::move(on_compiled));
      ++counts_.num_found;
      return;
    } else if (queue_.size() >= limits_.max_waiting ||
               queued_bytes_ + key.size() > limits_.max_waiting_bytes) {
      known = UnavailableError("guided_decoding_guide: ", queue_.size(), " grammars of ",
                               queued_bytes_, " bytes wait to be compiled, expected at most ",
                               limits_.max_waiting, " and ", limits_.max_waiting_bytes, " bytes");
    } else {
      if (threads_.empty()) {
        StartThreads(
            static_cast<size_t>(limits_.num_threads), [this](size_t) { Run(); }, threads_);
      }
      if (threads_.empty()) {
        known =
            UnavailableError("guided_decoding_guide: the system starts no thread to compile it");
      } else {
        queued_bytes_ += key.size();
        Waiting& added = waiting_[key];
        added.guide = std::move(guide);
        added.callbacks.push_back(std::move(on_compiled));
        queue_.push_back(std::move(key));
      }
    }
  }
  if (known) return on_compiled(*known);
  changed_.notify_one();
}

GrammarCompiler::Counts GrammarCompiler::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.num_cached = kept_.size();
  return counts;
}

void GrammarCompiler::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const std::string key = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= key.size();
    const Guide guide = std::move(waiting_.find(key)->second.guide);
    lock.unlock();
    const Compiled compiled = CompileNow(guide);
    lock.lock();
    ++counts_.num_compiled;
    Keep(key, compiled);
    const auto done = waiting_.extract(key);
    lock.unlock();
    for (const OnCompiled& callback : done.mapped().callbacks) callback(compiled);
    lock.lock();
  }
}

GrammarCompiler::Compiled GrammarCompiler::CompileNow(const Guide& guide) {
  std::shared_ptr<const Vocabulary> vocabulary;
  {
    const std::lock_guard lock(vocabulary_mutex_);
    if (!vocabulary_) vocabulary_ = vocabulary_source_();
    if (!vocabulary_->ok()) {
      return Status(vocabulary_->status()).WithContext("guided_decoding_guide needs a tokenizer");
    }
    vocabulary = **vocabulary_;
  }
  return CompileGuide(guide, std::move(vocabulary), limits_.grammar);
}

void GrammarCompiler::Keep(const std::string& key, const Compiled& compiled) {
  kept_.push_front({key, compiled});
  kept_by_key_.emplace(kept_.front().key, kept_.begin());
  size_t size_bytes = 0, count = 0;
  for (auto each = kept_.begin(); each != kept_.end();) {
    size_bytes += each->size_bytes();
    if (++count <= limits_.max_cached && size_bytes <= limits_.max_cache_bytes) {
      ++each;
      continue;
    }
    kept_by_key_.erase(each->key);
    each = kept_.erase(each);
  }
}

}  // namespace nereid::llm::grammar
