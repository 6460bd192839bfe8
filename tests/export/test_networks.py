"""The exported network says what the run's network says, under the names that a person gave."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors import safe_open

import autonovel
from autonovel.answers.judge import Judge
from autonovel.answers.network import restore
from autonovel.api.run import Run, load
from autonovel.base.errors import InputError, TrainingError
from autonovel.cli.main import main
from autonovel.data.loader import resize
from autonovel.export import export, graphs
from autonovel.export.card import card
from autonovel.export.network import network_of
from autonovel.export.weights import read_model
from autonovel.machine.device import Mode
from autonovel.maths.strangers import FEWEST_IMAGES
from autonovel.runs.answers import Answer
from autonovel.runs.classes import Class, Outputs
from tests.export.conftest import edit, pixels_of

both = pytest.mark.parametrize("trained", ["single", "pair"], indirect=True)


def images(n: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, (n, 8, 8, 1), dtype=np.uint8))


def expected(run: Run, pixels: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What must come out, put together class by class from the network's own answers and the clusters as edited."""
    net = restore(run, Mode.of("cpu")).net
    net.precision = torch.float32
    with torch.no_grad():
        features, joint, new = net(resize(pixels, 16))
    known = len(run.machine.known)
    joint, new = calibrated(run, joint.softmax(1).numpy()), calibrated(run, new.softmax(1).numpy())
    # as conftest.edit does: 1 takes 2, 3 is none, 4 is the second known class
    parts = {c: [c] for c in range(known)} | {1: [1, known + 4], known: [known], known + 1: [known + 1, known + 2]}
    parts[known + 2] = [known + 3]
    together = np.stack([sum(joint[:, i] for i in parts[c]) for c in sorted(parts)], 1)
    alone = np.stack(
        [sum((new[:, i - known] for i in parts[c] if i >= known), np.zeros(len(new))) for c in sorted(parts)], 1
    )
    kept = np.load(run.path / "judge.npz")
    closest = (features / features.norm(dim=1, keepdim=True)).numpy() @ kept["centres"].T
    return together, alone, features.numpy(), closest.max(1) < kept["numbers"][0]


def doubt(run: Run) -> None:
    """Have the run calibrated so that it shows."""
    replace(Judge.read(run), power=0.6, doubt=0.1).write(run)


def calibrated(run: Run, table: np.ndarray) -> np.ndarray:
    """As a run's own answers are, written as a loop."""
    _, power, doubt = np.load(run.path / "judge.npz")["numbers"]
    rows = []
    for row in table:
        raised = [max(float(p), 1e-12) ** power for p in row]
        rows.append([(1 - doubt) * p / sum(raised) + doubt / len(row) for p in raised])
    return np.array(rows)


def same(found: list[np.ndarray], wanted: tuple[np.ndarray, ...]) -> bool:
    return all(
        a.shape == b.shape and np.abs(a * 1.0 - b).max() <= 1e-4 * max(1, np.abs(b).max())
        for a, b in zip(found, wanted, strict=True)
    )


def names(out: Path) -> list[str]:
    return [entry["name"] for entry in json.loads((out / "classes.json").read_text())]


@both
def test_onnx(trained: Run, tmp_path: Path) -> None:
    edit(trained)
    doubt(trained)
    out = export(trained, tmp_path / "onnx", format="onnx")
    assert {path.name for path in out.iterdir()} == {"model.onnx", "classes.json", "README.md"}
    session = onnxruntime.InferenceSession(out / "model.onnx")
    [given] = session.get_inputs()
    assert (given.name, given.type, given.shape) == ("images", "tensor(uint8)", ["n", 8, 8, 1])
    assert [part.name for part in session.get_outputs()] == ["probabilities", "probabilities_new", "features", "unlike"]
    for n in (1, 2, 5):
        assert same(session.run(None, {"images": images(n).numpy()}), expected(trained, images(n)))
    assert names(out) == [*trained.classes, "not a class"]
    assert str(Path(graphs.__file__).parent).encode() not in (out / "model.onnx").read_bytes()
    told = json.loads(session.get_modelmeta().custom_metadata_map["autonovel"])
    assert [entry["name"] for entry in told["classes"]] == names(out)


