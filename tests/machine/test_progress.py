"""What a person sees while the work is under way."""

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autonovel.machine.progress import Bars, Lines, Notebook, Reporter, TimeLeft, make_reporter


def lines_of(*calls: Sequence[object]) -> list[str]:
    """What Lines print when they are told this: (method, arguments ...)."""
    stream = io.StringIO()
    reporter = Lines(stream)
    for method, *arguments in calls:
        getattr(reporter, str(method))(*arguments)
    return stream.getvalue().splitlines()


# ---- lines


def test_a_line_has_the_mean_loss_of_several_heads() -> None:
    line = lines_of(("start", "joint", 4, 0), ("epoch", 0, {"known": 0.25, "new": [1.0, 2.0, 6.0]}, 1.5))
    assert line == ["joint 1/4  known 0.2500  new 3.0000  1.50 s  0:04 left"]


def test_the_time_left_covers_all_stages() -> None:
    said = lines_of(
        ("plan", [("pretrain", 3), ("supervised", 2), ("joint", 4)]),
        ("start", "pretrain", 3, 0),
        ("epoch", 0, {}, 5.0),
        ("epoch", 1, {}, 2.0),
        ("epoch", 2, {}, 2.0),
        ("finish",),
        ("start", "supervised", 2, 0),
        ("epoch", 0, {}, 1.0),
        ("epoch", 1, {}, 1.0),
        ("finish",),
        ("start", "joint", 4, 1),
        ("epoch", 1, {}, 3.0),
    )
    assert [line.rpartition("  ")[2] for line in said if "on this machine" not in line] == [
        "about 0:40 left",  # two of 5 seconds, and six like them
        "about 0:14 left",
        "about 0:12 left",
        "about 0:05 left",
        "about 0:04 left",
        "joint: resuming after epoch 1 of 4",
        "0:06 left",  # nothing to come that is not known
    ]


def test_the_whole_time_is_said_once_at_the_beginning() -> None:
    plan = ("plan", [("pretrain", 60), ("joint", 60)])
    said = lines_of(plan, ("start", "pretrain", 60, 0), *[("epoch", i, {}, 3.0) for i in range(10)])
    told = [i for i, line in enumerate(said) if "on this machine" in line]
    assert told == [1]  # a first epoch is often slow
    assert said[1] == "training takes about 6 minutes on this machine"
    short = lines_of(("plan", [("joint", 5)]), ("start", "joint", 5, 0), *[("epoch", i, {}, 0.1) for i in range(5)])
    assert not any("on this machine" in line for line in short)
    unplanned = lines_of(("start", "pretrain", 60, 0), *[("epoch", i, {}, 3.0) for i in range(10)])
    assert not any("on this machine" in line for line in unplanned)  # who knows what comes after


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.5, "about 50 seconds"), (36.0, "about 60 minutes"), (150.0, "about 4 hours")]
)
def test_times_are_said_in_round_numbers(seconds: float, words: str) -> None:
    said = lines_of(
        ("plan", [("joint", 100)]), ("start", "joint", 100, 0), *[("epoch", i, {}, seconds) for i in (0, 1)]
    )
    assert any(f"training takes {words} on this machine" in line for line in said), said


def test_a_shorter_recipe_is_named_with_its_time() -> None:
    shorter = ("--preset fast", [("pretrain", 10), ("joint", 50)])
    plan = ("plan", [("pretrain", 60), ("joint", 60)], shorter)
    said = lines_of(plan, ("start", "pretrain", 60, 0), *[("epoch", i, {}, 3.0) for i in range(3)])
    assert said[1] == "training takes about 6 minutes on this machine; --preset fast about 3 minutes"
    hardly = ("plan", [("pretrain", 60), ("joint", 60)], ("--preset fast", [("pretrain", 60), ("joint", 50)]))
    said = lines_of(hardly, ("start", "pretrain", 60, 0), *[("epoch", i, {}, 3.0) for i in range(3)])
    assert said[1] == "training takes about 6 minutes on this machine"


