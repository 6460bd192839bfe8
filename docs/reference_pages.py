"""Write the reference pages from docstrings and flags: python docs/reference_pages.py

Three pages: api.md (the Python interface), cli.md (every command with its flags) and settings.md (every field of a recipe,
which is a flag too). They are kept in the repository, so that they can be read there; a test fails where they are not current.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import autonovel as an
import autonovel.answers.further
import autonovel.export
import autonovel.maths.count.result
import autonovel.pairs
import autonovel.runs.answers
import autonovel.runs.state
from autonovel.cli.flags import Flag, flags_of, usage
from autonovel.cli.help import typed
from autonovel.cli.main import VERBS
from autonovel.runs.verbs import VERBS as VERBS_OF_A_RUN
from autonovel.settings.augment import Augment
from autonovel.settings.estimate import ESTIMATES, Estimate
from autonovel.settings.fields import types_of
from autonovel.settings.joint import OBJECTIVES, Joint
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.recipes import describe_recipes
from autonovel.settings.registry import described as when_to_choose
from autonovel.settings.stages import PRETRAINING, Pretrain, Supervised, Training

DOCS = Path(__file__).parent
NOTE = "<!-- Written by python docs/reference_pages.py; change the docstrings instead. -->"

API: dict[str, dict[str, Any]] = {
    "Whole jobs": {
        "autonovel.describe": an.describe,
        "autonovel.discover": an.discover,
        "autonovel.cluster": an.cluster,
        "autonovel.estimate": an.estimate,
        "autonovel.tune": an.tune,
        "autonovel.load": an.load,
        "autonovel.check": an.check,
    },
    "A run": {
        "autonovel.Run": an.Run,
        "autonovel.answers.further.predict": autonovel.answers.further.predict,
        "autonovel.export.export": autonovel.export.export,
        "autonovel.runs.answers.Answer": autonovel.runs.answers.Answer,
        "autonovel.runs.state.Cluster": autonovel.runs.state.Cluster,
    },
    "scikit-learn's form": {"autonovel.AutoNovel": an.AutoNovel},
    "Images": {
        "autonovel.ImageSet": an.ImageSet,
        "autonovel.Truth": an.Truth,
        "autonovel.load_benchmark": an.load_benchmark,
    },
    "Settings": {"autonovel.get_recipe": an.get_recipe, "autonovel.Recipe": an.Recipe},
    "The number of classes, on features of your own": {
        "autonovel.estimate_classes": an.estimate_classes,
        "autonovel.maths.count.result.ClassEstimate": autonovel.maths.count.result.ClassEstimate,
    },
    "Pair rules, for a training loop of your own": {
        f"autonovel.pairs.{name}": getattr(autonovel.pairs, name)
        for name in ("PairInput", "rank_statistics", "soft_rank_statistics", "cosine_pairs", "nearest_pairs")
    },
    "What can go wrong": {
        f"autonovel.{name}": getattr(an, name) for name in ("InputError", "TrainingError", "AutonovelWarning")
    },
}
"""What is public, by what it is for."""

INNER = re.compile(
    r"_|write_|read_|append_|forget_|(remove|claim|whole|file|checksums|to_dict|machine|state|config|finished|exists|has|open|kind_found|"
    r"typicality|labelled_features|unlabelled)$"
)
"""Members of classes that are for the package itself."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    first, *others = ("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (head, *rows))
    return "\n".join([first, "|" + "---|" * len(head), *others])


# Python


def api_page() -> str:
    """The Python interface."""
    parts = [
        "# Python",
        NOTE,
        "`import autonovel as an` gives everything that is named `autonovel.NAME` here; the rest is imported by its full name. "
        "All settings and what they mean: [settings.md](settings.md).",
    ]
    told: set[str] = set()
    for title, things in API.items():
        parts.append(f"## {title}")
        for name, thing in things.items():
            parts += [f"### `{name}`", *described(name.rpartition(".")[2], thing, told)]
    return "\n\n".join(parts) + "\n"


def described(name: str, thing: Any, told: set[str]) -> list[str]:
    """Signature, documentation and, for a class, its public members; arguments that were told of before are left out."""
    if not inspect.isclass(thing):
        return [signature(name, definition(thing)), prose(thing, told)]
    tree = definition(thing)
    own = [node for kind in lineage(thing) for node in definition(kind).body if isinstance(node, ast.FunctionDef)]
    first = next((node for node in own if node.name == "__init__"), None)
    head = [] if first is None or issubclass(thing, an.Run) else [signature(name, first)]  # nobody makes a Run herself
    members = [member_row(thing, node) for node in own if not INNER.match(node.name)]
    members += [verb_row(kind) for kind in VERBS_OF_A_RUN.values()] if issubclass(thing, an.Run) else []
    fields = [row for row in field_rows(tree) if row[1]]
    if thing is Recipe:
        return [prose(thing, told), "Its fields, as flags: [settings.md](settings.md)."]
    return [
        *head,
        prose(thing, told),
        *([table(["field", "what"], fields)] if fields else []),
        *([table(["member", "what"], members)] if members else []),
    ]


