"""What lets SGLang's sizing code run where there is no GPU: inert kernel packages and a GPU that exists on paper.

Used by `remake_oracle.py` only, inside the interpreter that has torch and transformers. Call `stand_in` before SGLang or
torch is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import stat
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

REAL = ("sglang", "torch", "transformers", "torchcodec")
CARDS = ("cuda", "npu", "xpu")


def _any_schema(*_: Any) -> Any:
    from pydantic_core import core_schema

    return core_schema.any_schema()


class Inert:
    """Stands for anything a kernel package offers: called, indexed, subclassed or used as a decorator."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A decorated function as it was, else something inert."""
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else Inert()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "override_quantization_method":  # asked of every quantisation, and an inert one claims no checkpoint
            return lambda *_, **__: None
        return "cuda" if name == "backend" else Inert()  # what triton's active driver calls its target

    def __getitem__(self, key: Any) -> Any:
        return Inert()

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __get_pydantic_core_schema__(self, *args: Any) -> Any:
        return _any_schema()

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        quiet = classmethod(lambda *_, **__: None)
        return (type("InertBase", (), {"__init_subclass__": quiet, "__get_pydantic_core_schema__": classmethod(_any_schema)}),)


class InertModule(types.ModuleType):
    """A module whose every name is inert."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "99.0.0"
        if self.__name__.endswith("transformers_utils.configs"):  # these are registered, as classes
            return type(name, (), {"model_type": name})
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert()


class InertPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds, last of all finders, whatever SGLang's own files import and nothing else provides."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        """A spec for what an inert package or SGLang asks for, None for all else."""
        if name.split(".")[0] in REAL or not (_asked_by_sglang() or name.rpartition(".")[0] in self.names):
            return None
        self.names.add(name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """An inert module."""
        return InertModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def _asked_by_sglang() -> bool:
    frame = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and "/sglang/" in frame.f_code.co_filename


def stand_in(memory_mib: int, capability: tuple[int, int], name: str, vendor: str = "nvidia") -> None:
    """Makes imports and questions about the GPU answerable. `name` is what torch would call the card.

    `vendor` is nvidia, amd, ascend or intel; each makes SGLang's ``is_cuda``, ``is_hip``, ``is_npu`` or ``is_xpu`` true.
    """
    _fake_tools(memory_mib)
    import torch
    import torch._dynamo  # these look for triton and torchvision themselves, and may not find inert ones
    import torch._inductor.compile_fx
    import torch._inductor.runtime.triton_heuristics
    import torch.utils.flop_counter
    from transformers import AutoProcessor, PreTrainedModel  # noqa: F401
    from transformers.utils import import_utils

    dummy: Any = import_utils.DummyObject  # what transformers offers in place of classes whose packages are missing
    dummy.__getattribute__ = lambda cls, key: type.__getattribute__(cls, key) if key.startswith("_") else Inert()
    sys.meta_path.append(InertPackages())

    cuda: Any = torch.cuda
    free = memory_mib << 20
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 64
    cuda.current_device = lambda: 0
    for quiet in ("set_device", "empty_cache", "synchronize"):
        setattr(cuda, quiet, (lambda: lambda *_: None)())
    cuda.get_device_capability = lambda *_: capability
    cuda.get_device_name = lambda *_: name
    cuda.mem_get_info = lambda *_: (free, free)
    cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        name=name,
        total_memory=free,
        major=capability[0],
        minor=capability[1],
        multi_processor_count=132,
        is_integrated=False,
        gcnArchName=f"gfx{capability[0]}{capability[1]}2",
    )
    _of(vendor, torch, free)
    cpu: Any = torch._C._cpu
    cpu._is_amx_tile_supported = lambda: False  # some releases ask for it by its older name
    for factory in ("ones", "zeros", "empty", "full", "tensor", "arange"):
        setattr(torch, factory, _on_cpu(getattr(torch, factory)))
    for owner, method in ((torch.library.Library, "impl"), (torch.library, "register_fake")):
        setattr(owner, method, _without_kernels(getattr(owner, method)))


def _of(vendor: str, torch: Any, free: int) -> None:
    """What tells a vendor's cards from others: the build of torch, or a module of torch's for them."""
    torch.version.cuda = "13.0" if vendor == "nvidia" else None
    torch.version.hip = "7.0" if vendor == "amd" else None
    if vendor in ("ascend", "intel"):
        torch.cuda.is_available = lambda: False
        own = InertModule(f"torch.{'npu' if vendor == 'ascend' else 'xpu'}")
        answers = {
            "is_available": True, "device_count": 64, "current_device": 0, "mem_get_info": (free, free), "empty_cache": None,
            "get_device_capability": {"has_subgroup_matrix_multiply_accumulate": True},
        }  # fmt: skip
        for question, given in answers.items():
            setattr(own, question, lambda *_, given=given: given)
        setattr(torch, "npu" if vendor == "ascend" else "xpu", own)
        sys.modules[own.__name__] = own


def _on_cpu(make: Callable[..., Any]) -> Callable[..., Any]:
    """`make`, on the CPU where a GPU was asked for."""

    def made(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        return make(*args, device="cpu" if str(device).split(":")[0] in CARDS else device, **kwargs)

    return made


def _without_kernels(register: Callable[..., Any]) -> Callable[..., Any]:
    """`register`, quiet where the operator belongs to a kernel package that is inert."""

    def quiet(*args: Any, **kwargs: Any) -> Any:
        try:
            return register(*args, **kwargs)
        except RuntimeError:
            return lambda function: function

    return quiet


def _fake_tools(memory_mib: int) -> None:
    folder = Path(tempfile.mkdtemp())
    pools = "".join(f"echo ' gfx942'; echo '  Pool 1'; echo '    Size: {memory_mib << 10}(0x0) KB'\n" for _ in range(8))
    for name, text in (("nvidia-smi", f"echo {memory_mib}\n" * 8), ("rocminfo", pools)):
        tool = folder / name
        tool.write_text("#!/bin/sh\n" + text)
        tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
