/// \file
/// An account of the time that draft tokens have saved and cost. It bounds what is lost on steps
/// that are tried without knowing whether they pay. [engine thread]
#pragma once

#include <algorithm>

namespace nereid::llm {

/// In seconds. Steps without drafts pay in a small part of their time, which is what trials may
/// cost in the long run. Steps with drafts pay in what they saved, or take what they lost.
class GainAccount {
 public:
  /// The part of the time without drafts that trials may cost.
  static constexpr double kShare = 0.004;

  /// A step without drafts, before which the executor was idle for `lost` seconds because of
  /// speculation.
  void RecordPlain(double seconds, double lost = 0.0) { Add(kShare * seconds - lost, seconds); }
  /// A step with drafts. `plain_seconds`: of a step without them, which yields one token for each
  /// of the `num_sequences` sequences.
  void RecordDrafted(double seconds, double plain_seconds, double num_sequences,
                     double num_tokens) {
    Add(plain_seconds * num_tokens / num_sequences - seconds, plain_seconds);
  }
  /// Whether a step may be tried that loses `loss` seconds if no draft is accepted.
  bool CanRisk(double loss) const { return balance_ >= loss; }
  /// Whether drafts that are expected to pay may be verified, although they have lost time so far.
  bool MayGoOn(double plain_seconds) const { return balance_ > -kMostDebt * plain_seconds; }

  /// Something that would cost so many seconds was put off. As much is kept from now on, so that it
  /// can be afforded later.
  void SaveFor(double seconds) { saved_for_ = seconds; }

  /// Whether so many seconds may be spent on what later steps gain from, if drafts are expected to
  /// pay.
  bool MayInvest(double seconds, double plain_seconds) const {
    return balance_ - seconds >= -kMostInvested * plain_seconds;
  }

 private:
  // In steps without drafts: the balance at first, what is kept of gains, the most that is saved,
  // the debt up to which time is invested, and that at which nothing is drafted.
  static constexpr double kFirst = 2.0;
  static constexpr double kMostKept = 4.0;
  static constexpr double kMostSaved = 32.0;
  static constexpr double kMostInvested = 1.0;
  static constexpr double kMostDebt = 4.0;

  void Add(double seconds, double plain_seconds) {
    if (!has_begun_) balance_ = kFirst * plain_seconds;
    has_begun_ = true;
    const double most =
        std::clamp(saved_for_, kMostKept * plain_seconds, kMostSaved * plain_seconds);
    balance_ = std::min(balance_ + seconds, most);
  }

  double balance_ = 0.0;
  double saved_for_ = 0.0;
  bool has_begun_ = false;
};

}  // namespace nereid::llm