@pytest.mark.parametrize("trained", ["pair"], indirect=True)
def test_torch_program(trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(trained)
    doubt(trained)
    out = tmp_path / "torch"
    assert main(["export", str(trained.path), "--to", str(out), "--format", "torch"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert said.err.startswith("tracing the network, writing it, and comparing its answers with torch's")
    assert {path.name for path in out.iterdir()} == {"model.pt2", "classes.json", "README.md"}
    assert str(Path(graphs.__file__).parent).encode() not in (out / "model.pt2").read_bytes()
    model = torch.export.load(out / "model.pt2").module()
    for n in (1, 5):
        assert same([part.detach().numpy() for part in model(images(n))], expected(trained, images(n)))


@both
def test_safetensors(trained: Run, tmp_path: Path) -> None:
    edit(trained)
    doubt(trained)
    out = export(trained, tmp_path / "weights", format="safetensors")
    assert {path.name for path in out.iterdir()} == {"model.safetensors", "config.json", "classes.json", "README.md"}
    model = read_model(out)
    with torch.no_grad():
        assert same([part.numpy() for part in model(images(5))], expected(trained, images(5)))
    with safe_open(out / "model.safetensors", "np") as file:
        metadata = file.metadata()
    assert (
        [entry["name"] for entry in json.loads(metadata["classes"])] == names(out) == [*trained.classes, "not a class"]
    )
    assert json.loads(metadata["input"])["shape"] == ["n", 8, 8, 1]
    config = json.loads((out / "config.json").read_text())
    net = restore(trained, Mode.of("cpu")).net
    nets = [net] if hasattr(net, "mean") else list(net.nets)
    assert len(config["networks"]) == len(nets)
    assert config["preprocessing"]["mean"] == nets[0].mean.flatten().tolist()
    text = (out / "README.md").read_text()
    assert ("2 networks" in text) == (len(nets) == 2)


@both
def test_the_images_of_the_run_get_their_classes_again(trained: Run, made: Path, tmp_path: Path) -> None:
    model = read_model(export(trained, tmp_path / "weights", format="safetensors"))
    digits = load(made / "run").images
    pixels = np.stack([pixels_of(digits[row].source) for row in trained.unlabelled])[..., None]
    with torch.no_grad():
        found = model(torch.from_numpy(pixels))[1].numpy()
    sure = np.sort(found, 1)[:, -1] - np.sort(found, 1)[:, -2] > 0.01  # the run may have rounded where two are close
    assert (found.argmax(1) - 5 == trained.machine.group)[sure].all()
    assert np.abs(found.max(1) - trained.machine.probability).max() < 0.01


@pytest.mark.parametrize("trained", ["single"], indirect=True)
def test_the_card_is_honest(trained: Run, tmp_path: Path) -> None:
    trained.name(0, "a|b <script>")
    out = export(trained, tmp_path / "plain", format="safetensors")
    text = (out / "README.md").read_text()
    assert "there is no score" in text
    assert "ACC" not in text
    assert "a\\|b \\<script\\>" in text
    assert "<script>" not in text
    assert "100.0% of the unlabelled images" in text
    summary = trained.summary
    assert f"{summary['images']['labelled']} labelled images of 5 known classes" in text
    trained.write_json("summary.json", summary | {"acc_new": 0.875, "nmi_new": 0.5, "ari_new": None})
    export(trained, out, format="safetensors", overwrite=True)
    text = (out / "README.md").read_text()
    assert "ACC 87.5%, NMI 50.0%." in text
    assert "before a person changed them" in text
    assert "tells 5 known and 5 new classes of images apart" in text
    assert "the number of new classes was given" in text


@pytest.mark.parametrize("trained", ["single"], indirect=True)
def test_the_card_of_a_network_that_knew_no_class_speaks_of_clusters(trained: Run) -> None:
    trained.write_json("summary.json", trained.summary | {"n_known": 0})
    found = [Class(f"new {number}", "new", (number,)) for number in range(3)]
    exported = network_of(trained)._replace(outputs=Outputs(tuple(found), (), np.zeros((0, 0)), 1.0))
    text = card(trained, exported, "model.onnx")
    assert "A network that tells 3 clusters of images apart. They were found in unlabelled images alone." in text
    assert "- the number of clusters was given" in text


def test_a_network_that_knows_new_classes_alone(single: Path, tmp_path: Path) -> None:
    run = load(shutil.copytree(single, tmp_path / "run"))
    state, metadata = run.read_tensors("joint.safetensors")
    described = json.loads(metadata["net"])
    del described["heads"]["known"]
    kept = {name: value for name, value in state.items() if not name.startswith("heads.known")}
    run.write_tensors("joint.safetensors", kept, metadata | {"net": json.dumps(described)})
    out = export(run, tmp_path / "out", format="safetensors")
    with torch.no_grad():
        together, alone, _, _ = read_model(out)(images(4))
    torch.testing.assert_close(together, alone)
    assert alone[:, :5].tolist() == [[0] * 5] * 4
    assert torch.allclose(together.sum(1), torch.ones(4))
    assert "has not learned the known classes" in (out / "README.md").read_text()


def test_rubbish_in_weights_that_are_never_used_is_not_exported(single: Path, tmp_path: Path) -> None:
    run = load(shutil.copytree(single, tmp_path / "run"))
    state, metadata = run.read_tensors("joint.safetensors")
    described = json.loads(metadata["net"])
    described["heads"]["over"] = described["heads"]["known"]  # no answer comes from this head
    unused = {f"heads.over.{name}": state[f"heads.known.{name}"].clone() for name in ("weight", "bias")}
    unused["heads.over.weight"][0, :2] = torch.tensor([torch.nan, -2e30])
    run.write_tensors("joint.safetensors", state | unused, metadata | {"net": json.dumps(described)})
    model = read_model(export(run, tmp_path / "out", format="safetensors"))
    assert model.net.heads["over"].weight[0, :2].tolist() == [0, 0]
    assert torch.equal(model.net.heads["over"].weight[1:], state["heads.known.weight"][1:])
    state["heads.known.weight"][0, 0] = torch.nan
    run.write_tensors("joint.safetensors", state, metadata)
    with pytest.raises(TrainingError, match="weights of the network are not finite"):
        export(run, tmp_path / "again", format="safetensors")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("trained", ["single"], indirect=True)
def test_a_divided_class_and_one_that_lost_its_images_are_told_as_further_images_are(
    trained: Run, tmp_path: Path
) -> None:
    # two filled classes, whatever the network has learned in a second
    filled = [4 - row % 2 for row in range(len(trained.predictions))]
    answers = [
        p._replace(cluster=c, name=f"new {c}", known=False) for p, c in zip(trained.predictions, filled, strict=True)
    ]
    trained.write_predictions(answers)
    trained = load(trained.path)
    largest, least = trained.clusters[4], trained.clusters[3]
    trained.split(largest.number, 3)
    trained.move(least.members.tolist(), largest.number)
    out = export(trained, tmp_path / "out", format="onnx")
    empty = {cluster.name for cluster in trained.clusters if not len(cluster.members)} - set(names(out))
    assert least.name in empty
    assert names(out) == [name for name in trained.classes if name not in empty]
    pixels = images(60).numpy()
    found = onnxruntime.InferenceSession(out / "model.onnx").run(None, {"images": pixels})
    for pile, rows in (("mixed", found[0]), ("new", found[1])):
        answers = few_at_a_time(trained, pixels, pile=pile)
        agree = [p.name == names(out)[place] for p, place in zip(answers, rows.argmax(1), strict=True)]
        assert np.mean(agree) > 0.9  # bfloat16 in the run, float32 here
        np.testing.assert_allclose([p.probability for p in answers], rows.max(1), atol=0.02)
        assert least.name not in {p.name for p in answers}
    assert np.mean([p.unlike for p in answers] == found[3]) > 0.95


@pytest.mark.parametrize("trained", ["single"], indirect=True)
def test_a_class_that_no_output_stands_for_is_told(trained: Run) -> None:
    exported = network_of(trained)
    more = exported.outputs._replace(classes=(*exported.outputs.classes, Class("wren", "new", ())))
    assert "get no probability: wren" in card(trained, exported._replace(outputs=more), "model.onnx")
    assert "get no probability" not in card(trained, exported, "model.onnx")


@pytest.mark.parametrize("trained", ["single"], indirect=True)
def test_a_program_that_says_something_else_is_not_kept(
    trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "TOLERANCE", -1.0)
    with pytest.raises(TrainingError, match="probabilities of model.pt2 differ from torch's by .*not kept"):
        export(trained, tmp_path / "out", format="torch")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_network_that_does_not_fit_is_refused(tmp_path: Path, single: Path) -> None:
    run = load(shutil.copytree(single, tmp_path / "run"))
    run.write_json("summary.json", run.summary | {"n_new": 9})
    with pytest.raises(InputError, match="has 10 outputs and the run 14 classes"):
        export(load(run.path), tmp_path / "out", format="safetensors")
    assert not (tmp_path / "out").exists()


def test_other_files_are_no_network(tmp_path: Path, single: Path) -> None:
    with pytest.raises(InputError, match="There is no run in"):
        read_model(tmp_path)
    out = export(autonovel.load(single), tmp_path / "out", format="safetensors")
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"networks": []}))
    with pytest.raises(InputError, match="holds no exported network"):
        read_model(out)


