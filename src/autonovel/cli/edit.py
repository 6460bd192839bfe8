"""The commands with which a person corrects a run, one for each verb: what is typed are the fields of the verb."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, Union, get_args, get_type_hints

from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional
from autonovel.cli.results import print_changes
from autonovel.runs.verbs import FLAG, VERBS, Edit
from autonovel.settings.kinds import members


@dataclass(frozen=True)
class EditVerb(Verb):
    """A command that changes the clusters of a finished run."""

    EDIT: ClassVar[type[Edit]]

    run: Positional[Path]
    """The run folder."""

    def do(self) -> None:
        """Change it, and print what was changed."""
        from autonovel.runs.folder import load

        run = load(self.run)
        before = run.clusters
        run.edit(self.EDIT.of({f.name: getattr(self, f.name) for f in fields(self) if f.name != "run"}))
        print_changes(before, load(self.run).clusters)


def __getattr__(word: str) -> type[EditVerb]:
    """The command of a verb."""
    if word not in VERBS:
        raise AttributeError(word)
    kind: Any = VERBS[word]
    hints = get_type_hints(kind)
    # one of many words comes last, which is where they can be typed; then flags
    order = sorted(fields(kind), key=lambda f: (f.metadata == FLAG, get_args(hints[f.name])[-1:] == (...,)))
    made = [(f.name, _typed(hints[f.name], f.metadata == FLAG), field(default=f.default)) for f in order]
    command = make_dataclass(kind.__name__, made, bases=(EditVerb,), frozen=True, namespace={"EDIT": kind})
    for name in ("__doc__", "__module__", "__qualname__"):  # by which the texts of its fields are known
        setattr(command, name, getattr(kind, name))
    return command


def _typed(hint: Any, is_flag: bool) -> Any:
    """The type of a field on the command line, where nothing but a word can be typed."""
    hint = Union[tuple(part for part in members(hint) if part is not NoneType)] if members(hint) else hint  # noqa: UP007
    return hint if is_flag else Annotated[hint, *Positional.__metadata__]
