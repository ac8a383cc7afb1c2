"""DCSVC: scikit-learn's habits, and one model whatever holds the rows."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from streamsvm import DCSVC

# SVC fails the same two, for the same reasons: models agree within tol, the check asks for 1e-9
AS_SVC = {
    f"check_sample_weight_equivalence_on_{layout}_data": "equal within tol, and gamma='scale' ignores weights"
    for layout in ("dense", "sparse")
}
DIVIDED = {"levels": 1, "part_rows": 64}


@parametrize_with_checks(
    [DCSVC(), DCSVC(early=True, **DIVIDED), DCSVC(**DIVIDED, clustering="kernel")],
    expected_failed_checks=lambda _: AS_SVC,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