def drawn(folder: Path) -> list[Path]:
    """Pictures of many kinds: long ones, turned ones, grey ones, some with transparent parts."""
    folder.mkdir()
    chance = np.random.default_rng(3)
    for number, (height, width) in enumerate([(60, 40), (40, 61), (90, 30), (8, 8), (64, 64), (21, 33)] * 4):
        small = chance.integers(0, 256, (6, 6, 4), dtype=np.uint8)
        picture = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
        mode = ("RGB", "L", "RGBA", "P")[number % 4]
        turned = Image.Exif()
        turned[0x0112] = 1 + number % 8
        if mode == "RGB":
            picture.convert(mode).save(folder / f"{number:02d}.jpg", exif=turned, quality=95)
        else:
            picture.convert(mode).save(folder / f"{number:02d}.png", exif=turned)
    return sorted(folder.iterdir())


def few_at_a_time(run: Run, images: Any, **options: Any) -> list[Answer]:
    """The answers of predict for batches that are too small to lower probabilities for the strangers among them."""
    few = FEWEST_IMAGES - 1
    batches = (images[start : start + few] for start in range(0, len(images), few))
    return [answer for batch in batches for answer in run.predict(batch, device="cpu", **options)]


@pytest.mark.parametrize("pile", ["new", "mixed"])
@pytest.mark.parametrize("format", ["onnx", "torch", "safetensors"])
def test_who_follows_the_readme_gets_the_answers_of_the_run(
    single: Path, tmp_path: Path, format: str, pile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load(shutil.copytree(single, tmp_path / "run"))
    run.write_json("summary.json", run.summary | {"how_sure": {"pile": pile}})
    files = drawn(tmp_path / "photos")
    out = export(run, tmp_path / "out", format=format)
    text = (out / "README.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(out)
    said: list[tuple[str, str, float, str]] = []
    given = code.replace('["one.jpg", "another.jpg"]', repr([str(file) for file in files]))
    exec(compile(given, "README.md", "exec"), {"print": lambda *words: said.append(words)})
    alike: list[bool] = []
    for (path, name, probability, unlike), answer in zip(said, few_at_a_time(run, files), strict=True):
        assert path == answer.image
        assert probability == pytest.approx(answer.probability, abs=0.005)  # bfloat16 in the run, float32 here
        alike.append((name, bool(unlike)) == (answer.name, answer.unlike))
    assert sum(alike) >= len(files) - 1


def test_a_missing_package_is_named(single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"Writing ONNX needs onnxscript: pip install 'autonovel\[onnx\]'"):
        export(load(single), tmp_path / "out", format="onnx")
    assert not (tmp_path / "out").exists()
