"""Functions of captured calls: the statements that they need are run, and nothing else of their module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import getsourcelines
from pathlib import Path
from typing import Any

import pytest
from calls import SCRIPT, SHAPES, blocks, call_of, configs, copied, tensor
from helpers import H200, TOYS

from tuner import catalog
from tuner.captured import document
from tuner.captured.call import Argument, Function
from tuner.captured.functions import load
from tuner.captured.problem import problem_of_call, signature_of_call
from tuner.errors import KernelFault, NoDevice, UnknownName, UsageError
from tuner.measure.compile_pool import CompilePool
from tuner.measure.messages import Compile, Compiled
from tuner.records import Outcome

JIT = """
@triton.autotune(configs=[triton.Config({"BLOCK": BLOCK})], key=["n"])
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), SCALE)
"""
HEAD = "import triton\nimport triton.language as tl\n"


@pytest.fixture
def modules() -> Iterator[None]:
    """Forget the modules and the folders that a test adds."""
    names, folders = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = folders
    for name in set(sys.modules) - names:
        del sys.modules[name]


def script(folder: Path, text: str) -> Any:
    return load(Function("__main__", copied(text, folder, "script.py"), "kernel"))


def names_of(function: Any) -> set[str]:
    """Return the names in the module of a loaded function."""
    while hasattr(function, "fn"):
        function = function.fn
    return {name for name in function.__globals__ if not name.startswith("__")}


def test_a_script_is_not_run() -> None:
    """It ends in a benchmark that would need a GPU, and in sys.exit."""
    function = load(Function("__main__", SCRIPT, "add"))
    assert names_of(function) == {"triton", "tl", "SCALE", "get_configs", "configs", "scaled", "add"}
    assert [config.kwargs["BLOCK"] for config in function.configs] == [64, 64, 128, 128, 256]
    jit = function.fn.fn
    assert (jit.__module__, jit.__globals__["__name__"], jit.__globals__["__file__"]) == (*["__main__"] * 2, SCRIPT)
    lines, first = getsourcelines(jit)
    assert "".join(lines) in Path(SCRIPT).read_text()
    assert first == Path(SCRIPT).read_text().splitlines().index('@triton.autotune(configs=configs, key=["n"])') + 1


def test_it_is_loaded_once() -> None:
    function = Function("__main__", SHAPES, "assigned")
    assert load(function) is load(function)


class TestStatements:
    @pytest.mark.parametrize(
        "before",
        [
            "BLOCK = 16\nSCALE = 2",
            "BLOCK, SCALE = 16, 2",
            "BLOCK: int = 16\nSCALE = 1\nSCALE += 1",
            "try:\n    import none_such\n    BLOCK = 1\nexcept ImportError:\n    BLOCK = 16\nSCALE = 2",
            "for BLOCK in (8, 16):\n    pass\nSCALE = 2",
            "with open(__file__) as file:\n    SCALE = file.read().count('SCALE = file')\nBLOCK = 16",
            "from math import *\nBLOCK = floor(16.5)\nSCALE = trunc(2.5)",
            "class Sizes:\n    BLOCK = 16\nBLOCK = Sizes.BLOCK\nSCALE = 2",
            "BLOCK = [block for block in (8, 16)][-1]\nSCALE = 2",
            "def sizes():\n    return SIZES[0]\nSIZES = []\nSIZES.append(16)\nBLOCK = sizes()\nSCALE = 2",
            "SIZES = {}\nSIZES['block'] = 16\nBLOCK = SIZES['block']\nSCALE = 2",
            "def start():\n    global BLOCK\n    BLOCK = 16\nBLOCK = 0\nstart()\nSCALE = 2",
            "if 1 > 2:\n    BLOCK = 0\nelse:\n    BLOCK = 16\nif (SCALE := 2) > 3:\n    pass",
            "from __future__ import annotations\nBLOCK: none_such = 16\nSCALE = 2",
        ],
    )  # fmt: skip
    def test_what_a_function_needs_is_run(self, tmp_path: Path, before: str) -> None:
        future, _, rest = before.rpartition("annotations\n")
        function = script(tmp_path, f"{future + _}{HEAD}{rest}\nraise_now = 1 / 1\n{JIT}\nraise ValueError('run')")
        assert (function.configs[0].kwargs, function.fn.fn.__globals__["SCALE"]) == ({"BLOCK": 16}, 2)

    @pytest.mark.parametrize(
        "after",
        [
            "BLOCK = []\nBLOCK.append(1 / 0)",  # assigned again by the benchmark, after the decorator had its value
            "print(kernel, 1 / 0)",
            "kernel[(1 // 0,)](None)",
            "if __name__ == '__main__':\n    SCALE = 1 / 0",
            "if '__main__' == __name__ and SCALE:\n    SCALE = 1 / 0",
            "def benchmark():\n    kernel.configs.append(1 / 0)",
            "assert 1 / 0\nx = 1 / 0\nfor i in range(1 // 0):\n    kernel.fn",
        ],
    )
    def test_what_it_does_not_need_is_not(self, tmp_path: Path, after: str) -> None:
        function = script(tmp_path, f"{HEAD}BLOCK, SCALE = 16, 2\n{JIT}\n{after}")
        assert (function.configs[0].kwargs, function.fn.fn.__globals__["SCALE"]) == ({"BLOCK": 16}, 2)

    @pytest.mark.parametrize(
        "change",
        [
            "sys.path.insert(0, os.path.join(HERE, 'own'))",
            "sys.path += [os.path.join(HERE, 'own')]",
            "sys.path[:0] = [os.path.join(HERE, 'own')]",
            "if sys.path:\n    sys.path = [os.path.join(HERE, 'own'), *sys.path]",
        ],
    )
    def test_folders_that_a_script_adds_are_searched(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
    ) -> None:
        folders = [*sys.path]
        monkeypatch.setattr(sys, "path", [*folders])
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / f"{tmp_path.name}.py").write_text("BLOCK = 16")
        head = f"import os\nimport sys\nHERE = os.path.dirname(__file__)\n{change}\nfrom {tmp_path.name} import BLOCK"
        assert script(tmp_path, f"{head}\n{HEAD}SCALE = 2\n{JIT}").configs[0].kwargs == {"BLOCK": 16}
        assert sys.path[: len(folders)] == folders  # what this process needs comes first
        assert str(tmp_path / "own") in sys.path

    def test_what_changes_it_later_is_run(self, tmp_path: Path) -> None:
        after = "SCALE = 2\nkernel.reference = print\nkernel.configs.pop()"
        function = script(tmp_path, f"{HEAD}BLOCK = 16\n{JIT}\n{after}")
        assert (function.configs, function.reference, function.fn.fn.__globals__["SCALE"]) == ([], print, 2)

    def test_a_name_that_is_only_an_attribute_is_not_needed(self, tmp_path: Path) -> None:
        function = script(tmp_path, f"{HEAD}BLOCK, SCALE = 16, 2\nstore = 1 / 0\nn = x = 1 / 0\n{JIT}")
        assert function.configs[0].kwargs == {"BLOCK": 16}


class TestFaults:
    def test_a_statement_that_raises_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(KernelFault) as fault:
            script(tmp_path, f"{HEAD}SCALE = 2\nBLOCK = 1 // 0\n{JIT}")
        rule = "loading the function of a captured call raises ZeroDivisionError: integer division or modulo by zero"
        assert str(fault.value) == f"{tmp_path / 'script.py'} line 4: {rule}"

    def test_a_module_that_is_not_installed_is_named(self, tmp_path: Path) -> None:
        file = copied(f"{HEAD}import none_such\nSCALE = BLOCK = none_such.block\n{JIT}", tmp_path, "script.py")
        with pytest.raises(
            NoDevice, match=f"the code of {file} needs none_such, which is not installed; install what it"
        ):
            catalog.resolve(written(file, tmp_path))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("other = 1", "names a function at the top level of .*script.py, and it has no kernel"),
            ("def make():\n    kernel = 1", "has no kernel"),
            ("from math import *", "has no kernel"),
            ("kernel = (", r"script.py line 1: the file of a captured call is Python, and it raises SyntaxError"),
            ("import sys\nkernel = sys.exit('no such card')", "script.py line 2: .* raises SystemExit: no such card"),
            ("kernel = 3", "a captured call has a function under @triton.autotune or @triton.jit, not 3"),
        ],
    )
    def test_a_file_without_the_function_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            catalog.resolve(written(copied(text, tmp_path, "script.py"), tmp_path))

    def test_a_file_that_is_gone_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UnknownName, match=r"there is no .*gone.py; capture it again"):
            load(Function("__main__", str(tmp_path / "gone.py"), "kernel"))


PACKAGE = {
    "__init__.py": "from . import broken\n",
    "broken.py": "raise ValueError('the package cannot be imported here')\n",
    "sizes.py": "from . import broken\nfrom .deep.er import BLOCK\nSCALE = 2\ndef __getattr__(name):\n"
    "    if name == 'ZERO':\n        return 0\n    raise AttributeError(name)\n",
    "deep/__init__.py": "from .. import broken\n",
    "deep/er.py": "from ..eight import EIGHT as HALF\nBLOCK = 2 * HALF\n",
    "eight.py": "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass Eight:\n"
    "    value: int = 8\nEIGHT = Eight().value\n",
    "relative.py": f"{HEAD}from .sizes import BLOCK, SCALE\n{JIT}",
    "absolute.py": f"from __future__ import annotations\n{HEAD}from some_package.sizes import BLOCK, SCALE\n{JIT}",
    "alone.py": f"{HEAD}from . import sizes\nBLOCK, SCALE = 16, 2\nBEFORE = sizes.BLOCK\n{JIT}",
    "modules.py": f"""{HEAD}
