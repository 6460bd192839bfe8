"""Work on a device in parts for which it has room."""

import pytest
import torch

from autonovel.machine.transfer import in_parts


@pytest.mark.parametrize("at_once", [1, 4, 10, 100])
@pytest.mark.parametrize("room", [1, 2, 5, 200])
def test_all_rows_are_done_once_and_in_their_order(room: int, at_once: int) -> None:
    tried = []

    def doubled(rows: torch.Tensor) -> torch.Tensor:
        tried.append(len(rows))
        if len(rows) > room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return 2 * rows

    found = list(in_parts(doubled, torch.arange(23), at_once))
    assert torch.equal(torch.cat(found), 2 * torch.arange(23))
    assert sum(n > room for n in tried) <= 7  # it does not try again what failed


def test_who_has_no_room_for_one_is_out_of_memory() -> None:
    def refused(rows: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(torch.OutOfMemoryError):
        list(in_parts(refused, torch.arange(5), 4))
