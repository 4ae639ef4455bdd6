"""The chart of a run in the terminal: what it draws, when there is none, and that it goes away."""

from __future__ import annotations

import re

import pytest

from benching import ok, scripted, watched
from kirsch_bench.chart import Chart


def report(
    elapsed: float, answered: int, *, p99: float | None = 0.001, failed: int = 0, seconds: float = 0.25
) -> dict[str, object]:
    """A report of progress, as the native generator gives it."""
    return {
        "elapsed": elapsed,
        "latest": {"seconds": seconds, "answered": answered, "failed": failed, "dropped": 0, "p99": p99},
    }


def drawn(chart: Chart, columns: int = 50, rows: int = 24, *, plain: bool = False) -> list[str]:
    lines = chart.lines(columns, rows, plain=plain)
    assert all(len(line) < columns for line in lines), lines
    assert len(lines) < rows
    return lines


def test_bars_rise_with_the_rate_and_fill_from_left_to_right() -> None:
    chart = Chart(planned=10.0)
    for step in range(1, 21):
        chart.hear(0, report(step * 0.25, step * 5))
    lines = drawn(chart)
    assert lines[0].strip() == "responses a second"
    # 100 reports of a quarter of a second: 400 a second at most, of 500.
    assert lines[1].startswith("     500 ")
    assert lines[5].startswith("       0 ▂")
    bottom, top = lines[5][9:], lines[2][9:]
    assert bottom[19] == "█"
    assert bottom[20:].strip() == ""  # the other half of the time is still to come
    assert (top[:15].strip(), top[19]) == ("", "█")
    assert lines[-1].split() == ["0", "s", "10", "s"]


def test_rates_of_processes_are_added_and_their_worst_latency_is_shown() -> None:
    one, two = Chart(planned=1.0), Chart(planned=1.0)
    for step in range(1, 5):
        one.hear(0, report(step * 0.25, 100, p99=0.08))
        two.hear(0, report(step * 0.25, 50, p99=0.08))
        two.hear(1, report(step * 0.25, 50, p99=0.002))
    assert drawn(one) != []
    assert drawn(one)[:7] == drawn(two)[:7]
    assert drawn(one)[8].split()[:2] == drawn(two)[8].split()[:2] == ["100", "ms"]


def test_process_that_is_lost_no_longer_counts() -> None:
    chart = Chart(planned=2.0)
    for step in range(1, 9):
        chart.hear(0, report(step * 0.25, 100))
        if step <= 4:
            chart.hear(1, report(step * 0.25, 100))
    # 800 a second of 1,000, and then half of that.
    full, half = drawn(chart)[2][9:29], drawn(chart)[2][29:]
    assert (set(full), set(half)) == ({"█"}, {" "})


def test_moments_with_failures_are_marked() -> None:
    chart = Chart(planned=1.0)
    for step in range(1, 5):
        chart.hear(0, report(step * 0.25, 100, failed=step == 3))
    marks = drawn(chart)[6]
    assert marks.startswith("  failed ")
    assert re.fullmatch(r"─{20}x{10}─{10}", marks[9:]), marks


def test_rate_that_is_asked_for_is_marked_above_the_bars() -> None:
    chart = Chart(planned=4.0, asked=lambda at, _: 100.0 * at)
    for step in range(1, 9):
        chart.hear(0, report(step * 0.25, 0, p99=None))
    lines = drawn(chart)
    assert lines[0].strip() == "responses a second, · as asked for"
    assert sum(line.count("·") for line in lines[1:6]) == 40
    # Without any response there is no latency.
    assert len(lines) == 8


def test_run_of_unknown_length_takes_the_whole_width_and_bounded_memory() -> None:
    chart = Chart(planned=None)
    for step in range(1, 4001):
        chart.hear(0, report(step * 0.25, 25))
    lines = drawn(chart, columns=80)
    assert set(lines[5][9:]) == {"█"}
    assert lines[-1].endswith("1000 s")
    assert len(chart._slots) <= 400


def test_terminal_without_block_characters_gets_plain_ones() -> None:
    chart = Chart(planned=1.0)
    chart.hear(0, report(0.25, 100))
    assert "".join(drawn(chart, plain=True)).isascii()


@pytest.mark.parametrize(("columns", "rows"), [(39, 24), (80, 11)])
def test_small_terminal_has_no_chart(columns: int, rows: int) -> None:
    chart = Chart(planned=1.0)
    chart.hear(0, report(0.25, 100))
    assert chart.lines(columns, rows) == []


def on_terminal(rows: int, columns: int, *flags: str) -> bytes:
    """Run the command on a terminal of this size and return what it wrote there."""
    with scripted(lambda _: ok()) as server:
        out, shown = watched(*flags, server.url, rows=rows, columns=columns)
    assert "latency" in out
    return shown


def screen(written: str, rows: int) -> list[str]:
    """Return the lines of a terminal that only knows the sequences that the chart uses."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[\d*[AJ]|\r|\n|[^\x1b\r\n]+", written):
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif piece.endswith("A") and piece.startswith("\x1b"):
            row -= int(piece[2:-1])
        elif piece == "\x1b[J":
            lines[row:] = [lines[row][:column]]
        else:
            lines[row] = lines[row][:column].ljust(column) + piece
            column += len(piece)
        assert 0 <= row < rows, "the chart is higher than the terminal"
    return lines


def test_chart_is_drawn_over_itself_and_goes_away() -> None:
    shown = on_terminal(24, 80, "-R", "40", "-z", "1.2s", "--warmup", "0s").decode()
    frames = shown.split("\x1b[J")
    assert len(frames) >= 4
    assert "responses a second" in frames[-2]
    assert "█" in frames[-2]
    assert screen(shown, 24) == [""]
    before_the_end = screen(shown[: shown.rindex("\r")], 24)
    assert sum("responses a second" in line for line in before_the_end) == 1


@pytest.mark.parametrize(("rows", "columns"), [(8, 80), (24, 30)])
def test_small_terminal_has_one_line_of_progress(rows: int, columns: int) -> None:
    shown = on_terminal(rows, columns, "-c", "2", "-z", "0.6s", "--warmup", "0s").decode()
    assert "\n" not in shown
    assert "[####" in shown
    assert all(len(line) < columns for line in re.split(r"\r\x1b\[J", shown))
