"""What can go wrong, in two kinds: the input is not usable, or the work failed."""

from collections.abc import Iterable


class InputError(ValueError):
    """The user's input cannot be used. The message is one sentence that says what to change; the command line exits with 2."""


class TrainingError(RuntimeError):
    """The work failed although the input was fine (a loss that is not finite, for example); the command line exits with 1."""


class AutonovelWarning(UserWarning):
    """Something the user should know that does not stop the work."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A clause that names the choice most like the word, or nothing.

    >>> did_you_mean("rotatoin", ["rotation", "none"])
    ' (did you mean rotation?)'
    """
    from difflib import get_close_matches

    near = get_close_matches(word, list(choices), 1)
    return f" (did you mean {near[0]}?)" if near else ""
