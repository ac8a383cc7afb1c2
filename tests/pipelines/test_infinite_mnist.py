"""Digits without end: the same rows whichever way they are made, and nothing but training digits in them."""

from __future__ import annotations

import gzip
import importlib
from pathlib import Path

import numpy as np
import pytest
from every_case import every_case
from scipy import ndimage

from streamsvm import Store

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
N, SIDE = 60, 12
CROSS = ndimage.generate_binary_structure(2, 1)


@pytest.fixture(scope="module")
def recipe():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PIPELINES)
        return importlib.import_module("infinite_mnist")


@pytest.fixture(scope="module")
def images():
    """Blobs, some of which touch the border."""
    noise = np.random.default_rng(0).random((N, SIDE, SIDE))
    smooth = ndimage.gaussian_filter(noise, (0, 1.2, 1.2))
    return np.clip(1500 * (smooth - 0.5), 0, 255).astype(np.uint8).reshape(N, -1)


@pytest.fixture
def digits(recipe, images):
    """digits(seed): labelled by the image's number."""
    return lambda seed=0, **strength: recipe.InfiniteDigits(images, np.arange(N), seed, recipe.Strength(**strength))


def run(recipe, monkeypatch, *options):
    monkeypatch.setattr("sys.argv", ["infinite_mnist.py", *map(str, options)])
    recipe.main()


def idx(path, values):
    shape = b"".join(side.to_bytes(4, "big") for side in values.shape)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, values.ndim]) + shape + values.astype(np.uint8).tobytes()))


@pytest.mark.parametrize("start", [0, 37, N, 5 * N + 11, 1 << 40])
@pytest.mark.parametrize("step", [1, 17])
@pytest.mark.slow  # deformed images
def test_a_row_depends_on_its_number_alone(digits, start, step):
    X, y = digits().rows(start, start + 70)
    again = digits()
    parts = [again.rows(at, min(at + step, start + 70)) for at in range(start, start + 70, step)]
    np.testing.assert_array_equal(X, np.concatenate([part for part, _ in parts]))
    np.testing.assert_array_equal(y, np.concatenate([part for _, part in parts]))


def test_seeds_differ_in_order_and_deformation(digits):
    (X, y), (other_X, other_y) = (digits(seed).rows(N, 3 * N) for seed in (1, 2))
    assert np.mean(y == other_y) < 0.1
    assert all((X[y == i][0] != other_X[other_y == i][0]).any() for i in range(N))


def test_the_first_pass_is_the_images_as_they_are(digits, images):
    X, y = digits(3).rows(0, N + 1)
    np.testing.assert_array_equal(X[:N], images)
    np.testing.assert_array_equal(y[:N], np.arange(N))
    assert (X[N] != images[y[N]]).any()


def test_each_pass_has_every_image_once_in_an_order_of_its_own(digits):
    passes = digits().rows(0, 8 * N)[1].reshape(8, N)
    np.testing.assert_array_equal(np.sort(passes, axis=1), np.tile(np.arange(N), (8, 1)))
    same = (passes[:, None] == passes[None]).mean(axis=2)
    assert same[~np.eye(8, dtype=bool)].max() < 0.15


def test_without_strength_a_row_is_its_image(digits, images):
    X, y = digits(bend=0, linear=0, shift=0, thick=0).rows(N, 3 * N)
    np.testing.assert_array_equal(X, images[y])


def test_rows_are_the_images_sampled_at_displaced_places(recipe, digits, images):
    """Against SciPy's interpolation and morphology, from the same random numbers."""
    maker = digits(5)
    X, y = maker.rows(N, 2 * N)
    for row, source, number in zip(X, y, range(N, 2 * N), strict=True):
        expected = deformed(recipe, images[source].reshape(SIDE, SIDE), 5, number, recipe.STRENGTH)
        np.testing.assert_allclose(row.reshape(SIDE, SIDE), expected, atol=0.51)


def deformed(recipe, image, seed, number, strength):
    key = np.uint64(recipe._key(seed, recipe._ROW, number))
    draws = [recipe._uniform(key, k) for k in range(7)]
    weight, shift = strength.thick * draws[0], strength.shift * np.array(draws[1:3])
    linear = strength.linear * np.array(draws[3:]).reshape(2, 2)
    field = recipe.smooth_field(seed)
    bend = strength.bend * np.stack([recipe._window(field, SIDE, key, k) for k in (7, 9)])
    image = image.astype(float)
    inside = (slice(1, -1),) * 2
    end = (ndimage.grey_dilation if weight > 0 else ndimage.grey_erosion)(image, footprint=CROSS)
    image[inside] += abs(weight) * (end - image)[inside]
    at = np.indices((SIDE, SIDE)) - (SIDE - 1) / 2
    places = at + np.tensordot(linear, at, 1) + shift[:, None, None] + bend + (SIDE - 1) / 2
    return ndimage.map_coordinates(image, places, order=1, mode="grid-constant")


