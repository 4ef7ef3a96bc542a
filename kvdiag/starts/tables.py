"""What each family of lines states: the names of its numbers, and the kind of event it reports."""

from __future__ import annotations

NUMBERS: dict[str, dict[str, str]] = {
    "dist-init-end": {"mem usage": "distributed_init_memory"},
    "weight-load-begin": {"avail mem": "pre_model_load_memory", "Avail mem": "pre_model_load_memory"},
    "weight-load-end": {
        "avail mem": "available_gpu_memory",
        "Avail mem": "available_gpu_memory",
        "mem usage": "weight_memory",
    },
    "memory-pool-end": {"avail mem": "memory_after_pool", "Avail mem": "memory_after_pool"},
    "graph-begin": {"avail mem": "memory_before_graphs"},
    "graph-end": {"mem usage": "graph_memory", "avail mem": "memory_after_graphs"},
    "swa-split": {
        "full_layer_tokens": "full_max_total_num_tokens",
        "swa_layer_tokens": "swa_max_total_num_tokens",
    },
    "swa-pool-usage": {"full size": "full_max_total_num_tokens", "swa size": "swa_max_total_num_tokens"},
    "kv-post-capture": {
        "max_total_num_tokens": "max_total_num_tokens",
        "full_layer_tokens": "full_max_total_num_tokens",
        "swa_layer_tokens": "swa_max_total_num_tokens",
        "free memory": "memory_after_pool",
        "avail mem": "memory_after_pool",
    },
    "dsv4-pool": {
        "bytes_per_full_token": "bytes_per_full_token",
        "available_bytes": "available_bytes",
        "c128_state_fixed": "c128_state_fixed",
        "c2_state_fixed": "c2_state_fixed",
        "c4_state_fixed": "c4_state_fixed",
        "swa_fixed": "swa_fixed",
        "swa_ring_fixed": "swa_ring_fixed",
        "full_token": "full_max_total_num_tokens",
        "full": "full_max_total_num_tokens",
        "swa": "swa_max_total_num_tokens",
        "swa_size": "swa_max_total_num_tokens",
        "max_num_reqs": "max_num_reqs",
    },
    "unified-pool": {
        "full_max_total_num_tokens": "full_max_total_num_tokens",
        "swa_max_total_num_tokens": "swa_max_total_num_tokens",
        "full_max": "full_max_total_num_tokens",
        "swa_max": "swa_max_total_num_tokens",
        "full_capacity": "full_max_total_num_tokens",
        "swa_capacity": "swa_max_total_num_tokens",
        "max_mamba_cache_size": "max_mamba_cache_size",
    },
    "mamba-pool": {
        "max_mamba_cache_size": "max_mamba_cache_size",
        "conv_state size": "conv_state_bytes",
        "ssm_state size": "ssm_state_bytes",
        "intermediate_ssm_state_cache size": "intermediate_ssm_state_bytes",
        "intermediate_conv_window_cache size": "intermediate_conv_window_bytes",
    },
    "capacity": {
        "max_total_num_tokens": "max_total_num_tokens",
        "max_total_num_token": "max_total_num_tokens",
        "chunked_prefill_size": "chunked_prefill_size",
        "max_prefill_tokens": "max_prefill_tokens",
        "max_running_requests": "max_running_requests",
        "context_len": "context_len",
        "available_gpu_mem": "memory_after_start",
        "available_cpu_mem": "memory_after_start",
    },
    "mlx": {
        "sys_available": "mlx_sys_available",
        "mlx_limit": "mlx_limit",
        "mlx_used": "mlx_used",
        "kv_budget": "rest_memory",
        "bytes_per_slot": "bytes_per_token",
        "pool_size": "max_total_num_tokens",
    },
    "max-tokens-clamped": {"profiled value": "profiled_max_total_num_tokens"},
    "not-enough-memory": {"mem_fraction_static": "mem_fraction_static"},
    "input-too-long": {"max_req_input_len": "max_req_input_len"},
}
"""Line family and field to the name of the number it states."""

UNITS = {
    "max_running_requests": "requests",
    "max_num_reqs": "requests",
    "max_mamba_cache_size": "slots",
    "max_total_num_tokens": "tokens",
    "full_max_total_num_tokens": "tokens",
    "swa_max_total_num_tokens": "tokens",
    "profiled_max_total_num_tokens": "tokens",
    "max_req_input_len": "tokens",
    "pool_tokens": "tokens",
    "context_len": "tokens",
    "page_size": "tokens",
    "chunked_prefill_size": "tokens",
    "max_prefill_tokens": "tokens",
    "bytes_per_token": "bytes",
    "bytes_per_full_token": "bytes",
    "mem_fraction_static": "fraction",
}
"""Units of the numbers the log prints bare."""

RESTATED = {"swa-split", "dsv4-pool", "kv-post-capture", "unified-pool", "swa-pool-usage"}
"""Families that a rank prints again when a cap or the capture of graphs changes the size: the last line is the real one."""

STATE_PARTS = ("conv_state_bytes", "ssm_state_bytes", "intermediate_ssm_state_bytes", "intermediate_conv_window_bytes")

EVENTS = {
    "server-ready": "ready",
    "retract": "retraction",
    "not-enough-memory": "no_memory_for_pool",
    "mamba-too-small": "no_memory_for_pool",
    "memory-unbalanced": "memory_unbalanced",
    "graph-failed": "graph_capture_failed",
    "crash": "crash",
    "oom-tokens": "token_allocation_failed",
    "oom-req-slots": "request_slots_exhausted",
    "leak": "pool_leak",
    "input-too-long": "input_too_long",
    "pd-too-long": "input_too_long",
    "max-tokens-clamped": "max_total_tokens_clamped",
    "max-running-reduced": "max_running_requests_reduced",
    "hicache-host-oom": "no_host_memory",
    "watchdog": "watchdog",
    "load-barrier": "load_barrier",
    "queue-full": "queue_full",
    "retract-abort": "retraction_failed",
    "hicache-small": "host_pool_small",
    "hicache-host-alloc": "host_pool",
    "kv-dtype": "kv_dtype",
    "graph-disabled": "graph_disabled",
    "auto-mem-fraction": "fraction_changed",
    "swa-split": "swa_split",
    "swa-pool-usage": "swa_pool",
    "dsv4-pool": "dsv4_pool",
    "pool-budget": "pool_budget",
    "health": "health",
    "flush": "flush",
    "spec": "speculation",
    "pd-queues": "transfer_queue",
}
"""Line family to the kind of event it reports."""

ONCE_A_REPLICA = {
    "retraction",
    "retraction_failed",
    "token_allocation_failed",
    "request_slots_exhausted",
    "pool_leak",
    "input_too_long",
    "queue_full",
    "watchdog",
    "health",
    "flush",
}
"""Events of a running scheduler: each data-parallel replica has its own. Those of the start-up are one for all."""

BEFORE_THE_DUMP = {"fraction_changed", "graph_disabled", "speculation", "max_running_requests_reduced", "kv_dtype"}
"""Events of the handling of arguments, which some releases print before they print the arguments."""

ONCE_A_RANK = {"host_pool"}
"""Events in which every rank has a part of its own: each takes memory of the host."""

ARGUMENT_NUMBERS = ("mem_fraction_static", "page_size")
"""Fields of server_args that are numbers of the contract."""
