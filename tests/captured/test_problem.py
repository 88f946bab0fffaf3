"""Names and values under which a captured call is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.captured.call import Argument, CapturedCall, Function, TensorArgument
from tuner.captured.problem import op_name, problem_of_call, signature_of_call
from tuner.kernels.spec import Value

CONFIG: dict[str, Value] = {"BLOCK": 64, "num_warps": 4, "num_stages": 3}


def tensor(dtype: str) -> TensorArgument:
    return TensorArgument((64,), (1,), dtype)


def call(key: dict[str, Value], **arguments: Argument) -> CapturedCall:
    return CapturedCall(Function("m", "/m.py", "f"), "m_f", key, {**arguments, **key}, (CONFIG,))


@pytest.mark.parametrize(
    ("module", "name", "op"),
    [
        ("fla.ops.common.chunk_o", "chunk_fwd_kernel_o", "fla_ops_common_chunk_o_chunk_fwd_kernel_o"),
        ("03-matrix-multiplication", "matmul_kernel", "matrix_multiplication_matmul_kernel"),
        ("a.B", "_Kernel__x", "a_b_kernel_x"),
        ("__", "_", "kernel"),
    ],
)
def test_an_op_has_the_names_of_module_and_function(module: str, name: str, op: str) -> None:
    assert op_name(module, name) == op


def test_long_names_are_cut_and_stay_apart() -> None:
    one, other = (op_name("package." + "module" * 20 + end, "kernel") for end in "ab")
    assert one != other
    assert len(one) == len(other) == 64


def test_sizes_are_dims_and_other_values_text() -> None:
    given = call({"N": 64, "K": 0, "causal": True, "eps": 0.5, "act": None}, x=tensor("bf16"))
    assert problem_of_call(given).text == 'm_f N=64 dtype=bf16 K=0 act="None" causal=True eps=0.5'
    assert [dim.name for dim in signature_of_call(given).dims] == ["N"]


def test_the_dtype_is_that_of_most_tensors() -> None:
    given = call({"N": 64}, m=tensor("fp32"), q=tensor("fp16"), k=tensor("fp16"), lse=tensor("fp32"), o=tensor("fp16"))
    assert problem_of_call(given).text == "m_f N=64 dtype=fp16 lse_dtype=fp32 m_dtype=fp32"


def test_of_two_equally_frequent_dtypes_it_is_the_first() -> None:
    assert problem_of_call(call({"N": 64}, x=tensor("fp32"), y=tensor("bf16"))).text == (
        "m_f N=64 dtype=fp32 y_dtype=bf16"
    )


def test_a_query_without_a_dtype_has_that_of_the_call() -> None:
    given = call({"N": 64}, m=tensor("fp32"), q=tensor("bf16"), k=tensor("bf16"))
    assert signature_of_call(given).problem({"N": 64, "m_dtype": "fp32"}) == problem_of_call(given)


def test_a_tensor_that_is_missing_is_another_problem() -> None:
    given = call({"N": 64}, x=tensor("bf16"), bias=None)
    assert problem_of_call(given).text == 'm_f N=64 dtype=bf16 bias_dtype="None"'


def test_without_a_size_in_the_key_there_is_one_problem_for_each_dtype() -> None:
    assert problem_of_call(call({}, x=tensor("bf16"))).text == "m_f size=1 dtype=bf16"


def test_names_that_mean_something_else_are_changed() -> None:
    given = replace(call({"device": 3, "_n": 7}, x=tensor("fp16")), op="m_f")
    assert problem_of_call(given).text == "m_f device_=3 n=7 dtype=fp16"


def test_arguments_whose_names_would_be_equal_stay_apart() -> None:
    key: dict[str, Value] = {"_n": 3, "n": 8, "y_dtype": "float16", "list": 2}
    given = call(key, x=tensor("fp32"), z=tensor("fp32"), y=tensor("bf16"), out=tensor("bf16"), _y=tensor("int8"))
    assert problem_of_call(given).text == (
        "m_f n=3 n_=8 list__=2 dtype=fp32 out_dtype=bf16 y_dtype=float16 y_dtype_=int8 y_dtype__=bf16"
    )
    assert problem_of_call(call({"size": 0}, x=tensor("fp32"))).text == "m_f size=1 dtype=fp32 size_=0"


def test_which_tensor_is_missing_stays_apart_too() -> None:
    one, other = call({"N": 64}, x=tensor("fp32"), _x=None), call({"N": 64}, x=None, _x=tensor("fp32"))
    assert problem_of_call(one).text != problem_of_call(other).text
