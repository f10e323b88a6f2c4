// The control tensors of a sequence model (START, READY, END and CORRID of `control_input`), which
// describe each request of a batch. Immutable after construction. [any thread]
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/request/infer_request.h"
#include "nereid/status.h"

namespace nereid::core {

// The correlation ID as error messages show it: the number or the string.
std::string CorrelationIdText(const CorrelationId& id);
// False for 0 and the empty string, which mean that there is no ID.
bool IsCorrelationId(const CorrelationId& id);

class SequenceControls {
 public:
  struct Values {
    bool start = false;
    bool ready = false;
    bool end = false;
    CorrelationId id;
  };

  // `has_batch_dim`: the tensors have shape [1,1], otherwise [1].
  SequenceControls(const SequenceBatching& config, bool has_batch_dim);

  // INVALID_ARG if the CORRID tensor cannot represent the ID. A 64-bit integer tensor represents a
  // string ID by its hash.
  Status CheckId(const CorrelationId& id, const std::string& model_name) const;
  // Adds the control tensors to `inputs`, which owns their data, except for constants that belong
  // to this object.
  void AddInputs(const Values& values, HostInputs* inputs) const;

 private:
  struct Flag {  // a control tensor with two possible values
    std::string name;
    SequenceControl::Kind kind = SequenceControl::Kind::kStart;
    DataType data_type = DataType::kInvalid;
    uint32_t byte_size = 0;
    std::array<std::array<char, 4>, 2> values{};  // bytes of the values for false and true
  };
  static Flag MakeFlag(const std::string& name, const SequenceControl& control);
  void AddTensor(const std::string& name, DataType type, const void* base, uint64_t byte_size,
                 HostInputs* inputs) const;

  Shape shape_;
  std::vector<Flag> flags_;
  std::string id_name_;  // empty: no CORRID control
  DataType id_type_ = DataType::kInvalid;
};

}  // namespace nereid::core
