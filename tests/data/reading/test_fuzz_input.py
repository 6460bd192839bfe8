# ruff: noqa: PT017 - either outcome is right here, so pytest.raises does not fit
"""Random and damaged bytes in place of images, tables, pickles and caches: a reason or a sentence, never a crash."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autonovel.base.errors import InputError
from autonovel.data.benchmarks.published import read_cifar, read_stl10, read_svhn
from autonovel.data.reading.decode import Form, UnusableImageError, decode, to_pixels
from autonovel.data.reading.inputs import load_images
from autonovel.data.reading.store import open_cache
from autonovel.data.reading.tables import list_table
from tests.hostile import UNUSABLE_CONTENT, USABLE, encoded, picture

SEEDS = [make() for name, make in USABLE.items() if name not in ("large.jpg", "much_text.png")]
SEEDS += [make() for name, (make, _) in UNUSABLE_CONTENT.items() if "bomb" not in name]

relaxed = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
some = settings(relaxed, max_examples=120)


@st.composite
def damaged(draw, originals):
    """One of the originals with bytes changed, cut out, repeated or put in."""
    content = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(content)))
        match draw(st.integers(0, 3)):
            case 0:
                content[at : at + 1] = draw(st.binary(min_size=1, max_size=4))
            case 1:
                del content[at : at + draw(st.integers(1, 200))]
            case 2:
                content[at:at] = content[at : at + draw(st.integers(1, 64))]
            case 3:
                content[at:at] = draw(st.binary(max_size=16))
    return bytes(content)


def decode_or_reason(content):
    for form in (Form(16, 3), Form(9, 1)):
        try:
            pixels = decode(content, form)
        except UnusableImageError as unusable:
            assert str(unusable)
            assert "\n" not in str(unusable)
        else:
            assert pixels.dtype == np.uint8
            assert pixels.shape == form.shape


@relaxed
@given(damaged(SEEDS))
def test_damaged_images(content):
    decode_or_reason(content)


@some
@given(
    st.binary(max_size=400),
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0", b"RIFF"]),
)
def test_random_bytes(content, start):
    decode_or_reason(start + content)


@some
@given(
    st.one_of(
        st.none(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=4), st.binary(max_size=30),
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)).map(lambda shape: np.zeros(shape)),
        st.tuples(st.integers(4, 9), st.integers(4, 9)).map(lambda shape: np.full(shape, np.inf)),
        st.tuples(st.integers(4, 9), st.integers(4, 9)).map(lambda shape: np.ones(shape, complex)),
    )
)  # fmt: skip
def test_objects_that_may_be_pictures(thing):
    try:
        assert to_pixels(thing, Form(8, 3)).shape == (8, 8, 3)
    except UnusableImageError as unusable:
        assert str(unusable)


TABLES = [
    b"path,label\na.png,x\nb.png,y\n,\n",
    "pfad;path;label\n1;ä.png;ü\n".encode(),
    b'path,label\n"a\n.png","x, y"\n',
    "path,label\na.png,x\n".encode("utf-16"),
]


@relaxed
@given(content=st.one_of(st.binary(max_size=300), damaged(TABLES), st.text(max_size=100).map(str.encode)))
def test_tables(tmp_path, content):
    for name in ("table.csv", "table.parquet"):
        (tmp_path / name).write_bytes(content)
        try:
            files = list_table(tmp_path / name)
            assert len(files.paths) == len(files.labels) == len(files.stamps)
        except InputError as refused:
            assert "\n" not in str(refused)


@settings(relaxed, max_examples=40)
@given(contents=st.lists(damaged(SEEDS), min_size=1, max_size=3))
def test_whole_folders_with_damaged_images(tmp_path_factory, contents):
    root = tmp_path_factory.mktemp("pile")
    for number in range(4):
        picture(16, 16, seed=number).save(root / f"{number}.png")
    for number, content in enumerate(contents):
        (root / f"x{number}.jpg").write_bytes(content)
    try:
        loaded = load_images(None, root, size=8)
        assert len(loaded.images) + sum(problem.left_out for problem in loaded.problems) == 4 + len(contents)
    except InputError as refused:
        assert "cannot be used" in str(refused)


@some
@given(
    st.one_of(
        st.binary(max_size=200), damaged([b"\x80\x02}q\x01(U\x04dataq\x02]q\x03K\x01aU\x06labelsq\x04]q\x05K\x00au."])
    )
)
def test_cifar_pickles(content):
    from pathlib import Path

    try:
        assert isinstance(read_cifar(content, Path("file")), dict)
    except InputError as refused:
        assert "file" in str(refused)


@some
@given(st.binary(max_size=300), st.binary(max_size=3))
def test_other_published_formats(content, labels):
    from pathlib import Path

    for read in (lambda: read_svhn(content, Path("file")), lambda: read_stl10(content, labels, Path("file"))):
        try:
            read()
        except InputError as refused:
            assert "file" in str(refused)


def test_damaged_caches(tmp_path):
    (tmp_path / "pile").mkdir()
    for number in range(4):
        (tmp_path / "pile" / f"{number}.png").write_bytes(encoded("PNG", picture(8, 8, seed=number)))
    load_images(None, tmp_path / "pile", cache=tmp_path / "cache")
    [path] = (tmp_path / "cache").iterdir()
    whole = path.read_bytes()
    good = open_cache(path)[0].tobytes()

    @some
    @given(damaged([whole]))
    def never_wrong(content):
        path.write_bytes(content)
        opened = open_cache(path)
        if opened is not None:  # the damage lay in the unused part of the head
            assert opened[0].tobytes() == good

    never_wrong()
