"""The GPU a default depends on, and the platform it makes of a server."""

from __future__ import annotations

from kvdiag.frozen import frozen, replace
from kvdiag.sizing.arguments import ServerArguments

_VENDORS = {"npu": "ascend", "xpu": "intel", "hpu": "habana", "cpu": "cpu"}


@frozen
class Device:
    """Memory in MiB as the vendor's tool prints it, compute capability and vendor; None where not known."""

    memory_mib: int | None = None
    compute_capability: tuple[int, int] | None = None
    vendor: str = "nvidia"

    @property
    def is_cuda(self) -> bool:
        """``is_cuda``; also where nothing is known of the card."""
        return self.vendor == "nvidia"

    @property
    def generation(self) -> int | None:
        """The major compute capability of an NVIDIA card: 9 is Hopper, 10 B200's and B300's Blackwell, 12 the RTX cards'."""
        return self.compute_capability[0] if self.is_cuda and self.compute_capability is not None else None

    @property
    def is_blackwell(self) -> bool:
        """``is_sm100_supported``: B200, GB200, B300."""
        return self.generation == 10

    @property
    def is_hopper(self) -> bool:
        """``is_hopper_with_cuda_12_3``: H100, H200, H20; also where the card is not known, the commonest one."""
        return self.is_cuda and self.generation in (None, 9)

    @property
    def is_amd(self) -> bool:
        """``is_hip``."""
        return self.vendor == "amd"

    @property
    def is_npu(self) -> bool:
        """``is_npu``: Ascend."""
        return self.vendor == "ascend"

    @property
    def is_xpu(self) -> bool:
        """``is_xpu``: Intel."""
        return self.vendor == "intel"


UNKNOWN_DEVICE = Device()


def placed(arguments: ServerArguments, device: Device) -> tuple[ServerArguments, Device]:
    """``--device`` and the card brought together: each tells the platform where the other leaves its default."""
    vendor = _VENDORS.get(arguments.device)
    if vendor is not None:
        return arguments, device if device.vendor == vendor else Device(device.memory_mib, None, vendor)
    for name, maker in _VENDORS.items():
        if maker == device.vendor:
            return replace(arguments, device=name), device
    return arguments, device
