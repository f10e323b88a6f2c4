#include "host/core/repository/unloader.h"

#include <chrono>
#include <set>
#include <utility>

#include "host/core/observe/log.h"

namespace nereid {
namespace {

constexpr std::chrono::seconds kMaxChainWait{1};

}  // namespace

void Unloader::TakeDown(const std::string& name, bool dependents) {
  lifecycle_->WaitUntilIdle(name);  // what a load under way remembers is there then
  const std::vector<std::string> steps = dependents ? ChainSteps(name) : std::vector<std::string>();
  const auto end_callers = [&] {
    for (const std::string& ensemble : loaded_->EnsemblesWith(name)) {
      NEREID_LOG_INFO("unloading: ensemble '", ensemble, "' with its step '", name, "'");
      TakeDown(ensemble, false);
    }
  };
  loaded_->Forget(name);
  end_callers();
  NEREID_LOG_INFO("unloading: ", name);
  lifecycle_->Unload(name);
  // A load that ended meanwhile may have brought the model back into the books, or a caller of it.
  if (!lifecycle_->IsServing(name)) loaded_->Forget(name);
  if (!lifecycle_->IsServing(name)) end_callers();
  // As a rule there are no requests and the steps follow at once; long ones are not waited for.
  lifecycle_->WaitUntilUnloading(steps, std::chrono::steady_clock::now() + kMaxChainWait);
}

std::vector<std::string> Unloader::ChainSteps(const std::string& ensemble) {
  std::vector<std::string> chained, all;
  for (const std::string& step : loaded_->TakeSteps(ensemble)) {
    if (loaded_->IsAskedFor(step) || !loaded_->EnsemblesWith(step).empty()) continue;
    chained.push_back(step);
    for (std::string& deeper : ChainSteps(step)) all.push_back(std::move(deeper));
    loaded_->Forget(step);
    wanted_->Forget(step);
  }
  lifecycle_->ThenUnload(ensemble, chained);
  all.insert(all.end(), chained.begin(), chained.end());
  return all;
}

void Unloader::TakeDownAll() {
  wanted_->Clear();
  const std::set<std::string> ensembles = loaded_->ForgetAll();
  for (const std::string& name : ensembles) lifecycle_->Unload(name);
  for (const auto& [name, versions] : lifecycle_->Statuses()) {
    if (ensembles.count(name) == 0) lifecycle_->Unload(name);
  }
}

}  // namespace nereid
