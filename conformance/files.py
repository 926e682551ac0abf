"""The test files of pytorch/xla, in the order of their worth, and what each needs."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class File:
    """`env`: variables; `{tmp}` in a value is a folder of the run's own."""

    path: str
    env: dict[str, str] = field(default_factory=dict)
    label: str = ""

    @property
    def name(self) -> str:
        return self.path + (f" ({self.label})" if self.label else "")


def _debug(level: str) -> File:
    env = {"PT_XLA_DEBUG_LEVEL": level, "PT_XLA_DEBUG_FILE": "{tmp}/debug.txt"}
    return File("debug_tool/test_pt_xla_debug.py", env, f"level {level}")


FILES = [
    File("test_operations.py"),
    File("test_core_aten_ops.py"),
    File("test_ops.py"),
    File("test_input_output_aliases.py"),
    File("test_metrics.py"),
    _debug("1"),
    _debug("2"),
    File("test_dynamic_shapes_detector.py"),
    File("eager/test_eager.py"),
    File("eager/test_eager_with_xla_compile.py"),
    File("eager/test_eager_with_torch_compile.py"),
    File("test_xla_graph_execution.py"),
    File("test_inplace_update.py"),
    File("dynamo/test_dynamo.py"),
    File("dynamo/test_bridge.py"),
    File("dynamo/test_dynamo_dynamic_shape.py"),
    File("dynamo/test_dynamo_aliasing.py"),
    File("scan/test_scan.py"),
    File("scan/test_scan_layers.py"),
    File("test_while_loop.py"),
    File("test_gradient_accumulation.py"),
    File("test_devices.py"),
    File("test_async_closures.py"),
    File("test_ops_error_message.py"),
    File("test_assume_pure.py"),
    File("test_assume_pure_torch.py"),
    File("test_jax_interop.py"),
    File("test_autocast.py"),
    File("test_autocast_xla.py"),
    File("test_operations_hlo.py"),
    File("test_data_type.py"),
    File("test_placeholder.py"),
    File("test_compilation_cache_utils.py"),
    File("test_persistent_cache.py"),
    # The second wave.
    File("test_gru.py"),
    File("test_syncfree_optimizers.py"),
    File("test_callback.py"),
    File("test_as_stride_use_slice.py"),
    File("test_mat_mul_precision.py"),
    File("test_mat_mul_precision_get_and_set.py"),
    File("test_deprecation.py"),
    File("test_profiler_session.py"),
    File("test_env_var_mapper.py"),
    File("pjrt/test_runtime.py"),
    File("pjrt/test_dtypes.py"),
    File("pjrt/test_metrics.py"),
    File("test_manual_xla_registration.py"),
]
