/// \file
/// Commands to load and unload LoRA adapters of a running language model: an inference request
/// whose parameters are those below. Its tensors mean nothing. The backend answers it without
/// outputs, or with an error that says why the adapter was not loaded.
///
/// Clients cannot send such a request: frontends refuse parameters whose names begin with
/// `triton_`, and headers become parameters of type string only. A frontend sends it for a client
/// that may control the model.
#pragma once

/// BOOL, true: the request is a command.
#define NEREID_ADAPTER_COMMAND "triton_lora_command"
/// STRING: the adapter's name.
#define NEREID_ADAPTER_NAME "triton_lora_name"
/// STRING: the folder of its files in PEFT's format. Absent: the adapter is unloaded.
#define NEREID_ADAPTER_PATH "triton_lora_path"
/// BOOL, with a path: whether an adapter of the same name is replaced. Requests that run keep the
/// old one.
#define NEREID_ADAPTER_REPLACE "triton_lora_replace"
