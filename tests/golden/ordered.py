"""Recordings that depend on earlier ones, in the order in which they were made. Steps without a recording are requests of the test: (method, path,
body).
"""

SHARED_MEMORY = [
    "h_shm_status_empty", ("POST", "/v2/systemsharedmemory/region/rin/register", '{"key": "/golden_in", "offset": 0, "byte_size": 128}'),
    "h_shm_status_one", "h_shm_register_out", "h_shm_status", "h_infer_shm_in", "h_infer_shm_in_out", "h_err_shm_out_of_range",
    "h_err_shm_out_small", "h_err_shm_size_mismatch", "h_err_shm_unknown_region", "h_err_shm_status_unknown", "h_err_shm_register_missing",
    "h_err_shm_register_neg", "h_err_shm_register_offset", "h_err_shm_register_slash", "h_err_shm_register_toobig",
    ("POST", "/v2/systemsharedmemory/unregister", ""), "h_shm_status_after", "h_err_cshm_register", "h_err_cshm_status_unknown",
    "h_cshm_unregister_all",
    "g_shm_register", "g_shm_register_out", "g_infer_shm", "g_err_shm_nokey", "g_err_shm_region", "g_err_shm_toobig", "g_shm_unregister",
    "g_shm_unregister_all", "g_cshm_status",
]

TRACE = [
    "h_trace_post", "h_trace_model_get", "h_trace_model_post", "h_trace_model_clear", "h_err_trace_file", "h_err_trace_level_bad",
    "h_err_trace_rate_bad", "h_err_trace_unknown_model", "h_trace_post_int", "h_trace_reset",
    "g_trace_clear", "g_err_trace_rate", "g_err_trace_unknown_model",
]

STEPS = SHARED_MEMORY + TRACE

# A sequence that must not time out between two steps. The last answer is the sum of 5, 7 and 1.
SEQUENCE = [
    "h_seq_1_start",
    ("POST", "/v2/models/seq/infer", '{"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [7]}], "parameters": {"sequence_id": 42}}'),
    "h_seq_3_end", "h_err_seq_after_end",
]


def alone(names):
    """The recordings that do not depend on others."""
    return [name for name in names if name not in STEPS + SEQUENCE]
