"""pytorch/xla's examples for one device on tarry, unmodified, through `tarry.compat`.

    .venv/bin/python conformance/examples.py CHECKOUT [--only TEXT]

Each runs in a process of its own. So that a CPU can run them, the samples that
`SampleGenerator` makes up are the first two of each batch, and there are three batches.
They need torchvision. The examples of several devices are left out, and so is
`flash_attention`, whose kernels are for TPUs.
"""

import argparse
import runpy
import subprocess
import sys
import time
from pathlib import Path

EXAMPLES = [
    "train_decoder_only_base.py",
    "train_decoder_only_base.py scan.decoder_with_scan.DecoderWithScan",
    "train_resnet_base.py",
    "train_resnet_amp.py",
    "debug/train_resnet_benchmark.py",
    "debug/train_resnet_profile.py",
    "eager/train_decoder_only_eager.py",
    "eager/train_decoder_only_eager_with_compile.py",
    "scan/scan_examples.py",
]
ROWS, BATCHES = 2, 3
PROFILES = Path("/tmp/profile")  # which train_resnet_profile.py expects to be there


def fewer(data):
    if isinstance(data, list | tuple):
        return type(data)(map(fewer, data))
    return data[:ROWS]


def run_here(file: Path, arguments: list[str]) -> None:
    """The example, in this process, where `torch_xla` is tarry."""
    import torch_xla.utils.utils as xu

    made = xu.SampleGenerator

    def few(data, sample_count):
        return made(fewer(data), min(sample_count, BATCHES))

    xu.SampleGenerator = few
    sys.argv = [str(file), *arguments]
    sys.path[0] = str(file.parent)
    runpy.run_path(str(file), run_name="__main__")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", default="", help="examples whose path contains this")
    parser.add_argument("--seconds", type=int, default=1200, help="for one example")
    parser.add_argument("--here", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        run_here(args.checkout / "examples" / args.here[0], args.here[1:])
        return 0
    PROFILES.mkdir(exist_ok=True)
    failed = 0
    for name in EXAMPLES:
        if args.only not in name:
            continue
        command = [sys.executable, "-m", "tarry.compat", __file__]
        command += [str(args.checkout.resolve()), "--here", *name.split()]
        began = time.time()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=args.seconds
        )
        failed += done.returncode != 0
        said = (done.stdout if done.returncode == 0 else done.stderr).strip()
        last = said.splitlines()[-1:] or [""]
        word = "failed" if done.returncode else "ran"
        print(f"{name}: {word}, {time.time() - began:.0f} s: {last[0]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
