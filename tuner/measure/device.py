"""Identity of the cards of this machine, read from the driver without creating a CUDA context.

The driver's `cuDeviceGetAttribute` needs no context, so the process that searches stays free of CUDA. It starts
worker processes that own the card, and a config that corrupts a context ends only a worker.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from os import environ
from pathlib import Path
from subprocess import TimeoutExpired, run

from tuner.errors import NoDevice, UsageError
from tuner.records import Device, Environment

_ATTRIBUTES = {  # CUdevice_attribute, cuda.h
    "sm_count": 16,
    "l2_bytes": 38,
    "capability_major": 75,
    "capability_minor": 76,
    "shared_bytes": 97,
}


def count() -> int:
    """Return the number of GPUs that the driver shows; 0 without a driver."""
    driver = _driver()
    number = ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(number)) != 0:
        return 0
    return number.value


def choose(gpu: str) -> int | None:
    """Return the index of a GPU given as `auto` or by number, or None if `auto` finds none.

    Raises:
        UsageError: `gpu` is neither `auto` nor a number.
        NoDevice: there is no GPU of that number.
    """
    if gpu == "auto":
        return 0 if count() else None
    if not re.fullmatch(r"[0-9]{1,3}", gpu):
        raise UsageError(f"a GPU is auto or a number, not {gpu[:40]!r}")
    if int(gpu) >= count():
        raise _no_gpu(int(gpu), "; leave --gpu out to choose automatically")
    return int(gpu)


def _no_gpu(index: int, way_out: str = "") -> NoDevice:
    """Return the error of an index that no GPU has."""
    number = count()
    if not number:
        return NoDevice(f"there is no GPU {index}: the driver shows none")
    return NoDevice(f"there is no GPU {index} among the {number} that the driver shows{way_out}")


@cache
def describe(index: int) -> Device:
    """Return the card at `index`.

    Raises:
        NoDevice: the driver shows no such GPU.
    """
    driver = _driver()
    if driver is None or not 0 <= index < count():
        raise _no_gpu(index)
    handle = ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(handle), index)
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), handle)
    memory = ctypes.c_size_t()
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    values: dict[str, int] = {}
    for attribute, number in _ATTRIBUTES.items():
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        values[attribute] = value.value
    full_name, mig = _split_mig(name.value.decode())
    return Device(
        name=full_name,
        capability=(values["capability_major"], values["capability_minor"]),
        sm_count=values["sm_count"],
        memory_bytes=memory.value,
        l2_bytes=values["l2_bytes"],
        shared_bytes=values["shared_bytes"],
        pci_id=_nvml(index)[1],
        mig=mig,
    )


@cache
def environment(index: int = 0) -> Environment:
    """Return the installed versions of Triton, ptxas, PyTorch and driver; "" for each that is not installed."""
    return Environment(
        triton=_version("triton"),
        ptxas=_ptxas_version(),
        torch=_version("torch"),
        driver=_nvml(index)[0],
    )


def _split_mig(name: str) -> tuple[str, str]:
    """Split CUDA's name of a slice, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", into card and MIG profile."""
    whole, _, profile = name.partition(" MIG ")
    return whole, profile


@cache
def _driver() -> ctypes.CDLL | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


@cache
def _nvml(index: int) -> tuple[str, str]:
    """Return driver version and PCI id, empty if NVML is not installed or does not answer."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id(index).encode())
        pci = pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId  # device id in the high half, vendor in the low
        return str(pynvml.nvmlSystemGetDriverVersion()), f"{pci & 0xFFFF:04x}:{pci >> 16:04x}"
    except ImportError:
        return "", ""
    except pynvml.NVMLError:
        return "", ""


def bus_id(index: int) -> str:
    """Return the card's bus address, such as 0000:1b:00.0.

    It identifies a card to both libraries: CUDA numbers the visible cards, NVML all cards.
    """
    driver = _driver()
    address = ctypes.create_string_buffer(32)
    if driver is not None:
        handle = ctypes.c_int()
        driver.cuDeviceGet(ctypes.byref(handle), index)
        driver.cuDeviceGetPCIBusId(address, len(address), handle)
    return address.value.decode()


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _ptxas_version() -> str:
    """Return the release of the ptxas that Triton runs, without importing Triton."""
    triton = find_spec("triton")
    if triton is None or triton.origin is None:
        return ""
    own = Path(triton.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    ptxas = environ.get("TRITON_PTXAS_PATH") or str(own)
    try:
        printed = run([ptxas, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, TimeoutExpired):
        return ""
    release = re.search(r"release ([0-9.]+)", printed)
    return release.group(1) if release else ""
