"""The exported network on the Hugging Face hub."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autonovel.base.errors import InputError, TrainingError, needed, option
from autonovel.export.formats import Options

if TYPE_CHECKING:
    from autonovel.runs.folder import Run

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def upload(run: Run, to: Path, options: Options) -> str:
    """Upload the safetensors folder to a repository, which is made where there is none; gives its address."""
    repository = to.as_posix()
    if not _REPOSITORY.fullmatch(repository):
        raise InputError(f"'{repository}' is no repository of the hub; give {option('to')} as in me/birds.")
    needed("Uploading to the Hugging Face hub", "hub", "huggingface_hub")
    from huggingface_hub import HfApi

    from autonovel.export.weights import write_safetensors

    with tempfile.TemporaryDirectory() as folder:
        write_safetensors(run, Path(folder), replace(options, overwrite=True))
        api = HfApi()
        try:
            made = api.create_repo(repository, private=options.private, exist_ok=True)
            api.upload_folder(
                repo_id=made.repo_id, folder_path=folder, commit_message="The network of an autonovel run"
            )
        except Exception as error:  # the package has errors of several families, and those of what it is built on
            said = str(error).strip().partition("\n")[0]
            raise TrainingError(f"{repository} could not be uploaded ({said or type(error).__name__}).") from error
    return str(made)
