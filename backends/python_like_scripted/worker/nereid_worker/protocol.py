"""Kinds of messages. protocol.h has the same list for the host, with the elements of each message."""

# Commands of the host.
LOAD, COMPLETE, INITIALIZE, EXECUTE, FINALIZE = range(1, 6)
# Posted by the worker.
RESPOND, LOG, CALL, CANCEL, READINESS, CONSUMED = range(11, 17)
# Posted by the host.
REPLY, STREAM, IS_READY = range(20, 23)
# Operations of a CALL.
(INFER, IS_CANCELLED, TRACE_CONTEXT, LOAD_MODEL, UNLOAD_MODEL, IS_MODEL_READY, NEW_METRIC_FAMILY, NEW_METRIC, INCREMENT_METRIC,
 SET_METRIC, OBSERVE_METRIC, METRIC_VALUE, DELETE_METRIC, DELETE_METRIC_FAMILY, AWAIT_ROOM) = range(1, 16)
