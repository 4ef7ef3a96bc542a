import dataclasses
from typing import Optional


@dataclasses.dataclass
class ServerArgs:
    mem_fraction_static: Optional[float] = None
    max_total_tokens: Optional[int] = None
    max_running_requests: Optional[int] = None
    chunked_prefill_size: int = 8192
    kv_cache_dtype: str = "auto"
    page_size: int = 1
