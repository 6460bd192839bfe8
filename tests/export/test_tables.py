"""CSV and Parquet, read back by other readers."""

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

from autonovel.api.run import Run
from autonovel.base.errors import InputError
from autonovel.export import export
from tests.export.conftest import edit
from tests.runs.made import make_run

HEADER = ["image", "cluster", "name", "probability", "known", "unlike", "source", "path", "machine"]


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_csv_says_what_a_person_said(run: Run, tmp_path: Path) -> None:
    edit(run)
    unlike = run.predictions[3].image
    run.write_rows("unlike.csv", ("image",), [[unlike]])
    file = export(run, tmp_path / "out", format="csv")
    assert file == tmp_path / "out" / "labels.csv"
    rows = read(file)
    assert list(rows[0]) == HEADER
    assert [row["image"] for row in rows] == [p.image for p in run.predictions]
    by_id = {record.image: record for record in run.images}
    for row, prediction in zip(rows, run.predictions, strict=True):
        assert row["source"] == by_id[row["image"]].source
        assert row["path"] == by_id[row["image"]].path
        assert row["name"] == prediction.name
        assert row["cluster"] == ("" if prediction.cluster is None else str(prediction.cluster))
        assert float(row["probability"]) == prediction.probability
        assert row["known"] == str(int(prediction.known))
        assert row["unlike"] == str(int(row["image"] == unlike))
    assert [row["machine"] for row in rows] == [row["name"] for row in read(run.path / "predictions.csv")]
    assert {(row["machine"], row["name"]) for row in rows} >= {("new 0", "new 0"), ("new 1", "grey heron")}
    assert {"new 0", "grey heron", "not a class", "1"} == {row["name"] for row in rows}
    assert "2" not in {row["cluster"] for row in rows}  # which was merged


def test_a_spreadsheet_has_no_formulas(run: Run, tmp_path: Path) -> None:
    run.name(0, "=HYPERLINK(1)").name(1, "-5 degrees")
    plain = read(export(run, tmp_path / "a.csv", format="csv"))
    rows = read(export(run, tmp_path / "b.csv", format="spreadsheet"))
    assert {row["name"] for row in rows} >= {"'=HYPERLINK(1)", "'-5 degrees"}
    assert [{key: cell.removeprefix("'") for key, cell in row.items()} for row in rows] == plain


def test_all_images_are_there_on_demand(run: Run, tmp_path: Path) -> None:
    rows = read(export(run, tmp_path / "all.csv", format="csv", all=True))
    assert [row["image"] for row in rows] == [record.image for record in run.images]
    labelled = {record.image: record.label for record in run.images if record.label is not None}
    for row in rows:
        if row["image"] in labelled:
            assert (row["name"], row["cluster"], row["probability"], row["known"]) == (
                labelled[row["image"]],
                "",
                "",
                "1",
            )
    assert sum(row["probability"] != "" for row in rows) == len(run.predictions)


def test_parquet_has_the_same_content_with_types(run: Run, tmp_path: Path) -> None:
    edit(run)
    table = parquet.read_table(export(run, tmp_path, format="parquet", all=True))
    assert table.column_names == HEADER
    assert [str(field.type) for field in table.schema] == [
        "string", "int64", "string", "double", "bool", "bool", "string", "string", "string",
    ]  # fmt: skip
    rows = read(export(run, tmp_path, format="csv", all=True))
    for mine, row in zip(table.to_pylist(), rows, strict=True):
        assert {k: "" if v is None else str(int(v) if isinstance(v, bool) else v) for k, v in mine.items()} == row


def test_a_file_that_is_there_is_replaced_only_on_demand(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    export(run, file, format="csv")
    before = file.read_bytes()
    run.name(0, "egret")
    with pytest.raises(InputError, match="mine.csv exists; .*overwrite=True"):
        export(run, file, format="csv")
    assert file.read_bytes() == before
    export(run, file, format="csv", overwrite=True)
    assert "egret" in {row["name"] for row in read(file)}


def test_a_run_without_images(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [], n_new=1)
    run.write_array("features.npy", np.zeros((0, 4), np.float16))
    assert read(export(run, tmp_path / "a.csv", format="csv")) == []
    assert parquet.read_table(export(run, tmp_path / "a.parquet", format="parquet")).num_rows == 0


@pytest.mark.parametrize(
    ("to", "options", "sentence"),
    [
        ("out", {"format": "cvs"}, "no format 'cvs' .did you mean csv"),
        ("out", {"how": "steal"}, "no way to place files 'steal'"),
        ("out", {"format": "csv", "how": "move"}, "how='move' is for sorted folders"),
        ("a.csv", {}, "looks like csv, but the format is folders; add format='csv'"),
        ("a.onnx", {"format": "onnx"}, "needs a folder"),
        ("file/a.csv", {"format": "csv"}, "cannot be written"),
        ("/proc/a.csv", {"format": "csv"}, r"^The folder /proc cannot be written \(.+\); give another one with to\.$"),
        ("/proc/out", {}, r"^The folder /proc/out cannot be written \(.+\); give another one with to\.$"),
        (
            "/proc/out",
            {"format": "onnx"},
            r"^The folder /proc/out cannot be written \(.+\); give another one with to\.$",
        ),
    ],
)
def test_what_makes_no_sense_is_one_sentence(run: Run, tmp_path: Path, to: str, options: dict, sentence: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=sentence):
        export(run, tmp_path / to, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "run"]


def test_an_unfinished_run_is_refused(run: Run, tmp_path: Path) -> None:
    (run.path / "summary.json").unlink()
    with pytest.raises(InputError, match="not finished"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
