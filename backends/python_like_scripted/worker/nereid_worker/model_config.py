"""A model's configuration as auto_complete_config changes it."""

_SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")
_TENSOR_KEYS = {"name", "data_type", "dims", "optional", "allow_ragged_batch", "is_shape_tensor", "is_non_linear_format_io", "format",
                "reshape", "label_filename"}


class ModelConfig:
    def __init__(self, model_config):
        self._model_config = model_config

    def as_dict(self):
        return self._model_config

    def _where(self):
        return f"model '{self._model_config.get('name', '')}'"

    def set_max_batch_size(self, max_batch_size):
        configured = self._model_config.get("max_batch_size", 0)
        if configured == 0:
            self._model_config["max_batch_size"] = max_batch_size
        elif configured > max_batch_size:
            raise ValueError(f"configuration specified max_batch_size {configured}, but in auto_complete_config function for "
                             f"{self._where()} specified max_batch_size {max_batch_size}")

    def set_dynamic_batching(self):
        found = [each for each in _SCHEDULERS if self._model_config.get(each) is not None]
        if not found:
            self._model_config["dynamic_batching"] = {}
        elif "dynamic_batching" not in found:
            raise ValueError(f"Configuration specified scheduling_choice as '{found[0]}', but auto_complete_config function for "
                             f"{self._where()} tries to set scheduling_choice as 'dynamic_batching'")

    def set_model_transaction_policy(self, transaction_policy_dict):
        if set(transaction_policy_dict) != {"decoupled"}:
            raise ValueError(f"{self._where()}: expected a transaction policy {{'decoupled': bool}}, got {transaction_policy_dict}")
        self._model_config["model_transaction_policy"] = dict(transaction_policy_dict)

    def add_input(self, input):  # noqa: A002 as models name it
        self._add("input", input)

    def add_output(self, output):
        self._add("output", output)

    def _add(self, kind, tensor):
        for key in ("name", "data_type", "dims"):
            if key not in tensor:
                raise ValueError(f"{kind} of auto_complete_config function for {self._where()} is missing '{key}' property.")
        unknown = set(tensor) - _TENSOR_KEYS
        if unknown:
            raise ValueError(f"{kind} '{tensor['name']}' in auto_complete_config function for {self._where()} contains property other "
                             f"than {sorted(_TENSOR_KEYS)}: {sorted(unknown)}")
        tensors = self._model_config.setdefault(kind, [])
        for configured in tensors:
            if configured.get("name") != tensor["name"]:
                continue
            for key in ("data_type", "dims"):
                if configured.get(key) in (None, [], "TYPE_INVALID"):
                    configured[key] = tensor[key]
                elif configured[key] != tensor[key]:
                    raise ValueError(f"{self._where()}, tensor '{tensor['name']}': the model expects {key} {tensor[key]} but the model "
                                     f"configuration specifies {key} {configured[key]}")
            return
        tensors.append({**tensor, "dims": list(tensor["dims"])})