import some_package.deep.er
import some_package.sizes as sizes
try:
    from .none_such import BLOCK
except ImportError:
    BLOCK = some_package.deep.er.BLOCK

def scale():
    from . import sizes as again, eight
    return again.SCALE

SCALE = scale() + sizes.ZERO
{JIT}""",
    "whole.py": f"{HEAD}from .sizes import *\n{JIT}",
}


@pytest.mark.usefixtures("modules")
class TestModules:
    @pytest.fixture
    def package(self, tmp_path: Path) -> Path:
        package = tmp_path / "lib" / "some_package"
        for name, text in PACKAGE.items():
            copied(text, (package / name).parent, Path(name).name)
        return package

    @pytest.mark.parametrize("module", ["relative", "absolute", "alone", "modules"])
    def test_names_of_its_package_are_loaded_without_the_package(self, package: Path, module: str) -> None:
        function = load(Function(f"some_package.{module}", str(package / f"{module}.py"), "kernel"))
        assert (function.configs[0].kwargs, function.fn.fn.__globals__["SCALE"]) == ({"BLOCK": 16}, 2)
        assert function.fn.fn.__module__ == f"some_package.{module}"
        assert not [name for name in sys.modules if name.startswith("some_package")]
        others = {"annotations", "scale", "sizes", "some_package"}
        assert names_of(function) - others == {"triton", "tl", "BLOCK", "SCALE", "kernel"}

    def test_a_package_may_have_no_init(self, package: Path) -> None:
        for name in ("__init__.py", "deep/__init__.py"):
            (package / name).unlink()
        function = load(Function("some_package.absolute", str(package / "absolute.py"), "kernel"))
        assert function.configs[0].kwargs == {"BLOCK": 16}
        (package / "broken.py").write_text("")
        function = load(Function("some_package.modules", str(package / "modules.py"), "kernel"))
        assert vars(sys.modules["some_package.modules"])["kernel"] is function

    def test_one_that_needs_all_names_of_another_is_imported(self, package: Path) -> None:
        function = Function("some_package.whole", str(package / "whole.py"), "kernel")
        with pytest.raises(KernelFault, match=r"importing some_package.whole raises ValueError: the package cannot be"):
            load(function)
        (package / "broken.py").write_text("")
        found = load(function)
        assert found.configs[0].kwargs == {"BLOCK": 16}
        assert vars(sys.modules["some_package.whole"])["kernel"] is found

    def test_one_that_is_imported_already_gives_its_own(self, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(package.parent)
        (package / "broken.py").write_text("")
        from some_package import alone  # type: ignore[import-not-found]

        assert load(Function("some_package.alone", str(package / "alone.py"), "kernel")) is alone.kernel

    def test_a_module_run_with_m_may_import_relatively(self, package: Path) -> None:
        function = load(Function("__main__", str(package / "relative.py"), "kernel"))
        assert function.configs[0].kwargs == {"BLOCK": 16}
        assert function.fn.fn.__module__ == "__main__"

    def test_a_script_finds_what_lies_beside_it(self, package: Path) -> None:
        text = f"{HEAD}from eight import EIGHT as BLOCK\nSCALE = 2\n{JIT}"
        assert script(package.parent / "some_package", text).configs[0].kwargs == {"BLOCK": 8}

    def test_another_file_of_the_same_name_is_refused(self, package: Path, tmp_path: Path) -> None:
        (package / "broken.py").write_text("")
        load(Function("some_package.whole", str(package / "whole.py"), "kernel"))
        other = copied(PACKAGE["whole.py"], tmp_path / "other" / "some_package", "whole.py")
        with pytest.raises(UsageError, match=r"some_package.whole is .*lib.* here; run this where it was captured"):
            load(Function("some_package.whole", other, "kernel"))


def written(file: str, folder: Path, name: str = "kernel", arguments: dict[str, Argument] | None = None) -> str:
    """Write a call of a function and return the path of its document."""
    given: dict[str, Argument] = {"x": tensor(64), "n": 64} if arguments is None else arguments
    call = call_of(name, given, configs(BLOCK=(16, 32)), blocks(64), file=file)
    path = folder / f"{name}.call.json"
    document.write(call, path)
    return str(path)


def compiled(reference: str) -> list[Compiled]:
    """Compile all configs of a call for an H200 as a search does."""
    call, _ = document.read(Path(reference))
    problem, signature = problem_of_call(call), signature_of_call(call)
    made = [signature.config(config) for config in call.configs]
    pool = CompilePool(jobs=2)
    child = pool.take(reference, problem, H200.limits)
    try:
        for config in made:
            child.send(Compile(problem, config))
        return [child.receive() for _ in made]
    finally:
        pool.give_back(idle=False)
        pool.close()


class TestCompilePool:
    def test_it_compiles_a_function_of_a_script(self, tmp_path: Path) -> None:
        arguments: dict[str, Argument] = {
            "x_ptr": tensor(64),
            "y_ptr": tensor(64, offset=4),
            "out_ptr": tensor(64),
            "n": 64,
        }
        done = compiled(written(SCRIPT, tmp_path, "add", arguments))
        assert [each.outcome for each in done] == [Outcome.OK] * 2, done

    def test_it_answers_what_a_script_asks_the_driver(self, tmp_path: Path) -> None:
        file = str(TOYS / "autotuned_asks.py")
        listed = configs(ROWS=(16,), COLUMNS=(64,))
        arguments: dict[str, Argument] = {"x": tensor(64, 64), "out": tensor(64, 64), "M": 64, "N": 64}
        call = call_of(
            "copied", arguments, listed, lambda meta: (4, 1), key=("M", "N"), knobs=("ROWS", "COLUMNS"), file=file
        )
        document.write(call, tmp_path / "asks.call.json")
        (done,) = compiled(str(tmp_path / "asks.call.json"))
        assert done.outcome is Outcome.OK, done

    def test_a_function_that_cannot_be_loaded_there_fails_each_config_with_its_line(self, tmp_path: Path) -> None:
        file = copied(f"{HEAD}import os\nSCALE, BLOCK = 2, int(os.environ['NO_CARD'])\n{JIT}", tmp_path, "script.py")
        done = compiled(written(file, tmp_path))
        assert [each.outcome for each in done] == [Outcome.ERROR] * 2
        assert done[0].place == f"{file} line 4"
        assert done[0].error.endswith("loading the function of a captured call raises KeyError: 'NO_CARD'")
