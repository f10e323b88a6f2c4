// A backend that posts one buffer for the input of a request. OUTPUT0 is the number of times that
// the buffer was released, regardless of INPUT0.
#include <atomic>
#include <cstdint>

#include "nereid/backend.h"
#include "nereid/ext/posted_input_buffer.h"

namespace {

constexpr uint64_t kPostedBytes = 4096;
std::byte posted_memory[kPostedBytes];
std::atomic<int> num_releases{0};

class PostedInputModel : public nereid::Model {
 public:
  nereid::Status Execute(nereid::Batch& batch) override {
    NEREID_ASSIGN_OR_RETURN(const auto out, batch.Output<float>("OUTPUT0", {1}));
    out[0] = static_cast<float>(num_releases.load());
    return {};
  }
};

}  // namespace

NEREID_BACKEND(PostedInputModel);

extern "C" {

TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceOfferInput(
    TRITONBACKEND_ModelInstance*, const uint64_t byte_size, void** base,
    NEREID_ReleaseFn_t* release_fn, void** release_userp) {
  *base = byte_size <= kPostedBytes ? posted_memory : nullptr;
  *release_fn = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
  *release_userp = &num_releases;
  return nullptr;
}

}  // extern "C"
