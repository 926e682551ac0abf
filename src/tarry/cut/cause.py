"""Why a graph is cut: the cause is passed on from the place that knows it."""

from enum import Enum


class Cause(Enum):
    SYNC = "tarry.sync()"
    STEP = "end of optimizer.step()"
    REGION_BEGIN = "beginning of a compiled region"
    REGION_END = "end of a compiled region"
    ITEM = "a number was read (item, bool, int, float)"
    HOST = "a tensor was copied to the CPU"
    NUMPY = "a tensor was read as a list or an array (tolist, numpy)"
    PRINT = "a tensor was printed"
    SAVE = "a tensor was saved or pickled"
    SHAPE = "a result's shape depends on data"
    FALLBACK = "an operator runs on the CPU"
    BUDGET = "too many pending instructions"
    DYNAMO = "a function compiled by torch.compile ran"
    DYNAMO_INPUT = "a function compiled by torch.compile takes a pending tensor"
    EXPORT = "a device buffer was handed out"
    LOADER = "a data loader hands out its next batch"
    STEP_TRACE = "end of a profiler's step"
    UNLAZY = "tarry.unlazy()"
    EAGER = "eager mode: an operator by itself"


STEP_ENDS = frozenset(
    {Cause.SYNC, Cause.STEP, Cause.REGION_END, Cause.LOADER, Cause.STEP_TRACE}
)

# Cuts that no value is read at; what is recorded aside goes on without them.
BORDERS = frozenset({Cause.STEP, Cause.REGION_BEGIN, Cause.REGION_END, Cause.EAGER})
