"""A small stand-in for the sizing code of one release: its names, none of its text."""

import logging

from sglang.srt.mem_cache.pools import TokenPool
from sglang.srt.utils.common import element_size, get_available_gpu_memory

logger = logging.getLogger(__name__)


class ModelRunnerKVCacheMixin:
    def get_cell_size_per_token(self, num_layers):
        kv_size = element_size(self.kv_cache_dtype)
        if self.use_mla_backend:
            cell_size = (self.model_config.kv_lora_rank + self.model_config.qk_rope_head_dim) * num_layers * kv_size
        else:
            cell_size = (
                self.model_config.get_num_kv_heads(self.tp_size)
                * (self.model_config.head_dim + self.model_config.v_head_dim)  # keys and values
                * num_layers
                * kv_size
            )
        return cell_size

    def profile_max_num_token(self, total_gpu_memory):
        available_gpu_memory = get_available_gpu_memory(self.device, self.gpu_id)
        num_layers = self.num_effective_layers
        cell_size = self.get_cell_size_per_token(num_layers)
        rest_memory = available_gpu_memory - total_gpu_memory * (1 - self.mem_fraction_static)
        if self.mambaish_config is not None:
            rest_memory = self.handle_max_mamba_cache(rest_memory)
        return int(rest_memory * (1 << 30)) // cell_size

    def handle_max_mamba_cache(self, total_rest_memory):
        return total_rest_memory - self.state_bytes / (1 << 30)

    def init_memory_pool(self, total_gpu_memory):
        self.max_total_num_tokens = self.profile_max_num_token(total_gpu_memory)
        if self.server_args.max_total_tokens is not None:
            self.max_total_num_tokens = min(self.max_total_num_tokens, self.server_args.max_total_tokens)
        self.max_total_num_tokens = self.max_total_num_tokens // self.page_size * self.page_size
        if self.max_total_num_tokens <= 0:
            raise RuntimeError(f"No room for a pool: {self.server_args.mem_fraction_static=}")
        self.token_to_kv_pool = TokenPool(self.max_total_num_tokens, self.page_size)
