"""Names of torch_xla that tarry does not have, by the reason."""

REASONS = {
    "metrics": "read tarry.debug.metrics.metric_data and counter_value",
    "devices": "it belongs to work on several devices, and tarry runs on one so far",
    "kernels": "it is a kernel for TPUs: write it in JAX and call it with "
    "tarry.call_jax",
    "builder": "tarry has no builder of XLA operations: write the function in JAX and "
    "call it with tarry.call_jax",
    "export": "export with torch.export and jax.export, or read the program with "
    "tarry.debug.stablehlo",
    "plugins": "JAX finds installed PJRT plugins by itself; TARRY_PLATFORM names one",
    "internals": "it is part of how torch_xla works inside, and nothing of tarry's "
    "corresponds to it",
}


def _all(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


_SHARDING = _all(
    "devices",
    "Mesh HybridMesh set_global_mesh get_global_mesh get_1d_mesh mark_sharding "
    "mark_sharding_with_gradients clear_sharding annotate_custom_sharding "
    "enable_manual_sharding disable_manual_sharding shard_as ShardingSpec ShardingType "
    "XLAShardedTensor XLAShard wrap_if_sharded xla_distribute_tensor "
    "xla_distribute_module visualize_sharding visualize_tensor_sharding "
    "apply_xla_patch_to_nn_linear XLAPatchedLinear apply_backward_optimization_barrier "
    "_mark_manual_sharding xla_patched_nn_linear_forward",
)
_FSDP = _all(
    "devices",
    "XlaFullyShardedDataParallel consolidate_sharded_state_dicts "
    "consolidate_sharded_model_checkpoints apply_xla_patch_to_nn_linear "
    "size_based_auto_wrap_policy transformer_auto_wrap_policy always_wrap_policy "
    "recursive_wrap XLAPatchedLinear",
)

NAMES: dict[str, dict[str, str]] = {
    "experimental.scan": _all(
        "internals", "value_and_grad_partitioned tree_flatten_none"
    ),
    "_dynamo.dynamo_bridge": _all("internals", "GraphInputMatcher NoneRemover"),
    "_dynamo.config": {},
    "experimental.deprecation": _all("internals", "deprecated mark_deprecated"),
    "": _all("export", "save_as_stablehlo save_torch_model_as_stablehlo"),
    "core.xla_model": {
        **_all(
            "devices",
            "all_reduce_bucketized_gradients reduce_scatter_bucketized",
        ),
        **_all("export", "get_stablehlo_bytecode"),
    },
    "core.functions": _all(
        "devices", "AllReduce AllGather SyncBatchNorm distributed_mm nms"
    ),
    "core.xla_builder": _all(
        "builder",
        "Op Shape Type create_placeholder_tensor create_builder "
        "create_computation mkop mkleaf mkparam mkshape "
        "tensor_shape computation_from_module_proto get_computation_hlo",
    ),
    "core.xla_op_registry": _all("builder", "Op register"),
    "debug.metrics_compare_utils": _all(
        "metrics", "compare_metrics parse_metrics_report"
    ),
    "distributed.data_parallel": _all("devices", "DataParallel"),
    "distributed.fsdp": _FSDP,
    "distributed.fsdp.utils": _FSDP,
    "distributed.fsdp.wrap": _FSDP,
    "distributed.spmd": _SHARDING,
    "distributed.spmd.api": _SHARDING,
    "distributed.spmd.debugging": _SHARDING,
    "distributed.spmd.xla_sharded_tensor": _SHARDING,
    "distributed.spmd.xla_sharding": _SHARDING,
    "distributed.xla_backend": {},
    "distributed.zero_redundancy_optimizer": _all("devices", "ZeroRedundancyOptimizer"),
    "experimental.custom_kernel": _all(
        "kernels",
        "flash_attention FlashAttention paged_attention multi_queries_paged_attention "
        "ragged_paged_attention quantized_matmul_int8 make_kernel_from_pallas "
        "trace_pallas gmm tgmm gmm_backward GMM",
    ),
    "experimental.distributed_checkpoint": _all(
        "devices",
        "CheckpointManager SPMDSavePlanner SPMDLoadPlanner prime_optimizer",
    ),
    "experimental.plugins": _all(
        "plugins",
        "DevicePlugin register_plugin use_dynamic_plugins using_dynamic_plugins "
        "default",
    ),
    "experimental.splash_attention": _all("kernels", "splash_attention"),
    "experimental.spmd_fully_sharded_data_parallel": _all(
        "devices", "SpmdFullyShardedDataParallel"
    ),
    "runtime": _all("devices", "use_spmd"),
    "stablehlo": _all(
        "export",
        "StableHLOExportOptions StableHLOGraphModule exported_program_to_stablehlo "
        "save_as_stablehlo save_torch_model_as_stablehlo",
    ),
}
