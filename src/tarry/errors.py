"""Every exception and warning of tarry: what happened to the values, where, and what to
do."""


class TarryWarning(UserWarning):
    """Something worth knowing happened; the results are right."""


class FallbackWarning(TarryWarning):
    """An operator ran on the CPU; right, but it cut the graph."""


class TarryError(RuntimeError):
    """Base of all errors raised by tarry itself."""


class SetupError(TarryError):
    """The device cannot be registered or its platform has no device."""


class SlotTakenError(SetupError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"PyTorch's one slot for external devices (PrivateUse1) is already taken "
            f"by the device '{name}'. A process holds one such backend: import tarry "
            f"in a process that does not load '{name}'."
        )


class OldTorchError(SetupError):
    def __init__(self, found: str, need: str) -> None:
        super().__init__(
            f"tarry needs torch {need} or newer (Python backends on PrivateUse1); "
            f"found torch {found}. Install a newer torch: pip install 'torch>={need}'."
        )


class TorchXlaFoundError(SetupError):
    def __init__(self, version: str) -> None:
        super().__init__(
            f"torch_xla {version} is installed here, and tarry does not take its place "
            f"unasked. Uninstall it, or ask: tarry.compat.install(force=True), "
            f"python -m tarry.compat --force SCRIPT."
        )


class PlatformError(SetupError):
    def __init__(self, asked: str, found: str, reason: str) -> None:
        what = f"TARRY_PLATFORM={asked}" if asked else "JAX's default platform"
        super().__init__(
            f"{what} has no device here ({reason}). Platforms found: {found}. "
            f"Install JAX's plugin for it, or set TARRY_PLATFORM=cpu."
        )


class ConfigError(TarryError):
    def __init__(self, name: str, value: str, wanted: str) -> None:
        super().__init__(f"{name}={value!r} is not {wanted}. Correct or unset {name}.")


class ProgramError(TarryError):
    """A cut failed: its new values are poisoned, earlier ones are as they were."""


class CompileError(ProgramError):
    def __init__(self, what: str, line: str, reason: str) -> None:
        super().__init__(
            f"{what}, recorded at {line}, could not be compiled: {reason}. Tensors "
            f"that existed before keep the values they had; those this recording "
            f"created raise this error when read. Change or remove the operation at "
            f"{line}; the device goes on working."
        )


class RunError(ProgramError):
    def __init__(self, what: str, line: str, reason: str) -> None:
        super().__init__(
            f"the program cut at {line} ({what}) failed while it ran: {reason}. "
            f"Tensors it did not overwrite are as they were; its results raise this "
            f"error when read. If memory ran out, cut the work into smaller steps "
            f"with tarry.sync()."
        )


class PoisonedError(TarryError):
    def __init__(self, origin: BaseException) -> None:
        super().__init__(
            f"this tensor has no value: the program that computes it failed. {origin}"
        )


class GivenAwayError(TarryError):
    def __init__(self, line: str) -> None:
        super().__init__(
            f"its memory was given to the program cut at {line}, which is what "
            f"set_buffer_donation asks for. Read it before that, or take the mark back."
        )


class ExecutionNotAllowedError(TarryError):
    def __init__(self, cause: str, line: str) -> None:
        super().__init__(
            "Unexpected execution happens inside the compiled function, exiting: "
            f"{cause} at {line} needs a value. Move the read out of the region, or "
            f"compile it without full_graph=True."
        )


class HostReadError(TarryError):
    def __init__(self, cause: str, line: str) -> None:
        super().__init__(
            f"a value was read on the host inside tarry.no_host_reads(): {cause} at "
            f"{line}. Move the read out of the block, or keep the value on the device "
            f"(a tensor instead of a number). The recording is as it was."
        )


class TooManyGraphsError(TarryError):
    def __init__(self, name: str, most: int, line: str, why: str) -> None:
        super().__init__(
            f"Maximum number of different graphs allowed per function exceeded: {most}"
            f"\n'{name}' at {line} is about to run one more: {why}. Make it record the "
            f"same operations on the same shapes each time, or raise "
            f"max_different_graphs. The recording is as it was."
        )


