"""Tests of pytorch/xla that tarry is not to pass, each with its reason."""

from enum import Enum
from fnmatch import fnmatch

NONE = "none"


class Verdict(Enum):
    PASSED = "passed"
    DEVIATION = "intended deviations"
    FAILED = "failed"
    STALE = "passed, though listed as deviations"
    NOT_MEANT = "not meaningful"
    SKIPPED = "skipped by the file"

    @property
    def meaningful(self) -> bool:
        return self not in (Verdict.NOT_MEANT, Verdict.SKIPPED)


# Reasons that several tests share.
NUMBERS = (
    "numbers are inputs, and never constants of a program: no value of one compiles "
    "anything"
)
PASSED_ALONG = (
    "numbers travel with the call of a program, and are no upload of their own"
)
OWN_ERRORS = "the error is PyTorch's own, of the type that the CPU raises"
NO_FALLBACK = "it runs on the device: there is no fallback to the CPU to be counted"
ITEM = "a read is a cut with a cause of its own, and no fallback `aten::…`"
NOT_COUNTED = "tarry has no such stage, and counts nothing for every operator"
COMPILED_ONCE = (
    "equal graphs are one program, over all tests of the file: what is counted at "
    "compiles is not counted again; memory is reused at every cut"
)
ALL_PENDING = (
    "an argument that is pending is computed with all else that is, in one program"
)
LAST_BITS = (
    "sums of products in another order: more than the last bit, which is allowed"
)
HLO_TEXT = "JAX's HLO text does not repeat the types of operands"
BUILDER = "tests torch_xla's builder of XLA operations; here one writes them in JAX"
READ_ONCE = "variables are read once, when tarry is imported"
INSIDE = "tests how torch_xla works inside"
DEVICES = "needs several devices"
TPU = "needs a TPU"

