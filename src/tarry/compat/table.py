"""torch_xla's modules: for every public name, the address of tarry's function.

`MODULES`: module (without `torch_xla.`) -> name -> row. `NOT_YET`: names that tarry
does not have -> the key of the reason in `REASONS`; using one raises UnsupportedError.
"""

import logging

from tarry.compat import absent, extension
from tarry.compat.rows import Rows, Value, from_module, same

API, WORLD = "tarry", "tarry.job.world"
METRICS, TENSORS, NEST = "tarry.debug.metrics", "tarry.debug.tensors", "tarry.job.nest"
SAMPLES, CONFIG = "tarry.job.samples", "tarry.config"

ROOT: Rows = {
    "__version__": Value("2.9.0"),
    "xm": "torch_xla.core.xla_model",
    "xr": "torch_xla.runtime",
    "xmp": "torch_xla.distributed.xla_multiprocessing",
    "xu": "torch_xla.utils.utils",
    **from_module(
        API,
        "compile device device_count devices manual_seed step sync "
        "set_custom_compile_options",
    ),
    **from_module(WORLD, "launch real_devices"),
}

XLA_MODEL: Rows = {
    **from_module(
        API,
        "add_step_closure fork_rng get_memory_info get_rng_state mark_step "
        "optimization_barrier_ optimizer_step save set_rng_state wait_device_ops",
    ),
    **from_module(
        WORLD,
        "REDUCE_SUM REDUCE_MUL REDUCE_AND REDUCE_OR REDUCE_MIN REDUCE_MAX "
        "all_reduce all_gather all_to_all collective_broadcast collective_permute "
        "master_print mesh_reduce recv reduce_gradients reduce_scatter rendezvous send "
        "set_replication",
        _fetch_gradients="gradients_of",
        _maybe_convert_to_cpu="on_cpu",
        xla_device="current_device",
        xla_real_devices="real_devices",
        xla_replication_devices="real_devices",
        xla_device_hw="device_hardware",
        xla_device_kind="device_kind",
        get_xla_supported_devices="device_names",
        is_xla_tensor="is_device_tensor",
        is_master_ordinal="is_master",
        get_local_ordinal="zero",
        xla_rendezvous="meet",
        do_on_ordinals="on_ordinals",
        broadcast_master_param="broadcast_parameters",
        all_gather_bucketized="all_gather",
    ),
    "unlazy": "tarry.loop.waiting:unlazy",
    **from_module(
        NEST,
        "check_view_sharing",
        send_cpu_data_to_device="send",
        ToXlaTensorArena="TensorArena",
    ),
    "RateTracker": f"{SAMPLES}:RateTracker",
    "get_stablehlo": f"{TENSORS}:stablehlo",
}

RUNTIME: Rows = from_module(
    WORLD,
    "device_type set_device_type is_bf16_supported is_spmd",
    world_size="one",
    global_device_count="one",
    local_device_count="one",
    local_process_count="one",
    addressable_device_count="one",
    global_runtime_device_count="one",
    addressable_runtime_device_count="one",
    process_count="one",
    global_ordinal="zero",
    local_ordinal="zero",
    process_index="zero",
    host_index="zero",
    runtime_device_attributes="device_attributes",
    global_runtime_device_attributes="all_device_attributes",
    get_master_ip="master_address",
    get_num_cached_compilation_graph="cached_programs",
)

METRIC_ROWS: Rows = from_module(
    METRICS,
    "counter_names counter_value clear_counters metric_names metric_data clear_metrics "
    "clear_all metrics_report short_metrics_report executed_fallback_ops",
)

PROFILER: Rows = from_module(
    "tarry.debug.profiler",
    "StepTrace Trace start_server start_trace stop_trace trace_me",
    trace="capture",
    trace_detached="capture_detached",
)

UTILS: Rows = {
    "TmpFolder": "tempfile:TemporaryDirectory",
    **from_module(SAMPLES, "SampleGenerator FnDataGenerator as_list"),
    **from_module(CONFIG, "getenv_as check_env_flag"),
    **from_module(
        NEST,
        "DataWrapper",
        for_each_instance="each",
        for_each_instance_rewrite="rewrite",
    ),
}

ENV_VARS: Rows = same(
    "CPU_NUM_DEVICES PJRT_DEVICE PJRT_SELECT_DEFAULT_DEVICE PJRT_LOCAL_PROCESS_RANK "
    "PJRT_LOCAL_PROCESS_COUNT PJRT_DYNAMIC_PLUGINS PJRT_CPU_ASYNC_CLIENT "
    "PJRT_DIST_SERVICE_ADDR TPU_NUM_DEVICES LOCAL_RANK RANK WORLD_SIZE "
    "LOCAL_WORLD_SIZE ACCELERATOR_TYPE TPU_VISIBLE_CHIPS TPU_PROCESS_BOUNDS"
)

