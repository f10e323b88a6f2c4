#include "host/core/repository/model_unloader.h"

#include <chrono>
#include <set>
#include <utility>

#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

constexpr std::chrono::seconds kMaxChainWait{1};

}  // namespace

Status ModelUnloader::Unload(const std::string& name, bool dependents) {
  // A load in progress updates loaded_ before it ends.
  NEREID_RETURN_IF_ERROR(lifecycle_->WaitUntilIdle(name));
  const std::vector<std::string> steps =
      dependents ? ScheduleStepUnloads(name) : std::vector<std::string>();
  const auto unload_callers = [&] {
    for (const std::string& ensemble : loaded_->EnsemblesCalling(name)) {
      NEREID_LOG_INFO("unloading: ensemble '", ensemble, "' with its step '", name, "'");
      const Status status = Unload(ensemble, false);
      if (!status.ok()) NEREID_LOG_ERROR("failed to unload '", ensemble, "': ", status.message());
    }
  };
  loaded_->Erase(name);
  unload_callers();
  NEREID_LOG_INFO("unloading: ", name);
  NEREID_RETURN_IF_ERROR(lifecycle_->Unload(name));
  // A load that ended meanwhile may have recorded the model or a caller of it again.
  if (!lifecycle_->IsServing(name)) loaded_->Erase(name);
  if (!lifecycle_->IsServing(name)) unload_callers();
  // Usually no requests are in flight and the steps follow at once. Long requests are not waited
  // for.
  lifecycle_->WaitUntilUnloading(steps, std::chrono::steady_clock::now() + kMaxChainWait);
  return Status::Ok();
}

std::vector<std::string> ModelUnloader::ScheduleStepUnloads(const std::string& ensemble) {
  std::vector<std::string> scheduled, all;
  for (const std::string& step : loaded_->DetachSteps(ensemble)) {
    if (loaded_->IsRequested(step) || !loaded_->EnsemblesCalling(step).empty()) continue;
    scheduled.push_back(step);
    for (std::string& deeper : ScheduleStepUnloads(step)) all.push_back(std::move(deeper));
    loaded_->Erase(step);
    requested_ensembles_->Erase(step);
  }
  lifecycle_->UnloadAfter(ensemble, scheduled);
  all.insert(all.end(), scheduled.begin(), scheduled.end());
  return all;
}

void ModelUnloader::UnloadAll() {
  requested_ensembles_->Clear();
  const std::set<std::string> ensembles = loaded_->EraseAll();
  for (const std::string& name : ensembles) lifecycle_->UnloadIfIdle(name);
  for (const auto& [name, versions] : lifecycle_->Statuses()) {
    if (ensembles.count(name) == 0) lifecycle_->UnloadIfIdle(name);
  }
}

}  // namespace nereid::core