def test_where_an_epoch_takes_long_its_steps_say_how_long_all_take(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    reporter = Lines(stream)
    reporter.plan([("supervised", 2), ("joint", 4)])
    reporter.start("supervised", 2, 0)
    for done in range(1, 41):
        clock[0] += 2.0
        reporter.step(done, 40)
    said = stream.getvalue().splitlines()
    assert said[0] == "training takes about 8 minutes on this machine"  # six epochs of 80 seconds, said after 6
    assert said[1:] == [
        "supervised 1/2, step 16 of 40  about 7:28 left",
        "supervised 1/2, step 32 of 40  about 6:56 left",
    ]
    reporter.epoch(0, {}, 80.0)
    assert stream.getvalue().splitlines()[-1] == "supervised 1/2    80.00 s  about 6:40 left"
    assert sum("on this machine" in line for line in stream.getvalue().splitlines()) == 1


def test_a_counter_says_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    tell = Lines(stream).counter("looking at the images")
    for done in range(1, 101):
        clock[0] += 1.0
        tell(done, 100)
    said = stream.getvalue().splitlines()
    assert said[0] == "looking at the images: 3 of 100, about 2 minutes left"
    assert len(said) < 30
    assert said[-1].startswith("looking at the images: 9")
    assert "left" not in said[-1]


def test_a_notebook_has_one_bar_that_moves_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shown, updated = [1000.0], [], []
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def display(what: str, display_id: bool) -> SimpleNamespace:
        shown.append(what)
        return SimpleNamespace(update=updated.append)

    page = SimpleNamespace(HTML=lambda text: text, display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", page)  # type: ignore[arg-type]
    reporter = Notebook()
    reporter.plan([("joint", 4), ("features", 0)])
    reporter.start("joint", 4, 0)
    for number in range(4):
        clock[0] += 3.0
        reporter.epoch(number, {"<b>": 1.0}, 3.0)
    reporter.finish()
    assert len(shown) == 1
    assert [re.search(r"joint \d/4", text)[0] for text in updated[:4]] == [f"joint {n}/4" for n in (1, 2, 3, 4)]
    assert "0:06 left" in updated[1]
    assert "&lt;b&gt; 1.0000" in updated[0]
    assert updated[4] == ""
    reporter.start("features", 0, 0)
    assert "0/0" not in shown[1]


def test_what_is_counted_moves_the_bar_where_it_takes_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, drawn = [1000.0], []
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    class Drawn(Bars):
        def draw(self, *shown: object) -> None:
            drawn.append(shown)

    tell = Drawn().counter("reading images")
    for done in range(1, 5):
        clock[0] += 0.4
        tell(done, 4)
    assert [shown[:3] for shown in drawn] == [
        ("reading images 2/4", 0.5, "0:01 left"),
        ("reading images 3/4", 0.75, "0:00 left"),
    ]


# ---- the time left


STAGES = st.lists(
    st.tuples(st.sampled_from(["pretrain", "supervised", "joint"]), st.integers(0, 4), st.floats(0.0, 9.0)), max_size=3
)


@given(STAGES, st.integers(1, 3))
def test_left_is_the_sum_over_what_is_to_come(one: list[tuple[str, int, float]], networks: int) -> None:
    one = list({name: (name, epochs, rate) for name, epochs, rate in one}.values())
    plan = [
        (name if k == 0 else f"{name}-{k + 1}", epochs, rate) for k in range(networks) for name, epochs, rate in one
    ]
    left = TimeLeft()
    left.plan([(name, epochs) for name, epochs, _ in plan])
    for place, (name, epochs, rate) in enumerate(plan):
        left.start(name, epochs, 0)
        for number in range(epochs):
            left.epoch(number, rate)
            seen = {n.split("-")[0] for n, e, _ in plan[: place + 1] if e}
            expected = rate * (epochs - number - 1)
            for later, e, own in plan[place + 1 :]:
                expected += e * (own if later.split("-")[0] in seen else rate)
            assert left.left == pytest.approx(expected)
            assert left.guessed == any(n.split("-")[0] not in seen for n, e, _ in plan[place + 1 :] if e)
            assert str(left).startswith("about ") == left.guessed


def test_stages_that_were_done_before_are_over_and_others_come_in_between() -> None:
    left = TimeLeft()
    left.plan([("pretrain", 100), ("supervised", 10), ("joint", 20)])
    left.start("supervised", 10, 5)  # pretrain was read from the folder
    left.epoch(5, 1.0)
    assert left.left == 4 + 20
    left.start("extra", 3, 0)
    left.epoch(0, 2.0)
    assert left.left == 2 * 2.0 + 20 * 2.0


# ---- bars and who talks


@pytest.mark.parametrize("text", ["runs/[old]/x is finished already", "runs/a[/b] is finished already"])
def test_a_path_with_brackets_is_shown_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Bars().message(text)
    assert capsys.readouterr().err.strip() == text


ON_A_TERMINAL = """
from autonovel.machine.progress import Bars, make_reporter
reporter = make_reporter()
assert isinstance(reporter, Bars)
reporter.plan([("supervised", 2), ("joint", 4)])
for stage, epochs in (("supervised", 2), ("joint", 4)):
    reporter.start(stage, epochs, 0)
    for number in range(epochs):
        reporter.epoch(number, {"new": [1.0, 3.0]}, 30.0)
        reporter._progress.refresh()
    reporter.finish()
"""


def on_a_terminal(program: str) -> str:
    """What a program writes to the terminal that is its stderr."""
    outside, inside = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen([sys.executable, "-c", program], stderr=inside, env=environment) as process:
        os.close(inside)
        shown = b""
        while True:
            try:
                part = os.read(outside, 4096)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            shown += part
    os.close(outside)
    assert process.returncode == 0
    return shown.decode()


def test_one_bar_over_all_stages_on_a_terminal() -> None:
    text = on_a_terminal(ON_A_TERMINAL)
    assert "training takes about 3 minutes on this machine" in text
    for part in ("supervised 1/2", "joint 4/4", "about 2:30 left", "0:00 left", "new 2.0000"):
        assert part in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


WORKING = """
import time
from autonovel.machine.progress import make_reporter
reporter = make_reporter()
with reporter.working("counting classes"):
    time.sleep(0.2)
    reporter.message("a sentence")
"""


def test_what_has_no_steps_is_shown_while_it_goes_on_and_nothing_stays_of_it() -> None:
    text = on_a_terminal(WORKING)
    assert "counting classes" in text
    assert "0/0" not in text
    assert "\x1b[2K" in text.rpartition("counting classes")[2]  # the line is wiped
    said = subprocess.run([sys.executable, "-c", WORKING], capture_output=True, text=True)
    assert said.stderr == "a sentence\n"


def test_who_talks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_reporter(False)) is Reporter
    assert isinstance(make_reporter(), Lines)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    assert isinstance(make_reporter(), Notebook)
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "2")
    assert type(make_reporter()) is Reporter