BACKENDS: Rows = from_module(API, "get_mat_mul_precision set_mat_mul_precision")

MULTIPROCESSING: Rows = from_module(
    WORLD, "spawn", MpModelWrapper="SharedModel", MpSerialExecutor="InTurn"
)

MODULES: dict[str, Rows] = {
    "": ROOT,
    "torch_xla": ROOT,
    "_XLAC": extension.ROWS,
    "_dynamo.dynamo_backend2": {"dynamo_backend": "tarry.dynamo.backend:tarry"},
    "_dynamo.dynamo_bridge": {
        **from_module("tarry.loop.donation", "alias_with_buffer_donor_config"),
        **from_module("tarry.dynamo.backend", "extract_compiled_graph"),
    },
    "_internal": {},
    "_internal.jax_workarounds": from_module(
        WORLD, "", jax_import_guard="initialize_runtime"
    ),
    "_internal.tpu": from_module(WORLD, "", num_available_chips="zero", version="zero"),
    "_internal.utils": {},
    "amp": from_module("tarry.amp", "GradScaler autocast"),
    "amp.syncfree": from_module("tarry.amp.syncfree", "SGD Adam AdamW"),
    "backends": BACKENDS | {"logger": Value(logging.getLogger("torch_xla.backends"))},
    "core": {},
    "core.dynamo_bridge": from_module("tarry.dynamo.backend", "extract_compiled_graph"),
    "core.xla_builder": {
        "call_jax": "tarry.flow.forms:call_jax_with",
        "_JAX_TO_XLA_COMPUTATION_CACHE": Value({}),
    },
    "core.xla_env_vars": ENV_VARS,
    "core.xla_model": XLA_MODEL,
    "debug": {},
    "debug.metrics": METRIC_ROWS,
    "debug.metrics_saver": from_module(METRICS, "save_metrics"),
    "debug.model_comparator": from_module(
        "tarry.debug.compare",
        "compare compare_tensors configure save tensor_file_compare",
    ),
    "debug.profiler": PROFILER,
    "distributed": {},
    "distributed.fsdp": from_module("tarry.loop.checkpoint", "checkpoint_module"),
    "distributed.parallel_loader": from_module(
        "tarry.loop.loader", "MpDeviceLoader ParallelLoader PerDeviceLoader"
    ),
    "distributed.xla_multiprocessing": MULTIPROCESSING,
    "experimental": from_module(
        "tarry.experimental", "eager_mode eager_mode_context is_eager_mode"
    ),
    "experimental.eager": from_module(
        "tarry.experimental", "eager_mode eager_mode_context is_eager_mode"
    ),
    "experimental.assume_pure": {
        "_XLA_COMPUTATION_CACHE": Value({}),
        **from_module("tarry.flow.pure", "assume_pure"),
        **from_module(
            "tarry.flow.forms",
            "PureModule",
            assume_pure_torch="assume_pure_again",
            j2t_autograd="jax_function",
        ),
    },
    "experimental.callback": from_module(
        "tarry.loop.ready", "on_ready_callback on_ready_event"
    ),
    "experimental.fori_loop": {
        "fori_loop": "tarry.flow.forms:fori_loop_of_values",
        "while_loop": "tarry.flow.loops:while_loop",
    },
    "experimental.gradient_accumulation": from_module(
        "tarry.flow.accumulate", "gradient_accumulation"
    ),
    "experimental.gru": {"GRU": "torch.nn:GRU"},
    "experimental.scan": {
        "scan": "tarry.flow.scan:scan",
        "_SCAN_COMPUTATION_CACHE": Value({}),
    },
    "experimental.scan_layers": {
        "scan_layers": "tarry.flow.forms:scan_layers_unpacking",
        "_ONE_LAYER_CACHE": Value({}),
    },
    "experimental.custom_kernel": from_module(
        "tarry.job.ragged", "", repeat_with_fixed_output_size="repeat_to_size"
    ),
    "runtime": RUNTIME,
    "test": {},
    "test.test_utils": from_module(
        "tarry.job.training_log",
        "close_summary_writer get_summary_writer now print_test_update "
        "print_training_update write_to_summary",
        mp_test="in_process",
    ),
    "utils": {},
    "utils.buffer_donor_context": from_module(
        "tarry.loop.donation", "alias_with_buffer_donor_config"
    ),
    "utils.checkpoint": from_module("tarry.loop.checkpoint", "checkpoint"),
    "utils.dlpack": from_module("tarry.flow.exchange", "from_dlpack to_dlpack"),
    "utils.serialization": from_module(
        "tarry.loop.serialization", "TensorReference load save"
    ),
    "utils.utils": UTILS,
}

NOT_YET = absent.NAMES
REASONS = absent.REASONS
