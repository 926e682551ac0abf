"""What tarry has to tell of each scenario of `test_scenarios`: every cut's cause and
line, and why each program was compiled. Lines are given by their text."""

import inspect
import linecache
import re
from collections.abc import Callable
from typing import Any

import tarry
from tarry.cut.cause import Cause
from tarry.cut.sync import store
from tarry.ledger import ledger
from tarry.record.trie import recorder
from tarry.report.why import Reason

SYNC = (Cause.SYNC, "cut()")
READ = (Cause.HOST, "return t.detach().cpu().clone()")
FIRST = "it is the first program"

ARANGE = "y = (torch.arange(n, dtype=torch.float32).to(device) * 2).sum()"
BATCH = "y = layer(torch.ones(size, 3).to(device)).sum()"
ROW = "buffer[i] = torch.full((2,), float(i + 1)).to(device)"
MASK = "places, doubled = torch.nonzero(a).squeeze(1), a[a > 0] * 2"
TEXT = 'text, number = repr(x), f"{x.sum()}"'
ADDED = "1 operation was added, the first of them aten::add.Tensor at «x = x + 1»"
WRITE = "argument geometry of tarry::write at «{}» changed: offset {} → offset {}"
KIND = "it is the first program of its kind ({} operation{}, {} input{})"


def kind(operations, inputs):
    plural = ["" if n == 1 else "s" for n in (operations, inputs)]
    return Reason.KIND, KIND.format(operations, plural[0], inputs, plural[1])


def written(line, size, times):
    return [
        (Reason.ARGUMENT, WRITE.format(line, i * size, (i + 1) * size))
        for i in range(times)
    ]


# For each scenario: its cuts (cause, text of the line, and of what where that is said),
# and why each program after the first was compiled, lines given by their text.
TOLD = {
    "learning_rate_schedule": (
        [SYNC] * 5,
        [
            (
                Reason.ADDED,
                "1 operation was added, the first of them aten::mul.Tensor for 1 "
                "tensor at «optimizer.step()»",
            )
        ],
    ),
    "scalar_through_special_values": ([SYNC] * 6, []),
    "random_read_in_a_loop": (
        [(Cause.ITEM, "sums.append(float((a @ b).sum()))")] * 5,
        [],
    ),
    "two_shapes_in_turn": (
        [SYNC] * 4,
        [
            (
                Reason.INPUT,
                "an input changed: f32[4] → f32[6] (dimension 0), made at "
                f"«{ARANGE}», first used at «{ARANGE}»",
            )
        ],
    ),
    "smaller_last_batch": (
        [SYNC] * 4,
        [
            (
                Reason.INPUT,
                "an input changed: f32[8,3] → f32[3,3] (dimension 0), made at "
                f"«{BATCH}», first used at «{BATCH}»",
            )
        ],
    ),
    "rows_written_by_number": ([SYNC] * 4, written(ROW, 2, 3)),
    "different_work_before_a_step": ([READ] * 3, [(Reason.ADDED, ADDED)] * 2),
    "shape_from_data": (
        [(Cause.SHAPE, MASK, "aten::nonzero")] * 2 + [SYNC],
        [
            (
                Reason.ADDED,
                "2 operations were added, the first of them tarry::nonzero at "
                f"«{MASK}»",
            ),
            kind(4, 2),
        ],
    ),
    "item_then_sync": ([(Cause.ITEM, "total = h.sum().item()")], []),
    "printing": ([(Cause.PRINT, TEXT), (Cause.ITEM, TEXT)], [kind(1, 1)]),
    "clipping": ([SYNC], []),
    "checked_indices": ([SYNC], []),
    "step_left_out_on_the_device": ([SYNC] * 3, []),
    "long_chain": ([READ], []),
    "dead_results": ([], []),
    "training_settles": (
        [SYNC] * 8,
        [
            (
                Reason.STATE,
                "8 values that the program before computed itself are inputs now, the "
                "first `Adam's exp_avg of Sequential.0.weight` f32[8,4], made at "
                "«optimizer.step()», first used at «optimizer.step()» (8 operations "
                "fewer): state that a first step makes, for example",
            )
        ],
    ),
    "clone_outlives_a_donation": ([SYNC], []),
    "constants_are_never_donated": ([SYNC] * 2, []),
    "same_expression_other_aliases": (
        [SYNC] * 2,
        [
            (
                Reason.DONATION,
                "donation changed: 0 input buffers may be overwritten, 1 before; now "
                "s64[1], made at «b.add_(a)», first used at «c = b + a», may not (a "
                "tensor that holds an old value keeps its buffer from being reused)",
            )
        ],
    ),
    "write_through_an_old_view": ([SYNC], []),
    "pieces_are_views": ([READ], []),
    "filling_a_buffer": ([SYNC] * 5, written("buffer[i] = (a @ a).mean()", 1, 4)),
    "tied_weights": ([SYNC], []),
    "double_backward_through_views": ([SYNC], []),
    "seeding": (
        [SYNC, SYNC, READ],
        [
            (
                Reason.OUTPUT,
                "1 output vanished (2 → 1): the result of tarry::uniform at «a, b = "
                "torch.rand(1000, device=device), torch.rand(1000, device=device)», is "
                "no longer alive at the cut",
            )
        ],
    ),
    "copies_of_a_module": (
        [(Cause.SAVE, "torch.save(model.state_dict(), file)"), SYNC, SYNC],
        [kind(1, 1), kind(13, 3)],
    ),
}


def fresh() -> None:
    """No program is known and no recording, and nothing was told."""
    tarry.sync()
    store.clear()
    recorder.restart(0)
    ledger.cuts.clear()
    ledger.compiles.clear()


def text_of(line: str, *functions: Callable[..., Any]) -> str:
    """The source text of `file:number`, which has to stand in one of the functions."""
    file, _, number = line.rpartition(":")
    spans = [(inspect.getsourcelines(f), f.__code__.co_filename) for f in functions]
    assert any(
        file == where and start <= int(number) < start + len(lines)
        for (lines, start), where in spans
    ), f"{line} is not in {', '.join(f.__name__ for f in functions)}"
    return linecache.getline(file, int(number)).strip()


def check_told(scenario: Callable[..., Any], *helpers: Callable[..., Any]) -> None:
    """Compare what was told since `fresh()` with what the table says of `scenario`."""
    said, inside = tarry.explain(), (scenario, *helpers)
    cuts, compiles = TOLD[scenario.__name__]
    assert [
        (c.cause, text_of(c.line, *inside), *([c.detail] if c.detail else []))
        for c in said.cuts
    ] == [(cause.value, *rest) for cause, *rest in cuts]

    def placed(why: str) -> str:
        here = re.escape(scenario.__code__.co_filename)
        return re.sub(rf"{here}:\d+", lambda m: f"«{text_of(m[0], *inside)}»", why)

    first = [(Reason.FIRST.name, FIRST)] if cuts else []
    assert [(c.reason, placed(c.why)) for c in said.compiles] == [
        *first,
        *[(reason.name, why) for reason, why in compiles],
    ]
    compiled = {c.program: c.line for c in said.cuts if c.compiled}
    assert {c.program: c.line for c in said.compiles} == compiled