def lineage(thing: type) -> list[type]:
    """A class and those of the package that it extends."""
    return [kind for kind in thing.__mro__ if kind.__module__.startswith("autonovel.")]


def definition(thing: Any) -> Any:
    """The syntax tree of a function or class."""
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def signature(name: str, node: ast.FunctionDef) -> str:
    """How it is called, as a block of code."""
    line = f"{name}({', '.join(parameters(node))})"
    if node.returns is not None and node.name != "__init__":
        line += f" -> {ast.unparse(node.returns)}"
    return "```python\n" + "\n".join(textwrap.wrap(line, 100, subsequent_indent="    ")) + "\n```"


def parameters(node: ast.FunctionDef) -> Iterable[str]:
    """``name=default`` for each, without ``self``."""
    spec = node.args
    placed = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [None] * (len(placed) - len(spec.defaults)) + list(spec.defaults)
    for arg, default in zip(placed, defaults, strict=True):
        if arg.arg not in ("self", "cls"):
            yield parameter(arg, default)
    if spec.vararg:
        yield f"*{parameter(spec.vararg, None)}"
    elif spec.kwonlyargs:
        yield "*"
    for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        yield parameter(arg, default)
    if spec.kwarg:
        yield f"**{parameter(spec.kwarg, None)}"


def parameter(arg: ast.arg, default: ast.expr | None) -> str:
    """One of them."""
    return arg.arg if default is None else f"{arg.arg}={ast.unparse(default)}"


