"""Stand-ins for tensors that are at an address."""

from __future__ import annotations

from tuner.kernels.spec import Operand
from tuner.measure.stand_ins import StandIn


class At(StandIn):
    """A stand-in at an address."""

    def __init__(self, operand: Operand, address: int) -> None:
        super().__init__(operand)
        self._address = address

    def data_ptr(self) -> int:
        return self._address
