"""Functions of `tuner.ops` as type checkers see them; at run time they are found. An op adds its line."""

from collections.abc import Callable

from torch import Tensor

from tuner.kernels.add.call import add as add
from tuner.kernels.attention.call import attention as attention
from tuner.kernels.avg_pool2d.call import avg_pool2d as avg_pool2d
from tuner.kernels.conv2d.call import conv2d as conv2d
from tuner.kernels.copy_column.call import copy_column as copy_column
from tuner.kernels.gelu.call import gelu as gelu
from tuner.kernels.gemm.call import gemm as gemm
from tuner.kernels.layer_norm.call import layer_norm as layer_norm
from tuner.kernels.max_pool2d.call import max_pool2d as max_pool2d
from tuner.kernels.reduce.call import reduce as reduce
from tuner.kernels.rms_norm.call import rms_norm as rms_norm
from tuner.kernels.scaled_gemm.call import scaled_gemm as scaled_gemm
from tuner.kernels.silu.call import silu as silu
from tuner.kernels.silu_mul.call import silu_mul as silu_mul
from tuner.kernels.softmax.call import softmax as softmax
from tuner.kernels.transpose.call import transpose as transpose

scaled_dot_product_attention: Callable[..., Tensor]

def refresh() -> None: ...
def __getattr__(name: str) -> Callable[..., Tensor]: ...
