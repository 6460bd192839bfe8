"""What a run leaves in its folder."""

import json
import math

from autonovel.outcome import plain


def test_numbers_that_json_does_not_have_are_null() -> None:
    kept = plain({"a": math.nan, "b": [math.inf, (1.5, -math.inf)], "c": "nan", "d": 3})
    assert json.loads(json.dumps(kept, allow_nan=False)) == {"a": None, "b": [None, [1.5, None]], "c": "nan", "d": 3}
