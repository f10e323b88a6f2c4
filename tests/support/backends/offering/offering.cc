// A backend that offers one place for the input of a request, and says how often it was given back:
// OUTPUT0 is that number, whatever INPUT0 is.
#include <atomic>
#include <cstdint>

#include "nereid/backend.h"
#include "nereid/ext/offered_input.h"

namespace {

constexpr uint64_t kPlaceBytes = 4096;
std::byte place[kPlaceBytes];
std::atomic<int> num_given_back{0};

class Offering : public nereid::Model {
 public:
  nereid::Status Execute(nereid::Batch& batch) override {
    NEREID_ASSIGN_OR_RETURN(const auto out, batch.Output<float>("OUTPUT0", {1}));
    out[0] = static_cast<float>(num_given_back.load());
    return {};
  }
};

}  // namespace

NEREID_BACKEND(Offering);

extern "C" {

TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceOfferInput(
    TRITONBACKEND_ModelInstance*, const uint64_t byte_size, void** base,
    NEREID_GiveBackFn_t* give_back, void** lender_userp) {
  *base = byte_size <= kPlaceBytes ? place : nullptr;
  *give_back = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
  *lender_userp = &num_given_back;
  return nullptr;
}

}  // extern "C"
