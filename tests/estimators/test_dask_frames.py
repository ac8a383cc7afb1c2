"""dask dataframes: the models of the same rows in memory, of no more than a partition at a time."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from streamsvm import (
    ALFPGMSVC,
    ALFPGMSVR,
    DCSVC,
    DCSVR,
    HSSSVC,
    HSSSVR,
    AutoSVC,
    BudgetedSVC,
    BudgetedSVR,
    CuttingPlaneOneClassSVM,
    CuttingPlaneRanker,
    CuttingPlaneSVC,
    CuttingPlaneSVR,
    DCOneClassSVM,
    Store,
)
from streamsvm.data.sources import CHUNK_BYTES
from streamsvm.errors import DataError

pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")


@pytest.fixture
def whole():
    """Numbers with gaps, true and false, text, categories and times; no partition has all texts."""
    rng = np.random.default_rng(0)
    made = {"a": rng.normal(size=400), "b": rng.random(400) < 0.5, "c": rng.integers(0, 9, 400)}
    frame = pd.DataFrame(made).astype({"c": "Int64"})
    frame.loc[::13, "a"] = np.nan
    frame["text"] = np.where(np.arange(400) < 100, "first", rng.choice(["left", "right", None], 400))
    frame["sort"] = pd.Categorical(rng.choice(["u", "v", "w"], 400), categories=["w", "v", "u", "never"])
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(400) % 90, unit="D")
    frame["y"] = np.where((frame.a.fillna(0) > 0) ^ (frame.text == "left"), "up", "down")
    return frame


@pytest.fixture
def frame(whole):
    return dd.from_pandas(whole, npartitions=4)


COLUMNS = ["a", "b", "c", "text", "sort", "day"]
ESTIMATORS = [
    AutoSVC(search_params={"trials": 1}, random_state=0),
    DCSVC(),
    ALFPGMSVC(),
    HSSSVC(random_state=0),
    BudgetedSVC(random_state=0),
    CuttingPlaneSVC(),
    CuttingPlaneRanker(),
    DCSVR(),
    ALFPGMSVR(),
    HSSSVR(polish=1000, random_state=0),
    BudgetedSVR(random_state=0),
    CuttingPlaneSVR(),
    DCOneClassSVM(),
    CuttingPlaneOneClassSVM(),
]


@pytest.mark.filterwarnings("ignore:X. a column has missing values:UserWarning")
@pytest.mark.filterwarnings("ignore:rows lie .* from the origin:UserWarning")  # days, of the linear one-class SVM
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_the_model_is_that_of_the_frame_in_memory(estimator, whole, frame):
    y = "b" if type(estimator).__name__.endswith("SVR") else "y"
    if "scale" in estimator.get_params() and not isinstance(estimator, CuttingPlaneOneClassSVM):
        estimator = clone(estimator).set_params(scale="standard")
    here = clone(estimator).fit(whole[COLUMNS], whole[y].astype(float) if y == "b" else whole[y])
    there = clone(estimator).fit(frame[COLUMNS], frame[y].astype(float) if y == "b" else frame[y])
    assert there.model_.layout == here.model_.layout
    answers = there.predict(frame[COLUMNS])
    assert answers.chunks == ((100,) * 4,)
    if y == "b":  # products of 100 rows and of 400 may be rounded differently
        np.testing.assert_allclose(answers.compute(), here.predict(whole[COLUMNS]), rtol=1e-4, atol=1e-6)
    else:
        np.testing.assert_array_equal(answers.compute(), here.predict(whole[COLUMNS]))
    decide = "predict" if y == "b" else "decision_function"
    np.testing.assert_array_equal(getattr(there, decide)(whole[COLUMNS]), getattr(here, decide)(whole[COLUMNS]))


def test_weights_of_dask_are_those_of_memory(whole, frame):
    columns = ["b", "sort"]
    for svm, y in ((DCOneClassSVM(), None), (DCSVC(), "y")):
        here = clone(svm).fit(whole[columns], y and whole[y], sample_weight=whole["c"].astype(float))
        there = clone(svm).fit(frame[columns], y and frame[y], sample_weight=frame["c"].astype(float))
        np.testing.assert_array_equal(there.decision_function(whole[columns]), here.decision_function(whole[columns]))


@pytest.mark.parametrize("names", [["a", "c"], COLUMNS, ["wide", "sort"]], ids=str)
def test_blocks_are_those_of_the_frame_in_memory_however_partitions_are_cut(whole, names):
    """Dense and sparse, with partitions that are smaller and larger than a block, and an empty one."""
    whole["wide"] = [f"text {i % 97}" for i in range(400)]
    here = Store.from_arrays(whole[names])
    for frame in (
        dd.from_pandas(whole, npartitions=7),
        dd.concat([dd.from_pandas(part, npartitions=1) for part in (whole[:390], whole[:0], whole[390:])]),
    ):
        there = Store.from_arrays(frame[names])
        assert (there.blocks(), there.nbytes, there.chunk_rows) == (
            here.blocks(),
            here.nbytes,
            here.chunk_rows,
        )
        assert there.is_sparse == here.is_sparse == ("wide" in names)
        assert (there.attrs, there.feature_names) == (here.attrs, here.feature_names)
        assert there.fingerprint() == here.fingerprint()
        copy = pickle.loads(pickle.dumps(there))
        for start, stop in ((0, 400), (3, 9), (350, 395), (7, 7), (400, 400)):
            expected = here.read(start, stop).dense()
            np.testing.assert_array_equal(there.read(start, stop).dense(), expected)
            np.testing.assert_array_equal(copy.read(start, stop).dense(), expected)


def test_unknown_categories_are_those_that_partitions_have(whole, frame):
    unknown = frame.assign(sort=frame["sort"].cat.as_unknown())
    assert (
        Store.from_arrays(unknown[["sort"]]).feature_names
        == Store.from_arrays(whole[["sort"]]).feature_names
        == tuple(f"sort={name}" for name in dict.fromkeys(whole["sort"]))
    )


def test_no_more_than_a_partition_is_in_memory(frame):
    seen = []

    def watched(part):
        seen.append(len(part))
        return part

    X = frame[COLUMNS].map_partitions(watched, meta=frame[COLUMNS]._meta)
    store = Store.from_arrays(X)
    assert seen == [100] * 4
    seen.clear()
    assert len(store.read(120, 130)) == len(store.read(130, 140)) == 10
    assert seen == [100]  # the last one is kept
    assert len(store.read(0, 400)) == 400
    assert seen[1:] == [100] * 4
    assert store.n * store.d * 4 < CHUNK_BYTES


def test_batches_are_encoded_as_the_first(frame, whole):
    whole = whole.fillna({"a": 0.0})
    frame = dd.from_pandas(whole, npartitions=4)
    there, here = (BudgetedSVC(gamma=0.5, random_state=0) for _ in range(2))
    for part in (slice(None, 199), slice(200, None)):
        there.partial_fit(
            frame.loc[part][COLUMNS], frame.loc[part]["y"], classes=["down", "up"]
        )  # by label, the end included
        here.partial_fit(whole.loc[part][COLUMNS], whole.loc[part]["y"], classes=["down", "up"])
    np.testing.assert_array_equal(there.predict(frame[COLUMNS]).compute(), here.predict(whole[COLUMNS]))


class TestOtherColumns:
    @pytest.fixture
    def svm(self, whole):
        return DCSVC(scale="standard", gaps="mean").fit(whole[COLUMNS], whole["y"])

    def test_are_refused_as_those_of_frames_in_memory(self, svm, frame):
        X = frame[COLUMNS]
        for other, told in (
            (X[COLUMNS[::-1]], "same order"),
            (X[COLUMNS[1:]], "now missing"),
            (X.rename(columns={"a": "z"}), "unseen at fit time"),
        ):
            with pytest.raises(ValueError, match=f"feature names should match.*(\n.*)*{told}"):
                svm.predict(other)

    def test_of_a_store_are_found_by_name(self, whole, frame):
        whole = whole.fillna({"a": 0.0})
        svm = DCSVC(scale="standard").fit(Store.from_arrays(whole[COLUMNS], whole["y"]))
        turned = dd.from_pandas(whole, npartitions=3)[COLUMNS[::-1]]
        np.testing.assert_array_equal(svm.predict(turned).compute(), svm.predict(whole[COLUMNS]))
        with pytest.raises(DataError, match="X lacks column 'day', which the model was trained on"):
            svm.predict(frame[COLUMNS[:-1]])

    def test_of_text_are_none_of_an_array(self, frame):
        svm = DCSVC().fit(np.eye(4), [0, 1, 0, 1])
        with (
            pytest.warns(UserWarning, match="X has feature names"),
            pytest.raises(ValueError, match="X has 8 columns, the model was trained on 4"),
        ):
            svm.predict(frame[["a", "b", "sort", "text"]])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1], [2], [3], [4]], "column 'x' holds list<.*>; expected numbers, times or text"),
        ([1, 2, "u", "v"], "column 'x' holds number and text in different partitions of X"),
        ([1.0, 2.0, 3.0, np.inf], "a partition of X:1: column 'x' is inf; expected a finite number"),
    ],
)
def test_other_things_are_named(column, message):
    dtype = None if isinstance(column[0], float) else object
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("dask").config.config, "dataframe", {"convert-string": False})
        frame = dd.from_pandas(pd.DataFrame({"x": pd.Series(column, dtype=dtype)}), npartitions=2)
        with pytest.raises(DataError, match=message):
            DCSVC().fit(frame, [0, 1, 0, 1])
