// Write a backend: a class with Initialize, Execute and Finalize becomes a shared object that
// Triton and this host load. This header is all that its source file includes.
//
//   class Doubler : public nereid::Model {
//     nereid::Status Execute(nereid::Batch& batch) override {
//       NEREID_ASSIGN_OR_RETURN(auto in, batch.Gather<float>("IN"));
//       NEREID_ASSIGN_OR_RETURN(auto out, batch.Output<float>("OUT", in.shape));
//       for (size_t i = 0; i < out.size(); ++i) out[i] = 2 * in.elements[i];
//       return {};
//     }
//   };
//   NEREID_BACKEND(Doubler);
//
// Without a line of the author's: outputs are scattered to the requests that want them, responses
// sent, statistics reported, requests released, errors and exceptions turned into answers.
//
// Where to look: model.h (the classes), batch.h (requests together), request.h (one request),
// tensor_view.h (an input), response.h (outputs), response_sender.h (streams, answers that come
// later), model_config.h (configuration, parameters), metric.h, log.h, server.h (other models).
// BYTES tensors: bytes_codec.h.
#pragma once

#include "nereid/batch.h"            // IWYU pragma: export
#include "nereid/bytes_codec.h"      // IWYU pragma: export
#include "nereid/data_type.h"        // IWYU pragma: export
#include "nereid/entry_points.h"     // IWYU pragma: export
#include "nereid/error.h"            // IWYU pragma: export
#include "nereid/handles.h"          // IWYU pragma: export
#include "nereid/log.h"              // IWYU pragma: export
#include "nereid/metric.h"           // IWYU pragma: export
#include "nereid/model.h"            // IWYU pragma: export
#include "nereid/model_config.h"     // IWYU pragma: export
#include "nereid/request.h"          // IWYU pragma: export
#include "nereid/response.h"         // IWYU pragma: export
#include "nereid/response_sender.h"  // IWYU pragma: export
#include "nereid/server.h"           // IWYU pragma: export
#include "nereid/status.h"           // IWYU pragma: export
#include "nereid/tensor_view.h"      // IWYU pragma: export
