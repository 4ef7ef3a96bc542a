"""GPUs are found by the names people and tools give them, and a near miss is not found."""

from __future__ import annotations

import pytest

from kvdiag import rulebook
from kvdiag.models.gpus import GpuError, find_gpu, gpu, gpus


@pytest.mark.parametrize(
    ("name", "mib", "capability"),
    [
        ("H100", 81_559, (9, 0)),
        ("NVIDIA H100 80GB HBM3", 81_559, (9, 0)),
        ("h100-pcie", 81_559, (9, 0)),
        ("NVIDIA H100 NVL", 95_830, (9, 0)),
        ("H200", 143_771, (9, 0)),
        ("NVIDIA H20", 97_871, (9, 0)),
        ("NVIDIA A100-SXM4-80GB", 81_920, (8, 0)),
        ("NVIDIA A100-SXM4-40GB", 40_960, (8, 0)),
        ("A100", 81_920, (8, 0)),
        ("NVIDIA A10G", 23_028, (8, 6)),
        ("L40S", 46_068, (8, 9)),
        ("Tesla T4", 15_360, (7, 5)),
        ("RTX4090", 24_564, (8, 9)),
        ("NVIDIA GeForce RTX 4090 D", 24_564, (8, 9)),
        ("5090", 32_607, (12, 0)),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887, (12, 0)),
        ("RTX_PRO_6000", 97_887, (12, 0)),
        ("NVIDIA B200", 183_359, (10, 0)),
        ("AMD Instinct MI300X", 196_592, (9, 4)),
        ("MI355X", 294_896, (9, 5)),
    ],
)
def test_a_name_as_a_tool_or_a_person_writes_it_finds_the_memory_the_driver_reports(name, mib, capability):
    found = gpu(name)
    assert (found.memory_mib, found.compute_capability) == (mib, capability)


@pytest.mark.parametrize("name", ["H100 MIG 3g.40gb", "H1000", "A100 20GB", "RTX 6000", "MI3", "", "4090 Ti", "B2000", "RTX PRO"])
def test_a_near_miss_is_not_found(name):
    assert find_gpu(name) is None
    with pytest.raises(GpuError, match="H100"):
        gpu(name)


def test_no_two_gpus_answer_to_one_name_and_each_says_where_its_figure_is_from():
    for document in rulebook.load("gpus"):
        for listed in document["gpu"]:
            assert {gpu(name).name for name in listed["names"]} == {listed["names"][0]}
    for entry in gpus():
        assert find_gpu(entry.name) == entry
        assert entry.source
        assert entry.vendor in ("nvidia", "amd", "habana", "ascend")
    assert find_gpu("GB10").memory_mib is None
