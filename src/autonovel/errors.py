"""What can go wrong, in two kinds: the input is not usable, or the work failed."""


class InputError(ValueError):
    """The user's input cannot be used. The message is one sentence that says what to change; the command line exits with 2."""


class TrainingError(RuntimeError):
    """The work failed although the input was fine (a loss that is not finite, for example); the command line exits with 1."""


class AutonovelWarning(UserWarning):
    """Something the user should know that does not stop the work."""
