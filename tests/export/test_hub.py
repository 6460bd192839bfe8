"""What would be uploaded to the hub, and the sentences where that cannot be."""

import json
import sys
from pathlib import Path

import huggingface_hub
import pytest

from autonovel.api.run import load
from autonovel.base.errors import InputError, TrainingError
from autonovel.export import export
from autonovel.export.weights import read_model


def test_the_safetensors_folder_is_uploaded(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}

    class Api:
        def create_repo(self, repository: str, *, private: bool, exist_ok: bool) -> huggingface_hub.RepoUrl:
            seen["made"] = (repository, private, exist_ok)
            return huggingface_hub.RepoUrl(f"https://huggingface.co/{repository}")

        def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> None:
            folder = Path(folder_path)
            seen["id"] = repo_id
            seen["files"] = {path.name for path in folder.iterdir()}
            seen["classes"] = [entry["name"] for entry in json.loads((folder / "classes.json").read_text())]
            seen["model"] = read_model(folder)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    run = load(single)
    assert str(run.export("me/birds", format="hub")) == "https://huggingface.co/me/birds"
    assert seen["made"] == ("me/birds", True, True)
    assert seen["id"] == "me/birds"
    assert seen["files"] == {"model.safetensors", "config.json", "classes.json", "README.md"}
    assert seen["classes"] == list(run.classes)
    run.export("me/birds", format="hub", private=False)
    assert seen["made"] == ("me/birds", False, True)


def test_a_hub_that_cannot_be_reached_is_one_sentence(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a port on which nothing listens: the real package, no network
    monkeypatch.setattr(huggingface_hub.hf_api.HfApi, "__init__", _local(huggingface_hub.hf_api.HfApi.__init__))
    with pytest.raises(TrainingError, match="me/birds could not be uploaded") as caught:
        export(load(single), "me/birds", format="hub")
    assert len(str(caught.value).splitlines()) == 1


def _local(init):
    def made(self, *words, **options):
        init(self, *words, **(options | {"endpoint": "http://127.0.0.1:9", "token": "hf_none"}))

    return made


def test_the_package_may_be_missing(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"hub needs huggingface_hub: pip install 'autonovel\[hub\]'"):
        export(load(single), "me/birds", format="hub")


@pytest.mark.parametrize("repository", ["/tmp/folder", "a/b/c", "../x", "me/#", "me/bir ds"])
def test_no_repository(single: Path, repository: str) -> None:
    with pytest.raises(InputError, match="no repository of the hub; give to as in me/birds"):
        export(load(single), repository, format="hub")
