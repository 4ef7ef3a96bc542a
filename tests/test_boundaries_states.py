"""The right state pools on either side of each change of SGLang's sizing: neighbouring releases."""

import pytest

from tests.boundaries import NEXT, REST, TREE, Change, G, check, label

STATE = (3 * (32 * 128 + 2 * 16 * 128) * 2 + 32 * 128 * 128 * 4) * 36
NEXT_CELL = 2 * 256 * 2 * 2 * 12


def state_and_tokens(release_slots, each, charged, cell, rest=REST):
    return int(int((rest - (release_slots + charged) * each / G) * G) // cell)


K16 = int((REST * 0.9 / 1.9 * G) // STATE)
K17 = int((REST * 0.9 / 1.9 * G - STATE) // STATE)

CHANGES = [
    Change("states by ratio", "0.5.3.post1", "0.5.3.post2", NEXT, "max_mamba_cache_size", 100, K16,
           {"max_running_requests": 100}),
    Change("a padding slot of states", "0.5.16", "0.5.17", NEXT, "max_mamba_cache_size", K16, K17),
    Change("a padding slot of states, in tokens", "0.5.16", "0.5.17", NEXT, "max_total_num_tokens",
           state_and_tokens(K16, STATE, 0, NEXT_CELL), state_and_tokens(K17, STATE, 1, NEXT_CELL)),
    Change("extra buffers by default", "0.5.13.post1", "0.5.14", NEXT, "max_running_requests", K16 // 3, K16 // 5),
    Change("two slots more without need", "0.5.6.post2", "0.5.7", NEXT, "max_running_requests", K16 // 3, K16 // 5),
    Change("and gone again", "0.5.7", "0.5.8", NEXT, "max_running_requests", K16 // 5, K16 // 3),
    Change("a prefill server keeps no drafts' states", "0.5.21", "0.5.22", NEXT, "max_mamba_cache_size",
           int((REST * 0.9 / 1.9 * G - STATE * 5) // (STATE * (1 + 4 / 5))), K17, {**TREE, "disaggregation_mode": "prefill"}),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_states_change_where_sglang_changed_them(change):
    check(change)
