"""Where two runs of a model part: each saves tensors on its way into a folder, and the
folders are compared. The names are those of torch_xla's `debug.model_comparator`.

```
compare.configure("before")       # in one run; "after" in the other
loss = compare.save("loss", loss)
print(compare.compare("before", "after"))
```
"""

import re
from collections import Counter
from pathlib import Path
from typing import ClassVar

import torch

from tarry.record.lines import user_line


class _Saving:
    """What `configure` set, and how often each name was saved."""

    folder: Path | None = None
    times: ClassVar[Counter[str]] = Counter()
    step: int | None = None


def configure(save_dir: str | None) -> None:
    """Save into this folder from now on; None: nowhere."""
    _Saving.folder = None if save_dir is None else Path(save_dir)
    _Saving.times, _Saving.step = Counter(), None


def save(
    name: str | None, tensor: torch.Tensor, step: int | None = None
) -> torch.Tensor:
    """Save a copy of `tensor`, if a folder was configured; gives `tensor` back.

    `name`: the line that calls, if None. The same name again gets the next number.
    """
    if _Saving.folder is None:
        return tensor
    line = user_line()
    name = name or f"{Path(line.file).name}.l{line.number}"
    folder = _Saving.folder
    if step is not None:
        folder /= f"step-{step}"
        if step != _Saving.step:
            _Saving.step, _Saving.times = step, Counter()
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(tensor.cpu(), folder / f"{name}.{_Saving.times[name]}")
    _Saving.times[name] += 1
    return tensor


def compare_tensors(
    one: torch.Tensor, other: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8,
    max_diffs: int = 25,
) -> str:  # fmt: skip
    """The elements that differ, the worst first; empty if none does."""
    if one.shape != other.shape:
        shapes = f"{list(one.shape)} vs. {list(other.shape)}"
        return f"Tensors have different shape: {shapes}\n"
    wide = torch.complex128 if one.is_complex() else torch.float64
    a, b = one.to(wide).flatten(), other.to(wide).flatten()
    error = (a - b).abs()
    limit = torch.maximum(a.abs(), b.abs()) * rtol
    wrong = (error > limit.clamp(min=atol)) | (a.isnan() != b.isnan())
    at = wrong.nonzero().flatten()
    worst = at[error[at].nan_to_num(float("inf")).argsort(descending=True)]
    lines = [
        f"{_index(int(i), one.shape)}: {a[i].item()} vs. {b[i].item()}\t"
        f"error={error[i].item()}\n"
        for i in worst[:max_diffs]
    ]
    if len(worst) > max_diffs:
        lines.append(f"... aborting after {max_diffs} differences\n")
    return "".join(lines)


def _index(flat: int, shape: torch.Size) -> list[int]:
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return index[::-1]


def tensor_file_compare(
    path1: str, path2: str, rtol: float = 1e-5, atol: float = 1e-8, max_diffs: int = 25
) -> str:
    """The same of two saved tensors, with the name in front."""
    found = compare_tensors(torch.load(path1), torch.load(path2), rtol, atol, max_diffs)
    if not found:
        return ""
    name, _, number = Path(path1).name.rpartition(".")
    step = re.fullmatch(r"step-(\d+)", Path(path1).parent.name)
    where = f" at step={step[1]}" if step else ""
    lines = "".join(f"  {line}\n" for line in found.splitlines())
    return f'Changes in saved tensor "{name}" with id={number}{where}\n{lines}'


def compare(
    save_dir1: str, save_dir2: str, rtol: float = 1e-5, atol: float = 1e-8,
    max_diffs: int = 25,
) -> str:  # fmt: skip
    """What differs between two folders; empty if nothing does."""
    one, other = _saved(Path(save_dir1)), _saved(Path(save_dir2))
    report = ""
    for name in sorted(one | other):
        if name not in other:
            report += f"Mismatch: {name} not in {save_dir2}\n"
        elif name not in one:
            report += f"Mismatch: {name} not in {save_dir1}\n"
        else:
            paths = str(Path(save_dir1, name)), str(Path(save_dir2, name))
            report += tensor_file_compare(*paths, rtol, atol, max_diffs)
    return report


def _saved(folder: Path) -> set[str]:
    files = (f for f in folder.rglob("*") if re.search(r"\.\d+$", f.name))
    return {f.relative_to(folder).as_posix() for f in files}
