"""ModelConfig, which auto_complete_config changes. Values that contradict the configuration file are refused with Triton's texts."""
import json

_INPUT_KEYS, _OUTPUT_KEYS = ("name", "data_type", "dims", "optional"), ("name", "data_type", "dims")


class ModelConfig:
    def __init__(self, model_config):
        self._model_config = json.loads(model_config)

    def as_dict(self):
        return self._model_config

    def _where(self):
        return f"in auto-complete-config function for model '{self._model_config['name']}'"

    def set_max_batch_size(self, max_batch_size):
        configured = self._model_config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(f"configuration specified max_batch_size {configured}, but {self._where()} "
                             f"specified max_batch_size {max_batch_size}")
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(f"Configuration specified scheduling_choice as '{scheduler}', but auto-complete-config function for model "
                                 f"'{self._model_config['name']}' tries to set scheduling_choice as 'dynamic_batching'")
        self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict):
        for key in transaction_policy_dict:
            if key != "decoupled":
                raise ValueError(f"model transaction property {self._where()} contains property other than 'decoupled'.")
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        requested = transaction_policy_dict["decoupled"]
        if policy.get("decoupled", requested) != requested:
            raise ValueError(f"trying to change decoupled property in auto-complete-config for model '{self._model_config['name']}', "
                             f"which is already set to '{policy['decoupled']}'.")
        policy["decoupled"] = requested

    def add_input(self, input):  # noqa: A002 the name in Triton's API
        self._add("input", input, _INPUT_KEYS)

    def add_output(self, output):
        self._add("output", output, _OUTPUT_KEYS)

    def _add(self, kind, tensor, keys):
        for key in tensor:
            if key not in keys:
                allowed = "'" + "', '".join(keys[:-1]) + f"' and '{keys[-1]}'"
                raise ValueError(f"{kind} '{tensor['name']}' {self._where()} contains property other than {allowed}.")
        for key in _OUTPUT_KEYS:
            if key not in tensor:
                named = kind if key == "name" else f"{kind} '{tensor['name']}'"
                raise ValueError(f"{named} {self._where()} is missing '{key}' property.")
        tensors = self._model_config.setdefault(kind, [])
        for configured in tensors:
            if configured["name"] == tensor["name"]:
                self._merge(kind, configured, tensor)
                return
        tensors.append(tensor)

    def _merge(self, kind, configured, tensor):
        model, name = self._model_config["name"], tensor["name"]
        data_type = configured.get("data_type", "TYPE_INVALID")
        if data_type not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(f"unable to load model '{model}', configuration expects datatype {data_type} for {kind} '{name}', "
                             f"model provides {tensor['data_type']}")
        for key in ("dims", "optional"):
            of_file = configured.get(key)
            has_own = bool(of_file) if key == "dims" else key in configured
            if has_own and key in tensor and of_file != tensor[key]:
                raise ValueError(f"model '{model}', tensor '{name}': the model expects {key} {tensor[key]} but the model configuration "
                                 f"specifies {key} {of_file}")
        configured.update(tensor)
