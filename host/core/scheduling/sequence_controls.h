// The tensors that tell a sequence model what each request of a batch is: START, READY, END and
// CORRID of `control_input`. Immutable once made. [any thread]
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/request/infer_request.h"
#include "nereid/status.h"

namespace nereid {

// "7" or the text: as messages name a sequence.
std::string CorrelationIdText(const CorrelationId& id);
// False for 0 and "".
bool IsCorrelationId(const CorrelationId& id);

class SequenceControls {
 public:
  struct Values {
    bool start = false;
    bool ready = false;
    bool end = false;
    CorrelationId id;
  };

  // `has_batch_dim`: the tensors have shape [1,1], else [1].
  SequenceControls(const SequenceBatching& config, bool has_batch_dim);

  // INVALID_ARG when the CORRID tensor cannot hold the id. One of 64-bit integers holds a number
  // made from a text, the same for the same text.
  Status CheckId(const CorrelationId& id, const std::string& model_name) const;
  // Adds the tensors; `inputs` keeps what they refer to, except what is kept here.
  void AddInputs(const Values& values, HostInputs* inputs) const;

 private:
  struct Flag {  // a control of two values
    std::string name;
    SequenceControl::Kind kind = SequenceControl::Kind::kStart;
    DataType data_type = DataType::kInvalid;
    uint32_t byte_size = 0;
    std::array<std::array<char, 4>, 2> values{};  // false, true
  };
  static Flag MakeFlag(const std::string& name, const SequenceControl& control);
  void AddTensor(const std::string& name, DataType type, const void* base, uint64_t byte_size,
                 HostInputs* inputs) const;

  Shape shape_;
  std::vector<Flag> flags_;
  std::string id_name_;  // empty: no CORRID control
  DataType id_type_ = DataType::kInvalid;
};

}  // namespace nereid
