"""What a person sees while the work goes on."""

import pytest

from autonovel.progress import Bars


@pytest.mark.parametrize("text", ["runs/[old]/x is finished already", "runs/a[/b] is finished already"])
def test_a_path_with_brackets_is_shown_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Bars().message(text)
    assert capsys.readouterr().err.strip() == text