class BudgetError(TarryError):
    def __init__(self, what: str, most: int, spent: list[str]) -> None:
        lines = "".join(f"\n  {i + 1}. {s}" for i, s in enumerate(spent))
        super().__init__(
            f"more {what} than the budget allows ({most}):{lines}\nThe last of them "
            f"was refused; the recording is as it was."
        )


class MixedSavesError(TarryError):
    def __init__(self, path: str, folder: str) -> None:
        super().__init__(
            f"{path} and the tensors in {folder} come from two different saves, the "
            f"later of which was interrupted. Nothing was loaded; take an earlier "
            f"checkpoint, and save to a path of its own each time."
        )


class LoaderError(TarryError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"a thread of the loader ({name}) ended without its last batch and without "
            f"an error, so no more batches come. Iterate the loader anew; the device "
            f"goes on working."
        )


class UnsupportedError(TarryError):
    def __init__(self, what: str, line: str, instead: str) -> None:
        super().__init__(f"{what} is not supported on tarry ({line}): {instead}")


class PortError(TarryError):
    def __init__(self, port: int, reason: str) -> None:
        super().__init__(
            f"the profiler server cannot listen on port {port} of this machine "
            f"({reason}); choose another port, or 0 for a free one."
        )


class CaptureError(TarryError):
    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"no trace came from {address} ({reason}). The program to be traced must "
            "run, on this machine, and have called start_server(port)."
        )


class ClosureError(TarryError):
    def __init__(self, what: str, line: str, error: BaseException) -> None:
        super().__init__(
            f"a {what} asked for at {line} raised on its worker thread: "
            f"{type(error).__name__}: {error}. The steps since then are done; the "
            f"device goes on working. Correct the function given at {line}."
        )


class AsideError(TarryError):
    def __init__(self, what: str, line: str) -> None:
        super().__init__(
            f"{what} at {line}, in a function that is recorded as one operation (the "
            f"body of scan, while_loop or cond, a function under assume_pure): it has "
            f"no values while it is recorded. Return the tensor and read it outside, "
            f"or keep to tensor operations (torch.where, torch.cond). Tensors outside "
            f"are as they were."
        )


class EscapedError(TarryError):
    def __init__(self, line: str) -> None:
        super().__init__(
            f"this tensor was made or changed inside a function that was recorded as "
            f"one operation at {line}, and was not returned from it: it has no value "
            f"of its own. Return it from that function."
        )


class BackendTakenError(SetupError):
    def __init__(self, name: str, owner: str) -> None:
        super().__init__(
            f"torch.compile(backend='{name}') already belongs to {owner}. Use "
            f"backend='tarry', which is always this device's, or do not load {owner}."
        )


class DonatedError(TarryError):
    def __init__(self) -> None:
        super().__init__(
            "this activation was saved for a backward pass that has run, which took "
            "its memory. Call backward(retain_graph=True) if it is needed again."
        )


class LostGradientError(TarryError):
    def __init__(self, what: str, line: str) -> None:
        super().__init__(
            f"{what} in the function that was recorded as one operation at {line} "
            f"leads to a tensor outside of it, in a way that gradients cannot take. "
            f"Pass that tensor to it as an argument (as a part of init, xs or the "
            f"operands)."
        )


class NoGradientError(TarryError):
    def __init__(self, what: str, line: str) -> None:
        super().__init__(
            f"no gradient goes through the {what} recorded at {line}: how many "
            f"iterations it makes is known on the device only. Use scan, or fori_loop "
            f"between two Python numbers; or record it under torch.no_grad()."
        )


class NoSecondGradientError(TarryError):
    def __init__(self, what: str, line: str) -> None:
        super().__init__(
            f"the gradient of {what}, computed at {line} with create_graph=True, has "
            f"no derivative. Write the part that needs second derivatives as a Python "
            f"loop, or in JAX with tarry.call_jax."
        )
