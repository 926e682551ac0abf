"""Counters and metrics: torch_xla's names, texts and report format."""

import pytest
import torch

import tarry
from tarry.debug import metrics
from tarry.ledger import Cut, Ledger, Metric, ledger
from tarry.report.metrics import bytes_text, metric_text, report, time_text
from tarry.report.saved import dump, load
from tarry.report.spell import share, short
from tarry.report.steady import Steady, steady_state
from tarry.report.text import report_text


@pytest.fixture(autouse=True)
def fresh():
    """Counters and metrics of this test alone."""
    before = ledger.counters, ledger.metrics
    metrics.clear_all()
    yield
    ledger.counters, ledger.metrics = before


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "000.000us"),
        (1_500, "001.500us"),
        (572_062, "572.062us"),
        (2_000_000, "002ms000.000us"),
        (369_401_746_001, "06m09s401ms746.001us"),
        (90_061_000_000_000, "01d01h01m01s000ms000.000us"),
    ],
)
def test_time_text(nanoseconds, text):
    assert time_text(nanoseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0.00B"), (1023, "1023.00B"), (12_636, "12.34KB"), (3 * 2**40, "3.00TB")],
)
def test_bytes_text(size, text):
    assert bytes_text(size) == text


def test_metric_text():
    metric = Metric("time")
    for second, value in ((10.0, 1e6), (12.0, 3e6)):
        metric.add(value)
        metric.samples[-1] = (second, value)
    low, high = "001ms000.000us", "003ms000.000us"
    assert metric_text("CompileTime", metric) == (
        "Metric: CompileTime\n"
        "  TotalSamples: 2\n"
        "  Accumulator: 004ms000.000us\n"
        "  ValueRate: 002ms000.000us / second\n"
        "  Rate: 1 / second\n"
        f"  Percentiles: 1%={low}; 5%={low}; 10%={low}; 20%={low}; 50%={high}; "
        f"80%={high}; 90%={high}; 95%={high}; 99%={high}\n"
    )


def test_one_sample_has_no_rate():
    metric = Metric("value")
    metric.add(7)
    text = metric_text("TensorsGraphSize", metric)
    assert "Rate" not in text
    assert "  Accumulator: 7.00\n" in text


def test_report_is_metrics_then_counters_in_alphabetical_order():
    one = Metric("value")
    text = report({"b": one, "a": one}, {"z": 1, "y": 2, "x": 0})
    names = [line for line in text.splitlines() if not line.startswith(" ")]
    assert names == ["Metric: a", "Metric: b", "Counter: y", "Counter: z"]
    assert text.endswith("Counter: z\n  Value: 1\n")


def test_what_never_counted_is_none():
    assert metrics.counter_value("CachedCompile") is None
    assert metrics.metric_data("CompileTime") is None
    assert metrics.counter_names() == metrics.metric_names() == []


def test_clear():
    ledger.count("MarkStep")
    ledger.sample("CompileTime", 5.0, "time")
    assert metrics.counter_value("MarkStep") == 1
    assert metrics.metric_data("CompileTime")[:2] == (1, 5.0)
    metrics.clear_counters()
    assert metrics.counter_names() == []
    assert metrics.metric_names() == ["CompileTime"]
    metrics.clear_metrics()
    assert metrics.metrics_report() == ""


def test_short_report():
    ledger.count("MarkStep", 3)
    ledger.count("ExecuteComputation", 3)
    ledger.count("aten::nonzero", 2)
    ledger.sample("CompileTime", 5.0, "time")
    ledger.sample("InboundData", 5, "bytes")
    text = metrics.short_metrics_report()
    assert "Metric: CompileTime" in text
    assert text.endswith(
        "Counter: MarkStep\n  Value: 3\nCounter: aten::nonzero\n  Value: 2\n"
    )
    assert "InboundData" not in text
    assert "ExecuteComputation" not in text
    chosen = metrics.short_metrics_report(["ExecuteComputation"], ["InboundData"])
    assert "Metric: InboundData" in chosen
    assert "Counter: ExecuteComputation" in chosen
    assert metrics.executed_fallback_ops() == ["aten::nonzero"]


