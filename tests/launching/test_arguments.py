"""Arguments of a prepared kernel from the addresses of its tensors."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import H200, toy
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.spec import Launch
from tuner.launching.arguments import TRITON, arranged, make_room
from tuner.launching.launcher import KNOWN_RELEASES, prepare_launch

X, OUT = torch.empty(1000), torch.empty(1000)


def test_the_launchers_of_the_pinned_release_and_of_this_one_are_known() -> None:
    """A launch of an unknown release goes through Triton, which costs the host more."""
    constraints = (Path(__file__).parents[2] / "constraints.txt").read_text()
    (pinned,) = re.findall(r"^triton==(\d+)\.(\d+)", constraints, re.MULTILINE)
    first, last = KNOWN_RELEASES
    assert first <= tuple(map(int, pinned)) <= last
    assert first <= TRITON <= last


@pytest.fixture
def launch() -> Launch:
    kernel = catalog.resolve(toy("double"))
    config = kernel.signature.config({"BLOCK": 256, "num_warps": 4, "num_stages": 1})
    (launch,) = kernel.launch(kernel.signature.problem({"N": 1000}), config, {"x": X, "out": OUT})
    assert isinstance(launch, Launch)
    return launch


def test_addresses_take_the_tensors_places_and_options_are_no_arguments(launch: Launch) -> None:
    assert arranged(launch, [X, OUT])((16, 32)) == (16, 32, 1000, 256)


def test_tensors_are_found_in_the_order_of_their_names(launch: Launch) -> None:
    assert arranged(launch, [OUT, X])((16, 32)) == (32, 16, 1000, 256)


def test_a_view_from_the_first_element_on_is_its_tensor(launch: Launch) -> None:
    assert arranged(replace(launch, args=(X.view(10, 100), OUT, 1000)), [X, OUT])((16, 32)) == (16, 32, 1000, 256)


def test_in_place_both_places_get_the_one_address(launch: Launch) -> None:
    assert arranged(replace(launch, args=(X, X, 1000)), [X])((16,)) == (16, 16, 1000, 256)


@pytest.mark.parametrize("stranger", [torch.empty(7), X[1:]], ids=["another", "from a later element"])
def test_a_tensor_that_is_not_named_is_refused(launch: Launch, stranger: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=r"with its operands and its workspace.*name it in `workspace`"):
        arranged(replace(launch, args=(X, stranger, 1000)), [X, OUT])


def test_tensors_in_a_tuple_are_refused(launch: Launch) -> None:
    with pytest.raises(UsageError, match="one by one"):
        arranged(replace(launch, args=((X, OUT), OUT, 1000)), [X, OUT])


@pytest.mark.parametrize("layout", [(), (gl.NVMMASharedLayout(128, 32),)], ids=["triton", "gluon"])
def test_a_descriptor_follows_the_address_and_keeps_no_tensor(launch: Launch, layout: tuple[object, ...]) -> None:
    matrix = torch.empty(16, 64)
    kind = GluonDescriptor if layout else TensorDescriptor
    described = replace(launch, args=(kind(matrix, [16, 64], [64, 1], [16, 64], *layout), OUT, 1000))
    arguments = arranged(described, [matrix, OUT])
    first, second = arguments((4096, 32))[0], arguments((8192, 32))[0]
    assert (first.base.data_ptr(), second.base.data_ptr()) == (4096, 8192)
    assert (second.shape, second.strides, second.block_shape) == ([16, 64], [64, 1], [16, 64])
    assert isinstance(second, kind)
    assert first.base.dtype == torch.float32
    assert not isinstance(first.base, torch.Tensor)


def test_an_interpreted_kernel_cannot_be_prepared() -> None:
    kernel = catalog.resolve(toy("double"))
    config = kernel.signature.config({"BLOCK": 256, "num_warps": 4, "num_stages": 1})
    with pytest.raises(UsageError, match="TRITON_INTERPRET=1 compiles none; unset it"):
        prepare_launch(kernel, kernel.signature.problem({"N": 1000}), config, {"x": X, "out": OUT}, H200.limits)


def test_at_the_limit_the_oldest_is_dropped() -> None:
    kept = {"a": 1, "b": 2}
    make_room(kept, 3)
    assert kept == {"a": 1, "b": 2}
    make_room(kept, 2)
    assert kept == {"b": 2}
