"""Words are put together from the bytes of others, whether by one instruction or by shifts."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(content=st.binary(min_size=16, max_size=16))
def test_words_are_the_bytes_of_others(content: bytes, device: str) -> None:
    from tests.triton.permuting import DIGITS, put_together

    narrow = torch.frombuffer(bytearray(content), dtype=torch.uint32).to(device)
    wide = torch.frombuffer(bytearray(content), dtype=torch.uint64).to(device)
    made, turned = (torch.zeros(6, dtype=torch.uint32, device=device) for _ in range(2))
    joint = torch.zeros(8, dtype=torch.uint64, device=device)
    put_together[1,](narrow, wide, made, joint, turned)
    found = made.cpu().numpy().view(np.uint8).reshape(6, 4)
    for start in range(4):
        assert bytes(found[start]) == content[start : start + 4]
    assert bytes(found[4]) == bytes(content[DIGITS >> 4 * k & 7] for k in range(4))
    longer = joint.cpu().numpy().view(np.uint8).reshape(8, 8)
    for start in range(8):
        assert bytes(longer[start]) == content[start : start + 8]
    matrix = np.frombuffer(content, np.uint8).reshape(4, 4)
    halves = np.frombuffer(content[:8], np.uint16).reshape(2, 2)
    columns = turned.cpu().numpy()
    assert np.array_equal(columns[:4].view(np.uint8).reshape(4, 4), matrix.T)
    assert np.array_equal(columns[4:].view(np.uint16).reshape(2, 2), halves.T)