# File, pattern of tests, reason; the first that fits holds.
DEVIATIONS: list[tuple[str, str, str]] = [
    ("test_operations.py", "*.test_cached_addcdiv", PASSED_ALONG),
    (
        "test_operations.py",
        "*.test_binaryop_order",
        "an operand on the CPU is not moved to the device unasked: PyTorch's "
        "error names both devices",
    ),
    (
        "test_operations.py",
        "*.test_clip_grad_norm_zero",
        "PyTorch's clip_grad_norm_ is not replaced; without any gradient it gives "
        "its zero on the CPU",
    ),
    ("test_operations.py", "*.test_flip_check_throws", OWN_ERRORS),
    ("test_operations.py", "*.test_reduction_0dim", OWN_ERRORS),
    (
        "test_operations.py",
        "*.test_pow_constant",
        "the IR text states what is constant behind the operands of its operation",
    ),
    (
        "test_operations.py",
        "XpTraceTest.*",
        "a cut inside a span of a profiler is no error",
    ),
    (
        "test_operations.py",
        "TestActivationCheckpoint.test_dropout",
        "recomputation stops when it has what the backward pass needs, as "
        "PyTorch's does, so that code behind that is not run again",
    ),
    ("test_metrics.py", "*.test_clear_metrics", NOT_COUNTED),
    ("test_metrics.py", "*.test_metrics_report", NOT_COUNTED),
    ("test_metrics.py", "*.test_tracing_time_metrics", NOT_COUNTED),
    ("test_metrics.py", "*.test_pybind_increment_counter", NOT_COUNTED),
    ("test_metrics.py", "*.test_short_metrics_fallback_counter", ITEM),
    ("test_metrics.py", "*.test_get_fallback_ops", ITEM),
    (
        "test_metrics.py",
        "*.test_execute_time_metric",
        "ExecuteTime is the time it takes to launch; the time of the work is "
        "measured with TARRY_SYNC_WAIT=1",
    ),
    (
        "test_dynamic_shapes_detector.py",
        "*exceeded*",
        "the error says in tarry's words what is different: which input, which "
        "shape, which operation, at which line",
    ),
    (
        "eager/test_eager.py",
        "*.test_batch_norm_execute_once",
        "batch norm is one operation of tarry's own, with another name",
    ),
    (
        "eager/test_eager.py",
        "*.test_eager_in_place",
        "a barrier computes nothing, and runs with what needs it",
    ),
    (
        "test_operations_hlo.py",
        "*.test_expand",
        "a view costs no operation: the IR text shows how it lies in the memory",
    ),
    ("test_operations_hlo.py", "*.test_special_scalars*", NUMBERS),
    (
        "test_operations_hlo.py",
        "*.test_dropout_by_u8_mask",
        "the mask of dropout is one of booleans",
    ),
    (
        "test_operations_hlo.py",
        "*.test_bfloat16_mul_not_upcast",
        "products of bfloat16 are made in float32 and rounded once, as on the "
        "CPU; XLA fuses the conversions",
    ),
    ("test_autocast_xla.py", "*", HLO_TEXT),
    (
        "test_data_type.py",
        "*.test_datatype_*",
        "torch_xla's deprecated variables that change dtypes behind the program's "
        "back are not read",
    ),
    (
        "test_ops_error_message.py",
        "*",
        "the error is PyTorch's own, in the words that the CPU uses",
    ),
    (
        "test_syncfree_optimizers.py",
        "*",
        "the test's targets are floats, which PyTorch refuses as classes; tarry "
        "refuses them, too",
    ),
    (
        "test_mat_mul_precision_get_and_set.py",
        "*",
        "the precision is a part of the compile key, so that setting it again is "
        "safe and warns of nothing",
    ),
    (
        "test_gru.py",
        "*",
        "nn.GRU is not replaced: PyTorch's own works, and is a module of its own name",
    ),
    (
        "test_gradient_accumulation.py",
        "*.test_error_mutated_input_tensors",
        "the error is a ValueError that says what to do",
    ),
    (
        "test_manual_xla_registration.py",
        "*.test_einsum_lowered",
        "the shapes that the test gives to einsum do not fit, and PyTorch's error "
        "says so",
    ),
    (
        "test_manual_xla_registration.py",
        "*.test_einsum_not_lowered",
        "a view costs no operation: the IR text shows how it lies in the memory",
    ),
    (
        "pjrt/test_runtime.py",
        "*.test_xla_device_error",
        "an index beyond the devices is a ValueError that says how many there are",
    ),
    ("pjrt/test_runtime.py", "*.test_device_type1", READ_ONCE),
    ("pjrt/test_runtime.py", "*.test_pjrt_default_device_no_default", READ_ONCE),
    ("pjrt/test_runtime.py", "*.test_set_device_type", READ_ONCE),
    (
        "test_input_output_aliases.py",
        "*.test_aliasing_with_cloned",
        "a clone shares the memory until one of the two is written to, so that "
        "there is one copy, and none to give away",
    ),
    ("test_ops.py", "*.test_fallback_grid_sampler_2d_xla_*", NO_FALLBACK),
    ("test_ops.py", "*.test_fallback_nn_functional_embedding_bag_xla_*", NO_FALLBACK),
    ("test_ops.py", "*.test_fallback_nonzero_xla_*", NO_FALLBACK),
    ("test_ops.py", "*.test_fallback_repeat_interleave_xla_*", NO_FALLBACK),
    ("test_ops.py", "*.test_fallback_scatter_reduce_mean_xla_*", NO_FALLBACK),
    ("test_ops.py", "*.test_fallback_unique_xla_*", NO_FALLBACK),
    (
        "test_ops.py",
        "TestOpInfoPRIVATEUSE1.test_reference_eager_addbmm_xla_float32",
        LAST_BITS,
    ),
    (
        "test_ops.py",
        "TestOpInfoPRIVATEUSE1.test_reference_eager_matrix_exp_xla_float32",
        LAST_BITS,
    ),
    (
        "test_ops.py",
        "*.test_reference_eager_mode_xla_int64",
        "which of equal values the index of a mode names is not defined; PyTorch "
        "2.14's CPU names another than 2.13's",
    ),
    ("test_input_output_aliases.py", "*graph_sync*", COMPILED_ONCE),
    ("test_input_output_aliases.py", "*donation_overlap", COMPILED_ONCE),
    (
        "dynamo/test_dynamo.py",
        "DynamoInferenceBasicTest.test_simple_model",
        ALL_PENDING,
    ),
    ("dynamo/test_dynamo.py", "DynamoTrainingBasicTest.test_resnet18", ALL_PENDING),
    (
        "dynamo/test_dynamo.py",
        "*.test_fallback_multiple_submodules",
        "a graph is taken apart without running it, so that fewer programs run",
    ),
    (
        "dynamo/test_dynamo.py",
        "*.test_mixed_cpu_tensor",
        "the error is PyTorch's own, which names both devices in other words",
    ),
    (
        "dynamo/test_dynamo.py",
        "*.test_all_cpu_tensor",
        "one warning says that nothing of the graph is on the device, not one a tensor",
    ),
    (
        "dynamo/test_dynamo_dynamic_shape.py",
        "*.test_dynamic_shape_mix_with_non_dynamic",
        "PyTorch's limit of recompiles for one function is reached by the tests before "
        "it, which compile the same; alone it passes",
    ),
    (
        "dynamo/test_dynamo_aliasing.py",
        "*",
        "torch.compile donates what nothing holds any more, and a mark counts "
        "where a step ends",
    ),
    (
        "test_devices.py",
        "*.test_step",
        "cutting what is pending when a step begins is no step, and does not "
        "count as one",
    ),
    (
        "test_devices.py",
        "*.test_step_exception",
        "an exception leaves the recording as it is, to be cut with what follows",
    ),
    (
        "test_metrics.py",
        "*.test_eager_metrics",
        "an upload is no operation, and no program",
    ),
    (
        "scan/test_scan.py",
        "*.test_scan_activation_aliases_input*",
        "what the backward pass needs is kept on the device, and not by "
        "autograd's saved tensors",
    ),
    (
        "scan/test_scan.py",
        "*.test_scan_external_in_place_mutation",
        "writes to tensors from outside are allowed, and seen",
    ),
    ("scan/test_scan.py", "*.test_scan_with_rematerialization", HLO_TEXT),
    (
        "test_assume_pure.py",
        "*.test_assume_pure_profile",
        "equal graphs are one program, whose kernels keep the names of the first",
    ),
]
NOT_MEANT: list[tuple[str, str, str]] = [
    ("test_operations.py", "RegisterXLAKeyTest.*", INSIDE),
    ("test_operations.py", "*.test_replace_xla_tensor", INSIDE),
    ("test_operations.py", "*.test_patched_linear_*", DEVICES),
    ("test_operations.py", "TestParallelTensorMNIST.*", DEVICES),
    ("test_operations.py", "TestOpBuilder.*", BUILDER),
    ("test_operations.py", "*.test_mixed_dtype_tuple", BUILDER),
    ("test_operations.py", "TestLoweringContext.*", INSIDE),
    ("test_inplace_update.py", "*.test_non_aten_op*", INSIDE),
    ("test_devices.py", "*.test_device2", DEVICES),
    ("test_devices.py", "*.test_devices", DEVICES),
    ("test_devices.py", "*.test_real_devices", DEVICES),
    ("test_devices.py", "*.test_device_count", DEVICES),
    ("pjrt/test_metrics.py", "*", INSIDE),
    ("test_placeholder.py", "*placeholder*", INSIDE),
    ("test_placeholder.py", "*.test_read_value_crashes", INSIDE),
    ("test_placeholder.py", "*.test_trace_graph", INSIDE),
    ("test_assume_pure.py", "*.test_assume_pure_avoid_retracing_*", INSIDE),
    ("test_jax_interop.py", "*.test_call_jax_cache_*", INSIDE),
    ("test_jax_interop.py", "*.test_call_jax_with_different_jax_config", INSIDE),
    ("test_autocast_xla.py", "*.test_patchedlinear_autocast", DEVICES),
    ("test_deprecation.py", "*", INSIDE),
    ("test_env_var_mapper.py", "*", INSIDE),
    ("dynamo/test_bridge.py", "*.test_metrics_preserved", INSIDE),
    ("scan/test_scan.py", "*_cache*", INSIDE),
    ("scan/test_scan.py", "PyTreeTest.*", INSIDE),
    ("scan/test_scan.py", "ValueAndGradPartitionedTest.*", INSIDE),
    ("scan/test_scan_layers.py", "*_cache*", INSIDE),
    ("test_ops_error_message.py", "*_custom_call", BUILDER),
    ("test_ops_error_message.py", "*.test_user_computation*", BUILDER),
]
# Parts of tests (their `subTest`s) that are not counted.
PARTS_NOT_MEANT: list[tuple[str, str, str]] = [
    (
        "test_core_aten_ops.py",
        "*can_*",
        "export of programs as StableHLO files",
    ),
    (
        "test_core_aten_ops.py",
        "*stablehlo*",
        "export of programs as StableHLO files",
    ),
]


def _find(table: list[tuple[str, str, str]], file: str, test: str) -> str | None:
    for in_file, pattern, reason in table:
        if file.startswith(in_file) and fnmatch(test, pattern):
            return reason
    return None


def judge(file: str, record: dict) -> tuple[Verdict, str]:
    """The verdict on the record of a test, and the reason where it is listed."""
    test, outcome = record["test"], record["outcome"]
    reason = _find(NOT_MEANT, file, test)
    if reason:
        return Verdict.NOT_MEANT, reason
    if outcome == "skipped":
        return Verdict.SKIPPED, record.get("why", "")
    if outcome == "failed":
        parts = [
            p for p in record["parts"] if not _find(PARTS_NOT_MEANT, file, p["part"])
        ]
        outcome = "failed" if parts else "passed"
    reason = _find(DEVIATIONS, file, test)
    if outcome == "passed":
        return (Verdict.STALE, reason) if reason else (Verdict.PASSED, "")
    return (Verdict.DEVIATION, reason) if reason else (Verdict.FAILED, "")