def cuts(*programs_of_steps: list[int], compiled: tuple[int, ...] = ()) -> Ledger:
    """A ledger of one list of program numbers a step; `compiled` in their first run."""
    new, left = Ledger(), set(compiled)
    for programs in programs_of_steps:
        new.steps += 1
        for number in programs:
            first = number in left
            left.discard(number)
            new.count("UncachedCompile" if first else "CachedCompile")
            cut = Cut("tarry.sync()", "", "[bold]train.py:3", 5, 1, number, first)
            new.add_cut(cut)
    return new


def test_steady_state():
    found = steady_state(cuts([0], [1], [1], [1], [1, 2], compiled=(0, 1)).cuts)
    assert found == Steady(1, programs=1, usual=2, others=1, compiling=2)
    assert steady_state(cuts([0], [1], compiled=(0, 1)).cuts) is None


def test_closing_report_says_what_is_good():
    text = report_text(cuts([0], [0], [0], compiled=(0,)))
    assert "3 steps, 3 cuts, 1 program compiled" in text
    assert (
        "Steady state: 1 program per step, always the same "
        "(2 of 2 steps; 1 step compiled)." in text
    )
    assert "2 of 3 cuts found their program there (67 %)" in text
    assert "No operator ran on the CPU." in text
    assert "tarry.sync()  [bold]train.py:3" in text


def test_closing_report_says_what_is_bad():
    new = cuts([0], [1], compiled=(0, 1))
    new.add_fallback("aten::slow", "train.py:9", 0.5)
    text = report_text(new)
    assert "No steady state: every step compiled a program." in text
    assert "No operator ran on the CPU" not in text
    assert "    1  0.50 s  aten::slow  train.py:9" in text


def test_closing_report_of_nothing():
    assert "Nothing was computed on the device 'tarry'." in report_text(Ledger())


def test_long_tables_are_capped():
    new = Ledger()
    for i in range(20):
        new.add_cut(Cut("tarry.sync()", "", f"train.py:{i}", 1, 1))
    text = report_text(new)
    assert text.count("train.py:") == 12
    assert "and 8 more" in text


def test_saved_report_says_the_same():
    new = cuts([0], [0, 1], [1], compiled=(0, 1))
    new.add_fallback("aten::slow", "train.py:9", 0.5)
    new.sample("TransferFromDeviceTime", 5e8, "time")
    new.ended = new.started + 10
    text = dump(new)
    again = load(text)
    assert dump(again) == text
    assert report_text(again) == report_text(new)
    assert "0.50 s" in report_text(again)
    assert "aten::slow" in report_text(again)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}'])
def test_other_files_are_no_saved_reports(text):
    with pytest.raises(ValueError):
        load(text)


def test_paths_are_short(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert short(f"aten::add at {tmp_path}/a/b.py:3") == "aten::add at a/b.py:3"
    assert short(f"({tmp_path}/b.py:3)") == "(b.py:3)"
    assert short(f"/x{tmp_path}/b.py:3") == f"/x{tmp_path}/b.py:3"
    assert short("/usr/lib/python3/site-packages/m/n.py:1") == "m/n.py:1"


def test_shares_do_not_round_to_all_or_nothing():
    assert [share(n, 1000) for n in (0, 1, 500, 999, 1000)] == [
        "0 %", "< 1 %", "50 %", "> 99 %", "100 %",
    ]  # fmt: skip
    assert share(0, 0) == "–"


def test_operations_count_when_they_are_recorded():
    metrics.clear_all()
    x = torch.ones(3).to("tarry")
    x.add_(1)
    assert metrics.counter_value("xla::add") == 1  # though nothing was cut yet
    tarry.sync()
    assert metrics.counter_value("xla::add") == 1
    x.mul(2)  # no one keeps the result, so that nothing is computed
    tarry.sync()
    assert metrics.counter_value("xla::mul") == 1
    x.mul(2)
    metrics.clear_counters()
    assert metrics.counter_value("xla::mul") is None