def field_rows(node: ast.ClassDef) -> Iterable[tuple[str, str]]:
    """The fields of a class that have a text below them."""
    for line, below in zip(node.body, node.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            yield f"`{ast.unparse(line.target)}`", plain(" ".join(str(below.value.value).split()))


def member_row(owner: type, node: ast.FunctionDef) -> tuple[str, str]:
    """A method as it is called, or a property, with its first paragraph."""
    is_property = any(ast.unparse(mark) == "property" for mark in node.decorator_list)
    shown = [word.partition("=")[0] for word in parameters(node)]
    words = [word for word in shown if word != "*"]
    text = inspect.getdoc(getattr(owner, node.name)) or ""
    call = node.name if is_property else f"{node.name}({', '.join(words)})"
    return f"`{call}`", plain(" ".join(text.partition("\n\n")[0].split()))


def verb_row(kind: Any) -> tuple[str, str]:
    """A verb of editing as it is called, with what it does."""
    words = [
        f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in inspect.signature(kind).parameters.values()
    ]
    return f"`{kind.DO}({', '.join(words)})`", plain(" ".join((kind.__doc__ or "").split()))


ALIKE = ("recipe", "preset", "seed", "device", "cache", "verbose", "reporter", "world", "report", "out", "run")
"""Arguments that mean the same in every function."""


def prose(thing: Any, told: set[str]) -> str:
    """A docstring as Markdown. Of arguments that mean the same everywhere, those that were told of before are left out."""
    parts = []
    for paragraph in inspect.cleandoc(thing.__doc__ or "").split("\n\n"):
        title, _, body = paragraph.partition("\n")
        if title in ("Args:", "Attributes:", "Returns:", "Raises:"):
            lines = [" ".join(entry.split()) for entry in re.split(r"\n(?=\S)", textwrap.dedent(body))]
            if title == "Args:":
                new = [line for line in lines if line.partition(":")[0] not in told]
                told |= {name for line in lines if (name := line.partition(":")[0]) in ALIKE}
                rest = ["The other arguments are those of the functions above."] if len(new) < len(lines) else []
                parts += ["\n".join(f"- {entry_of(line)}" for line in new), *rest]
            elif title == "Returns:":
                parts.append(f"Returns {plain(lines[0][0].lower() + lines[0][1:])}")
            else:
                parts += [title, "\n".join(f"- {entry_of(line)}" for line in lines)]
        elif paragraph.startswith(">>>"):
            parts.append("```python\n" + re.sub(r" +# doctest:.*", "", paragraph) + "\n```")
        else:
            parts.append(plain(" ".join(paragraph.split())))
    return "\n\n".join(part for part in parts if part)


def entry_of(line: str) -> str:
    """``name: text`` with the name as code."""
    name, _, text = line.partition(":")
    return f"`{name}`:{plain(text)}"


def plain(text: str) -> str:
    """Cross-references and code of docstrings as Markdown has them."""
    text = re.sub(r":\w+:`~([\w.]+\.)?(\w+)`", r"`\2`", text)
    text = re.sub(r":\w+:`([\w.]+)`", r"`\1`", text)
    return text.replace("``", "`")


# The command line


def cli_page() -> str:
    """Every command."""
    flags = {verb: list(flags_of(command(verb))) for verb in VERBS}
    counted = Counter((flag.name, flag.text) for of_verb in flags.values() for flag in of_verb)
    shared = {flag.name: flag for of_verb in flags.values() for flag in of_verb if counted[flag.name, flag.text] > 2}
    parts = [
        "# Commands",
        NOTE,
        "`autonovel COMMAND --help` prints the flags that matter, `--help-all` all of them. `--flag value` and `--flag=value` "
        "are the same; flags and other words may come in any order. The exit status is 0, 2 where the input cannot be used and "
        "1 where the work failed; either is explained in one sentence on stderr.",
        "Those that train take every [setting](settings.md) as a flag too, such as `--joint.epochs 50`.",
        ", ".join(f"[`{verb}`](#autonovel-{verb})" for verb in VERBS) + ".",
        "## What several commands take",
        table(["", "what"], (flag_row(flag)[:2] for flag in sorted(shared.values(), key=placed_first))),
        "Where nothing else is said, `--preset` is `paper`, `--seed` `0`, `--device` `auto` and `--root` `data`.",
    ]
    for verb in VERBS:
        own = [flag for flag in flags[verb] if counted[flag.name, flag.text] < 3]
        others = [flag for flag in flags[verb] if flag not in own and not flag.positional]
        parts += [
            f"## autonovel {verb}",
            " ".join((command(verb).__doc__ or "").split()),
            f"`{usage(verb, flags[verb]).removeprefix('usage: ')}`",
        ]
        if own:
            parts.append(table(["", "what", "default"], (flag_row(flag) for flag in sorted(own, key=placed_first))))
        if others:
            parts.append(taken(others, [flag for flag in shared.values() if not flag.positional]))
    return "\n\n".join(parts) + "\n"


ALIKE_DEFAULTS = ("`paper`", "`0`", "`auto`", "`data`")
"""Said once, at the top."""


def taken(others: Sequence[Flag], shared: Sequence[Flag]) -> str:
    """The flags that a command takes beside its own: by name or, where they are most of the shared ones, what is missing."""
    missing = [flag for flag in shared if flag.name not in {other.name for other in others}]
    if len(missing) > len(others):
        return "And " + ", ".join(map(named, others)) + "."
    but = f" but {', '.join(f'`{flag.name}`' for flag in missing)}" if missing else ""
    here = ", ".join(named(flag) for flag in others if "(" in named(flag))
    return f"And all of the flags above{but}" + (f"; {here}." if here else ".")


def named(flag: Flag) -> str:
    """A flag that is described elsewhere, with its default here."""
    default = default_of(flag)
    return f"`{flag.name}`" + (f" ({default})" if default not in ("", "no", *ALIKE_DEFAULTS) else "")


def command(verb: str) -> type[Any]:
    """The class of a command."""
    module, _, kind = VERBS[verb].partition(".")
    found: type[Any] = getattr(import_module(f"autonovel.cli.{module}"), kind)
    return found


def placed_first(flag: Flag) -> bool:
    """The key that puts words without a flag before the flags."""
    return not flag.positional


def flag_row(flag: Flag) -> tuple[str, str, str]:
    """How a flag is typed, what it does, its default."""
    return f"`{flag.name if flag.positional else typed(flag)}`", flag.text, default_of(flag)


def default_of(flag: Flag) -> str:
    """The value that it has when it is not typed."""
    if flag.default is MISSING:
        return "must be given"
    if flag.default in (None, "", ()):
        return ""
    if isinstance(flag.default, bool):
        return "yes" if flag.default else "no"
    values = flag.default if isinstance(flag.default, tuple) else (flag.default,)
    return f"`{' '.join(value.as_posix() if isinstance(value, Path) else str(value) for value in values)}`"


# Settings


def settings_page() -> str:
    """Every setting, once."""
    joint = [name for name in own_fields(Joint) if name not in own_fields(Training)]
    return (
        "\n\n".join(
            [
                "# Settings",
                NOTE,
                "A setting is a flag of the commands that train: `--joint.heads 4`. A stage has the settings of the method "
                "that it runs, and a flag of another method is refused. A recipe is a set of values with a name; `autonovel "
                "recipes NAME` prints all of one. In Python, `with_fields` changes some: "
                '`autonovel.settings.recipes.with_fields(an.get_recipe("best"), {"joint.heads": 2})`.',
                "## Recipes",
                table(["recipe", "what for"], ((f"`{name}`", text) for name, text in describe_recipes().items())),
                "Each comes in the presets `paper`, `reference` and `fast`: [how they differ](method.md#presets).",
                "## The run as a whole",
                rows_of(Recipe, "", ("method", "pile", "mirror", "smallest_part", "incremental")),
                names_of("method"),
                "## `model`",
                rows_of(Model, "model."),
                "## Training: every stage that is trained",
                "`pretrain`, `supervised` and `joint` have these, each with defaults of its own, which are named with it below: "
                "`--pretrain.epochs`, `--supervised.epochs`, `--joint.epochs`.",
                rows_of(
                    Training, "STAGE.", [name for name in own_fields(Training) if name != "augment"], defaults=False
                ),
                names_of("joint.train_from", "supervised.train_from"),
                "## `augment`: how images are varied",
                "`--pretrain.augment`, `--supervised.augment` and `--joint.augment` have these.",
                rows_of(Augment, "STAGE.augment."),
                "## `pretrain`: a representation from all images",
                *members_of("pretrain.method", PRETRAINING, Pretrain),
                "## `supervised`: the known classes",
                own_schedule(Supervised).strip(),
                "## `estimate`: how many new classes there are",
                "Where the number is not given ([how to choose](estimate.md)).",
                rows_of(Estimate, "estimate."),
                *members_of("estimate.method", ESTIMATES, Estimate),
                "## `joint`: known and new classes together",
                own_schedule(Joint).strip(),
                rows_of(Joint, "joint.", joint),
                *members_of("joint.objective", OBJECTIVES, Joint),
                names_of("joint.pairs"),
            ]
        )
        + "\n"
    )


def own_fields(kind: type) -> list[str]:
    """The names of the fields that a class of settings has, but for other classes of settings."""
    return [name for name in types_of(kind) if not is_dataclass(types_of(kind)[name])]


def rows_of(kind: type, prefix: str, names: Iterable[str] | None = None, *, defaults: bool = True) -> str:
    """A table of fields, as flags."""
    given = {field.name: field.default for field in fields(kind)}
    flags = [
        Flag(f"{prefix}{name}", types_of(kind)[name], given[name], kind)
        for name in (own_fields(kind) if names is None else names)
    ]
    return table(["flag", "what", "default"][: 2 + defaults], (flag_row(flag)[: 2 + defaults] for flag in flags))


def names_of(*paths: str) -> str:
    """What a setting that chooses by name takes, and when."""
    title = " and ".join(f"`--{path.replace('_', '-')}`" for path in reversed(paths))
    return f"{title}:\n\n" + table(
        ["name", "when"], ((f"`{name}`", when) for name, when in when_to_choose()[paths[0]].items())
    )


def members_of(path: str, members: Mapping[str, type], base: type) -> Iterable[str]:
    """The methods that one is chosen from: when to use each, its schedule, and what it alone has."""
    names = {kind: name for name, kind in members.items()}
    for name, kind in members.items():
        parent = kind.__mro__[1]
        alike = f" As `{names[parent]}`." if parent in names else ""
        yield f"### `--{path} {name}`"
        yield (
            " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
            + alike
            + own_schedule(kind, parent if alike else base)
        )
        new = [field for field in own_fields(kind) if field not in {*own_fields(parent), *own_fields(Training)}]
        if new:
            yield rows_of(kind, f"{path.partition('.')[0]}.", new)


def own_schedule(kind: type, base: type = Training) -> str:
    """The defaults in which a class differs from the one that it extends."""
    usual = {field.name: field.default for field in fields(base)}
    own = {field.name: field.default for field in fields(kind) if field.name in own_fields(kind)}
    changed = [
        f"{name.replace('_', '-')} {plain_value(value)}"
        for name, value in own.items()
        if name in usual and value != usual[name]
    ]
    return f" Its own: {', '.join(changed)}." if changed else ""


def plain_value(value: Any) -> str:
    """A default as a person reads it."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


PAGES = {"api.md": api_page, "cli.md": cli_page, "settings.md": settings_page}

if __name__ == "__main__":
    for file, make in PAGES.items():
        (DOCS / file).write_text(make(), encoding="utf-8")
