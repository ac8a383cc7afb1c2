"""The demo's digits: deformed in blocks, reproducible, the test digits untouched."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import demo
from streamsvm.demo import deform, expand, load_digits, write_stores


@pytest.fixture(scope="module")
def split():
    return load_digits(seed=0)


def test_training_and_test_digits_are_all_digits_once(split):
    from sklearn.datasets import load_digits as original

    images, labels = original(return_X_y=True)
    both = np.concatenate([part.images for part in split])
    assert (len(split[0].labels), len(split[1].labels)) == (1438, 359)
    assert np.array_equal(np.sort(both.sum(axis=1)), np.sort(np.rint(images * 255 / 16).sum(axis=1).astype(int)))
    assert np.array_equal(np.bincount(np.concatenate([part.labels for part in split])), np.bincount(labels))


def test_a_block_depends_on_seed_and_number_alone(split):
    many = [block.images for block in expand(split[0], 2 * demo.BLOCK_ROWS + 10, seed=3)]
    few = [block.images for block in expand(split[0], 2 * demo.BLOCK_ROWS, seed=3)]
    assert [len(block) for block in many] == [demo.BLOCK_ROWS, demo.BLOCK_ROWS, 10]
    assert np.array_equal(many[0], few[0])
    assert np.array_equal(many[1], few[1])
    assert not np.array_equal(many[0], many[1])
    assert not np.array_equal(next(expand(split[0], 100, seed=4)).images, many[0][:100])


def test_deformed_digits_are_other_images_of_the_same_digit(split):
    images = split[0].images[:500]
    deformed = deform(images, np.random.default_rng(0))
    assert deformed.dtype == np.uint8
    assert not (deformed == images).all(axis=1).any()

    def distance(a, b):
        return np.linalg.norm(a.astype(float) - b, axis=1)

    others = np.roll(images, 1, axis=0)
    assert np.median(distance(deformed, images)) < 0.6 * np.median(distance(others, images))


def test_no_deformation_is_the_image_itself(split):
    class Zeros:
        def normal(self, loc, scale, size):
            return np.zeros(size)

    assert np.array_equal(deform(split[0].images[:50], Zeros()), split[0].images[:50])


def test_stores_hold_the_expanded_and_the_untouched(tmp_path, split):
    train, test = write_stores(tmp_path, 9000)
    assert (train.n, train.d, train.dtype) == (9000, 64, np.uint8)
    assert np.array_equal(test.read(0, test.n).X, split[1].images)
    assert np.array_equal(test.y, split[1].labels)
    first = next(expand(split[0], 9000))
    assert np.array_equal(train.read(0, 100).X, first.images[:100])
    assert np.array_equal(train.y[:100], first.labels[:100])