def test_bytes_stay_within_the_image_s(recipe):
    full = recipe.InfiniteDigits(np.full((3, SIDE * SIDE), 255, np.uint8), np.arange(3))
    X = full.rows(3, 3000)[0].reshape(-1, SIDE, SIDE)
    assert X[:, 5:7, 5:7].min() == 255  # nothing wraps around, and black comes from outside alone
    assert X[:, 0].min() == 0


def test_the_field_is_smooth_and_of_unit_mean_square(recipe):
    field = recipe.smooth_field(0)
    assert np.mean(field**2) == pytest.approx(1, rel=1e-4)
    assert np.abs(np.diff(field, axis=0)).max() < 1.2  # a step of less than a pixel folds nothing over


@pytest.mark.parametrize("workers", [1, 3])
def test_a_store_has_the_rows_whoever_makes_them(recipe, digits, tmp_path, monkeypatch, workers):
    monkeypatch.setattr(recipe, "BLOCK_ROWS", 32)
    recipe.write_store(tmp_path / "s.zarr", digits(), 200, start=30, workers=workers)
    store, (X, y) = Store.open(tmp_path / "s.zarr"), digits().rows(30, 230)
    np.testing.assert_array_equal(store.read(0, 200).dense(), X)
    np.testing.assert_array_equal(store.y, y)
    assert store.dtype == np.uint8
    np.testing.assert_allclose(store.statistics["mean"], X.mean(axis=0))


def test_a_shorter_store_is_the_beginning_of_a_longer_one(recipe, digits, tmp_path):
    for rows in (70, 150):
        recipe.write_store(tmp_path / f"{rows}.zarr", digits(), rows)
    short, long = (Store.open(tmp_path / f"{rows}.zarr") for rows in (70, 150))
    np.testing.assert_array_equal(short.read(0, 70).dense(), long.read(0, 70).dense())
    np.testing.assert_array_equal(short.y, long.y[:70])


@every_case(
    ("options", "message"),
    [
        (("--data", "nowhere"), "--data nowhere: no such folder"),
        (("--data", "."), "train-images-idx3-ubyte.gz does not exist"),
        (("--data", ".", "--rows", 0), "--rows 0: expected a number from 1"),
        (("--data", ".", "--seed", -1), "--seed -1: expected a number from 0"),
        (("--data", ".", "--store", "there"), "--store there: already exists"),
    ],
)
def test_errors_are_one_line(recipe, tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    idx(tmp_path / recipe.LABELS, np.arange(3))
    with pytest.raises(SystemExit, match="2"):
        run(recipe, monkeypatch, "--store", "out.zarr", *options)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.zarr").exists()


@pytest.fixture
def training_files(recipe, shared_data, tmp_path):
    """A folder with MNIST's training files, and no test files."""
    for name in (recipe.IMAGES, recipe.LABELS):
        (tmp_path / name).symlink_to(shared_data(name))
    return tmp_path


def test_mnist_s_training_digits_come_first_then_deformed_ones(recipe, training_files, tmp_path, monkeypatch):
    store, start, rows = tmp_path / "m.zarr", 59_000, 3_000
    run(recipe, monkeypatch, "--data", training_files, "--store", store, "--start", start, "--rows", rows)
    images, labels = recipe.load_digits(training_files)
    found = Store.open(store)
    X = found.read(0, rows).dense()
    np.testing.assert_array_equal(X[:1000], images[start:])
    np.testing.assert_array_equal(found.y[:1000], labels[start:])
    assert np.bincount(found.y[1000:], minlength=10).min() > 140
    whole, numbered = (recipe.InfiniteDigits(images, which) for which in (labels, np.arange(len(labels))))
    sources = numbered.rows(start, start + rows)[1]
    np.testing.assert_array_equal(found.y, labels[sources])
    np.testing.assert_array_equal(whole.rows(start, start + rows)[0], X)
    assert correlation(X[1000:], images[sources[1000:]]) > 2 * correlation(X[1000:], images[sources[:-1000]])


def correlation(a, b):
    """The mean over rows of the correlation of their pixels."""
    a, b = (m - m.mean(axis=1, keepdims=True) for m in (a.astype(float), b.astype(float)))
    return np.mean(np.sum(a * b, axis=1) / np.sqrt(np.sum(a**2, axis=1) * np.sum(b**2, axis=1)))
