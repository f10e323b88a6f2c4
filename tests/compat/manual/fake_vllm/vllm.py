"""A fake of the vLLM package for Triton's vLLM backend. Its engine answers a prompt with the prompt's words in reverse order, one word per step.
Every vLLM submodule is this module."""
import asyncio
import dataclasses
import enum
import sys
import types
import typing
import uuid

__path__ = []  # marks this module as a package for imports of submodules
for _name in ("config", "engine", "engine.arg_utils", "engine.protocol", "inputs", "inputs.data", "lora", "lora.request", "outputs",
              "pooling_params", "sampling_params", "usage", "usage.usage_lib", "utils", "v1", "v1.engine", "v1.engine.async_llm",
              "v1.metrics", "v1.metrics.loggers", "v1.metrics.stats"):
    sys.modules[f"vllm.{_name}"] = sys.modules[__name__]

IterationStats = MultiModalCacheStats = SchedulerStats = types.SimpleNamespace
EmbeddingOutput = RequestOutput = VllmConfig = types.SimpleNamespace
StatLoggerFactory = typing.Callable


class PoolingRequestOutput(typing.Generic[typing.TypeVar("T")]):
    pass


class EmbeddingRequestOutput:
    @staticmethod
    def from_base(output):
        return output


class EngineClient:
    pass


class UsageContext(enum.Enum):
    OPENAI_API_SERVER = 1


@dataclasses.dataclass
class TokensPrompt:
    prompt_token_ids: list


@dataclasses.dataclass
class LoRARequest:
    name: str
    number: int
    path: str


@dataclasses.dataclass
class PoolingParams:
    task: str
    dimensions: int = 2


@dataclasses.dataclass
class StructuredOutputsParams:
    choice: list = None


class SamplingParams:
    n: int
    temperature: float
    max_tokens: typing.Optional[int]
    structured_outputs: StructuredOutputsParams

    def __init__(self, n=1, temperature=1.0, max_tokens=None, structured_outputs=None, lora_name=None):
        assert isinstance(n, int) and isinstance(temperature, float), "sampling parameters keep their types"
        self.n, self.max_tokens, self.lora_name = n, max_tokens, lora_name


def random_uuid():
    return uuid.uuid4().hex


def build_1_2_5_buckets(most):
    return [float(each) for each in (1, 2, 5, 10, 20, 50, 100) if each <= most]


class StatLoggerBase:
    def __init__(self, vllm_config, engine_index):
        pass


@dataclasses.dataclass
class AsyncEngineArgs:
    model: str
    disable_log_stats: bool = False
    enable_log_requests: bool = False
    aggregate_engine_logging: bool = False
    enable_lora: bool = False
    max_model_len: int = 64
    fails: bool = False  # whether the engine fails to start
    sick: bool = False   # whether the engine is unhealthy from the start

    def create_engine_config(self, usage_context):
        if self.fails:
            raise RuntimeError("no such checkpoint")
        return VllmConfig(model_config=self)


class AsyncLLM(EngineClient):
    @classmethod
    def from_vllm_config(cls, vllm_config, stat_loggers, **_):
        self = cls()
        self.args = vllm_config.model_config
        self.loggers = [each(vllm_config, 0) for each in stat_loggers or ()]
        self.aborted = []
        return self

    async def reset_mm_cache(self):
        pass

    async def get_supported_tasks(self):
        return ("generate", "embed")

    async def check_health(self):
        if self.args.sick:
            raise RuntimeError("the engine is sick")

    async def abort(self, request_id):
        self.aborted.append(request_id)

    def shutdown(self):
        pass

    async def generate(self, prompt, sampling_params, request_id, lora_request=None):
        text = prompt if isinstance(prompt, str) else prompt["prompt"] + f" {len(prompt['multi_modal_data']['image'])}"
        words = text.split()[::-1]
        if words and words[0] == "forever":
            words = ["on"] * 10**6
        if lora_request is not None:
            words = [lora_request.path, *words]
        words = words[:sampling_params.max_tokens]
        outputs = [types.SimpleNamespace(text="", token_ids=[], finish_reason=None, cumulative_logprob=0.0, logprobs=[])
                   for _ in range(sampling_params.n)]
        for step, word in enumerate(words):
            await asyncio.sleep(0)
            if request_id in self.aborted:
                return
            finished = step + 1 == len(words)
            for output in outputs:
                output.text += (" " if step else "") + word
                output.token_ids = output.token_ids + [step]
                output.cumulative_logprob -= 0.5
                output.logprobs = output.logprobs + [{step: types.SimpleNamespace(logprob=-0.5, rank=1, decoded_token=word)}]
                output.finish_reason = "stop" if finished else None
            for logger in self.loggers:
                logger.record(None, IterationStats(
                    finished_requests=[types.SimpleNamespace(e2e_latency=1.0, num_prompt_tokens=1, num_generation_tokens=1)] if finished else [],
                    num_prompt_tokens=0 if step else 1, num_generation_tokens=1, time_to_first_tokens_iter=[], inter_token_latencies_iter=[0.5],
                    n_params_iter=[]))
            # A copy, because the reader may process it later.
            yield types.SimpleNamespace(prompt=text, prompt_token_ids=text.split(), finished=finished,
                                        outputs=[types.SimpleNamespace(**vars(each)) for each in outputs])

    async def encode(self, prompt, pooling_params, request_id):
        yield types.SimpleNamespace(outputs=types.SimpleNamespace(embedding=[0.5] * pooling_params.dimensions),
                                    prompt_token_ids=[1], finished=True)
