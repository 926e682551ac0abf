"""Runs one test file of pytorch/xla inside `python -m tarry.compat`, and writes a line
of JSON when a test begins and when it has ended: a crash is then that of the test which
began last.

    python -m tarry.compat conformance/drive.py FILE RECORDS.jsonl SECONDS

Tests that RECORDS.jsonl names already are left out.
"""

import json
import runpy
import signal
import sys
import time
import traceback
import unittest
from pathlib import Path
from types import ModuleType


class Recorder(unittest.TestResult):
    """`records`: an open file."""

    def __init__(self, records, seconds: int) -> None:
        super().__init__()
        self.records, self.seconds = records, seconds

    def write(self, **record) -> None:
        self.records.write(json.dumps(record) + "\n")
        self.records.flush()

    def startTest(self, test) -> None:
        super().startTest(test)
        self.began, self.found = time.time(), []
        self.write(test=name_of(test), began=True)
        signal.alarm(self.seconds)

    def stopTest(self, test) -> None:
        signal.alarm(0)
        super().stopTest(test)
        worst = [f for f in self.found if f["outcome"] == "failed"]
        outcome = "failed" if worst else (self.found or [{"outcome": "passed"}])[0]
        if worst:
            self.write(
                test=name_of(test), outcome="failed", parts=worst, seconds=self.took()
            )
        else:
            self.write(test=name_of(test), seconds=self.took(), **outcome)

    def took(self) -> float:
        return round(time.time() - self.began, 2)

    def note(self, outcome: str, why: str = "", text: str = "", part: str = "") -> None:
        self.found.append({"outcome": outcome, "why": why, "text": text, "part": part})

    def failed(self, error, part: str = "") -> None:
        kind, value, _ = error
        why = f"{kind.__name__}: {str(value).strip()}"[:600]
        self.note(
            "failed", why, "".join(traceback.format_exception(*error))[-4000:], part
        )

    def addError(self, test, error) -> None:
        if isinstance(test, unittest.TestCase):
            self.failed(error)
        else:  # setUpClass and its like: no test of the class runs
            self.found = []
            self.failed(error)
            self.write(test=str(test), outcome="failed", parts=self.found, seconds=0)

    def addFailure(self, test, error) -> None:
        self.failed(error)

    def addSkip(self, test, reason) -> None:
        if isinstance(test, unittest.TestCase):
            self.note("skipped", reason)

    def addExpectedFailure(self, test, error) -> None:
        self.note("passed", "fails, as the file expects")

    def addUnexpectedSuccess(self, test) -> None:
        self.note("failed", "passes, but the file expects a failure")

    def addSubTest(self, test, subtest, error) -> None:
        if error is not None:
            self.failed(error, subtest._subDescription())


def name_of(test) -> str:
    return f"{type(test).__name__}.{test._testMethodName}"


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def stop(*ignored) -> None:
    raise TimeoutError("this test takes too long")


class Program:
    """In place of `unittest.main`: the same attribute `result`."""

    ran = False

    def __init__(self, recorder: Recorder, done: set) -> None:
        tests = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
        left = [t for t in flat(tests) if name_of(t) not in done]
        self.result, Program.ran = recorder, True
        unittest.TestSuite(left).run(recorder)


def stand_in_for_torchax() -> ModuleType:
    """What a file asks of torchax, which cannot be here: it is itself a device in the
    one place that PyTorch has for others."""

    def enable_accuracy_mode() -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_default_matmul_precision", "highest")

    module = ModuleType("torchax")
    module.enable_accuracy_mode = enable_accuracy_mode
    return module


def main() -> None:
    file, records, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    done = set()
    if records.exists():
        done = {json.loads(line)["test"] for line in records.read_text().splitlines()}
    signal.signal(signal.SIGALRM, stop)
    with records.open("a") as out:
        recorder = Recorder(out, seconds)

        def run(*args, **kwargs) -> Program:
            return Program(recorder, done)

        class Runner:
            """In place of `unittest.TextTestRunner`."""

            def __init__(self, *args, **kwargs) -> None: ...

            def run(self, suite):
                return run().result

        unittest.main, unittest.TextTestRunner = run, Runner
        sys.modules["torchax"] = stand_in_for_torchax()
        try:
            from absl import flags
            from absl.testing import absltest

            absltest.main = run
            flags.FLAGS.mark_as_parsed()
        except ImportError:
            pass
        sys.argv = [file]
        sys.path[0] = str(Path(file).parent)
        try:
            names = runpy.run_path(file, run_name="__main__")
            if not Program.ran:  # made for `python -m unittest`
                sys.modules["__main__"].__dict__.update(names)
                run()
        except SystemExit:
            pass
        except BaseException as error:
            if Program.ran:  # what a file does wrong behind its tests is its own affair
                recorder.write(test="(end)", outcome="passed")
                return
            why = f"{type(error).__name__}: {error}"[:600]
            text = traceback.format_exc()[-4000:]
            recorder.write(test="(the file)", outcome="failed", parts=[
                {"outcome": "failed", "why": why, "text": text, "part": ""}
            ])  # fmt: skip
        recorder.write(test="(end)", outcome="passed")


if __name__ == "__main__":
    main()
