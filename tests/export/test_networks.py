"""The exported network says what the run's network says, under the names that a person gave."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors import safe_open

import autonovel
from autonovel.answers.judge import Judge
from autonovel.answers.network import restore
from autonovel.api.run import Run, load
from autonovel.base.errors import AutonovelWarning, InputError, TrainingError
from autonovel.data.loader import resize
from autonovel.export import export, graphs
from autonovel.export.card import card
from autonovel.export.network import network_of
from autonovel.export.weights import read_model
from autonovel.machine.device import Mode
from autonovel.runs.classes import Class, Outputs
from tests.export.conftest import edit, pixels_of
from tests.runs.made import FORMAT_1

both = pytest.mark.parametrize("trained", ["single", "pair"], indirect=True)


def images(n: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, (n, 16, 16, 1), dtype=np.uint8))


def expected(run: Run, pixels: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What must come out, put together class by class from the network's own answers and the clusters as edited."""
    net = restore(run, Mode.of("cpu")).net
    net.precision = torch.float32
    with torch.no_grad():
        features, joint, new = net(pixels)
    known = len(run.machine.known)
    joint, new = calibrated(run, joint.softmax(1).numpy()), calibrated(run, new.softmax(1).numpy())
    # as conftest.edit does: 1 takes 2, 3 is none, 4 is the second known class
    parts = {c: [c] for c in range(known)} | {1: [1, known + 4], known: [known], known + 1: [known + 1, known + 2]}
    parts[known + 2] = [known + 3]
    together = np.stack([sum(joint[:, i] for i in parts[c]) for c in sorted(parts)], 1)
    alone = np.stack(
        [sum((new[:, i - known] for i in parts[c] if i >= known), np.zeros(len(new))) for c in sorted(parts)], 1
    )
    return together, alone, features.numpy()


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
        a.shape == b.shape and np.abs(a - b).max() <= 1e-4 * max(1, np.abs(b).max())
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
    assert (given.name, given.type, given.shape) == ("images", "tensor(uint8)", ["n", 16, 16, 1])
    assert [part.name for part in session.get_outputs()] == ["probabilities", "probabilities_new", "features"]
    for n in (1, 2, 5):
        assert same(session.run(None, {"images": images(n).numpy()}), expected(trained, images(n)))
    assert names(out) == [*trained.classes, "not a class"]
    assert str(Path(graphs.__file__).parent).encode() not in (out / "model.onnx").read_bytes()
    told = json.loads(session.get_modelmeta().custom_metadata_map["autonovel"])
    assert [entry["name"] for entry in told["classes"]] == names(out)


@pytest.mark.parametrize("trained", ["pair"], indirect=True)
def test_torch_program(trained: Run, tmp_path: Path) -> None:
    edit(trained)
    doubt(trained)
    out = export(trained, tmp_path / "torch", format="torch")
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
    assert json.loads(metadata["input"])["shape"] == ["n", 16, 16, 1]
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
        found = model(resize(torch.from_numpy(pixels), 16)).probabilities_new.numpy()
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
    exported = network_of(trained)._replace(outputs=Outputs(tuple(found), np.arange(3), 1.0))
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
        said = read_model(out)(images(4))
    assert torch.equal(said.probabilities, said.probabilities_new)
    assert said.probabilities[:, :5].tolist() == [[0] * 5] * 4
    assert torch.allclose(said.probabilities.sum(1), torch.ones(4))
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
def test_a_class_that_was_split_off_is_told(trained: Run, tmp_path: Path) -> None:
    largest = max(trained.clusters, key=lambda cluster: len(cluster.members))
    trained.split(largest.number)
    with pytest.warns(AutonovelWarning, match="does not tell new 5: made by hand"):
        out = export(trained, tmp_path / "out", format="safetensors")
    assert names(out)[-1] == "new 5"
    with torch.no_grad():
        assert read_model(out)(images(3)).probabilities[:, -1].tolist() == [0, 0, 0]
    assert "get no probability: new 5" in (out / "README.md").read_text()


@pytest.mark.parametrize("trained", ["single"], indirect=True)
def test_a_program_that_says_something_else_is_not_kept(
    trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "TOLERANCE", -1.0)
    with pytest.raises(TrainingError, match="probabilities of model.pt2 differ from torch's by .*not kept"):
        export(trained, tmp_path / "out", format="torch")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_run_of_the_first_format(tmp_path: Path) -> None:
    run = load(FORMAT_1)
    model = read_model(export(run, tmp_path / "out", format="safetensors"))
    exported = network_of(run)
    with torch.no_grad():
        assert torch.equal(model(images(3)).probabilities, exported.model(images(3)).probabilities)


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


def test_a_missing_package_is_named(single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"Writing ONNX needs onnxscript: pip install 'autonovel\[onnx\]'"):
        export(load(single), tmp_path / "out", format="onnx")
    assert not (tmp_path / "out").exists()
