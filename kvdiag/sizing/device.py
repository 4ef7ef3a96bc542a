"""The GPU a default depends on."""

from __future__ import annotations

from kvdiag.frozen import frozen


@frozen
class Device:
    """Memory in MiB as the vendor's tool prints it, compute capability and vendor; None where not known."""

    memory_mib: int | None = None
    compute_capability: tuple[int, int] | None = None
    vendor: str = "nvidia"

    @property
    def is_blackwell(self) -> bool:
        """``is_sm100_supported``: B200, GB200, B300."""
        return self.vendor == "nvidia" and self.compute_capability is not None and self.compute_capability[0] == 10

    @property
    def is_hopper(self) -> bool:
        """``is_hopper_with_cuda_12_3``: H100, H200, H20; also where the card is not known, the commonest one."""
        return self.vendor == "nvidia" and (self.compute_capability is None or self.compute_capability[0] == 9)

    @property
    def is_amd(self) -> bool:
        """``is_hip``."""
        return self.vendor == "amd"


UNKNOWN_DEVICE = Device()
