import logging

from sglang.srt.model_executor.model_runner_kv_cache_mixin import ModelRunnerKVCacheMixin
from sglang.srt.utils.common import get_available_gpu_memory

logger = logging.getLogger(__name__)


class ModelRunner(ModelRunnerKVCacheMixin):
    def __init__(self, server_args):
        self.mem_fraction_static = server_args.mem_fraction_static
        min_per_gpu_memory = self.init_torch_distributed()
        self.load_model()
        self.init_memory_pool(min_per_gpu_memory)

    def init_torch_distributed(self):
        min_per_gpu_memory = get_available_gpu_memory(self.device, self.gpu_id)
        return min_per_gpu_memory

    def load_model(self):
        before = get_available_gpu_memory(self.device, self.gpu_id)
        self.weights = self.loader.load()
        after = get_available_gpu_memory(self.device, self.gpu_id)
        self.weight_load_mem_usage = before - after
        logger.info(
            "Weights loaded. type=%s, avail mem=%.2f GB, mem usage=%.2f GB.",
            type(self.weights).__name__,
            after,
            self.weight_load_mem_usage,
        )
