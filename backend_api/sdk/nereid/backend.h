/// \file
/// The header that the source file of a backend includes. A class with Initialize, Execute and
/// Finalize becomes a shared library that Triton and this host load.
///
///   class Doubler : public nereid::Model {
///     nereid::Status Execute(nereid::Batch& batch) override {
///       NEREID_ASSIGN_OR_RETURN(auto in, batch.Gather<float>("IN"));
///       NEREID_ASSIGN_OR_RETURN(auto out, batch.Output<float>("OUT", in.shape));
///       for (size_t i = 0; i < out.size(); ++i) out[i] = 2 * in.elements[i];
///       return {};
///     }
///   };
///   NEREID_BACKEND(Doubler);
///
/// The SDK does the rest: it scatters outputs to the requests that asked for them, sends responses,
/// reports statistics, releases requests, and turns errors and exceptions into error responses.
///
/// Where to look: model.h (the classes to derive from), batch.h (all requests of one execution),
/// request.h (one request), tensor_view.h (an input, shapes), response.h (outputs),
/// response_sender.h (streams and late responses), model_config.h (configuration, parameters),
/// metric.h, log.h, server.h (calling other models), bytes_codec.h (BYTES tensors).
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
